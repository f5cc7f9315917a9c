// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running programs, with a deadline.
#![allow(dead_code)] // a toolbox: not each tool is in use at any time

use crate::fs;
use anyhow::{bail, ensure, Context, Result};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a program may run unless said otherwise.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a program did.
#[derive(Debug)]
pub struct Finished {
    /// What was run.
    pub command: String,
    /// The exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error, as text.
    pub stderr: String,
}

impl Finished {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// An error that shows everything, unless the exit code is 0.
    pub fn expect_success(self) -> Result<Self> {
        self.expect_code(0)
    }

    /// An error that shows everything, unless the exit code is this.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(
            self.code == code,
            "`{}` exited with {} instead of {code}\nstdout: {}\nstderr: {}",
            self.command,
            self.code,
            self.text().trim_end(),
            self.stderr.trim_end()
        );
        Ok(self)
    }
}

/// Runs a program (with its arguments) as root.
pub fn run(words: &[&str]) -> Result<Finished> {
    run_within(words, LIMIT)
}

/// The same with another deadline, after which the program is killed and an error given.
pub fn run_within(words: &[&str], limit: Duration) -> Result<Finished> {
    let (program, arguments) = words.split_first().context("no program named")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let code = wait_within(&mut child, limit).with_context(|| format!("running `{}`", words.join(" ")))?;
    Ok(Finished {
        command: words.join(" "),
        code,
        stdout: joined(stdout)?,
        stderr: String::from_utf8_lossy(&joined(stderr)?).into_owned(),
    })
}

/// Waits for a child; at the deadline it is killed and an error given.
pub fn wait_within(child: &mut Child, limit: Duration) -> Result<i32> {
    use std::os::unix::process::ExitStatusExt;
    let limit = fs::longer(limit);
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            bail!("it did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn collect(stream: Option<impl Read + Send + 'static>) -> JoinHandle<std::io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    })
}

fn joined(reader: JoinHandle<std::io::Result<Vec<u8>>>) -> Result<Vec<u8>> {
    match reader.join() {
        Ok(result) => Ok(result?),
        Err(_) => bail!("reading a program's output panicked"),
    }
}
