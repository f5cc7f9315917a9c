// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a controller is, and waiting for what happens to it.

use crate::backend::Backend;
use crate::error::{os, Error, Result};
use crate::queue::{sleep_until_readable, FOREVER};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xio_uapi as uapi;

/// Whether a controller takes commands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Liveness {
    /// It does.
    Live,
    /// It is being reset, or suspended, and is going to be live again.
    Stopped,
    /// It failed, and could not be brought up again.
    Failed,
    /// Another state, of a newer module.
    Other(u32),
}

/// Why a controller was reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ResetCause {
    /// It did not answer a command in time.
    Timeout,
    /// Completions of the admin queue belonged to no command.
    OutOfStep,
    /// It stated that it failed, or stopped by itself.
    Fatal,
    /// It did not answer at all.
    Absent,
    /// By the system: a function reset, suspend and resume, recovery from a PCI error.
    System,
    /// To make it forget what one user's queues may have left, before another user has some.
    User,
    /// It refused to delete a queue.
    Refused,
    /// Another cause, of a newer module.
    Other(u32),
}

impl ResetCause {
    /// What a number of the module's interface (`RESET_*`) stands for, which `counters` in debugfs has, too; `None` for no reset.
    pub const fn from_module(number: u32) -> Option<Self> {
        Some(match number {
            uapi::RESET_NONE => return None,
            uapi::RESET_TIMEOUT => Self::Timeout,
            uapi::RESET_OUT_OF_STEP => Self::OutOfStep,
            uapi::RESET_FATAL => Self::Fatal,
            uapi::RESET_ABSENT => Self::Absent,
            uapi::RESET_SYSTEM => Self::System,
            uapi::RESET_USER => Self::User,
            uapi::RESET_REFUSED => Self::Refused,
            other => Self::Other(other),
        })
    }
}

/// How a controller is. After each reset all queues and buffers of all clients are gone; new ones can be made on the same
/// [`Controller`](crate::Controller) while it [is live](Self::is_live).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerState {
    /// Whether it takes commands.
    pub liveness: Liveness,
    /// Resets since the module has it.
    pub resets: u32,
    /// Why it was last reset, if it was.
    pub last_reset: Option<ResetCause>,
}

impl ControllerState {
    /// As the module tells.
    pub(crate) const fn new(raw: &uapi::GetState) -> Self {
        let liveness = match raw.state {
            uapi::STATE_LIVE => Liveness::Live,
            uapi::STATE_STOPPED => Liveness::Stopped,
            uapi::STATE_FAILED => Liveness::Failed,
            other => Liveness::Other(other),
        };
        let last_reset = ResetCause::from_module(raw.reset);
        Self { liveness, resets: raw.resets, last_reset }
    }

    /// Whether queues and buffers can be made, and commands are served.
    pub const fn is_live(&self) -> bool {
        matches!(self.liveness, Liveness::Live)
    }

    /// What somebody can do who lost queues and buffers.
    pub(crate) const fn remedy(&self) -> &'static str {
        match self.liveness {
            Liveness::Live => "make a new queue and new buffers on the same controller",
            Liveness::Stopped => "wait until it is live again, then make a new queue and new buffers",
            Liveness::Failed | Liveness::Other(_) => {
                "an administrator can reset the device, or unbind and bind it"
            }
        }
    }
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.pad("live"),
            Self::Stopped => f.pad("stopped"),
            Self::Failed => f.pad("failed"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

impl fmt::Display for ResetCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Timeout => "no answer in time",
            Self::OutOfStep => "admin queue out of step",
            Self::Fatal => "fatal status",
            Self::Absent => "the device did not answer",
            Self::System => "by the system",
            Self::User => "for another user",
            Self::Refused => "a queue was not deleted",
            Self::Other(number) => return write!(f, "cause {number}"),
        })
    }
}

impl fmt::Display for ControllerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, resets: {}", self.liveness, self.resets)?;
        self.last_reset.map_or(Ok(()), |cause| write!(f, ", last: {cause}"))
    }
}

/// What happens to a controller, from when this was made on. It fits event loops: the descriptor is readable (POLLIN) when
/// something happened; then call [`wait`](Self::wait).
#[derive(Debug)]
pub struct Events {
    event: EventFd,
    backend: Arc<dyn Backend>,
    taken: Arc<AtomicBool>,
}

impl Events {
    /// Takes the events of a client, of which `taken` tells whether somebody has them.
    pub(crate) fn new(backend: &Arc<dyn Backend>, taken: &Arc<AtomicBool>) -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags).map_err(|e| os("making an eventfd", e))?;
        if taken.swap(true, Ordering::AcqRel) {
            return Err(Error::EventsTaken);
        }
        // From here on `drop` lets go of them.
        let events = Self { event, backend: backend.clone(), taken: taken.clone() };
        events.backend.set_state_event(Some(events.event.as_fd()))?;
        Ok(events)
    }

    /// Waits until something happens, at most for `timeout`: how the controller is then, or `None` when nothing happened. What
    /// happens in quick succession is told once: [`resets`](ControllerState::resets) tells whether there was a reset that is over.
    ///
    /// # Errors
    /// [`Error::Gone`] when the device is gone for good, or what the operating system says.
    pub fn wait(&self, timeout: Duration) -> Result<Option<ControllerState>> {
        let until = Instant::now() + timeout.min(FOREVER);
        loop {
            match self.event.read() {
                // What happens after the question is told again.
                Ok(_) => return self.backend.state().map(Some),
                Err(Errno::EAGAIN) => {}
                Err(errno) => return Err(os("reading an eventfd", errno)),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            sleep_until_readable(self.event.as_fd(), left)?;
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Of a device that is gone, or has no events, there is nothing to take back.
        let _ = self.backend.set_state_event(None);
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn states_as_the_module_tells_them() {
        let mut raw = uapi::GetState::new_zeroed();
        let state = ControllerState::new(&raw);
        assert!(state.is_live() && state.last_reset.is_none());
        assert_eq!(state.to_string(), "live, resets: 0");
        (raw.state, raw.resets, raw.reset) = (uapi::STATE_STOPPED, 3, uapi::RESET_SYSTEM);
        let state = ControllerState::new(&raw);
        assert_eq!(state.to_string(), "stopped, resets: 3, last: by the system");
        assert!(!state.is_live() && state.remedy().starts_with("wait"));
        (raw.state, raw.reset) = (77, 78);
        assert_eq!(ControllerState::new(&raw).to_string(), "state 77, resets: 3, last: cause 78");
    }
}
