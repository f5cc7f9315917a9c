// SPDX-License-Identifier: GPL-2.0
//! Memory of other drivers, imported as dma-bufs.
//!
//! When an exporter wants its memory back it holds the reservation lock of the dma-buf, and may hold it until a fence of ours says
//! that the device is done. So that lock is never taken below the controller's: what is dropped there is only
//! [put aside](Aside), its fence signalled, and unmapped without any lock of ours.

use super::{
    dma::{Access, DmaDevice},
    export, shim,
};
use crate::controller::Xio;
use kernel::{
    bindings,
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, Mutex,
    },
};
use nvme_kv::PAGE_SIZE;

/// What the exporter says something to.
///
/// # Invariants
///
/// `fence` is held.
struct Notice {
    /// The exporter wants its memory back.
    taken_back: Atomic<bool>,
    /// The device may use the memory. Changes under the reservation lock.
    mapped: Atomic<bool>,
    /// Signalled when the device is done with the memory.
    fence: *mut bindings::dma_fence,
    xio: Arc<Xio>,
}

impl Notice {
    fn new(xio: Arc<Xio>) -> Result<KBox<Self>> {
        // SAFETY: May be called by any task.
        let fence = from_err_ptr(unsafe { shim::rocm_xio_fence() })?;
        // INVARIANT: The reference is ours. (If there is no memory for the box, `drop` gives it up.)
        let this = Self { taken_back: Atomic::new(false), mapped: Atomic::new(false), fence, xio };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }

    /// The device is done with the memory.
    fn done(&self) {
        // SAFETY: By the type invariant; it may be signalled more than once.
        unsafe { bindings::dma_fence_signal(self.fence) };
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.done();
        // SAFETY: By the type invariant.
        unsafe { shim::rocm_xio_put_fence(self.fence) };
    }
}

/// `dma_buf_attach_ops`, which never change.
struct Operations(bindings::dma_buf_attach_ops);

// SAFETY: Only functions that may be called from any thread.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = {
    let mut operations: bindings::dma_buf_attach_ops = pin_init::zeroed();
    operations.allow_peer2peer = true;
    operations.invalidate_mappings = Some(invalidate_mappings);
    Operations(operations)
};

/// Called with the reservation lock held, so before the controller's lock: the work is done later.
unsafe extern "C" fn invalidate_mappings(attachment: *mut bindings::dma_buf_attachment) {
    // SAFETY: An attachment of `Attachment::new`, whose notice stays until it is detached.
    let notice = unsafe { &*(*attachment).importer_priv.cast::<Notice>() };
    // Before it is mapped there is nothing to wait for, and whoever is about to map it waits for the lock.
    if notice.taken_back.xchg(true, Full) || !notice.mapped.load(Relaxed) {
        return;
    }
    // SAFETY: The lock of the dma-buf is held.
    if unsafe { shim::rocm_xio_add_fence((*(*attachment).dmabuf).resv, notice.fence) } != 0 {
        pr_err!("no memory for a fence: an exporter may take its memory back while commands use it\n");
    }
    notice.xio.clone().give_back_soon();
}

/// This device's attachment to a dma-buf.
///
/// # Invariants
///
/// `raw` is attached to `dmabuf`, of which a reference is held, and is pinned if `pinned`. `table` is its mapping in the direction
/// of `access`, or null. `dev` is bound.
pub(crate) struct Attachment {
    raw: *mut bindings::dma_buf_attachment,
    dmabuf: *mut bindings::dma_buf,
    table: *mut bindings::sg_table,
    pinned: bool,
    access: Access,
    dev: DmaDevice,
    // Dropped last: the exporter may speak until the attachment is gone.
    notice: KBox<Notice>,
    /// Others that were put aside.
    next: Option<KBox<Attachment>>,
}

/// Imported memory that the device is done with, and that is still to be unmapped.
pub(crate) type Aside = Option<KBox<Attachment>>;

