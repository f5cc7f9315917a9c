// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a C++ compiler makes of the header of device code, compared with Rust.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use xio_device_abi::wire;
use xio_layout::{device, probe::Workshop, repository};

/// A program that prints every size, offset and constant.
fn program() -> (String, Vec<(String, u64)>) {
    let mut facts = Vec::new();
    for s in device::structures() {
        facts.push((format!("sizeof({})", s.name), s.size as u64));
        facts.push((format!("alignof({})", s.name), s.align as u64));
        for m in s.members {
            facts.push((format!("offsetof({}, {})", s.name, m.name), m.offset as u64));
        }
    }
    for c in wire::constants() {
        facts.push((c.name.to_owned(), c.value));
        facts.push((format!("sizeof({})", c.name), if c.ty == "u64" { 8 } else { 4 }));
    }
    let mut source = String::from("#include <stdio.h>\n#include \"xio_kv_wire.h\"\nint main() {\n");
    for (fact, _) in &facts {
        let _ = writeln!(source, "    printf(\"%llu\\n\", (unsigned long long)({fact}));");
    }
    (source + "    return 0;\n}\n", facts)
}

fn include() -> PathBuf {
    repository().join("kernels/include")
}

#[test]
fn cpp_agrees_on_every_number_of_device_code() {
    let workshop = Workshop::new("device", "").unwrap();
    let (source, facts) = program();
    let include = format!("-I{}", include().display());
    let flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", &include, "-o", "probe"];
    let built = workshop.compile("c++", &flags, "probe.cc", &source).unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(workshop.folder().join("probe")).output().unwrap();
    let printed: Vec<u64> =
        String::from_utf8_lossy(&run.stdout).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(printed.len(), facts.len());
    for ((fact, rust), cpp) in facts.iter().zip(printed) {
        assert_eq!(*rust, cpp, "{fact}");
    }
}

#[test]
fn a_changed_structure_does_not_compile() {
    let changed = device::render().replace("uint32_t entries;", "uint32_t entries;\n    uint32_t added;");
    let workshop = Workshop::new("device-changed", "").unwrap();
    std::fs::write(workshop.folder().join("changed.h"), changed).unwrap();
    let built = workshop
        .compile("c++", &["-std=c++17", "-fsyntax-only"], "c.cc", "#include \"changed.h\"\n")
        .unwrap();
    assert!(!built.status.success(), "the static assertions did not notice a new member");
}
