// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio-target`: a software NVMe Key Value controller for virtual machines.
#![forbid(unsafe_code)]

mod cli;
mod control;
mod file;
mod serve;

use clap::Parser;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match cli::Cli::parse().command {
        cli::Command::Serve(options) => {
            cli::log_to_stderr(options.verbose);
            serve::serve(&options)
        }
        cli::Command::Ctl(options) => ctl(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be listening.
            let _ = writeln!(io::stderr(), "xio-target: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks a running program and prints its answer.
fn ctl(options: &cli::Ctl) -> io::Result<()> {
    let answer = control::ask(&options.control, &options.request()?)?;
    println!("{answer:#}");
    Ok(())
}
