// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test may ask of the host: signals to controllers and commands for QEMU. Requests are answered when
//! they are done; the machine's deadline bounds the wait.
#![allow(dead_code)] // a toolbox: not each tool is in use at any time

use crate::report::Report;
use anyhow::{bail, Result};

fn ask(report: &mut Report, request: &str) -> Result<String> {
    let answer = report.ask(request)?;
    match answer.strip_prefix("done") {
        Some(rest) => Ok(rest.trim().to_owned()),
        None => bail!("the host could not do `{request}`: {answer}"),
    }
}

/// Kills controller `index`.
pub fn kill(report: &mut Report, index: usize) -> Result<()> {
    ask(report, &format!("kill {index}")).map(drop)
}

/// Stops controller `index` as it is.
pub fn stop(report: &mut Report, index: usize) -> Result<()> {
    ask(report, &format!("stop {index}")).map(drop)
}

/// Lets a stopped controller go on.
pub fn cont(report: &mut Report, index: usize) -> Result<()> {
    ask(report, &format!("cont {index}")).map(drop)
}

/// Starts controller `index` anew. QEMU does not reconnect: plug a new device in with [`qmp`].
pub fn restart(report: &mut Report, index: usize) -> Result<()> {
    ask(report, &format!("restart {index}")).map(drop)
}

/// Makes controller `index` misbehave by these rules of `xio-target`, with `;` between them.
pub fn faults(report: &mut Report, index: usize, rules: &str) -> Result<()> {
    ask(report, &format!("faults {index} {rules}")).map(drop)
}

/// Lets it behave again.
pub fn no_faults(report: &mut Report, index: usize) -> Result<()> {
    ask(report, &format!("faults {index}")).map(drop)
}

/// A command for QEMU, in JSON; `@SOCKET<N>@` in it stands for controller N's socket. Gives the reply.
pub fn qmp(report: &mut Report, command: &str) -> Result<String> {
    ask(report, &format!("qmp {command}"))
}
