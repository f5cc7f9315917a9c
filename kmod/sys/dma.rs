// SPDX-License-Identifier: GPL-2.0
//! Pages mapped for the device.

use super::{pages::Pages, shim};
use core::ops::Deref;
use kernel::{bindings, device, error::to_result, prelude::*, types::Opaque};

/// A device that is bound to this driver, for DMA.
///
/// # Invariants
///
/// The device is bound as long as this object and its copies exist: they live in state that unbind drops.
#[derive(Clone, Copy)]
pub(crate) struct DmaDevice(*mut bindings::device);

// SAFETY: A `struct device` may be used from any thread.
unsafe impl Send for DmaDevice {}
// SAFETY: As above.
unsafe impl Sync for DmaDevice {}

impl DmaDevice {
    /// # Safety
    ///
    /// The result, its copies and all memory mapped with them are gone before the device is unbound.
    pub(crate) unsafe fn new(dev: &device::Device<device::Bound>) -> Self {
        let raw = core::ptr::from_ref(dev).cast_mut().cast();
        // SAFETY: A bound device; segments may be as long as the IOMMU makes them.
        unsafe { bindings::dma_set_max_seg_size(raw, u32::MAX) };
        // INVARIANT: By the contract of this function.
        Self(raw)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::device {
        self.0
    }

    /// Lets the device start transfers, or keeps it from that.
    pub(crate) fn set_master(&self, on: bool) {
        // SAFETY: By the type invariant the device is bound, and it is a PCI device.
        unsafe { shim::rocm_xio_set_master(self.0, on) };
    }

    /// NUMA node, -1 when unknown.
    pub(crate) fn node(&self) -> i32 {
        // SAFETY: By the type invariant the device is there.
        unsafe { shim::rocm_xio_numa_node(self.0) }
    }
}

/// What the device may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

impl Access {
    pub(super) const fn direction(self) -> bindings::dma_data_direction {
        match self {
            Self::Read => bindings::dma_data_direction::DMA_TO_DEVICE,
            Self::ReadWrite => bindings::dma_data_direction::DMA_BIDIRECTIONAL,
        }
    }
}

/// Pages that the device reaches, by addresses of its own. Whoever holds it keeps the pages.
///
/// # Invariants
///
/// `table` is mapped for `dev` in the direction of `access`; `addrs` has the address of each page.
pub(super) struct Mapping {
    table: KBox<Opaque<bindings::sg_table>>,
    addrs: KVVec<u64>,
    access: Access,
    dev: DmaDevice,
}

// SAFETY: The table is used only here.
unsafe impl Send for Mapping {}
// SAFETY: Shared access does not change the table.
unsafe impl Sync for Mapping {}

/// Device and processor look at the same memory at the same time, and a client may have it mapped for the device more than once.
const COHERENT: usize = bindings::DMA_ATTR_REQUIRE_COHERENT as usize;

impl Mapping {
    /// Maps pages.
    ///
    /// # Safety
    ///
    /// `pages` are `count` pages that stay until the result is dropped.
    pub(super) unsafe fn new(
        dev: DmaDevice,
        pages: *mut *mut bindings::page,
        count: usize,
        access: Access,
    ) -> Result<Self> {
        let addrs = KVVec::zeroed(count, GFP_KERNEL_ACCOUNT)?;
        let table = KBox::new(Opaque::<bindings::sg_table>::zeroed(), GFP_KERNEL)?;
        let len = count.checked_mul(nvme_kv::PAGE_SIZE).ok_or(EINVAL)?;
        // SAFETY: There are `count` pages. Neighbours are joined, so huge pages make few segments.
        to_result(unsafe {
            bindings::sg_alloc_table_from_pages_segment(
                table.get(),
                pages,
                u32::try_from(count)?,
                0,
                len,
                u32::MAX & !0xfff,
                bindings::GFP_KERNEL_ACCOUNT,
            )
        })?;
        // SAFETY: The table was just made, the device is bound.
        let mapped = unsafe { bindings::dma_map_sgtable(dev.as_raw(), table.get(), access.direction(), COHERENT) };
        if let Err(e) = to_result(mapped) {
            // SAFETY: Made above, not mapped.
            unsafe { bindings::sg_free_table(table.get()) };
            if e != EIO && e != EOPNOTSUPP {
                return Err(e);
            }
            pr_err!("the device needs bounce buffers or cache flushes (swiotlb=force?), which mapped queues can not do\n");
            return Err(EOPNOTSUPP);
        }
        // INVARIANT: Mapped above; the addresses are filled in next.
        let mut this = Self { table, addrs, access, dev };
        // SAFETY: The table is mapped, `addrs` has room for `count` addresses.
        let found = unsafe { shim::rocm_xio_dma_addrs(this.table.get(), 0, this.addrs.as_mut_ptr(), count) };
        if found == count {
            Ok(this)
        } else {
            Err(EIO)
        }
    }

    /// The device's address of each page.
    pub(super) fn addrs(&self) -> &[u64] {
        &self.addrs
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the table is mapped and the device bound. The flush comes before
        // the pages go: a lazy domain keeps translating what was unmapped.
        unsafe {
            bindings::dma_unmap_sgtable(self.dev.as_raw(), self.table.get(), self.access.direction(), COHERENT);
            shim::rocm_xio_iommu_flush(self.dev.as_raw());
            bindings::sg_free_table(self.table.get());
        }
    }
}

/// Pages of our own that the device reaches.
pub(crate) struct DmaMemory {
    // Dropped first: the device loses the pages before they go.
    mapping: Mapping,
    pages: Pages,
}

impl DmaMemory {
    fn map(dev: DmaDevice, pages: Pages, access: Access) -> Result<Self> {
        // SAFETY: `pages` is kept until the mapping is dropped.
        let mapping = unsafe { Mapping::new(dev, pages.as_ptr(), pages.len(), access)? };
        Ok(Self { mapping, pages })
    }

    /// New scattered pages.
    pub(crate) fn scattered(dev: DmaDevice, count: usize, access: Access) -> Result<Self> {
        Self::map(dev, Pages::scattered(dev.node(), count)?, access)
    }

    /// New pages with consecutive addresses, as a queue needs them.
    pub(crate) fn contiguous(dev: DmaDevice, bytes: usize, access: Access) -> Result<Self> {
        let pages = Pages::contiguous(dev.node(), bytes.div_ceil(nvme_kv::PAGE_SIZE))?;
        let this = Self::map(dev, pages, access)?;
        let mut expected = this.addr(0)?;
        for addr in this.addrs() {
            if *addr != expected {
                return Err(ENOMEM);
            }
            expected = expected.wrapping_add(nvme_kv::PAGE_SIZE as u64);
        }
        Ok(this)
    }

    /// The device's address of each page.
    pub(crate) fn addrs(&self) -> &[u64] {
        self.mapping.addrs()
    }

    /// The device's address of a page.
    pub(crate) fn addr(&self, page: usize) -> Result<u64> {
        self.addrs().get(page).copied().ok_or(EINVAL)
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }
}

impl Deref for DmaMemory {
    type Target = Pages;
    fn deref(&self) -> &Pages {
        &self.pages
    }
}
