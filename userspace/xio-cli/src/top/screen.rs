// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal's other screen, which is left however the program ends, and waiting that signals end.

use crate::exit::Failure;
use crate::output;
use console::Term;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{raise, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// What ends the program.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Where looks are shown one after the other.
#[derive(Debug)]
pub struct Screen {
    signals: SignalFd,
    is_terminal: bool,
}

impl Screen {
    /// Takes the terminal, if standard output is one.
    pub fn new() -> Result<Self, Failure> {
        let mut set = SigSet::empty();
        ENDING.into_iter().chain([Signal::SIGTSTP]).for_each(|signal| set.add(signal));
        // Blocked, so that they wait until the screen is left.
        let signals = set
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC));
        let signals = signals.map_err(failed)?;
        let screen = Self { signals, is_terminal: std::io::stdout().is_terminal() };
        screen.write(ENTER)?;
        Ok(screen)
    }

    /// Shows text: in the place of the one before on a terminal, else behind it.
    pub fn show(&self, text: &str) -> Result<(), Failure> {
        if !self.is_terminal {
            return output::text(text);
        }
        let (rows, width) = Term::stdout().size();
        output::text(&frame(text, rows.into(), width.into()))
    }

    /// Waits. A signal that ends the program does so here, when the screen is left.
    pub fn wait(&self, interval: Duration) -> Result<(), Failure> {
        let until = Instant::now() + interval;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout =
                PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if let Some(told) = self.signals.read_signal().map_err(failed)? {
                let signal = i32::try_from(told.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
                return self.obey(signal.unwrap_or(Signal::SIGTERM));
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Lets a signal do what it does by itself.
    fn obey(&self, signal: Signal) -> Result<(), Failure> {
        self.write(LEAVE)?;
        let mut set = SigSet::empty();
        set.add(signal);
        let done = set.thread_unblock().and_then(|()| raise(signal)).and_then(|()| set.thread_block());
        done.map_err(failed)?;
        // It was stopped, and goes on.
        self.write(ENTER)
    }

    fn write(&self, codes: &str) -> Result<(), Failure> {
        if self.is_terminal {
            output::text(codes)?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = self.write(LEAVE);
    }
}

fn failed(errno: Errno) -> Failure {
    Failure::Input { name: "signals".into(), source: errno.into() }
}

/// A screenful: lines are cut at the edges.
fn frame(text: &str, rows: usize, width: usize) -> String {
    let cut = |line: &str| line.chars().take(width).collect::<String>();
    let lines: Vec<String> = text.lines().take(rows).map(|line| cut(line) + CLEAR_LINE).collect();
    format!("{HOME}{}{CLEAR_REST}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fit_the_screen() {
        assert_eq!(frame("one\ntwo\nthree\n", 2, 2), "\x1b[Hon\x1b[K\ntw\x1b[K\x1b[J");
        assert_eq!(frame("", 2, 2), "\x1b[H\x1b[J");
    }
}
