// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for values. That of large ones is kept for the next: fresh memory is cleared by the kernel when it is first
//! touched, which takes longer than filling it.
#![allow(unsafe_code)] // Gives the kernel advice about memory.

use nix::sys::mman::{madvise, MmapAdvise};
use nvme_kv::PAGE_SIZE;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From this size on memory is kept.
const WORTH_IT: usize = 1 << 20;
/// From this size on it is worth asking for huge pages.
const HUGE: usize = 4 << 20;
/// Bytes that are kept. As large as two of the largest values.
const KEPT: usize = 128 << 20;
/// Memory is used again for a value that is at most this part smaller.
const WASTE: usize = 8;

/// Memory that nobody uses, the latest last.
static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Vec<u8>>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of `len` bytes, to be filled. Whatever is in it is not to be shown to anybody.
pub(crate) fn memory(len: usize) -> Vec<u8> {
    if len < WORTH_IT {
        return vec![0; len];
    }
    let mut free = free();
    let fits = |kept: &Vec<u8>| kept.len() >= len && kept.capacity() - len <= len / WASTE;
    if let Some(at) = free.iter().rposition(fits) {
        let mut kept = free.remove(at);
        kept.truncate(len);
        return kept;
    }
    drop(free);
    fresh(len)
}

/// Takes memory that was given out by [`memory`].
pub(crate) fn recycle(memory: Vec<u8>) {
    if memory.len() < WORTH_IT {
        return;
    }
    let mut free = free();
    free.push(memory);
    let mut left = KEPT;
    // Too much: the oldest goes.
    let kept = free.iter().rev().take_while(|kept| {
        let fits = kept.capacity() <= left;
        left = left.saturating_sub(kept.capacity());
        fits
    });
    let old = free.len() - kept.count();
    let old: Vec<_> = free.drain(..old).collect();
    // Giving memory back to the kernel takes a while.
    drop(free);
    drop(old);
}

/// Zeros, taken from the kernel untouched, in huge pages where it has some.
fn fresh(len: usize) -> Vec<u8> {
    let mut zeros = vec![0; len];
    if len < HUGE {
        return zeros;
    }
    let skip = zeros.as_ptr().align_offset(PAGE_SIZE);
    if let Some(pages) = zeros.get_mut(skip..).filter(|pages| !pages.is_empty()) {
        advise(pages);
    }
    zeros
}

/// `pages` begins with a page.
fn advise(pages: &mut [u8]) {
    let whole = pages.len() / PAGE_SIZE * PAGE_SIZE;
    // SAFETY: the pages are all inside memory that we hold exclusively, and this advice does not change what is in
    // them.
    let advised = unsafe { madvise(NonNull::from(pages).cast(), whole, MmapAdvise::MADV_HUGEPAGE) };
    if let Err(errno) = advised {
        // A kernel without huge pages.
        log::debug!("MADV_HUGEPAGE: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_when_it_fits_and_not_much_is_kept() {
        for len in [0, 1, PAGE_SIZE, WORTH_IT - 1, WORTH_IT, WORTH_IT * 3 + 77] {
            assert_eq!(memory(len).len(), len);
        }
        // Of a size that no other test uses.
        let len = 5 * WORTH_IT + 4096;
        let first = memory(len);
        let at = first.as_ptr();
        recycle(first);
        let (shorter, fresh) = (memory(len - 100), memory(len));
        assert_eq!((shorter.as_ptr(), shorter.len()), (at, len - 100));
        assert_ne!(fresh.as_ptr(), at);
        recycle(shorter);
        let half = memory(len / 2);
        assert_ne!(half.as_ptr(), at);
        for _ in 0..100 {
            recycle(vec![0; 3 * WORTH_IT]);
        }
        recycle(vec![0; KEPT + 1]);
        let kept: usize = free().iter().map(Vec::capacity).sum();
        assert!(kept <= KEPT, "{kept}");
    }
}
