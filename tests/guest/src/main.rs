// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of a test machine. It mounts what a program expects, runs the group of tests that the
//! kernel's command line names, reports on the second serial line and powers off.
//!
//! * [`report`]: test cases and their reports; [`host`]: asking the host for something
//! * [`kernel`]: modules, messages; [`pci`]: functions and drivers; [`fs`]: files and waiting
//! * [`user`]: being an ordinary user; [`command`]: running programs; [`session`]: parts of tests as processes
//! * [`mapper`]: mapped devices; [`raw`]: the device node as it is; [`fakegpu`]: a driver that shares its memory
//! * [`tests`]: the tests themselves, [`demo`]: the demonstration, [`shell`]: the prompt
//!
//! Command line: `xio.test=GROUP[,ARG…]` or `xio.shell`; `xio.modules=NAME[,NAME…]` are loaded before.

mod command;
mod demo;
mod fakegpu;
mod fs;
mod host;
mod kernel;
mod mapper;
mod memory;
mod passthrough;
mod pci;
mod random;
mod raw;
mod report;
mod session;
mod shell;
mod tests;
mod user;

use anyhow::{Context, Result};
use nix::mount::{mount, MsFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::resource::{setrlimit, Resource};
use report::Report;
use std::process::ExitCode;

/// Bytes that a process may pin.
const PINNED_LIMIT: u64 = 256 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, rest @ ..] = arguments.as_slice() {
        if role == user::ROLE {
            let error = user::become_user_and_run(rest);
            eprintln!("xio-guest: {error:#}");
            return ExitCode::from(125);
        }
    }
    if let [_, role, rest @ ..] = arguments.as_slice() {
        if role == session::ROLE {
            return session::main(rest);
        }
    }
    if std::process::id() != 1 {
        eprintln!("xio-guest is the init of a test machine; boot one with ./scripts/test or ./scripts/demo");
        return ExitCode::FAILURE;
    }
    if let Err(error) = init() {
        println!("xio-guest: {error:#}");
    }
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(error) => {
            println!("xio-guest: power-off failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn init() -> Result<()> {
    mount_all()?;
    // As an administrator allows it to those who pin memory.
    setrlimit(Resource::RLIMIT_MEMLOCK, PINNED_LIMIT, PINNED_LIMIT).context("RLIMIT_MEMLOCK")?;
    std::env::set_var("PATH", "/bin");
    command::run(&["/bin/busybox", "--install", "-s", "/bin"])?.expect_success()?;
    let line = std::fs::read_to_string("/proc/cmdline")?;
    for module in word(&line, "xio.modules=").into_iter().flat_map(|list| list.split(',')) {
        kernel::modprobe(module)?;
    }
    if line.split_whitespace().any(|word| word == "xio.shell") {
        return shell::run();
    }
    let test = word(&line, "xio.test=").context("the kernel's command line has no xio.test=")?;
    let mut report = Report::open("/dev/ttyS1")?;
    let mut words = test.split(',');
    let group = words.next().unwrap_or_default();
    tests::run(group, &words.collect::<Vec<_>>(), &mut report);
    report.finish()
}

fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key))
}

fn mount_all() -> Result<()> {
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("debugfs", "/sys/kernel/debug"),
    ] {
        let data = (kind == "tmpfs").then_some("mode=1777");
        mount(Some(kind), target, Some(kind), MsFlags::empty(), data)
            .with_context(|| format!("mounting {target}"))?;
    }
    std::fs::create_dir_all("/dev/shm")?;
    let data = Some("mode=1777");
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), data).context("mounting /dev/shm")
}
