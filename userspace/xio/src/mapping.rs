// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a controller, or a device that works for one, reads and writes at the same time as this
//! process: mapped pages with atomic accessors, never plain references.
#![allow(unsafe_code, reason = "mapped memory is reached through raw pointers")]

use crate::error::{os, Result};
use crate::revocation::Guard;
use crate::sigbus;
use nix::sys::mman::{mmap, mmap_anonymous, mprotect, munmap, MapFlags, ProtFlags};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

/// A mapping, unmapped when dropped.
///
/// All access goes through relaxed atomic operations of bytes and of aligned words, so that whatever the other side
/// does meanwhile, the worst outcome is a torn value. What orders accesses are [`Region::load_acquire`],
/// [`Region::store_release`] and [`Doorbell::ring`].
///
/// # Invariants
///
/// `ptr` points to `len` mapped bytes, at the start of a page, that only `drop` unmaps. `guard` is of them.
#[derive(Debug)]
pub(crate) struct Region {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Of a mapping that may be revoked: then its content is lost, and what is written goes nowhere.
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to the process and not to a thread; any thread may unmap it.
unsafe impl Send for Region {}
// SAFETY: every access through `&Region` is atomic, or is an unsafe call whose caller promises exclusive access.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes of a file, shared; `what` is for the error.
    pub(crate) fn of_file(
        file: impl AsFd,
        offset: u64,
        len: usize,
        writable: bool,
        what: &'static str,
    ) -> Result<Self> {
        let prot = if writable { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        let size = NonZeroUsize::new(len).ok_or_else(|| os(what, nix::Error::EINVAL))?;
        let offset = i64::try_from(offset).map_err(|_| os(what, nix::Error::EOVERFLOW))?;
        // SAFETY: no address is asked for, so the kernel picks pages that nothing else uses.
        let ptr = unsafe { mmap(None, size, prot, MapFlags::MAP_SHARED, file, offset) };
        // INVARIANT: `mmap` returns the start of `len` mapped bytes.
        Ok(Self { ptr: ptr.map_err(|e| os(what, e))?.cast(), len, writable, guard: None })
    }

    /// Maps `len` bytes of a file that may take them back, as the module does when its controller is reset: then
    /// [`is_revoked`](Self::is_revoked) tells.
    pub(crate) fn of_device(
        file: impl AsFd,
        offset: u64,
        len: usize,
        writable: bool,
        what: &'static str,
    ) -> Result<Self> {
        sigbus::install()?;
        Self::of_file(file, offset, len, writable, what).map(Self::revocable)
    }

    /// Makes it one that may be revoked.
    pub(crate) fn revocable(mut self) -> Self {
        // SAFETY: the mapping is ours by the invariant, and `drop` drops the guard first. All access is atomic or is an unsafe
        // call whose caller knows what a revoked mapping is.
        self.guard = Some(unsafe { Guard::new(self.ptr, self.len, self.writable) });
        self
    }

    /// Whether it was revoked, as far as touching it has shown: when this is false after an access, that access was good.
    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_revoked)
    }

    /// Touches it to see whether it is revoked.
    pub(crate) fn look(&self) -> bool {
        std::hint::black_box(self.word32(0).load(Ordering::Relaxed));
        self.is_revoked()
    }

    /// Revokes it, as the module does. Nothing happens to one that is not revocable.
    pub(crate) fn revoke(&self) {
        let revoked = self.guard.as_ref().is_none_or(Guard::revoke);
        debug_assert!(revoked, "no pages for a mapping of {} bytes", self.len);
    }

    /// Memory of this process alone, all zeros.
    pub(crate) fn anonymous(len: usize) -> Result<Self> {
        let what = "allocating memory";
        let size = NonZeroUsize::new(len).ok_or_else(|| os(what, nix::Error::EINVAL))?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so the kernel picks pages that nothing else uses.
        let ptr = unsafe { mmap_anonymous(None, size, prot, MapFlags::MAP_PRIVATE) };
        // INVARIANT: `mmap` returns the start of `len` mapped bytes.
        Ok(Self { ptr: ptr.map_err(|e| os(what, e))?.cast(), len, writable: true, guard: None })
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte.
    pub(crate) const fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Pointer to `len` bytes at `at`.
    ///
    /// # Panics
    /// When the range is not within the mapping: callers check ranges that come from outside.
    #[inline]
    fn at(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {} mapped", self.len);
        // SAFETY: `at` is within the mapping by the check above.
        unsafe { self.ptr.as_ptr().add(at) }
    }

    /// The 32-bit word at `at`, a multiple of 4.
    #[inline]
    fn word32(&self, at: usize) -> &AtomicU32 {
        let ptr = self.at(at, 4).cast::<u32>();
        assert!(ptr.is_aligned(), "unaligned access at {at}");
        // SAFETY: four mapped bytes, aligned, and all access to them is atomic.
        unsafe { AtomicU32::from_ptr(ptr) }
    }

    /// Copies from the mapping.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) {
        let ptr = self.at(at, to.len());
        let head = ptr.align_offset(8).min(to.len());
        let (first, rest) = to.split_at_mut(head);
        let (words, last) = rest.split_at_mut(rest.len() / 8 * 8);
        // SAFETY: `at` checked that `to.len()` bytes are mapped from `ptr` on.
        let bytes = unsafe { bytes_of(ptr, first.len()) };
        bytes.zip(first).for_each(|(byte, to)| *to = byte.load(Ordering::Relaxed));
        // SAFETY: `at` checked `to.len()` bytes from `ptr`, and `words` is ours.
        let copied = unsafe { copy_at_once(ptr.add(head), words.as_mut_ptr(), words.len()) };
        if !copied {
            for (n, to) in words.chunks_exact_mut(8).enumerate() {
                // SAFETY: `at` checked `to.len()` bytes from `ptr`, and after `head` bytes the address is aligned.
                let word = unsafe { AtomicU64::from_ptr(ptr.add(head + n * 8).cast()) };
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
        }
        let tail = ptr.wrapping_add(head + words.len());
        // SAFETY: as above, `head`, `words` and `last` being all of `to`.
        let bytes = unsafe { bytes_of(tail, last.len()) };
        bytes.zip(last).for_each(|(byte, to)| *to = byte.load(Ordering::Relaxed));
    }

    /// Copies into the mapping, which must be writable.
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        let ptr = self.at(at, from.len());
        let head = ptr.align_offset(8).min(from.len());
        let (first, rest) = from.split_at(head);
        let (words, last) = rest.split_at(rest.len() / 8 * 8);
        // SAFETY: `at` checked that `from.len()` bytes are mapped from `ptr` on.
        let bytes = unsafe { bytes_of(ptr, first.len()) };
        bytes.zip(first).for_each(|(byte, from)| byte.store(*from, Ordering::Relaxed));
        // SAFETY: `at` checked `from.len()` bytes from `ptr`.
        let copied = unsafe { copy_at_once(words.as_ptr(), ptr.add(head), words.len()) };
        if !copied {
            for (n, from) in words.chunks_exact(8).enumerate() {
                let mut value = [0; 8];
                value.copy_from_slice(from);
                // SAFETY: `at` checked `from.len()` bytes from `ptr`, and after `head` bytes the address is aligned.
                let word = unsafe { AtomicU64::from_ptr(ptr.add(head + n * 8).cast()) };
                word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
            }
        }
        let tail = ptr.wrapping_add(head + words.len());
        // SAFETY: as above, `head`, `words` and `last` being all of `from`.
        let bytes = unsafe { bytes_of(tail, last.len()) };
        bytes.zip(last).for_each(|(byte, from)| byte.store(*from, Ordering::Relaxed));
    }

    /// The little-endian word at `at`; what the other side wrote before it wrote this word can be read afterwards.
    #[inline]
    pub(crate) fn load_acquire(&self, at: usize) -> u32 {
        u32::from_le(self.word32(at).load(Ordering::Acquire))
    }

    /// Writes the little-endian word at `at` after everything that this thread wrote before.
    #[inline]
    pub(crate) fn store_release(&self, at: usize, value: u32) {
        self.word32(at).store(value.to_le(), Ordering::Release);
    }

    /// Takes the right to write away. `write` must not be called afterwards.
    pub(crate) fn protect(&mut self) -> Result<()> {
        // SAFETY: the mapping is ours by the invariant, and no reference to its bytes lives while `self` is borrowed.
        let done = unsafe { mprotect(self.ptr.cast(), self.len, ProtFlags::PROT_READ) };
        self.writable = false;
        done.map_err(|e| os("making memory read-only", e))
    }

    /// The bytes.
    ///
    /// # Safety
    /// For as long as the reference lives nothing writes to them, no device either. Should the mapping be revoked meanwhile, what
    /// is read is not relied upon.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped bytes by the invariant; nobody writes to them by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes of a writable mapping, to change.
    ///
    /// # Safety
    /// For as long as the reference lives nothing else of this process touches them, and no device.
    #[allow(clippy::mut_from_ref, reason = "the caller promises to be the only one")]
    pub(crate) unsafe fn as_mut_slice(&self) -> &mut [u8] {
        // SAFETY: mapped bytes by the invariant; nobody else touches them by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

/// Copies aligned words with the processor's own instruction, where there is one and they are many enough for it to be faster than
/// a loop; whether it did. To the other side these are relaxed atomic accesses like any others here.
///
/// # Safety
/// `len` bytes, a multiple of 8, can be read from `from` and written to `to`, they do not overlap, and what is not mapping of
/// them is the caller's alone.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_at_once(from: *const u8, to: *mut u8, len: usize) -> bool {
    const WORTH_WHILE: usize = 512;
    if len < WORTH_WHILE {
        return false;
    }
    // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") len / 8 => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
    true
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_at_once(_: *const u8, _: *mut u8, _: usize) -> bool {
    false
}

/// The bytes at `ptr`.
///
/// # Safety
/// `len` bytes are mapped there while the iterator and what it returned live, and all access to them is atomic.
unsafe fn bytes_of<'a>(ptr: *mut u8, len: usize) -> impl Iterator<Item = &'a AtomicU8> {
    // SAFETY: within the range by `n < len`; the rest is the caller's promise.
    (0..len).map(move |n| unsafe { AtomicU8::from_ptr(ptr.add(n)) })
}

impl Drop for Region {
    fn drop(&mut self) {
        // First, since another mapping may be at this address at once.
        self.guard = None;
        // SAFETY: the mapping is ours by the invariant, and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.ptr.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "unmapping {} bytes: {unmapped:?}", self.len);
    }
}

/// A doorbell register in a mapped page.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell {
    page: Arc<Region>,
    at: usize,
}

