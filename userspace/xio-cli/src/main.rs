// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio`: controllers, and values by key.
//!
//! Values and lists go to standard output, messages to standard error, and the exit code says what went wrong
//! (see [`exit::TABLE`]).
#![forbid(unsafe_code)]

mod args;
mod bind;
mod devices;
mod doctor;
mod exit;
mod gpu;
mod input;
mod kv;
mod manifest;
mod many;
mod open;
mod output;
mod progress;
mod runner;
mod selftest;
mod system;
mod top;

use args::{Args, Command};
use clap::Parser;
use exit::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Wrong arguments end the process with code 2 here, --help and --version with 0.
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.message() {
                output::message(&format!("xio: {text}"));
            }
            ExitCode::from(failure.code())
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List { output } => devices::list(&args.global, *output),
        Command::Info { controller, output } => devices::info(&args.global, controller.as_ref(), *output),
        Command::Bind { address } => bind::bind(*address),
        Command::Unbind { address } => bind::unbind(*address),
        Command::Doctor { output } => doctor::run(*output),
        Command::Gpu { output, command } => gpu::run(&args.global, command.as_ref(), *output),
        Command::Top(top) => top::run(&args.global, top),
        Command::Kv { command } => kv::run(&args.global, command),
    }
}
