// SPDX-License-Identifier: GPL-2.0
//! io_uring commands.

use super::shim;
use kernel::{bindings, ffi, prelude::*, types::ForeignOwnable};

/// A command that was issued and is not completed.
///
/// # Invariants
///
/// The command is alive: io_uring waits for its completion, which happens once, in `complete`.
pub(crate) struct Command(*mut bindings::io_uring_cmd);

// SAFETY: A command may be completed from any thread.
unsafe impl Send for Command {}
// SAFETY: Shared access only compares it.
unsafe impl Sync for Command {}

/// Result of a command, made in the task that issued it.
pub(crate) trait Finish: Sized + Send {
    /// Writes results to the user's memory, unless the task is `dead`; what the command returns.
    fn finish(self, dead: bool) -> Result<i32>;
}

impl Command {
    /// # Safety
    ///
    /// `cmd` was just issued, and the issuer returns that it is queued.
    pub(super) unsafe fn new(cmd: *mut bindings::io_uring_cmd) -> Self {
        // INVARIANT: By the contract of this function.
        Self(cmd)
    }

    /// A number that tells commands apart.
    pub(crate) fn id(&self) -> usize {
        self.0 as usize
    }

    /// Completes the command with an error, within the call that issued it.
    pub(super) fn fail(self, error: Error, issue_flags: ffi::c_uint) {
        // SAFETY: By the type invariant the command is alive and not completed; the flags are the issuing call's.
        unsafe { shim::rocm_xio_uring_fail(self.0, error.to_errno(), issue_flags) };
    }

    /// Completes the command with what `result` gives.
    pub(crate) fn complete<T: Finish>(self, result: KBox<T>) {
        // SAFETY: By the type invariant the command is alive and not completed; `finish` takes the box back.
        unsafe { shim::rocm_xio_uring_complete(self.0, result.into_foreign().cast(), finish::<T>) };
    }
}

unsafe extern "C" fn finish<T: Finish>(data: *mut ffi::c_void, dead: bool) -> ffi::c_int {
    // SAFETY: The box that `complete` gave away, which comes back once.
    let result = unsafe { <KBox<T> as ForeignOwnable>::from_foreign(data.cast()) };
    KBox::into_inner(result).finish(dead).unwrap_or_else(|e| e.to_errno())
}
