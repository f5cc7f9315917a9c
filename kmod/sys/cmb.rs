// SPDX-License-Identifier: GPL-2.0
//! The controller memory buffer, as peer-to-peer memory of the PCI core.

use super::shim;
use core::ptr::NonNull;
use kernel::{
    bindings,
    device::Core,
    error::to_result,
    ffi, pci,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};
use nvme_kv::PAGE_SIZE;

/// The buffer of a bound device.
///
/// # Invariants
///
/// `len` bytes at `offset` of BAR `bar` are registered; the device is bound.
pub(crate) struct Cmb {
    pdev: *mut bindings::pci_dev,
    bar: i32,
    /// Address of the first byte on the bus, and to the kernel.
    bus: u64,
    phys: u64,
    len: u64,
    used: Atomic<u64>,
}

// SAFETY: A `struct pci_dev` may be used from any thread.
unsafe impl Send for Cmb {}
// SAFETY: The allocator has its own lock.
unsafe impl Sync for Cmb {}

/// Where a controller says that its buffer is.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) bar: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Cmb {
    /// Registers the buffer, as far as it is within its BAR.
    ///
    /// # Safety
    ///
    /// The result, and all memory from it, is dropped before the device is unbound.
    pub(crate) unsafe fn new(pdev: &pci::Device<Core<'_>>, at: Location) -> Result<Self> {
        let raw: *mut bindings::pci_dev = core::ptr::from_ref(pdev).cast_mut().cast();
        let bar = at.bar as i32;
        // SAFETY: A valid device.
        if at.bar > 5 || !unsafe { shim::rocm_xio_has_memory_bar(raw, bar) } {
            return Err(ENODEV);
        }
        let room = pdev.resource_len(at.bar)?.checked_sub(at.offset).ok_or(ENODEV)?;
        let len = at.len.min(room) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        if len == 0 || at.offset % PAGE_SIZE as u64 != 0 {
            return Err(ENODEV);
        }
        // SAFETY: Called from probe for a range of one of the device's own BARs.
        to_result(unsafe { bindings::pci_p2pdma_add_resource(raw, bar, len as usize, at.offset) })?;
        // SAFETY: A valid device.
        let bus = unsafe { shim::rocm_xio_bar_bus_address(raw, bar) }.wrapping_add(at.offset);
        let phys = pdev.resource_start(at.bar)?.wrapping_add(at.offset);
        // INVARIANT: Registered above.
        Ok(Self { pdev: raw, bar, bus, phys, len, used: Atomic::new(0) })
    }

    /// The address by which the controller is to know it.
    pub(crate) fn bus(&self) -> u64 {
        self.bus
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that are not in use.
    pub(crate) fn free(&self) -> u64 {
        self.len.saturating_sub(self.used.load(Relaxed))
    }

    /// Allocates zeroed pages: in a row, or in blocks as large as can be had.
    pub(crate) fn alloc(self: &Arc<Self>, pages: usize, contiguous: bool) -> Result<CmbMemory> {
        if (pages * PAGE_SIZE) as u64 > self.free() {
            return Err(ENOSPC);
        }
        let addrs = KVVec::with_capacity(pages, GFP_KERNEL_ACCOUNT)?;
        let mut memory = CmbMemory { cmb: self.clone(), blocks: KVVec::new(), addrs };
        let mut block = pages;
        while memory.addrs.len() < pages {
            block = block.min(pages - memory.addrs.len());
            // Once blocks of a size have run out, smaller ones do.
            while memory.add(block).is_err() {
                block /= 2;
                if block == 0 || contiguous {
                    return Err(ENOSPC);
                }
            }
        }
        Ok(memory)
    }
}

/// Pages of the buffer.
///
/// # Invariants
///
/// Each block is an address and a number of pages that were allocated from `cmb`; `addrs` has the bus
/// address of each page.
pub(crate) struct CmbMemory {
    cmb: Arc<Cmb>,
    blocks: KVVec<(NonNull<ffi::c_void>, usize)>,
    addrs: KVVec<u64>,
}

// SAFETY: Pages belong to no thread.
unsafe impl Send for CmbMemory {}
// SAFETY: Shared access gives out addresses only.
unsafe impl Sync for CmbMemory {}

impl CmbMemory {
    fn add(&mut self, pages: usize) -> Result {
        self.blocks.reserve(1, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: Registered memory of a bound device.
        let start = unsafe { bindings::pci_alloc_p2pmem(self.cmb.pdev, pages * PAGE_SIZE) };
        let start = NonNull::new(start).ok_or(ENOSPC)?;
        self.cmb.used.fetch_add((pages * PAGE_SIZE) as u64, Relaxed);
        // INVARIANT: Allocated above; there is capacity.
        let _ = self.blocks.push_within_capacity((start, pages));
        // SAFETY: Memory just allocated: what the last one left there is nobody's business.
        let bus = unsafe {
            shim::rocm_xio_clear_io(start.as_ptr(), pages * PAGE_SIZE);
            bindings::pci_p2pmem_virt_to_bus(self.cmb.pdev, start.as_ptr())
        };
        for page in 0..pages {
            self.addrs.push(bus + (page * PAGE_SIZE) as u64, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// The device's address of each page.
    pub(crate) fn addrs(&self) -> &[u64] {
        &self.addrs
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.addrs.len()
    }

    /// The kernel's address of a page.
    pub(crate) fn phys(&self, page: usize) -> Option<u64> {
        let cmb = &self.cmb;
        self.addrs.get(page).map(|addr| addr.wrapping_sub(cmb.bus).wrapping_add(cmb.phys))
    }

    /// The BAR that it is in.
    pub(crate) fn bar(&self) -> i32 {
        self.cmb.bar
    }
}

impl Drop for CmbMemory {
    fn drop(&mut self) {
        for (start, pages) in &self.blocks {
            // SAFETY: By the type invariant.
            unsafe { bindings::pci_free_p2pmem(self.cmb.pdev, start.as_ptr(), pages * PAGE_SIZE) };
            self.cmb.used.fetch_sub((pages * PAGE_SIZE) as u64, Relaxed);
        }
    }
}
