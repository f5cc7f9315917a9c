// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a C compiler makes of a header, compared with Rust number by number.

use crate::ctype::CType;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};
use xio_uapi::{iowr, CONSTANTS, IOC_TYPE, LAYOUTS};

/// A number that C and Rust must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// How C asks for it.
    pub c: String,
    /// What it is in Rust.
    pub value: u64,
}

/// Every number of the interface: sizes, offsets, element counts, signs, constants, ioctl numbers.
pub fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: String, c: String, value: u64| facts.push(Fact { name, c, value });
    for s in LAYOUTS {
        let c = format!("struct {}", s.name);
        add(format!("sizeof {c}"), format!("sizeof({c})"), s.size as u64);
        for f in s.fields {
            let ty = CType::of(f.ty);
            let name = format!("{c}.{}", f.name);
            let place = format!("(({c} *)0)->{}", f.name);
            let element = if ty.len.is_some() { format!("{place}[0]") } else { place.clone() };
            add(format!("offset of {name}"), format!("offsetof({c}, {})", f.name), f.offset as u64);
            add(format!("size of {name}"), format!("sizeof({place})"), f.size as u64);
            add(format!("element size of {name}"), format!("sizeof({element})"), u64::from(ty.bits / 8));
            add(format!("sign of {name}"), format!("(__typeof__({element}))-1 < 0"), u64::from(ty.signed));
        }
        if let Some((request, nr)) = s.request {
            let c = format!("XIO_IOC_{request}");
            add(c.clone(), c, u64::from(iowr(nr, s.size)));
        }
    }
    add("XIO_IOC_TYPE".into(), "XIO_IOC_TYPE".into(), u64::from(IOC_TYPE));
    for k in CONSTANTS {
        let (c, ty) = (format!("XIO_{}", k.name), CType::of(k.ty));
        add(c.clone(), c.clone(), k.value);
        add(format!("size of {c}"), format!("sizeof({c})"), u64::from(ty.bits / 8));
        add(format!("sign of {c}"), format!("(__typeof__({c}))-1 < 0"), u64::from(ty.signed));
    }
    facts
}

const INCLUDES: &str = "#include <stddef.h>\n#include \"rocm_xio.h\"\n";

/// A program that prints every fact, one per line, in the order given.
pub fn printing_program(facts: &[Fact]) -> String {
    let mut out = format!("#include <stdio.h>\n{INCLUDES}\nint main(void)\n{{\n");
    for fact in facts {
        let _ = writeln!(out, "\tprintf(\"%llu\\n\", (unsigned long long)({}));", fact.c);
    }
    out + "\treturn 0;\n}\n"
}

/// A program that compiles only when every fact holds; `assert` is the language's static assertion.
pub fn asserting_program(facts: &[Fact], assert: &str) -> String {
    let mut out = String::from(INCLUDES);
    for fact in facts {
        let (c, value, name) = (&fact.c, fact.value, &fact.name);
        let _ = writeln!(out, "{assert}((unsigned long long)({c}) == {value}ULL, \"{name}\");");
    }
    out
}

/// A folder for a header and the programs that use it; removed when dropped.
pub struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    /// Makes the folder with `header` in it; `name` must be unique among tests.
    pub fn new(name: &str, header: &str) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("xio-layout-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("rocm_xio.h"), header)?;
        Ok(Self { folder })
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes `source` to `file` and runs `compiler` on it in the folder.
    pub fn compile(&self, compiler: &str, flags: &[&str], file: &str, source: &str) -> io::Result<Output> {
        fs::write(self.folder.join(file), source)?;
        Command::new(compiler).current_dir(&self.folder).args(flags).arg(file).output()
    }

    /// Compiles and runs a program that prints `facts`; returns what differs, in words.
    pub fn differences(&self, compiler: &str, facts: &[Fact]) -> io::Result<Vec<String>> {
        let flags = ["-std=gnu11", "-o", "probe"];
        let built = self.compile(compiler, &flags, "probe.c", &printing_program(facts))?;
        if !built.status.success() {
            return Ok(vec![String::from_utf8_lossy(&built.stderr).into_owned()]);
        }
        let run = Command::new(self.folder.join("probe")).output()?;
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let printed: Vec<&str> = text.lines().collect();
        if printed.len() != facts.len() {
            return Ok(vec![format!("{} numbers expected, {} printed", facts.len(), printed.len())]);
        }
        let differs = |(fact, c): (&Fact, &&str)| {
            let Fact { name, value, .. } = fact;
            (c.parse() != Ok(*value)).then(|| format!("{name}: {c} in C, {value} in Rust"))
        };
        Ok(facts.iter().zip(&printed).filter_map(differs).collect())
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
