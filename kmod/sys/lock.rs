// SPDX-License-Identifier: GPL-2.0
//! Locks whose waiters can be killed, or wait for a time only.

use super::shim;
use kernel::{
    bindings,
    prelude::*,
    sync::{
        lock::{mutex::MutexBackend, Guard},
        Mutex,
    },
    time::{delay::fsleep, Delta},
};

/// Takes a mutex; `EINTR` when the caller is killed while it waits.
pub(crate) fn killable<T>(mutex: &Mutex<T>) -> Result<Guard<'_, T, MutexBackend>> {
    // The lock itself is the first field of what is `repr(C)`.
    let raw: *mut bindings::mutex = core::ptr::from_ref(mutex).cast_mut().cast();
    // SAFETY: Initialised, since there is a reference to it.
    match unsafe { shim::rocm_xio_lock_killable(raw) } {
        // SAFETY: It is ours now.
        0 => Ok(unsafe { Guard::new(mutex, ()) }),
        _ => Err(EINTR),
    }
}

/// Takes a mutex; `None` when that takes longer.
pub(crate) fn within<T>(mutex: &Mutex<T>, ms: u32) -> Option<Guard<'_, T, MutexBackend>> {
    for _ in 0..ms {
        if let Some(guard) = mutex.try_lock() {
            return Some(guard);
        }
        fsleep(Delta::from_millis(1));
    }
    mutex.try_lock()
}
