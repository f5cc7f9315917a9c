// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the files that are generated from the interface; with `--check`, only says which are stale.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: gen-header [--check]");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for file in xio_layout::generated().iter().filter(|file| !file.is_current()) {
        if check {
            eprintln!("stale: {} (cargo run -p xio-layout --bin gen-header)", file.path);
            failed = true;
        } else if let Err(error) = std::fs::write(file.full_path(), &file.text) {
            eprintln!("{}: {error}", file.path);
            failed = true;
        } else {
            println!("wrote {}", file.path);
        }
    }
    ExitCode::from(u8::from(failed))
}