/// Unmaps what was put aside. No lock of ours is held.
pub(crate) fn unmap_all(aside: &Mutex<Aside>) {
    // Who puts more aside asks for this again.
    let mut next = aside.lock().take();
    while let Some(mut attachment) = next {
        next = attachment.next.take();
    }
}

// SAFETY: An attachment belongs to no thread.
unsafe impl Send for Attachment {}
// SAFETY: Shared access gives out what does not change, and an atomic.
unsafe impl Sync for Attachment {}

/// A reference to a dma-buf.
///
/// # Invariants
///
/// The reference is held.
struct Reference(*mut bindings::dma_buf);

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_buf_put(self.0) };
    }
}

/// `ENODEV` of an exporter does not mean that our device is gone.
fn revoked(error: Error) -> Error {
    if error == ENODEV {
        ESTALE
    } else {
        error
    }
}

impl Attachment {
    /// Attaches to the dma-buf of a file descriptor of the caller.
    fn new(dev: DmaDevice, xio: Arc<Xio>, fd: i32, end: u64, access: Access) -> Result<Self> {
        // SAFETY: Any number may be passed. INVARIANT: The reference is ours now.
        let reference = Reference(from_err_ptr(unsafe { bindings::dma_buf_get(fd) })?);
        // SAFETY: By the invariant of `reference`.
        let (size, ours) = unsafe { ((*reference.0).size as u64, export::is_ours(reference.0)) };
        // One of ours would wait for itself when it is revoked.
        if end > size || ours {
            return Err(EINVAL);
        }
        let notice = Notice::new(xio)?;
        // SAFETY: A dma-buf and a bound device; operations and notice outlive the attachment.
        let raw = from_err_ptr(unsafe {
            bindings::dma_buf_dynamic_attach(
                reference.0,
                dev.as_raw(),
                &raw const OPERATIONS.0,
                core::ptr::from_ref(&*notice).cast_mut().cast(),
            )
        })
        .map_err(revoked)?;
        let dmabuf = reference.0;
        core::mem::forget(reference);
        // INVARIANT: Attached just now, the reference was passed on; neither pinned nor mapped.
        Ok(Self { raw, dmabuf, table: core::ptr::null_mut(), pinned: false, access, dev, notice, next: None })
    }

    fn lock(&self) -> Locked {
        // SAFETY: By the type invariant; the lock is part of the dma-buf.
        unsafe { Locked::new((*self.dmabuf).resv) }
    }

    /// Pins the memory where it is, maps it, and waits until whatever its driver does to it is done.
    fn map(&mut self) -> Result {
        let locked = self.lock();
        if self.notice.taken_back.load(Relaxed) {
            return Err(ESTALE);
        }
        // SAFETY: Attached, and the lock is held.
        to_result(unsafe { bindings::dma_buf_pin(self.raw) }).map_err(revoked)?;
        self.pinned = true;
        // SAFETY: As above.
        let table = unsafe { bindings::dma_buf_map_attachment(self.raw, self.access.direction()) };
        self.table = from_err_ptr(table).map_err(revoked)?;
        self.notice.mapped.store(true, Relaxed);
        locked.wait(bindings::dma_resv_usage_DMA_RESV_USAGE_KERNEL, true)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.notice.done();
        let locked = self.lock();
        // SAFETY: By the type invariant. The device has lost the memory before its driver may move it or free it,
        // since a lazy IOMMU domain is flushed before the pin goes.
        unsafe {
            if !self.table.is_null() {
                bindings::dma_buf_unmap_attachment(self.raw, self.table, self.access.direction());
                shim::rocm_xio_iommu_flush(self.dev.as_raw());
            }
            if self.pinned {
                bindings::dma_buf_unpin(self.raw);
            }
            drop(locked);
            bindings::dma_buf_detach(self.dmabuf, self.raw);
            bindings::dma_buf_put(self.dmabuf);
        }
    }
}

