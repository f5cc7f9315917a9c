// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for large values.
#![allow(unsafe_code)] // Gives the kernel advice about memory.

use nix::sys::mman::{madvise, MmapAdvise};
use nvme_kv::PAGE_SIZE;
use std::ptr::NonNull;

/// From this size on, faulting memory in by small pages takes several times as long as filling it.
const WORTH_IT: usize = 4 << 20;

/// Zeros. Large ones are taken from the kernel untouched, in huge pages where it has some.
pub(crate) fn zeros(len: usize) -> Vec<u8> {
    let mut zeros = vec![0; len];
    if len >= WORTH_IT {
        let skip = zeros.as_ptr().align_offset(PAGE_SIZE);
        if let Some(pages) = zeros.get_mut(skip..).filter(|pages| !pages.is_empty()) {
            advise(pages);
        }
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
    fn any_length_is_all_zeros() {
        for len in [0, 1, PAGE_SIZE, WORTH_IT - 1, WORTH_IT, WORTH_IT + 1, WORTH_IT * 3 + 77] {
            let zeros = zeros(len);
            assert_eq!((zeros.len(), zeros.iter().all(|b| *b == 0)), (len, true));
        }
    }
}
