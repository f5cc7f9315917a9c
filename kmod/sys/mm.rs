// SPDX-License-Identifier: GPL-2.0
//! Mappings: areas being set up, page faults, and revocation.

use super::{pages::Pages, shim};
use kernel::{
    bindings,
    error::{from_err_ptr, to_result},
    mm::virt::VmaNew,
    prelude::*,
};

/// An address space of no file in any directory. All mappings of a controller are in it, so that one call reaches
/// them whichever file they were made through.
///
/// # Invariants
///
/// The inode is held.
pub(crate) struct AddressSpace(*mut bindings::inode);

// SAFETY: An inode may be used from any thread.
unsafe impl Send for AddressSpace {}
// SAFETY: As above.
unsafe impl core::marker::Sync for AddressSpace {}

impl AddressSpace {
    pub(crate) fn new() -> Result<Self> {
        // The file is only a way to an inode of our own. Its operations are the kernel's: it goes when this task
        // returns to user space, when this module may be gone.
        // SAFETY: A name and operations that stay; no context.
        let file = from_err_ptr(unsafe {
            shim::anon_inode_create_getfile(
                c"[rocm_xio]".as_char_ptr(),
                &raw const bindings::generic_ro_fops,
                core::ptr::null_mut(),
                bindings::O_RDWR as i32,
                core::ptr::null(),
            )
        })?;
        // SAFETY: A file just made; its inode is held before the file goes.
        unsafe {
            let inode = (*file).f_inode;
            bindings::ihold(inode);
            bindings::fput(file);
            // INVARIANT: Held above.
            Ok(Self(inode))
        }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::address_space {
        // SAFETY: By the type invariant the inode is there.
        unsafe { (*self.0).i_mapping }
    }

    /// Removes all mappings of a range of offsets; `len` 0 means all to the end.
    pub(crate) fn unmap(&self, offset: u64, len: u64) {
        // SAFETY: By the type invariant the address space is there.
        unsafe { bindings::unmap_mapping_range(self.as_raw(), offset as i64, len as i64, 1) };
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::iput(self.0) };
    }
}

/// An area that `mmap` is about to make.
///
/// # Invariants
///
/// The area is not in use yet, and only this thread sees it.
pub(crate) struct Area<'a>(&'a VmaNew);

/// How pages get into an area.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counted pages of memory, that others may pin.
    Memory,
    /// Counted pages of memory that may only be read.
    ReadOnlyMemory,
    /// Registers or memory of the device. Not cached, as in the kernel's own mapping of them: one page must not be mapped
    /// in two ways.
    Device,
}

impl Area<'_> {
    /// # Safety
    ///
    /// `vma` is what a file's `mmap` operation was called with, and that call has not returned.
    pub(super) unsafe fn new(vma: *mut bindings::vm_area_struct) -> Self {
        // SAFETY: By the contract of this function.
        Self(unsafe { VmaNew::from_raw(vma) })
    }

    /// Offset in the file in bytes.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: A valid area.
        (unsafe { (*self.0.as_ptr()).vm_pgoff } as u64) << 12
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        (self.0.end() - self.0.start()) as u64
    }

    fn has(&self, flag: bindings::vm_flags_t) -> bool {
        // SAFETY: A valid area.
        unsafe { (*self.0.as_ptr()).__bindgen_anon_2.vm_flags & flag != 0 }
    }

    /// Sets the area up for pages inserted by faults. Pages inserted here could not be revoked until `mmap`
    /// returns.
    pub(crate) fn prepare(&self, kind: Kind) -> Result {
        let shared = self.has(bindings::VM_SHARED as bindings::vm_flags_t);
        if !shared || self.has(bindings::VM_EXEC as bindings::vm_flags_t) {
            return Err(EINVAL);
        }
        self.0.try_clear_mayexec()?;
        if kind == Kind::ReadOnlyMemory {
            self.0.try_clear_maywrite()?;
        }
        self.0.set_dontexpand();
        self.0.set_dontcopy();
        self.0.set_dontdump();
        let vma = self.0.as_ptr();
        // SAFETY: By the type invariant nobody else uses the area; its operations are static.
        unsafe {
            (*vma).vm_ops = super::chardev::VM_OPERATIONS.get();
            if kind == Kind::Device {
                self.0.set_io();
                (*vma).__bindgen_anon_2.vm_flags |= bindings::VM_PFNMAP as bindings::vm_flags_t;
                (*vma).vm_page_prot = shim::rocm_xio_pgprot_uncached((*vma).vm_page_prot);
            } else {
                self.0.set_mixedmap();
            }
        }
        Ok(())
    }
}

