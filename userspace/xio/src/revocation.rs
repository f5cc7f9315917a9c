// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings that may be revoked, in a table that a signal handler can search: fixed blocks in a list that only grows, read
//! without locks.
#![allow(unsafe_code, reason = "memory is mapped over a revoked mapping")]

use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{compiler_fence, fence, AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Values of `Slot::start` that are no addresses of mappings.
const FREE: usize = 0;
const TAKEN: usize = 1;
/// In `Slot::extent`, beside the length, which is whole pages.
const WRITABLE: usize = 1;
const PAGE: usize = 4096;
const SLOTS: usize = 64;

/// A mapping.
///
/// `start` is `FREE`, or `TAKEN` while the rest is being written, or the address that the rest belongs to.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    extent: AtomicUsize,
    revoked: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        let (start, extent) = (AtomicUsize::new(FREE), AtomicUsize::new(0));
        Self { start, extent, revoked: AtomicBool::new(false) }
    }
}

#[derive(Debug)]
struct Block {
    slots: [Slot; SLOTS],
    /// Null, or a block that is never freed.
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Self {
        Self { slots: [const { Slot::new() }; SLOTS], next: AtomicPtr::new(null_mut()) }
    }

    /// The block behind this one.
    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null, or leaked by `next_or_new`.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The block behind this one, which is made if need be.
    fn next_or_new(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let made: *mut Self = Box::into_raw(Box::new(Self::new()));
        match self.next.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made above, and never freed from here on.
            Ok(_) => unsafe { &*made },
            Err(theirs) => {
                // SAFETY: made above, and nobody else knows it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, and never freed.
                unsafe { &*theirs }
            }
        }
    }
}

static FIRST: Block = Block::new();

/// Keeps a mapping in the table, until dropped: before it is unmapped.
#[derive(Debug)]
pub(crate) struct Guard(&'static Slot);

impl Guard {
    /// Puts a mapping into the table.
    ///
    /// # Safety
    /// The pages that `len` bytes at `start` are in are one mapping, which stays until the guard is dropped and which nothing
    /// else maps over; it need not keep its content, as all who read it know.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize, writable: bool) -> Self {
        let slot = claim();
        // Whoever reads one of the following reads TAKEN afterwards.
        fence(Ordering::Release);
        let extent = len.next_multiple_of(PAGE) | if writable { WRITABLE } else { 0 };
        slot.extent.store(extent, Ordering::Relaxed);
        slot.revoked.store(false, Ordering::Relaxed);
        slot.start.store(start.as_ptr() as usize, Ordering::Release);
        Self(slot)
    }

    /// Whether somebody touched the mapping after it was revoked. Access that came before, to this thread, is done.
    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        // A fault of this thread sets it in between; of another thread's fault, the new pages are seen after the mark.
        compiler_fence(Ordering::SeqCst);
        fence(Ordering::Acquire);
        self.0.revoked.load(Ordering::Relaxed)
    }

    /// As if it were revoked and touched.
    pub(crate) fn revoke(&self) -> bool {
        revoke(self.0.start.load(Ordering::Relaxed), self.0)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(FREE, Ordering::Release);
    }
}

/// A slot whose start is `TAKEN`.
fn claim() -> &'static Slot {
    let mut block = &FIRST;
    loop {
        let take = |slot: &&Slot| {
            let free = slot.start.load(Ordering::Relaxed) == FREE;
            free && slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if let Some(slot) = block.slots.iter().find(take) {
            return slot;
        }
        block = block.next_or_new();
    }
}

/// Handles a fault: if the address is in one of the mappings, that is marked as revoked and gets fresh pages. Can be called in a
/// signal handler.
pub(crate) fn fault(address: usize) -> bool {
    let mut block = Some(&FIRST);
    while let Some(this) = block {
        for slot in &this.slots {
            let start = slot.start.load(Ordering::Acquire);
            let len = slot.extent.load(Ordering::Relaxed) & !WRITABLE;
            fence(Ordering::Acquire);
            // If the slot is another's by now, its mapping is not the one that is being touched.
            let whole = slot.start.load(Ordering::Relaxed) == start;
            if whole && start > TAKEN && address.checked_sub(start).is_some_and(|at| at < len) {
                return revoke(start, slot);
            }
        }
        block = this.next();
    }
    false
}

/// Marks a mapping as revoked and maps fresh pages over it, of this process alone.
fn revoke(start: usize, slot: &Slot) -> bool {
    let extent = slot.extent.load(Ordering::Relaxed);
    let writable = if extent & WRITABLE != 0 { libc::PROT_WRITE } else { 0 };
    // Before anybody can see the new pages.
    slot.revoked.store(true, Ordering::SeqCst);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: a mapping of ours by the promise of `Guard::new`; whoever uses it knows that its content may go.
    let mapped =
        unsafe { libc::mmap(start as *mut _, extent & !WRITABLE, libc::PROT_READ | writable, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Region;

    #[test]
    fn the_table_finds_what_is_in_it_and_nothing_else() {
        // More than a block has.
        let regions: Vec<Region> =
            (0..3 * SLOTS).map(|_| Region::anonymous(8192).unwrap().revocable()).collect();
        for (n, region) in regions.iter().enumerate() {
            region.write(5000, &[7]);
            assert!(!region.is_revoked());
            if n % 2 == 0 {
                assert!(fault(region.as_ptr() as usize + 8191));
            }
        }
        for (n, region) in regions.iter().enumerate() {
            let mut byte = [0];
            region.read(5000, &mut byte);
            assert_eq!((region.is_revoked(), byte[0]), if n % 2 == 0 { (true, 0) } else { (false, 7) });
        }
        let plain = Region::anonymous(4096).unwrap();
        assert!(!fault(plain.as_ptr() as usize) && !fault(0) && !fault(1) && !fault(usize::MAX));
    }

    #[test]
    fn threads_that_come_and_go_are_told_apart() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let region = Region::anonymous(4096).unwrap().revocable();
                        let other = Region::anonymous(4096).unwrap().revocable();
                        assert!(fault(region.as_ptr() as usize + 100));
                        assert!(region.is_revoked() && !other.is_revoked());
                    }
                });
            }
        });
    }
}
