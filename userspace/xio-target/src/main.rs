// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio-target`: a software NVMe Key Value controller for virtual machines.
#![forbid(unsafe_code)]

mod cli;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use xio_target::vfio::{Listener, Server};

fn main() -> ExitCode {
    let cli::Command::Serve(options) = cli::Cli::parse().command;
    cli::log_to_stderr(options.verbose);
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "xio-target: {}: {error}", options.socket.display());
            ExitCode::FAILURE
        }
    }
}

/// Serves clients until a signal asks for the end.
fn serve(options: &cli::Serve) -> io::Result<()> {
    // Before there are threads, so that they inherit the mask and the signals come here.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let mut server = Server::new(options.config())?;
    let listener = Listener::bind(&options.socket)?;
    log::info!("listening on {}", options.socket.display());
    server.run(&listener, stop.as_fd())
}