/// A page fault in an area set up by [`Area::prepare`].
///
/// # Invariants
///
/// The fault is being handled by this thread.
pub(crate) struct Fault<'a>(&'a mut bindings::vm_fault);

/// Why a fault can not be served.
pub(crate) enum FaultError {
    /// Nothing is there: the process gets SIGBUS.
    NotThere,
    /// There is no memory for page tables.
    NoMemory,
}

impl Fault<'_> {
    /// Most pages inserted at a time.
    const AHEAD: usize = 64;

    /// # Safety
    ///
    /// `vmf` is what a `fault` operation was called with, and that call has not returned.
    pub(super) unsafe fn new(vmf: *mut bindings::vm_fault) -> Self {
        // SAFETY: By the contract of this function.
        Self(unsafe { &mut *vmf })
    }

    fn vma(&self) -> *mut bindings::vm_area_struct {
        self.0.__bindgen_anon_1.vma
    }

    /// Offset in the file of the page, in bytes. (Not counted from the start of the area, which may have been split.)
    pub(crate) fn offset(&self) -> u64 {
        (self.0.__bindgen_anon_1.pgoff as u64) << 12
    }

    /// Pages from the one that faulted to the end of the area.
    fn pages_to_end(&self) -> usize {
        // SAFETY: A valid area.
        let end = unsafe { (*self.vma()).__bindgen_anon_1.__bindgen_anon_1.vm_end };
        (end - (self.0.__bindgen_anon_1.address as usize & !0xfff)) >> 12
    }

    /// Whether the area was set up for this kind of pages.
    fn is(&self, kind: Kind) -> bool {
        // SAFETY: A valid area.
        let flags = unsafe { (*self.vma()).__bindgen_anon_2.vm_flags };
        let device = flags & bindings::VM_PFNMAP as bindings::vm_flags_t != 0;
        device == (kind == Kind::Device)
    }

    /// Inserts pages of memory, from the one that faulted on, which is number `first`. Only that one must succeed, the others
    /// save faults.
    pub(crate) fn insert(&self, pages: &Pages, first: usize) -> Result<(), FaultError> {
        if !self.is(Kind::Memory) || pages.page(first).is_none() {
            return Err(FaultError::NotThere);
        }
        let address = self.0.__bindgen_anon_1.address as usize & !0xfff;
        for n in 0..self.pages_to_end().min(Self::AHEAD) {
            let Some(page) = pages.page(first + n) else { break };
            // SAFETY: The area has VM_MIXEDMAP, and the page is a counted one.
            let inserted = unsafe { bindings::vm_insert_page(self.vma(), address + n * 4096, page) };
            match to_result(inserted) {
                Ok(()) => {}
                // Another thread was faster.
                Err(e) if e == EBUSY => {}
                Err(_) if n > 0 => break,
                Err(e) if e == ENOMEM => return Err(FaultError::NoMemory),
                Err(_) => return Err(FaultError::NotThere),
            }
        }
        Ok(())
    }

    /// Inserts pages of the device in the same way. `phys` gives the address of a page, counted from the one that faulted.
    pub(crate) fn insert_device(&self, phys: impl Fn(usize) -> Option<u64>) -> Result<(), FaultError> {
        if !self.is(Kind::Device) {
            return Err(FaultError::NotThere);
        }
        let address = self.0.__bindgen_anon_1.address & !0xfff;
        for n in 0..self.pages_to_end().min(Self::AHEAD) {
            let Some(phys) = phys(n) else { break };
            let pfn = (phys >> 12) as usize;
            // SAFETY: The area has VM_PFNMAP and is shared; the page is one that this client may have.
            let result = unsafe { bindings::vmf_insert_pfn(self.vma(), address + n * 4096, pfn) } as u32;
            if result & bindings::vm_fault_reason_VM_FAULT_NOPAGE as u32 == 0 {
                return match (n, result & bindings::vm_fault_reason_VM_FAULT_OOM as u32) {
                    (0, 0) => Err(FaultError::NotThere),
                    (0, _) => Err(FaultError::NoMemory),
                    _ => Ok(()),
                };
            }
        }
        phys(0).map(|_| ()).ok_or(FaultError::NotThere)
    }
}
