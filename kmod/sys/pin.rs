// SPDX-License-Identifier: GPL-2.0
//! Memory of a user, pinned for as long as the device may reach it.

use super::{
    dma::{Access, DmaDevice, Mapping},
    shim,
};
use kernel::{bindings, prelude::*};

/// Pages of a user's memory.
///
/// # Invariants
///
/// Each of the first `pinned` pages is pinned once by this object, for writing if `writable`. `counted` pages count as
/// pinned in `mm`, which is held.
struct PinnedPages {
    pages: KVVec<*mut bindings::page>,
    pinned: usize,
    writable: bool,
    counted: usize,
    mm: *mut bindings::mm_struct,
}

/// Pages pinned between two looks for a signal.
const PIECE: usize = 512;

impl PinnedPages {
    /// Pins pages of the caller. It may fault, so no lock is held.
    fn new(address: usize, count: usize, writable: bool) -> Result<Self> {
        let pages = KVVec::zeroed(count, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The current task.
        let mm = unsafe { (*bindings::get_current()).mm };
        if mm.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: The caller's own memory; held until dropped.
        unsafe { bindings::mmgrab(mm) };
        // INVARIANT: Nothing is pinned or counted yet.
        let mut this = Self { pages, pinned: 0, writable, counted: 0, mm };
        // SAFETY: `mm` is held.
        if !unsafe { shim::rocm_xio_account_pinned(mm, count as u64) } {
            return Err(ENOMEM);
        }
        this.counted = count;
        while this.pinned < count {
            this.pin_piece(address)?;
            if kernel::current!().signal_pending() {
                return Err(EINTR);
            }
        }
        Ok(this)
    }

    fn pin_piece(&mut self, address: usize) -> Result {
        let flags = bindings::FOLL_LONGTERM | if self.writable { bindings::FOLL_WRITE } else { 0 };
        let start = address + self.pinned * nvme_kv::PAGE_SIZE;
        let room = self.pages.get_mut(self.pinned..).ok_or(EINVAL)?;
        let wanted = room.len().min(PIECE);
        // SAFETY: There is room for `wanted` pages; bad addresses are found out.
        let got =
            unsafe { bindings::pin_user_pages_fast(start, wanted as i32, flags, room.as_mut_ptr()) };
        match got {
            // INVARIANT: That many more are pinned.
            1.. => self.pinned += got as usize,
            0 => return Err(EFAULT),
            _ => return Err(Error::from_errno(got)),
        }
        Ok(())
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. What the device wrote makes the pages dirty.
        unsafe {
            bindings::unpin_user_pages_dirty_lock(self.pages.as_mut_ptr(), self.pinned, self.writable);
            shim::rocm_xio_unaccount_pinned(self.mm, self.counted as u64);
            bindings::mmdrop(self.mm);
        }
    }
}

/// A user's memory that the device reaches.
pub(crate) struct PinnedMemory {
    // Dropped first: the device loses the pages before they are unpinned.
    mapping: Mapping,
    pages: PinnedPages,
}

// SAFETY: Pages and mm are counted, and belong to no thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: Shared access gives out addresses only.
unsafe impl Sync for PinnedMemory {}

/// A user's memory before the device reaches it. (Pinning may fault, and so comes before any lock.)
pub(crate) struct UserMemory(PinnedPages);

impl UserMemory {
    /// Pins the pages of `len` bytes at `address` of the caller.
    pub(crate) fn pin(address: usize, len: usize, writable: bool) -> Result<Self> {
        let first = address % nvme_kv::PAGE_SIZE;
        let count = first.checked_add(len).ok_or(EINVAL)?.div_ceil(nvme_kv::PAGE_SIZE);
        PinnedPages::new(address - first, count, writable).map(Self)
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.0.pages.len()
    }

    /// Maps the pages for the device: for reading only, unless they were pinned for writing.
    pub(crate) fn map(self, dev: DmaDevice) -> Result<PinnedMemory> {
        let mut pages = self.0;
        let access = if pages.writable { Access::ReadWrite } else { Access::Read };
        // SAFETY: `pages` is kept until the mapping is dropped.
        let mapping = unsafe { Mapping::new(dev, pages.pages.as_mut_ptr(), pages.pages.len(), access)? };
        Ok(PinnedMemory { mapping, pages })
    }
}

impl PinnedMemory {
    /// The device's address of each page.
    pub(crate) fn addrs(&self) -> &[u64] {
        self.mapping.addrs()
    }

    /// Whether the device may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.pages.writable
    }
}
