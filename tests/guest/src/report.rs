// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test cases and their reports in the Test Anything Protocol, on the second serial line and the console.

use crate::kernel;
use anyhow::{Context, Result};
use nix::sys::termios::{cfmakeraw, tcdrain, tcgetattr, tcsetattr, SetArg};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

/// The reports of one machine.
pub struct Report {
    line: File,
    answers: BufReader<File>,
    cases: u32,
    allowed: Vec<String>,
}

impl Report {
    /// Opens the report line and makes it carry bytes as they are.
    pub fn open(path: &str) -> Result<Self> {
        let line = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("opening {path}"))?;
        let mut settings = tcgetattr(&line)?;
        cfmakeraw(&mut settings);
        tcsetattr(&line, SetArg::TCSANOW, &settings)?;
        Ok(Self { answers: BufReader::new(line.try_clone()?), line, cases: 0, allowed: Vec::new() })
    }

    /// Runs one test case. An error or a panic in it (a failed assertion) is a failure, and later cases still
    /// run.
    pub fn case(&mut self, name: &str, test: impl FnOnce(&mut Self) -> Result<()>) {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| test(self)));
        let failure = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(panic) => Some(panic_text(panic.as_ref())),
        };
        self.cases += 1;
        let (number, took) = (self.cases, start.elapsed().as_millis());
        match failure {
            None => self.write(&format!("ok {number} - {name}")),
            Some(text) => {
                self.write(&format!("not ok {number} - {name}"));
                self.note(&text);
                self.note(&format!("after {took} ms"));
            }
        }
    }

    /// Test cases so far.
    pub fn cases(&self) -> u32 {
        self.cases
    }

    /// Counts on from the cases that a kernel before this one reported.
    pub fn go_on_from(&mut self, cases: u32) {
        self.cases = cases;
    }

    /// Waits until the host has all of it.
    pub fn drain(&mut self) {
        if let Err(error) = tcdrain(&self.line) {
            println!("xio-guest: the report line failed: {error}");
        }
    }

    /// Reports a test case that cannot run here, with the reason.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.cases += 1;
        let number = self.cases;
        self.write(&format!("ok {number} - {name} # SKIP {reason}"));
    }

    /// Writes text as comments.
    pub fn note(&mut self, text: &str) {
        for line in text.lines() {
            self.write(format!("# {line}").trim_end());
        }
    }

    /// Tells that kernel messages with this text are part of what is tested, so that they are no failure.
    pub fn allow_kernel_message(&mut self, text: &str) {
        self.allowed.push(text.to_owned());
    }

    /// Asks the host for something; see `host`.
    pub fn ask(&mut self, request: &str) -> Result<String> {
        self.write(&format!("host: {request}"));
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }

    /// Checks the kernel's messages, writes the plan and waits until the host has it all.
    pub fn finish(mut self) -> Result<()> {
        let allowed = std::mem::take(&mut self.allowed);
        self.case("kernel_reports_no_fault", |_| {
            kernel::check_leaks()?;
            kernel::check_messages(&allowed)
        });
        let plan = format!("1..{}", self.cases);
        self.write(&plan);
        tcdrain(&self.line).context("waiting for the report line")
    }

    fn write(&mut self, text: &str) {
        println!("{text}");
        // Without its report line, init can only say so on the console.
        if let Err(error) = writeln!(self.line, "{text}") {
            println!("xio-guest: the report line failed: {error}");
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("(no text)"))
}
