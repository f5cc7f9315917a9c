// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bar on standard error for large values, when somebody looks at it.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{stderr, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Values below need no bar.
const LARGE: u64 = 8 << 20;

/// Commands that take less than that need no spinner.
const PATIENCE: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(100);

/// Shown until dropped, or not at all.
pub struct Progress {
    bar: Option<ProgressBar>,
    spinner: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    const NONE: Self = Self { bar: None, spinner: None };

    /// Progress of so many bytes.
    pub fn new(what: &'static str, bytes: u64) -> Self {
        if bytes < LARGE || !stderr().is_terminal() {
            return Self::NONE;
        }
        let template = "{msg:10} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: Some(ProgressBar::new(bytes).with_style(style).with_message(what)), spinner: None }
    }

    /// One command that moves so many bytes, or an unknown number: it has no progress but may take time.
    pub fn command(what: &'static str, bytes: Option<u64>) -> Self {
        if bytes.is_some_and(|b| b < LARGE) || !stderr().is_terminal() {
            return Self::NONE;
        }
        let (done, waiting) = mpsc::channel::<()>();
        let goes_on = move |time| waiting.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let thread = std::thread::Builder::new().spawn(move || {
            if !goes_on(PATIENCE) {
                return;
            }
            let bar = ProgressBar::new_spinner().with_message(what);
            bar.tick();
            while goes_on(TICK) {
                bar.tick();
            }
            bar.finish_and_clear();
        });
        // Without a thread there is no spinner.
        Self { bar: None, spinner: thread.ok().map(|thread| (done, thread)) }
    }

    /// So many bytes more.
    pub fn add(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some((done, thread)) = self.spinner.take() {
            drop(done);
            // It shows things, no more.
            let _ = thread.join();
        }
    }
}
