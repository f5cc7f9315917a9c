// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is shared with the client.
#![allow(unsafe_code)] // Maps memory and copies from and to it.

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mapping of a file. The client changes its content at any time, so it is only ever copied, never borrowed.
///
/// # Invariants
///
/// `len` bytes from `base` on are mapped, for reading and, if `writable`, for writing, until this is dropped.
pub(super) struct Mapping {
    base: NonNull<c_void>,
    len: NonZeroUsize,
    writable: bool,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference memory is only copied or accessed atomically. Our threads never copy the same
// memory at once: doorbells, which several of them use, are always accessed as atomic dwords, and the client's memory
// only by who holds the controller's lock. What else races is the client, another process, and it only garbles its own
// data.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a part of a file.
    pub(super) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let len = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let protection =
            if writable { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        // SAFETY: a new mapping at a place of the kernel's choice touches no other one.
        let base = unsafe { mmap(None, len, protection, MapFlags::MAP_SHARED, fd, offset) }?;
        // INVARIANT: mapped just now; unmapped only in `drop`.
        Ok(Self { base, len, writable })
    }

    /// Bytes.
    pub(super) const fn len(&self) -> usize {
        self.len.get()
    }

    /// Copies from the memory; `None` for a range that is not in it.
    pub(super) fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        let from = self.pointer(at, to.len())?;
        // SAFETY: `pointer` checked the range against the mapping, and `to` is ours alone and so does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Some(())
    }

    /// Copies to the memory; `None` for a range that is not in it or not writable.
    pub(super) fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        let to = self.pointer(at, from.len()).filter(|_| self.writable)?;
        // SAFETY: `pointer` checked the range against the mapping, which is writable; a shared slice of ours does
        // not overlap with it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Some(())
    }

    /// Reads a dword with acquire ordering.
    pub(super) fn load(&self, at: usize) -> Option<u32> {
        self.dword(at).map(|dword| u32::from_le(dword.load(Ordering::Acquire)))
    }

    /// Writes a dword with release ordering.
    pub(super) fn store(&self, at: usize, value: u32) -> Option<()> {
        self.dword(at).filter(|_| self.writable)?.store(value.to_le(), Ordering::Release);
        Some(())
    }

    fn dword(&self, at: usize) -> Option<&AtomicU32> {
        let pointer = self.pointer(at, 4)?.cast::<u32>();
        if !pointer.is_aligned() {
            return None;
        }
        // SAFETY: aligned, and `pointer` checked the range against the mapping, which lives as long as `self`.
        // A read only mapping is never stored to.
        Some(unsafe { AtomicU32::from_ptr(pointer) })
    }

    fn pointer(&self, at: usize, len: usize) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        // SAFETY: `at` is at most `len`, so the result is in the mapping or just behind it.
        Some(unsafe { self.base.as_ptr().cast::<u8>().add(at) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: by the invariant this is our mapping; nothing borrowed from it outlives `self`.
        let unmapped = unsafe { munmap(self.base, self.len()) };
        if let Err(errno) = unmapped {
            log::error!("munmap: {errno}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{memfd_create, MFdFlags};
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn accesses_are_checked_against_length_and_rights() {
        let file = File::from(memfd_create(c"test", MFdFlags::empty()).unwrap());
        file.set_len(8192).unwrap();
        let rw = Mapping::new(file.as_fd(), 0, 8192, true).unwrap();
        let ro = Mapping::new(file.as_fd(), 4096, 4096, false).unwrap();
        assert_eq!(rw.write(4096, &[1, 2, 3, 4]), Some(()));
        let mut back = [0; 4];
        assert_eq!((ro.read(0, &mut back), back), (Some(()), [1, 2, 3, 4]));
        assert_eq!((ro.load(0), ro.load(1), ro.load(4096)), (Some(0x0403_0201), None, None));
        assert_eq!((ro.write(0, &back), ro.store(0, 1)), (None, None));
        assert_eq!((rw.write(8190, &back), rw.read(usize::MAX, &mut back)), (None, None));
        assert_eq!((rw.store(8188, 9), rw.load(8188)), (Some(()), Some(9)));
        assert!(Mapping::new(file.as_fd(), 0, 0, true).is_err());
    }
}
