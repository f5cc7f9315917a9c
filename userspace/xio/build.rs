// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the kernels for this computer's processor, and embeds those for GPUs that `kernels/build` left in
//! `target/kernels` (or `$XIO_KERNELS`). Without a C++ compiler, and without kernels there, the library has none and
//! says so when asked for them.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rustc-check-cfg=cfg(xio_host_kernels)");
    println!("cargo::rerun-if-env-changed=XIO_KERNELS");
    println!("cargo::rerun-if-changed={}", repository.join("kernels").display());
    host(&repository.join("kernels/host.cpp"));
    let folder = env::var_os("XIO_KERNELS").map_or_else(|| repository.join("target/kernels"), PathBuf::from);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("code.rs");
    fs::write(&out, code(&folder)).expect("the output folder is writable");
}

fn host(source: &Path) {
    let mut build = cc::Build::new();
    build.cpp(true).cpp_link_stdlib(None).std("c++17").file(source).opt_level(2);
    build.flag_if_supported("-fno-exceptions").flag_if_supported("-fno-rtti");
    match build.try_compile("xio_host_kernels") {
        Ok(()) => println!("cargo::rustc-cfg=xio_host_kernels"),
        Err(error) => println!("cargo::warning=no kernels for the host, since they do not compile: {error}"),
    }
}

/// A table of name and bytes as Rust source.
fn code(folder: &Path) -> String {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect())
        .unwrap_or_default();
    files.retain(|file| {
        ["co", "cubin", "ptx"].iter().any(|kind| file.extension().is_some_and(|e| e == *kind))
    });
    files.sort();
    if folder.is_dir() {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    let mut out = String::from("pub(super) const CODE: &[(&str, &[u8])] = &[\n");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = file.canonicalize().unwrap_or(file);
        // Writing to a string does not fail.
        let _ = writeln!(out, "    ({name:?}, include_bytes!({:?})),", file.display().to_string());
    }
    out + "];\n"
}
