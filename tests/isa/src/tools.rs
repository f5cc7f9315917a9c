// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler and the disassembler: clang and llvm-objdump 22, as Debian packages them.

use crate::arch::Arch;
use crate::error::{Error, Result};
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Major version of LLVM that code objects are built with.
pub const LLVM: &str = "22";

/// Programs that were found.
#[derive(Clone, Debug)]
pub struct Tools {
    clang: PathBuf,
    objdump: PathBuf,
}

/// First executable file of one of these names in `PATH`.
fn find(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let at = |name: &&str| env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    names.iter().find_map(at)
}

fn run(program: &Path, args: &[&OsStr]) -> Result<Vec<u8>> {
    let command = || {
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        format!("{} {}", program.display(), args.join(" "))
    };
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| Error::Tool { command: command(), output: e.to_string() })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::Tool { command: command(), output })
    }
}

impl Tools {
    /// Finds them.
    pub fn find() -> Result<Self> {
        let (clang, objdump) = (format!("clang++-{LLVM}"), format!("llvm-objdump-{LLVM}"));
        let need = |name: &String| find(&[name]).ok_or_else(|| Error::Missing(name.clone()));
        Ok(Self { clang: need(&clang)?, objdump: need(&objdump)? })
    }

    /// Compiles HIP source for an architecture, without any header of HIP, into a plain code object. `flags` are
    /// further options.
    pub fn compile(&self, arch: Arch, source: &Path, flags: &[&str], to: &Path) -> Result<()> {
        let mut args: Vec<String> = [
            "-x",
            "hip",
            &format!("--offload-arch={arch}"),
            "--cuda-device-only",
            "-nogpuinc",
            "-nogpulib",
            "--no-gpu-bundle-output",
            "-std=c++17",
            "-Wall",
            "-Werror",
        ]
        .map(str::to_owned)
        .into();
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        args.extend([OsStr::new("-c"), source.as_os_str(), OsStr::new("-o"), to.as_os_str()]);
        run(&self.clang, &args).map(drop)
    }

    /// Text of all instructions.
    pub fn disassemble(&self, object: &Path) -> Result<String> {
        let text = run(&self.objdump, &[OsStr::new("-d"), object.as_os_str()])?;
        String::from_utf8(text).map_err(|_| Error::Object("the disassembly is not text".into()))
    }
}
