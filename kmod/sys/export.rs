// SPDX-License-Identifier: GPL-2.0
//! Queues and doorbells, exported as dma-bufs for drivers of other devices.

use super::{
    cmb::CmbMemory,
    dmabuf::Locked,
    event::Event,
    pages::Pages,
    pci::{DoorbellPage, Peers},
    shim,
};
use kernel::{
    bindings,
    error::{from_err_ptr, to_result},
    ffi,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
    },
};
use nvme_kv::PAGE_SIZE;

/// `dma_buf_ops`, which never change.
struct Operations(bindings::dma_buf_ops);

// SAFETY: Only functions that may be called from any thread.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = {
    let mut operations: bindings::dma_buf_ops = pin_init::zeroed();
    operations.attach = Some(attach);
    operations.map_dma_buf = Some(map);
    operations.unmap_dma_buf = Some(unmap);
    operations.release = Some(release);
    Operations(operations)
};

/// Whether a dma-buf is one of this module's.
///
/// # Safety
///
/// A reference to it is held.
pub(super) unsafe fn is_ours(dmabuf: *mut bindings::dma_buf) -> bool {
    // SAFETY: By the contract of this function.
    core::ptr::eq(unsafe { (*dmabuf).ops }, &raw const OPERATIONS.0)
}

/// Memory to export, until it is revoked.
enum Memory {
    /// That many pages of ours.
    Pages(*mut *mut bindings::page, usize),
    /// Addresses of a device, as the kernel sees them.
    Device(bindings::phys_vec, *mut bindings::p2pdma_provider),
}

/// What a dma-buf and its queue share.
///
/// # Invariants
///
/// `memory` is there until `revoked` is set and nothing is mapped. Both change under the reservation lock.
#[pin_data]
struct Shared {
    memory: Memory,
    revoked: Atomic<bool>,
    mapped: Atomic<usize>,
    /// Signalled when a mapping is gone.
    #[pin]
    unmapped: Event,
}

// SAFETY: The memory belongs to no thread.
unsafe impl Send for Shared {}
// SAFETY: What changes is atomic.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    ///
    /// `dmabuf` is one of ours that is not released yet.
    unsafe fn of<'a>(dmabuf: *mut bindings::dma_buf) -> &'a Self {
        // SAFETY: `Export::new` put an `Arc` of it there, which `release` drops.
        unsafe { &*(*dmabuf).priv_.cast::<Self>() }
    }

    fn map(
        &self,
        attachment: *mut bindings::dma_buf_attachment,
        direction: bindings::dma_data_direction,
    ) -> Result<*mut bindings::sg_table> {
        if self.revoked.load(Relaxed) {
            return Err(ENODEV);
        }
        // SAFETY: Called for an importer that holds the lock, so the memory is there while this runs.
        let table = from_err_ptr(unsafe {
            match &self.memory {
                Memory::Pages(pages, count) => {
                    shim::rocm_xio_map_pages((*attachment).dev, *pages, *count, direction)
                }
                Memory::Device(range, provider) => shim::dma_buf_phys_vec_to_sgt(
                    attachment,
                    *provider,
                    core::ptr::from_ref(range).cast_mut(),
                    1,
                    range.len as usize,
                    direction,
                ),
            }
        })?;
        self.mapped.fetch_add(1, Relaxed);
        Ok(table)
    }
}

/// Only for importers that reach other devices' memory, and give it back when asked.
unsafe extern "C" fn attach(
    dmabuf: *mut bindings::dma_buf,
    attachment: *mut bindings::dma_buf_attachment,
) -> ffi::c_int {
    // SAFETY: The core calls this for a dma-buf of ours and a new attachment.
    let (fits, revoked) = unsafe {
        let fits = (*attachment).peer2peer && shim::rocm_xio_is_revocable(attachment);
        (fits, Shared::of(dmabuf).revoked.load(Relaxed))
    };
    match (fits, revoked) {
        (false, _) => EOPNOTSUPP.to_errno(),
        (true, true) => ENODEV.to_errno(),
        (true, false) => 0,
    }
}

/// Called with the reservation lock held.
unsafe extern "C" fn map(
    attachment: *mut bindings::dma_buf_attachment,
    direction: bindings::dma_data_direction,
) -> *mut bindings::sg_table {
    // SAFETY: The core calls this for an attachment of ours.
    let shared = unsafe { Shared::of((*attachment).dmabuf) };
    shared.map(attachment, direction).unwrap_or_else(|e| e.to_ptr())
}

