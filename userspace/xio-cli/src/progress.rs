// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bar on standard error for large values, when somebody looks at it.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{stderr, IsTerminal};
use std::time::Duration;

/// Values below need no bar.
const LARGE: u64 = 8 << 20;

/// Shown until dropped, or not at all.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Progress of so many bytes.
    pub fn new(what: &'static str, bytes: u64) -> Self {
        if bytes < LARGE || !stderr().is_terminal() {
            return Self { bar: None };
        }
        let template = "{msg:10} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: Some(ProgressBar::new(bytes).with_style(style).with_message(what)) }
    }

    /// One command that moves so many bytes, or an unknown number: it has no progress but takes time.
    pub fn command(what: &'static str, bytes: Option<u64>) -> Self {
        if bytes.is_some_and(|b| b < LARGE) || !stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar: Some(bar) }
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
    }
}
