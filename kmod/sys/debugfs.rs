// SPDX-License-Identifier: GPL-2.0
//! `/sys/kernel/debug/rocm-xioN`: `counters`, what there is of everything, a name and a number to a line; `objects`, the queues and
//! buffers, a line each of `name=value`.

use super::{pages, shim};
use crate::{controller::Xio, object::Kind};
use kernel::{
    bindings, ffi,
    prelude::*,
    seq_file::{seq_print, SeqFile},
    sync::{atomic::Relaxed, Arc},
};

/// The debugfs folder of a controller.
///
/// # Invariants
///
/// `dir` is the folder, whose file has `xio`, an `Arc` of ours.
pub(crate) struct DebugFs {
    dir: *mut bindings::dentry,
    xio: *const Xio,
}

// SAFETY: Folder and controller may be used from any thread.
unsafe impl Send for DebugFs {}

impl DebugFs {
    /// Makes the folder. Debugging only: there is no error if it can not be made.
    pub(crate) fn new(xio: Arc<Xio>) -> Self {
        let name = xio.node().name().as_char_ptr();
        let raw = Arc::as_ptr(&xio);
        // SAFETY: The name is copied; the controller stays until the folder is removed.
        let dir = unsafe { shim::rocm_xio_debugfs_create(name, raw.cast_mut().cast()) };
        // INVARIANT: Made above.
        Self { dir, xio: Arc::into_raw(xio) }
    }
}

impl Drop for DebugFs {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Readers are waited for before the controller is let go.
        unsafe {
            shim::rocm_xio_debugfs_remove(self.dir);
            drop(Arc::from_raw(self.xio));
        }
    }
}

/// Called by `shim.c` for a read of the file.
///
/// # Safety
///
/// `m` is the file being read, `xio` what [`DebugFs`] made it with.
#[no_mangle]
unsafe extern "C" fn rocm_xio_counters(m: *mut bindings::seq_file, xio: *mut ffi::c_void) {
    // SAFETY: By the contract of this function.
    let (m, xio) = unsafe { (SeqFile::from_raw(m), &*xio.cast::<Xio>()) };
    let inner = xio.inner.lock();
    let Some(hw) = inner.hw.as_ref() else { return };
    let queues = hw.objects.iter().filter(|o| o.is_queue()).count();
    let pages: usize = hw.objects.iter().map(|o| o.pages()).sum();
    let lines: [(&str, i64); 13] = [
        ("clients", xio.clients.load(Relaxed).into()),
        ("owned", hw.owner.is_some().into()),
        ("queues", queues as i64),
        ("buffers", (hw.objects.len() - queues) as i64),
        ("pages", pages as i64),
        ("calls", hw.batches.len() as i64),
        ("commands", hw.mediated.as_ref().map_or(0, |m| m.in_flight()) as i64),
        ("cmb_used", hw.place.cmb.as_ref().map_or(0, |c| c.memory.len() - c.memory.free()) as i64),
        ("live_pages", pages::LIVE.load(Relaxed)),
        ("stray_completions", hw.admin.stray.into()),
        ("errors", hw.errors as i64),
        ("resets", hw.resets.into()),
        ("last_reset", hw.reset.into()),
    ];
    for (name, value) in lines {
        seq_print!(m, "{} {}\n", name, value);
    }
}

/// Called by `shim.c` for a read of the file.
///
/// # Safety
///
/// As for [`rocm_xio_counters`].
#[no_mangle]
unsafe extern "C" fn rocm_xio_objects(m: *mut bindings::seq_file, xio: *mut ffi::c_void) {
    // SAFETY: By the contract of this function.
    let (m, xio) = unsafe { (SeqFile::from_raw(m), &*xio.cast::<Xio>()) };
    let inner = xio.inner.lock();
    let Some(hw) = inner.hw.as_ref() else { return };
    if let Some(mediated) = &hw.mediated {
        seq_print!(m, "queue client=kernel {}\n", mediated.describe(hw.regs.cap().doorbells()));
    }
    for object in hw.objects.iter() {
        let (id, client, user) = (object.id, object.client, object.user());
        match &object.kind {
            Kind::Queue(queue) => {
                let described = queue.describe(hw.regs.cap().doorbells());
                seq_print!(m, "queue client={} id={} user={} {}\n", client, id, user, described);
            }
            Kind::Buffer(buffer) => {
                let (pages, kind) = (buffer.pages(), buffer.kind());
                seq_print!(m, "buffer client={} id={} user={} pages={} memory={}\n", client, id, user, pages, kind);
            }
            Kind::TakenBack => seq_print!(m, "buffer client={} id={} user={} pages=0 memory=taken-back\n", client, id, user),
        }
    }
}
