// SPDX-License-Identifier: GPL-2.0
//! Work that is done later, and waiting for it.

use kernel::{
    bindings,
    sync::Arc,
    workqueue::{DelayedWork, Queue, Work},
};

/// Waits until the work is done, if it was asked for. A work item does not keep the module, so this comes before the
/// device is unbound.
pub(crate) fn wait_for<T: ?Sized, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The item was initialised, since there is a reference to it.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}

/// Keeps work from being done later, and waits until it is not being done.
pub(crate) fn cancel<T, const ID: u64>(work: &DelayedWork<T, ID>, this: &Arc<T>) {
    // SAFETY: The item was initialised, since there is a reference to it, and is the first field of its `delayed_work`. One that
    // was waiting held a reference, which is ours now.
    unsafe {
        let raw = DelayedWork::raw_as_work(work).cast::<bindings::delayed_work>();
        if bindings::cancel_delayed_work_sync(raw) {
            drop(Arc::from_raw(Arc::as_ptr(this)));
        }
    }
}

/// Where work is done that may wait for the controller.
pub(crate) fn queue() -> &'static Queue {
    // SAFETY: Always there; `Queue` is what the kernel's is.
    unsafe { Queue::from_raw(bindings::system_dfl_wq) }
}