/// The reservation lock of a dma-buf.
///
/// # Invariants
///
/// It is held.
pub(super) struct Locked(*mut bindings::dma_resv);

impl Locked {
    /// # Safety
    ///
    /// The lock is there until the result is dropped.
    pub(super) unsafe fn new(resv: *mut bindings::dma_resv) -> Self {
        // SAFETY: By the contract of this function; without a context it can not fail.
        unsafe { bindings::dma_resv_lock(resv, core::ptr::null_mut()) };
        // INVARIANT: Locked above.
        Self(resv)
    }

    /// Waits for the fences of a kind.
    pub(super) fn wait(&self, usage: bindings::dma_resv_usage, interruptible: bool) -> Result {
        // SAFETY: By the type invariant.
        match unsafe { bindings::dma_resv_wait_timeout(self.0, usage, interruptible, usize::MAX >> 1) } {
            failed @ ..0 => Err(Error::from_errno(failed as i32)),
            _ => Ok(()),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_resv_unlock(self.0) };
    }
}

/// Memory of another driver that the device reaches. When it is dropped, the device is done with it.
pub(crate) struct ImportedMemory {
    addrs: KVVec<u64>,
    peer: bool,
    /// There until `drop`.
    attachment: Option<KBox<Attachment>>,
}

/// What to import.
pub(crate) struct Import {
    /// The file descriptor.
    pub(crate) fd: i32,
    /// Offset in the dma-buf, a multiple of pages.
    pub(crate) offset: u64,
    /// Number of pages.
    pub(crate) pages: usize,
    /// What the device may do.
    pub(crate) access: Access,
}

impl ImportedMemory {
    /// Imports memory for a device of `xio`. It may wait for other drivers, so no lock is held.
    pub(crate) fn new(dev: DmaDevice, xio: Arc<Xio>, what: &Import) -> Result<Self> {
        let end = what.offset.checked_add((what.pages * PAGE_SIZE) as u64).ok_or(EINVAL)?;
        let mut addrs = KVVec::zeroed(what.pages, GFP_KERNEL_ACCOUNT)?;
        let mut attachment = Attachment::new(dev, xio, what.fd, end, what.access)?;
        attachment.map()?;
        let first = (what.offset / PAGE_SIZE as u64) as usize;
        // SAFETY: The table is mapped, `addrs` has room.
        let (found, coherent, allowed, peer) = unsafe {
            (
                shim::rocm_xio_dma_addrs(attachment.table, first, addrs.as_mut_ptr(), what.pages),
                shim::rocm_xio_dma_is_coherent(dev.as_raw(), attachment.table),
                (*attachment.raw).peer2peer,
                shim::rocm_xio_is_peer(dev.as_raw(), addrs.as_ptr(), what.pages),
            )
        };
        if found != what.pages {
            return Err(EINVAL);
        }
        if !coherent {
            return Err(EOPNOTSUPP);
        }
        let attachment = Some(KBox::new(attachment, GFP_KERNEL)?);
        Ok(Self { addrs, peer: allowed && peer, attachment })
    }

    /// The device's address of each page.
    pub(crate) fn addrs(&self) -> &[u64] {
        &self.addrs
    }

    /// Whether it is reached from device to device.
    pub(crate) fn is_peer(&self) -> bool {
        self.peer
    }

    /// Whether the device may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.attachment.as_ref().is_some_and(|a| a.access == Access::ReadWrite)
    }

    /// Whether the exporter wants it back.
    pub(crate) fn is_taken_back(&self) -> bool {
        self.attachment.as_ref().is_some_and(|a| a.notice.taken_back.load(Relaxed))
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        let Some(mut attachment) = self.attachment.take() else { return };
        attachment.notice.done();
        let xio = attachment.notice.xio.clone();
        {
            let mut aside = xio.aside.lock();
            attachment.next = aside.take();
            *aside = Some(attachment);
        }
        xio.unmap_soon();
    }
}

