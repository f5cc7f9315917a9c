// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio-fuzz list`: the decoders; `xio-fuzz seeds FOLDER`: their seeds, a folder each; `xio-fuzz run DECODER FILE…`: inputs that
//! broke something, without a fuzzer.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};
use xio_fuzz::TARGETS;

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => TARGETS.iter().for_each(|target| println!("{}", target.name)),
        ["seeds", folder] => {
            for target in TARGETS {
                let folder = Path::new(folder).join(target.name);
                fs::create_dir_all(&folder)?;
                for (n, seed) in (target.seeds)().iter().enumerate() {
                    fs::write(folder.join(format!("seed-{n}")), seed)?;
                }
            }
        }
        ["run", name, ref files @ ..] => {
            let target = xio_fuzz::target(name).ok_or_else(|| io::Error::other("no such decoder"))?;
            for file in files {
                (target.run)(&fs::read(file)?);
            }
        }
        _ => {
            eprintln!("usage: xio-fuzz list | seeds FOLDER | run DECODER FILE…");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
