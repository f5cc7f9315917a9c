// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of this process that can be registered with a controller.
#![allow(unsafe_code, reason = "slices of memory that nothing else can reach at the time")]

use crate::error::Result;
use crate::mapping::Region;
use nvme_kv::PAGE_SIZE;
use std::sync::Arc;

/// Whole pages of this process' own memory, for [`Controller::register`](crate::Controller::register).
///
/// Registering takes it, and what comes out is a [`Buffer`](crate::Buffer): the memory stays while commands can reach it.
///
/// # Invariants
///
/// Nothing else has the region, which is writable unless `read_only`.
#[derive(Debug)]
pub struct Memory {
    region: Region,
    read_only: bool,
}

impl Memory {
    /// At least `len` bytes, a whole number of pages, all zeros.
    ///
    /// # Errors
    /// When there is none, or `len` is 0.
    pub fn new(len: usize) -> Result<Self> {
        // INVARIANT: just made.
        Ok(Self { region: Region::anonymous(len.next_multiple_of(PAGE_SIZE))?, read_only: false })
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether the bytes can not be changed any more.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: nothing else has the region (invariant), and nobody writes to it while `self` is borrowed.
        unsafe { self.region.as_slice() }
    }

    /// The bytes to change; `None` when they can not be.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: nothing else has the region (invariant), and `self` is borrowed exclusively; it is writable.
        (!self.read_only).then(|| unsafe { self.region.as_mut_slice() })
    }

    /// Makes it memory that neither this process nor the controller can change: its values can be stored, and nothing
    /// can be retrieved into it.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn into_read_only(mut self) -> Result<Self> {
        self.region.protect()?;
        // INVARIANT: not writable any more.
        self.read_only = true;
        Ok(self)
    }

    /// The region and whether it is writable.
    pub(crate) fn into_parts(self) -> (Arc<Region>, bool) {
        (Arc::new(self.region), !self.read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_that_can_be_sealed() {
        let mut memory = Memory::new(5000).unwrap();
        assert_eq!(memory.len(), 8192);
        memory.as_mut_slice().unwrap()[8191] = 7;
        let mut sealed = memory.into_read_only().unwrap();
        assert!(sealed.is_read_only() && sealed.as_mut_slice().is_none());
        assert_eq!((sealed.as_slice()[8191], sealed.as_slice()[0]), (7, 0));
        assert!(Memory::new(0).is_err());
    }
}
