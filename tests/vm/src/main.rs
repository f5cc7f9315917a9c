// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio-vm`: runs VM tests, the demonstration, or a shell in a machine like its.

#![forbid(unsafe_code)]

use anyhow::{bail, Result};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xio_vm::accel::Accel;
use xio_vm::cases::{self, Case, CASES};
use xio_vm::run;
use xio_vm::setup::Setup;
use xio_vm::tap::Tally;

#[derive(Parser)]
#[command(about = "Boots virtual machines with software NVMe-KV controllers", version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Lists VM tests: those named, or all.
    List {
        /// Names of cases, or of guest groups.
        names: Vec<String>,
    },
    /// Runs VM tests: those named, or all.
    Run {
        /// Names of cases, or of guest groups.
        names: Vec<String>,
    },
    /// Shows the command line tool at work in a machine, or leaves you at a prompt there.
    Demo {
        /// An interactive prompt as an ordinary user.
        #[arg(long)]
        shell: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Action::List { names } => select(&names).map(|cases| {
            cases.iter().for_each(|case| println!("{}", case.name));
            true
        }),
        Action::Run { names } => select(&names).and_then(|cases| run_cases(&cases)),
        Action::Demo { shell } => demo(shell),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xio-vm: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn select(names: &[String]) -> Result<Vec<&'static Case>> {
    if names.is_empty() {
        return Ok(CASES.iter().filter(|case| !case.is_elsewhere()).collect());
    }
    let mut selected = Vec::new();
    for name in names {
        let group = |case: &&Case| case.guest.split(',').next() == Some(name);
        let found: Vec<_> = match cases::find(name) {
            Some(case) => vec![case],
            None => CASES.iter().filter(group).collect(),
        };
        if found.is_empty() {
            bail!("there is no VM test {name}; `xio-vm list` shows those there are");
        }
        selected.extend(found);
    }
    Ok(selected)
}

fn run_cases(cases: &[&Case]) -> Result<bool> {
    let setup = Setup::load()?;
    let accel = Accel::choose(&setup)?;
    let mut total = Tally::default();
    for case in cases {
        println!("# vm {} ({}, {})", case.name, case.guest, accel.name());
        let word = format!("xio.test={}", case.guest);
        let mut machine = (case.machine)();
        if setup.slow {
            machine = machine.slow();
        }
        let outcome =
            run::reports(&setup, accel, case.name, &word, &machine, &mut |line| println!("  {line}"))?;
        let mut tally = outcome.tally.clone();
        if let Some(fault) = outcome.qemu_fault() {
            println!("  ok - {}: the rest # SKIP since QEMU ended itself: {fault}", case.name);
            tally.skipped += 1;
        } else if let Some(fault) = &outcome.fault {
            println!("  not ok - {}: {fault}", case.name);
            tally.failed += 1;
        }
        if !outcome.is_success() {
            println!("  # logs: {}", outcome.logs.display());
        }
        println!(
            "# vm {}: {} passed, {} failed, {} skipped in {:.1} s",
            case.name,
            tally.passed,
            tally.failed,
            tally.skipped,
            outcome.took.as_secs_f32()
        );
        total.add(&tally);
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    Ok(total.failed == 0)
}

fn demo(shell: bool) -> Result<bool> {
    let setup = Setup::load()?;
    let accel = Accel::choose(&setup)?;
    let machine = cases::demo();
    if shell {
        run::shell(&setup, accel, &machine)?;
        return Ok(true);
    }
    // The guest sends the transcript as comments, and each step's verdict as a test.
    let outcome = run::reports(&setup, accel, "demo", "xio.test=demo", &machine, &mut |line| {
        if let Some(text) = line.strip_prefix("# ") {
            println!("{text}");
        } else if line == "#" {
            println!();
        } else if line.starts_with("not ok ") {
            println!("{line}");
        }
    })?;
    if !outcome.is_success() {
        if let Some(fault) = &outcome.fault {
            eprintln!("xio-vm: the demonstration failed: {fault}");
        }
        eprintln!("xio-vm: {} steps failed; logs: {}", outcome.tally.failed, outcome.logs.display());
    } else {
        println!(
            "demo: all {} steps were right ({}, {:.0} s)",
            outcome.tally.passed,
            accel.name(),
            outcome.took.as_secs_f32()
        );
    }
    Ok(outcome.is_success())
}
