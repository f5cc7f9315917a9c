// SPDX-License-Identifier: GPL-2.0
//! Memory as single pages, each with a count of its own: so others (a GPU runtime, io_uring) can pin what is
//! mapped to a client, and a page that is still pinned outlives its buffer.

use super::shim;
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// Pages allocated by the module and not given back, for debugfs.
pub(crate) static LIVE: Atomic<i64> = Atomic::new(0);

/// Blocks of physically contiguous pages make the DMA mapping and the IOMMU's tables small.
const MAX_ORDER: u32 = 9;

/// Zeroed pages.
///
/// # Invariants
///
/// Each pointer is a page of ordinary memory with one reference held by this object.
pub(crate) struct Pages {
    pages: KVVec<NonNull<bindings::page>>,
}

// SAFETY: Pages belong to no thread.
unsafe impl Send for Pages {}
// SAFETY: Shared access gives out addresses only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Pages in blocks as large as can be had.
    pub(crate) fn scattered(node: i32, count: usize) -> Result<Self> {
        let mut this = Self { pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)? };
        let mut order = MAX_ORDER;
        while this.pages.len() < count {
            if kernel::current!().signal_pending() {
                return Err(EINTR);
            }
            order = order.min((count - this.pages.len()).ilog2());
            // Once blocks of a size have run out, smaller ones do.
            while this.add_block(node, order, true, 1 << order).is_err() {
                order = order.checked_sub(1).ok_or(ENOMEM)?;
            }
        }
        Ok(this)
    }

    /// Pages that follow one another in physical memory.
    pub(crate) fn contiguous(node: i32, count: usize) -> Result<Self> {
        let mut this = Self { pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)? };
        let order = count.checked_next_power_of_two().ok_or(EINVAL)?.ilog2();
        this.add_block(node, order, false, count)?;
        Ok(this)
    }

    /// Adds the first `keep` pages of a new block of `1 << order`; there is capacity for them. No effort is made
    /// for an `optional` one.
    fn add_block(&mut self, node: i32, order: u32, optional: bool, keep: usize) -> Result {
        // SAFETY: Any node and order may be asked for; too large an order is refused by the allocator.
        let first = NonNull::new(unsafe { shim::rocm_xio_alloc_pages(node, order, optional) }).ok_or(ENOMEM)?;
        for n in 0..1usize << order {
            // SAFETY: The block has `1 << order` pages.
            let page = unsafe { shim::rocm_xio_page_after(first.as_ptr(), n) };
            let kept = n < keep
                && NonNull::new(page).is_some_and(|p| {
                    // INVARIANT: The block was split, each page has one reference.
                    self.pages.push_within_capacity(p).is_ok()
                });
            if kept {
                LIVE.fetch_add(1, Relaxed);
            } else {
                // SAFETY: The page's reference is ours and nobody else knows it.
                unsafe { shim::rocm_xio_put_page(page) };
            }
        }
        Ok(())
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// A page, valid as long as this object.
    pub(crate) fn page(&self, n: usize) -> Option<*mut bindings::page> {
        self.pages.get(n).map(|p| p.as_ptr())
    }

    /// The pages as the C interface takes them.
    pub(super) fn as_ptr(&self) -> *mut *mut bindings::page {
        self.pages.as_ptr().cast_mut().cast()
    }

    /// Address of the `N` bytes at `offset`, which must not cross a page.
    fn at<const N: usize>(&self, offset: usize) -> Result<*mut u8> {
        let (page, in_page) = (offset / nvme_kv::PAGE_SIZE, offset % nvme_kv::PAGE_SIZE);
        if in_page + N > nvme_kv::PAGE_SIZE {
            return Err(EINVAL);
        }
        let page = self.page(page).ok_or(EINVAL)?;
        // SAFETY: The page is ordinary memory, always mapped on the 64-bit machines that this builds for.
        let start = unsafe { shim::rocm_xio_page_address(page) }.cast::<u8>();
        // SAFETY: `in_page + N` is within the page.
        Ok(unsafe { start.add(in_page) })
    }

    /// Stores bytes; readers may be the device or a user at the same time.
    pub(crate) fn write<const N: usize>(&self, offset: usize, bytes: &[u8; N]) -> Result {
        let at = self.at::<N>(offset)?;
        // SAFETY: `at` is `N` bytes of this object; volatile, since others look at them.
        unsafe { at.cast::<[u8; N]>().write_volatile(*bytes) };
        Ok(())
    }

    /// Loads bytes that the device or a user may change at any time.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let at = self.at::<N>(offset)?;
        // SAFETY: `at` is `N` bytes of this object; any bytes are a valid array.
        Ok(unsafe { at.cast::<[u8; N]>().read_volatile() })
    }

    /// Zeroes everything.
    pub(crate) fn clear(&self) -> Result {
        (0..self.len() * nvme_kv::PAGE_SIZE / 64).try_for_each(|n| self.write(n * 64, &[0; 64]))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for page in &self.pages {
            // SAFETY: By the type invariant the reference is ours.
            unsafe { shim::rocm_xio_put_page(page.as_ptr()) };
            LIVE.fetch_sub(1, Relaxed);
        }
    }
}
