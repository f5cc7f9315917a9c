// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for values.
#![allow(unsafe_code, reason = "slices of mapped memory that nothing else can reach at the time")]

use crate::backend::{Backend, BufferParts};
use crate::error::{Error, Result};
use crate::mapping::Region;
use nvme_kv::prp::ReadyLists;
use nvme_kv::{DataPointer, PAGE_SIZE};
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use xio_uapi::Page;
use zerocopy::FromZeros;

/// Memory that commands point at, reached by the controller: allocated by the module, [registered](crate::Memory), or
/// [imported](crate::Controller::import).
///
/// A `Buffer` is a handle: clones stand for the same memory, and each command in flight keeps one, so that
/// the memory is freed only when no command uses it any more.
///
/// When the controller is reset, the module's memory is revoked: [`read`](Self::read) and the like fail with
/// [`Error::Revoked`]. Who reads or writes the bytes in place ([`get`](Self::get), [`get_mut`](Self::get_mut),
/// [`as_ptr`](Self::as_ptr)) asks [`intact`](Self::intact) afterwards.
#[derive(Clone, Debug)]
pub struct Buffer {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `data` is `len` bytes, which are whole pages, and `pages` has the entry of each, or is empty. Only commands that hold a clone
/// make the controller touch `data`, unless it is `late`. `data` can be written to if `writable`.
///
/// Drop order: the mapping first, since it would fault after the allocation is freed. (Pinned pages stay without it.)
#[derive(Debug)]
struct Inner {
    data: Option<Arc<Region>>,
    len: usize,
    pages: Vec<Page>,
    writable: bool,
    imported: bool,
    /// Resets of the controller before it was made.
    epoch: u32,
    /// A command whose end is not known may still touch `data`.
    late: AtomicBool,
    allocation: Allocation,
}

/// Frees the memory when dropped.
#[derive(Debug)]
struct Allocation {
    handle: u32,
    backend: Arc<dyn Backend>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Nothing can be done about an error here, and what was not freed is freed with the file.
        let _ = self.backend.free_buffer(self.handle);
    }
}

impl Buffer {
    /// Takes an allocation; the table, where there is one, is read once, since it does not change.
    pub(crate) fn new(backend: Arc<dyn Backend>, parts: BufferParts, epoch: u32) -> Result<Self> {
        let allocation = Allocation { handle: parts.handle, backend };
        let count = parts.table.as_ref().map_or(0, |_| parts.len / PAGE_SIZE);
        let mut pages = vec![Page::new_zeroed(); count];
        if let Some(table) = parts.table {
            table.read(0, zerocopy::IntoBytes::as_mut_bytes(pages.as_mut_slice()));
            if table.is_revoked() {
                return Err(allocation.backend.lost("making a buffer"));
            }
        }
        // INVARIANT: the backend's promise.
        Ok(Self {
            inner: Arc::new(Inner {
                data: parts.data,
                len: parts.len,
                pages,
                writable: parts.writable,
                imported: parts.imported,
                epoch,
                late: AtomicBool::new(false),
                allocation,
            }),
        })
    }

    pub(crate) fn belongs_to(&self, backend: &Arc<dyn Backend>) -> bool {
        Arc::ptr_eq(&self.inner.allocation.backend, backend)
    }

    fn region(&self) -> Result<&Region> {
        self.inner.data.as_deref().ok_or(Error::NotMapped)
    }

    /// Whether it was made after so many resets; one that was made before another is the controller's no more.
    pub(crate) fn is_of_epoch(&self, epoch: u32) -> bool {
        self.inner.epoch == epoch
    }

