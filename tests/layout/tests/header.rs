// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kept header against the Rust source, in the eyes of C and C++ compilers.

use std::fs;
use xio_layout::probe::{asserting_program, facts, Workshop};
use xio_layout::{generated, header, repository};

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];

fn kept_header() -> String {
    fs::read_to_string(repository().join("uapi/include/rocm_xio.h")).unwrap()
}

#[test]
fn generated_files_are_current() {
    for file in generated() {
        assert!(file.is_current(), "{} is stale: cargo run -p xio-layout --bin gen-header", file.path);
    }
}

#[test]
fn c_sees_the_sizes_offsets_and_numbers_of_rust() {
    let facts = facts();
    assert!(facts.len() > 350, "only {} facts", facts.len());
    let differences = Workshop::new("same", &kept_header()).unwrap().differences("cc", &facts).unwrap();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Changes that a hand-edited or stale header could have; each must be found, and named.
#[test]
fn a_changed_header_is_detected() {
    let changes = [
        ("__u64 cap;", "__u32 cap;", "size of struct xio_get_info.cap"),
        ("__s32 eventfd;", "__u32 eventfd;", "sign of struct xio_queue_create.eventfd"),
        (
            "__u8 pci_bus;\n\t__u8 pci_device;",
            "__u8 pci_device;\n\t__u8 pci_bus;",
            "offset of struct xio_get_info.pci_bus",
        ),
        (
            "__u8 serial[20];\n\t__u8 model[40];",
            "__u8 serial[40];\n\t__u8 model[20];",
            "size of struct xio_get_info.model",
        ),
        ("__u16 controller_id;", "__s16 controller_id;", "sign of struct xio_get_info.controller_id"),
        ("__u32 reserved[9];", "__u32 reserved[10];", "sizeof struct xio_buffer_alloc"),
        ("XIO_IOC_TYPE, 0x03", "XIO_IOC_TYPE, 0x07", "XIO_IOC_QUEUE_DESTROY"),
        ("XIO_LIST_ENTRIES 511U", "XIO_LIST_ENTRIES 512U", "XIO_LIST_ENTRIES"),
        ("XIO_FEATURE_EVENTFD 0x2ULL", "XIO_FEATURE_EVENTFD 0x2", "size of XIO_FEATURE_EVENTFD"),
        ("XIO_NO_EVENTFD (-1)", "XIO_NO_EVENTFD 0xffffffffU", "sign of XIO_NO_EVENTFD"),
    ];
    let (facts, header) = (facts(), kept_header());
    for (i, (from, to, name)) in changes.iter().enumerate() {
        let changed = header.replacen(from, to, 1);
        assert_ne!(changed, header, "the header has no `{from}`");
        let workshop = Workshop::new(&format!("changed{i}"), &changed).unwrap();
        let found = workshop.differences("cc", &facts).unwrap();
        assert!(found.iter().any(|d| d.starts_with(&format!("{name}:"))), "{to}: found only {found:#?}");
    }
}

#[test]
fn a_strict_c99_compiler_takes_the_header() {
    let source =
        "#include \"rocm_xio.h\"\n#include \"rocm_xio.h\"\nint main(void) { return XIO_ABI_VERSION == 0; }\n";
    let flags = [&["-std=c99"], &STRICT[..]].concat();
    let out =
        Workshop::new("c99", &header::render()).unwrap().compile("cc", &flags, "strict.c", source).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_strict_cpp17_compiler_takes_the_header() {
    let source = "#include \"rocm_xio.h\"\nint main() { xio_get_info info = {}; info.size = sizeof info; \
                  return info.size == XIO_IOC_GET_INFO; }\n";
    let flags = [&["-std=c++17"], &STRICT[..]].concat();
    let out =
        Workshop::new("cpp", &header::render()).unwrap().compile("c++", &flags, "strict.cc", source).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// On x86 a 32-bit compiler aligns 64-bit fields to 4 bytes only.
#[test]
#[ignore = "not every compiler can do it; `scripts/test layout` finds out"]
fn a_32_bit_compiler_agrees() {
    let workshop = Workshop::new("m32", &kept_header()).unwrap();
    let include = "/usr/include/x86_64-linux-gnu";
    let flags = ["-m32", "-std=gnu11", "-fsyntax-only", "-isystem", include];
    let source = asserting_program(&facts(), "_Static_assert");
    let out = workshop.compile("cc", &flags, "narrow.c", &source).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
