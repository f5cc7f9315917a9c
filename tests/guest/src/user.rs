// SPDX-License-Identifier: MIT OR Apache-2.0
//! Being an ordinary user: this program starts itself again in a role that gives up root for good and then
//! executes the program wanted.
#![allow(dead_code)] // a toolbox: not each tool is in use at any time

use crate::command::{self, Finished};
use anyhow::{anyhow, Context, Result};
use nix::unistd::{setgid, setgroups, setresuid, setsid, Gid, Uid};
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// The ordinary user's id, and that of its own group.
pub const UID: u32 = 1000;
/// The group `render`, which may open the device nodes.
pub const RENDER: u32 = 105;
/// The first argument of the role.
pub const ROLE: &str = "--as-user";
const NO_GROUP: &str = "none";

/// Runs a program as the ordinary user in group `render`.
pub fn run(words: &[&str]) -> Result<Finished> {
    run_within(words, command::LIMIT)
}

/// The same with another deadline.
pub fn run_within(words: &[&str], limit: Duration) -> Result<Finished> {
    spawn_in_role("render", words, limit)
}

/// Runs a program as the ordinary user, who is not in group `render`.
pub fn run_outside_render(words: &[&str]) -> Result<Finished> {
    spawn_in_role(NO_GROUP, words, command::LIMIT)
}

/// The words of a command that runs `words` as the ordinary user in group `render`, for `std::process`.
pub fn wrapped<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["/init", ROLE, "render"], words].concat()
}

fn spawn_in_role(group: &str, words: &[&str], limit: Duration) -> Result<Finished> {
    let all = [&["/init", ROLE, group], words].concat();
    let finished = command::run_within(&all, limit)?;
    Ok(Finished { command: words.join(" "), ..finished })
}

/// The role: `GROUP [--terminal DEVICE] PROGRAM ARG…`. Returns only when it failed.
pub fn become_user_and_run(arguments: &[String]) -> anyhow::Error {
    match try_become_user_and_run(arguments) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn try_become_user_and_run(arguments: &[String]) -> Result<std::convert::Infallible> {
    let (group, mut rest) = arguments.split_first().context("no group named")?;
    if let [option, device, words @ ..] = rest {
        if option == "--terminal" {
            take_terminal(device)?;
            rest = words;
        }
    }
    let (program, arguments) = rest.split_first().context("no program named")?;
    let groups: &[Gid] = if group == NO_GROUP { &[] } else { &[Gid::from_raw(RENDER)] };
    setgroups(groups).context("setgroups")?;
    setgid(Gid::from_raw(UID)).context("setgid")?;
    let uid = Uid::from_raw(UID);
    setresuid(uid, uid, uid).context("setresuid")?;
    let mut command = std::process::Command::new(program);
    command.args(arguments).env("HOME", "/tmp").env("USER", "user").current_dir("/tmp");
    Err(anyhow!(command.exec()).context(format!("executing {program}")))
}

/// Makes a terminal the controlling one and the standard streams: the first that a session leader opens is.
fn take_terminal(device: &str) -> Result<()> {
    setsid().context("setsid")?;
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open(device)?;
    nix::unistd::dup2_stdin(&terminal)?;
    nix::unistd::dup2_stdout(&terminal)?;
    nix::unistd::dup2_stderr(&terminal)?;
    Ok(())
}