    /// Whether its memory is known to be revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.inner.data.as_ref().is_some_and(|data| data.is_revoked())
    }

    /// The error of access that was to no avail.
    fn good(&self, what: &'static str) -> Result<()> {
        match (self.is_revoked(), self.inner.imported) {
            (false, _) => Ok(()),
            (true, true) => Err(Error::TakenBack),
            (true, false) => Err(self.inner.allocation.backend.lost(what)),
        }
    }

    /// Whether the memory is there at this moment: then all that was read from it in place, and written to it, was good.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Gone`]; [`Error::TakenBack`] of imported memory; [`Error::NotMapped`]. Memory of this process'
    /// own that was [registered](crate::Controller::register) stays, whatever becomes of the controller.
    pub fn intact(&self) -> Result<()> {
        self.region()?.look();
        self.good("using a buffer")
    }

    /// Size in bytes, a multiple of 4096.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether this process can reach the bytes; memory of another device may be that device's alone.
    pub fn is_mapped(&self) -> bool {
        self.inner.data.is_some()
    }

    /// The handle in the ioctl interface.
    pub fn handle(&self) -> u32 {
        self.inner.allocation.handle
    }

    /// Whether nothing can be written or retrieved into it.
    pub fn is_read_only(&self) -> bool {
        !self.inner.writable
    }

    /// A command was given up, and nobody tells when it ends: the bytes are never given out as plain memory again.
    pub(crate) fn keep_from_users(&self) {
        self.inner.late.store(true, Ordering::Relaxed);
    }

    /// Whether a command that nobody waits for may still use it.
    pub(crate) fn is_late(&self) -> bool {
        self.inner.late.load(Ordering::Relaxed)
    }

    /// Address of the first byte in this process, for code outside this library (such as a GPU runtime) that
    /// registers the memory. Valid while a clone of the buffer exists; who writes through it sees to it that
    /// nobody uses [`Buffer::get_mut`] meanwhile. Null where the memory [is not mapped](Self::is_mapped).
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.data.as_ref().map_or(std::ptr::null_mut(), |data| data.as_ptr())
    }

    /// What commands need to point at each page, as the module tells; nothing where this process might not have direct
    /// queues when the buffer was made.
    pub fn pages(&self) -> &[Page] {
        &self.inner.pages
    }

    /// Copies from the buffer. When a command in flight writes the same bytes, what is read may be a mixture.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::NotMapped`]; [`Error::Revoked`], [`Error::Gone`] and [`Error::TakenBack`] when the memory is no
    /// more, and what was read is worthless.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len())?;
        self.region()?.read(offset, to);
        self.good("reading a buffer")
    }

    /// Copies into the buffer. When a command in flight reads the same bytes, it may get a mixture.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::ReadOnly`], [`Error::NotMapped`], and those of [`intact`](Self::intact).
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.region()?.write(offset, from);
        self.good("writing to a buffer")
    }

    /// The bytes, when no command in flight, no [`Slice`] and no clone can reach them, and they are not read-only. Never
    /// after a mediated command was given up, and not of memory that is no more. Should it be revoked while they are used, they read
    /// as zeros, and what is written is lost: [`intact`](Self::intact) tells afterwards.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let inner = Arc::get_mut(&mut self.inner)
            .filter(|inner| inner.writable && !inner.late.load(Ordering::Relaxed))?;
        let data = inner.data.as_ref().filter(|data| !data.look())?;
        // SAFETY: this is the only handle and it is borrowed exclusively, so that nothing of this process touches
        // the bytes. A command in flight would hold a clone, so no device does (invariant of Inner).
        Some(unsafe { data.as_mut_slice() })
    }

    /// The bytes to read, when nothing else can reach them. [`intact`](Self::intact) tells afterwards whether they were good.
    pub fn get(&mut self) -> Option<&[u8]> {
        let inner = Arc::get_mut(&mut self.inner).filter(|inner| !inner.late.load(Ordering::Relaxed))?;
        let data = inner.data.as_ref().filter(|data| !data.look())?;
        // SAFETY: as above; memory that may only be read is written by nobody.
        Some(unsafe { data.as_slice() })
    }

    /// A range for commands; its start must be a multiple of 4.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice> {
        let offset = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at.saturating_add(1),
            Bound::Excluded(at) => *at,
            Bound::Unbounded => self.len(),
        };
        let size = self.len();
        let outside = |len| Error::Range { offset, len, size };
        let len = end.checked_sub(offset).ok_or_else(|| outside(0))?;
        self.check(offset, len)?;
        if offset % 4 != 0 {
            return Err(outside(len));
        }
        let data = self.point(offset, len);
        let len = u32::try_from(len).map_err(|_| outside(len))?;
        Ok(Slice { buffer: self.clone(), offset, len, data })
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        let size = self.len();
        if offset > size || len > size - offset {
            return Err(Error::Range { offset, len, size });
        }
        Ok(())
    }

    /// PRP entries of a range; `None` without a table.
    fn point(&self, offset: usize, len: usize) -> Option<DataPointer> {
        let pages = self.pages();
        if pages.is_empty() {
            return None;
        }
        // `ReadyLists` asks for pages of the range alone, which `check` found to be within the buffer.
        let page = |n: usize| pages.get(n).map_or(0, |p| p.addr);
        let list = |variant: usize, n: usize| {
            pages.get(n).and_then(|p| p.list.get(variant)).copied().unwrap_or_default()
        };
        ReadyLists::new(pages.len()).point(offset, len, page, list).ok()
    }
}

/// A range of a [`Buffer`] for a command. Keeps the buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    buffer: Buffer,
    offset: usize,
    len: u32,
    data: Option<DataPointer>,
}

impl Slice {
    /// The buffer.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Where it starts in the buffer, in bytes.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "compared with lengths alone")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// PRP entries, for code that writes commands itself; `None` where there is no table of addresses (see
    /// [`Buffer::pages`]).
    pub const fn data_pointer(&self) -> Option<DataPointer> {
        self.data
    }

    /// Copies the bytes out, as [`Buffer::read`] does.
    ///
    /// # Errors
    /// Those of [`Buffer::read`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        self.buffer.read(self.offset, &mut bytes)?;
        Ok(bytes)
    }
}
