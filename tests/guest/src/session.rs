// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients: parts of tests that run as a process of their own, mostly as the ordinary user. A client may say
//! `ready` and wait for the test to go on.

use crate::command::{self, Finished};
use crate::{fs, tests, user};
use anyhow::{bail, ensure, Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The first argument of a client.
pub const ROLE: &str = "--client";
const LIMIT: Duration = Duration::from_secs(60);

/// A client by name: gets its arguments.
pub type Client = fn(&[&str]) -> Result<()>;

/// Being a client: `NAME ARG…`.
pub fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.split_first() {
        Some((name, rest)) => match tests::client(name) {
            Some(client) => client(rest),
            None => Err(anyhow::anyhow!("there is no client {name}")),
        },
        None => Err(anyhow::anyhow!("no client named")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// In a client: says that it is ready and waits for the test.
pub fn ready() -> Result<()> {
    println!("ready");
    let mut line = String::new();
    ensure!(std::io::stdin().read_line(&mut line)? > 0, "the test went away");
    Ok(())
}

/// Runs a client as the ordinary user to its end, which must be a success.
pub fn run(words: &[&str]) -> Result<Finished> {
    run_within(words, command::LIMIT)
}

/// The same with another deadline.
pub fn run_within(words: &[&str], limit: Duration) -> Result<Finished> {
    user::run_within(&[&["/init", ROLE], words].concat(), limit)?.expect_success()
}

/// Runs a client as root to its end, which must be a success.
pub fn run_as_root(words: &[&str]) -> Result<Finished> {
    command::run(&[&["/init", ROLE], words].concat())?.expect_success()
}

/// A client that is running.
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

impl Session {
    /// Starts a client as the ordinary user and waits until it is ready.
    pub fn start(words: &[&str]) -> Result<Self> {
        let session = Self::spawn(words)?;
        session.wait_ready()?;
        Ok(session)
    }

    /// Starts a client as the ordinary user.
    pub fn spawn(words: &[&str]) -> Result<Self> {
        Self::spawn_program(&user::wrapped(&[&["/init", ROLE], words].concat()))
    }

    /// Starts a client as root and waits until it is ready.
    pub fn start_as_root(words: &[&str]) -> Result<Self> {
        let session = Self::spawn_program(&[&["/init", ROLE], words].concat())?;
        session.wait_ready()?;
        Ok(session)
    }

    fn spawn_program(words: &[&str]) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no program")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("no output")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Ends with the client, or when nobody listens any more.
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, input, lines, name: words.join(" ") })
    }

    /// The next line that the client prints.
    pub fn line(&self) -> Result<String> {
        match self.lines.recv_timeout(fs::longer(LIMIT)) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("`{}` said nothing for {LIMIT:?}", self.name),
            Err(RecvTimeoutError::Disconnected) => bail!("`{}` ended", self.name),
        }
    }

    /// Waits until the client is ready.
    pub fn wait_ready(&self) -> Result<()> {
        let line = self.line()?;
        ensure!(line == "ready", "`{}` said {line:?} instead of ready", self.name);
        Ok(())
    }

    /// Lets the client go on.
    pub fn go_on(&mut self) -> Result<()> {
        let input = self.input.as_mut().context("no input")?;
        input.write_all(b"\n").with_context(|| format!("`{}` went away", self.name))
    }

    /// Lets the client go on, and expects it to end with success.
    pub fn finish(mut self) -> Result<()> {
        self.go_on()?;
        self.end()
    }

    /// Expects the client to end with success by itself.
    pub fn end(mut self) -> Result<()> {
        let code = command::wait_within(&mut self.child, LIMIT)?;
        ensure!(code == 0, "`{}` ended with {code}, see its messages above", self.name);
        Ok(())
    }

    /// Kills the client with SIGKILL and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait().context("waiting for a killed client").map(drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A client that ended already can not be killed, which is as well.
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}