/// Called with the reservation lock held.
unsafe extern "C" fn unmap(
    attachment: *mut bindings::dma_buf_attachment,
    table: *mut bindings::sg_table,
    direction: bindings::dma_data_direction,
) {
    // SAFETY: The core calls this for an attachment of ours, and a table made by `map`.
    let shared = unsafe {
        let shared = Shared::of((*attachment).dmabuf);
        match &shared.memory {
            Memory::Pages(..) => shim::rocm_xio_unmap_pages((*attachment).dev, table, direction),
            Memory::Device(..) => {
                // Linux 7.3 makes the table with none, and then does not free its list.
                (*table).orig_nents = (*table).nents;
                shim::dma_buf_free_sgt(attachment, table, direction);
            }
        }
        shared
    };
    shared.mapped.fetch_sub(1, Full);
    shared.unmapped.signal();
}

unsafe extern "C" fn release(dmabuf: *mut bindings::dma_buf) {
    // SAFETY: The last reference is gone; the `Arc` is the one that `Export::new` put there.
    drop(unsafe { Arc::from_raw((*dmabuf).priv_.cast::<Shared>().cast_const()) });
}

/// An exported part of a queue. When it is dropped, no device reaches the memory any more.
///
/// # Invariants
///
/// `dmabuf` is one of ours, and this holds a reference to it.
pub(crate) struct Export {
    dmabuf: *mut bindings::dma_buf,
    shared: Arc<Shared>,
    len: usize,
}

// SAFETY: A dma-buf belongs to no thread.
unsafe impl Send for Export {}
// SAFETY: Shared access only makes file descriptors.
unsafe impl Sync for Export {}

impl Export {
    /// # Safety
    ///
    /// The memory stays until the result is dropped.
    unsafe fn new(memory: Memory, len: usize) -> Result<Self> {
        let shared = Arc::pin_init(
            try_pin_init!(Shared {
                memory,
                revoked: Atomic::new(false),
                mapped: Atomic::new(0),
                unmapped <- Event::new(),
            }? Error),
            GFP_KERNEL,
        )?;
        let private = Arc::into_raw(shared.clone());
        // SAFETY: The operations are static and of this module.
        let dmabuf = from_err_ptr(unsafe {
            shim::rocm_xio_export(&raw const OPERATIONS.0, len, private.cast_mut().cast())
        });
        match dmabuf {
            // INVARIANT: The reference is ours.
            Ok(dmabuf) => Ok(Self { dmabuf, shared, len }),
            Err(e) => {
                // SAFETY: Nobody took it.
                drop(unsafe { Arc::from_raw(private) });
                Err(e)
            }
        }
    }

    /// Exports pages.
    ///
    /// # Safety
    ///
    /// The pages stay until the result is dropped.
    pub(crate) unsafe fn pages(pages: &Pages) -> Result<Self> {
        // SAFETY: By the contract of this function.
        unsafe { Self::new(Memory::Pages(pages.as_ptr(), pages.len()), pages.len() * PAGE_SIZE) }
    }

    /// Exports a page of doorbells.
    ///
    /// # Safety
    ///
    /// The device stays bound until the result is dropped.
    pub(crate) unsafe fn doorbells(page: &DoorbellPage, peers: &Peers) -> Result<Self> {
        // SAFETY: By the contract of this function.
        unsafe { Self::device(page.phys(), PAGE_SIZE, peers.bar(0)?) }
    }

    /// Exports controller memory.
    ///
    /// # Safety
    ///
    /// The memory stays until the result is dropped.
    pub(crate) unsafe fn cmb(memory: &CmbMemory, peers: &Peers) -> Result<Self> {
        // SAFETY: By the contract of this function. A queue is one block.
        unsafe { Self::device(memory.phys(0).ok_or(EINVAL)?, memory.len() * PAGE_SIZE, peers.bar(memory.bar())?) }
    }

    /// # Safety
    ///
    /// As for [`new`](Self::new).
    unsafe fn device(paddr: u64, len: usize, provider: *mut bindings::p2pdma_provider) -> Result<Self> {
        let range = bindings::phys_vec { paddr, len };
        // SAFETY: By the contract of this function.
        unsafe { Self::new(Memory::Device(range, provider), len) }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A new file descriptor of the caller.
    pub(crate) fn fd(&self) -> Result<i32> {
        // SAFETY: By the type invariant.
        let fd = unsafe { shim::rocm_xio_export_fd(self.dmabuf) };
        to_result(fd).map(|()| fd)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Importers unmap when they are told, at once or a little later.
        unsafe {
            let locked = Locked::new((*self.dmabuf).resv);
            self.shared.revoked.store(true, Relaxed);
            bindings::dma_buf_invalidate_mappings(self.dmabuf);
            // Without a signal or a limit this can not fail.
            let _ = locked.wait(bindings::dma_resv_usage_DMA_RESV_USAGE_BOOKKEEP, false);
        }
        while self.shared.mapped.load(Relaxed) > 0 {
            self.shared.unmapped.wait(100);
        }
        // SAFETY: The reference is ours.
        unsafe { bindings::dma_buf_put(self.dmabuf) };
    }
}
