// SPDX-License-Identifier: GPL-2.0
//! Signals of the current task.

use super::shim;

/// Whether a signal is pending. (The kernel's own `signal_pending` also counts work that io_uring and others have for the
/// task, which is no reason to end a call that can not be started again.)
pub(crate) fn is_pending() -> bool {
    // SAFETY: Only reads a flag of the current task.
    unsafe { shim::rocm_xio_signal_pending() }
}

/// Work for the task that ended a wait, put off until this is dropped: it is done on the way back to user space.
#[derive(Default)]
pub(crate) struct PutOff(bool);

impl PutOff {
    /// Lets the task sleep in spite of it.
    pub(crate) fn put_off(&mut self) {
        // SAFETY: The current task's flag, which is set again when this is dropped.
        self.0 |= unsafe { shim::rocm_xio_put_off_task_work() };
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: The current task, on its way back to user space, where it looks for work; none is as well.
            unsafe { shim::rocm_xio_resume_task_work() };
        }
    }
}
