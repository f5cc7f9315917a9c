// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a device, and host memory that a device knows.
#![allow(unsafe_code, reason = "addresses of a device")]

use super::executor::{Executor, Importer, Mapping};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Memory of a device (on the host executor, of this process), zeroed when made. Freed when dropped.
///
/// # Invariants
///
/// `address` is where `len` bytes of `executor` begin, which nobody else frees.
#[derive(Debug)]
pub struct DeviceMemory {
    executor: Arc<dyn Executor>,
    address: u64,
    len: usize,
}

impl DeviceMemory {
    pub(super) fn new(executor: &Arc<dyn Executor>, len: usize) -> Result<Self> {
        let len = len.max(1).next_multiple_of(nvme_kv::PAGE_SIZE);
        let address = executor.alloc(len)?;
        // INVARIANT: as `alloc` says.
        Ok(Self { executor: executor.clone(), address, len })
    }

    pub(super) fn shared(executor: &Arc<dyn Executor>, len: usize) -> Result<Self> {
        let len = len.max(1).next_multiple_of(nvme_kv::PAGE_SIZE);
        let address = executor.alloc_shared(len)?;
        // INVARIANT: as `alloc_shared` says.
        Ok(Self { executor: executor.clone(), address, len })
    }

    /// Address for kernels. Valid while this exists.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Bytes, a multiple of 4096.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies to it. No kernel may be using it; kernels of this library end before the call that starts them does.
    ///
    /// # Errors
    /// [`Error::Range`], or what the runtime says.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        // SAFETY: within the allocation by the check; kernels end before `launch` returns.
        unsafe { self.executor.upload(self.address + offset as u64, from) }
    }

    /// Copies from it, as above.
    ///
    /// # Errors
    /// As above.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len())?;
        // SAFETY: as above.
        unsafe { self.executor.download(self.address + offset as u64, to) }
    }

    /// Exports it as a dma-buf, for a driver of another device to import; memory of
    /// [`Gpu::alloc_shared`](super::Gpu::alloc_shared).
    ///
    /// # Errors
    /// [`Error::Gpu`] when device or runtime can not; on the host, when `/dev/udmabuf` may not be opened.
    pub fn export(&self) -> Result<DeviceDmabuf> {
        self.export_to(Importer::Driver)
    }

    pub(super) fn export_to(&self, importer: Importer) -> Result<DeviceDmabuf> {
        self.executor.export(self.address, self.len, importer)
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        let size = self.len;
        if offset > size || len > size - offset {
            return Err(Error::Range { offset, len, size });
        }
        Ok(())
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: ours by the invariant; kernels end before `launch` returns, and those who gave the address away keep
        // this alive.
        unsafe { self.executor.free(self.address) }
    }
}

/// Memory of a device as a dma-buf. Closed when dropped, which those who imported it do not mind.
#[derive(Debug)]
pub struct DeviceDmabuf {
    /// Taken by `drop` alone.
    fd: ManuallyDrop<OwnedFd>,
    offset: u64,
    close: Option<Close>,
}

/// A runtime's own function that closes a dma-buf; its result is 0 when it did.
pub(super) type Close = unsafe extern "C" fn(c_int) -> c_uint;

impl DeviceDmabuf {
    /// Takes a descriptor; `close` is a function that does no more than to close it.
    pub(super) const fn new(fd: OwnedFd, offset: u64, close: Option<Close>) -> Self {
        Self { fd: ManuallyDrop::new(fd), offset, close }
    }

    /// Where in the dma-buf the memory begins, in bytes: runtimes may export a block that has other allocations, too.
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}

impl AsFd for DeviceDmabuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DeviceDmabuf {
    fn drop(&mut self) {
        // SAFETY: not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Some(close) = self.close {
            // SAFETY: the runtime made the descriptor, which nothing else has. Nobody to tell of an error.
            let _ = unsafe { close(fd.into_raw_fd()) };
        }
    }
}

/// Host memory that a device knows, until dropped. Whole pages.
///
/// # Invariants
///
/// `len` bytes at `ptr` are mapped while this exists (the promise made to [`Registry::register`]), and registered.
#[derive(Debug)]
pub(crate) struct Registered {
    executor: Arc<dyn Executor>,
    ptr: usize,
    how: Mapping,
    address: u64,
}

impl Registered {
    /// The address for the device of a place in the range.
    pub(crate) fn address_of(&self, ptr: *const u8) -> u64 {
        self.address + (ptr as usize - self.ptr) as u64
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered in this way by the invariant; kernels end before `launch` returns.
        unsafe { self.executor.unregister(self.ptr as *mut u8, self.how) }
    }
}

/// What is registered, since nothing can be twice: queues may share a page of doorbells.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    known: Mutex<HashMap<(usize, usize, Mapping), Weak<Registered>>>,
}

impl Registry {
    /// Registers the pages around a range.
    ///
    /// # Safety
    /// They stay mapped until the result is dropped.
    pub(super) unsafe fn register(
        &self,
        executor: &Arc<dyn Executor>,
        ptr: *mut u8,
        len: usize,
        how: Mapping,
    ) -> Result<Arc<Registered>> {
        let start = ptr as usize / nvme_kv::PAGE_SIZE * nvme_kv::PAGE_SIZE;
        let end = (ptr as usize + len).next_multiple_of(nvme_kv::PAGE_SIZE);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, there| there.strong_count() > 0);
        if let Some(there) = known.get(&(start, end, how)).and_then(Weak::upgrade) {
            return Ok(there);
        }
        // SAFETY: mapped by the caller's promise.
        let address = unsafe { executor.register(start as *mut u8, end - start, how)? };
        // INVARIANT: registered just now, mapped by the caller's promise.
        let made = Arc::new(Registered { executor: executor.clone(), ptr: start, how, address });
        known.insert((start, end, how), Arc::downgrade(&made));
        Ok(made)
    }
}
