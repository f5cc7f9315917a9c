// SPDX-License-Identifier: GPL-2.0
//! Waiting for an interrupt with a time limit, and eventfds.

use super::shim;
use kernel::{bindings, error::from_err_ptr, prelude::*, types::Opaque};

/// Counts signals; a waiter takes one. (`kernel::sync::Completion` has no time limit.)
#[pin_data]
pub(crate) struct Event {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A completion is made for use by several threads.
unsafe impl Send for Event {}
// SAFETY: As above; it has its own lock.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is memory for a completion, and pinned from now on.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Signals; may be called from an interrupt handler.
    pub(crate) fn signal(&self) {
        // SAFETY: Initialised in `new`.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Forgets signals that nobody waited for.
    pub(crate) fn reset(&self) {
        // SAFETY: Initialised in `new`; a signal at the same moment is as good as one a moment before.
        unsafe { (&raw mut (*self.inner.get()).done).write_volatile(0) };
    }

    /// Waits for a signal, at most so long. Whether one came is of no use: the caller looks for itself.
    pub(crate) fn wait(&self, ms: u32) {
        // SAFETY: Initialised in `new`; the caller can sleep.
        unsafe {
            let jiffies = shim::rocm_xio_msecs_to_jiffies(ms);
            bindings::wait_for_completion_timeout(self.inner.get(), jiffies);
        }
    }
}

/// A reference to an eventfd.
pub(crate) struct EventFd(*mut bindings::eventfd_ctx);

// SAFETY: The context has its own lock and count.
unsafe impl Send for EventFd {}

impl EventFd {
    /// Takes the eventfd of a file descriptor of the caller.
    pub(crate) fn from_fd(fd: i32) -> Result<Self> {
        // SAFETY: Any number may be passed.
        let ctx = from_err_ptr(unsafe { bindings::eventfd_ctx_fdget(fd) }).map_err(|_| EBADF)?;
        Ok(Self(ctx))
    }

    /// The context as a number, for [`signal`](Self::signal).
    pub(crate) fn as_bits(&self) -> usize {
        self.0 as usize
    }

    /// Adds one.
    pub(crate) fn tell(&self) {
        // SAFETY: The reference is ours.
        unsafe { Self::signal(self.as_bits()) };
    }

    /// Adds one to the eventfd behind `bits`.
    ///
    /// # Safety
    ///
    /// `bits` is of an `EventFd` that is not dropped before this returns.
    pub(crate) unsafe fn signal(bits: usize) {
        // SAFETY: By the contract of this function the context is alive.
        unsafe { bindings::eventfd_signal_mask(bits as *mut bindings::eventfd_ctx, 0) };
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // SAFETY: The reference is ours.
        unsafe { bindings::eventfd_ctx_put(self.0) };
    }
}
