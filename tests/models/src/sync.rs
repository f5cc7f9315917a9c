// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `xio-target`'s module of this name has, of loom.

pub(crate) use loom::sync::{atomic, Arc, Mutex, MutexGuard};
pub(crate) use loom::thread;
use std::sync::LockResult;
pub(crate) use std::sync::PoisonError;
use std::time::Duration;

/// Time never passes: who waits for a wake-up that does not come waits for ever.
#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

pub(crate) struct WaitTimeoutResult;

impl WaitTimeoutResult {
    pub(crate) const fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        _time: Duration,
        mut more: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        while more(&mut guard) {
            guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        Ok((guard, WaitTimeoutResult))
    }
}
