// SPDX-License-Identifier: GPL-2.0
//! Work that is done later, and waiting for it.

use kernel::{bindings, workqueue::Work};

/// Waits until the work is done, if it was asked for. A work item does not keep the module, so this comes before the
/// device is unbound.
pub(crate) fn wait_for<T: ?Sized, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The item was initialised, since there is a reference to it.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}