impl Doorbell {
    /// The register at `at` of a page; `None` when that is no place for one.
    pub(crate) fn new(page: Arc<Region>, at: usize) -> Option<Self> {
        let fits = at % 4 == 0 && at.checked_add(4).is_some_and(|end| end <= page.len());
        fits.then_some(Self { page, at })
    }

    /// Address of the register.
    pub(crate) fn as_ptr(&self) -> *mut u32 {
        self.page.at(self.at, 4).cast()
    }

    /// Writes the register; the controller sees all that was written before.
    #[inline]
    pub(crate) fn ring(&self, value: u32) {
        self.page.store_release(self.at, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_alignment_and_length() {
        let region = Region::anonymous(4096).unwrap();
        let data: Vec<u8> = (0..1024u32).map(|n| (n % 255) as u8 + 1).collect();
        // In the interpreter not all.
        let step = if cfg!(miri) { 13 } else { 1 };
        for at in (0..17).step_by(step) {
            for len in (0..40).step_by(step).chain([511, 512, 519, 527, 530, 1000]) {
                region.write(0, &[0; 1024]);
                region.write(at, &data[..len]);
                let mut back = vec![0xee; 1024];
                region.read(0, &mut back);
                assert_eq!(back[at..at + len], data[..len]);
                assert!(back[..at].iter().chain(&back[at + len..]).all(|b| *b == 0), "{at} {len}");
                let mut part = vec![0; len];
                region.read(at, &mut part);
                assert_eq!(part, data[..len]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "1 bytes at 4096 of 4096 mapped")]
    fn ranges_beyond_the_end_are_refused() {
        Region::anonymous(4096).unwrap().write(4096, &[1]);
    }

    #[test]
    fn doorbells_are_aligned_and_inside() {
        let page = Arc::new(Region::anonymous(4096).unwrap());
        assert!(Doorbell::new(page.clone(), 4092).is_some());
        assert!(Doorbell::new(page.clone(), 4096).is_none() && Doorbell::new(page, 6).is_none());
    }
}
