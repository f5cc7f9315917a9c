// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's memory, by the addresses that the function uses for it (DMA_MAP, DMA_UNMAP).

use super::mapping::Mapping;
use super::remote::Remote;
use super::wire::{DmaMap, DmaUnmap};
use crate::host::{DmaFault, HostMemory};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use nvme_kv::Cqe;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use zerocopy::IntoBytes;

/// Memory at consecutive addresses.
struct Region {
    len: u64,
    read: bool,
    write: bool,
    /// Where it is here, and from which byte on; `None` for memory that came without a file and is the client's to access.
    memory: Option<(Arc<Mapping>, usize)>,
}

/// A file, and how it is mapped: device, inode, writable.
type FileId = (u64, u64, bool);

/// Where a piece of memory is.
enum Place<'a> {
    /// In this process: mapping and place in it.
    Here(&'a Mapping, usize),
    /// With the client, at this address.
    There(&'a Remote, u64),
}

/// All memory that the function may access.
///
/// An access holds the lock while it copies, and removing a region takes the lock for itself: when DMA_UNMAP is
/// answered, no access is under way and none can start. The lock is not held while the client is asked, which
/// may be waiting for an answer to DMA_UNMAP; what it is asked for then, it refuses itself.
#[derive(Default)]
pub(super) struct DmaTable {
    /// By first address; regions do not overlap.
    regions: RwLock<BTreeMap<u64, Region>>,
    /// A file is mapped once, however many regions it has: with an IOMMU each page can be one, and the kernel
    /// limits the number of mappings.
    files: Mutex<HashMap<FileId, Weak<Mapping>>>,
    /// The function is a bus master.
    enabled: AtomicBool,
    /// What came without a file.
    remote: Remote,
}

impl DmaTable {
    /// The memory that the client accesses for us.
    pub(super) const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Lets the function access memory, or not; what is under way is finished first.
    pub(super) fn enable(&self, enabled: bool) {
        let _regions = self.lock_all();
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Adds a region.
    pub(super) fn map(&self, map: &DmaMap, fd: Option<OwnedFd>) -> Result<(), Errno> {
        let (read, write) = (map.flags & DmaMap::READ != 0, map.flags & DmaMap::WRITE != 0);
        let last = map.address.checked_add(map.size.wrapping_sub(1)).filter(|_| map.size > 0);
        let last = last.ok_or(Errno::EINVAL)?;
        if map.flags & !(DmaMap::READ | DmaMap::WRITE) != 0 {
            return Err(Errno::EINVAL);
        }
        let memory = fd.map(|fd| self.open(&fd, map.offset, map.size, write)).transpose()?;
        let mut regions = self.lock_all();
        let below = regions.range(..=last).next_back();
        if below.is_some_and(|(start, region)| start + (region.len - 1) >= map.address) {
            return Err(Errno::EEXIST);
        }
        regions.insert(map.address, Region { len: map.size, read, write, memory });
        Ok(())
    }

    /// Removes regions. Ranges without any are fine; clients unmap more than they mapped.
    pub(super) fn unmap(&self, unmap: &DmaUnmap) -> Result<(), Errno> {
        match unmap.flags {
            0 => {}
            DmaUnmap::ALL => {
                self.clear();
                return Ok(());
            }
            _ => return Err(Errno::EINVAL),
        }
        // Also where address and size together reach 2^64.
        let last = unmap.address.saturating_add(unmap.size.checked_sub(1).ok_or(Errno::EINVAL)?);
        let mut regions = self.lock_all();
        let inside: Vec<u64> = regions.range(unmap.address..=last).map(|(start, _)| *start).collect();
        let ends = |start: &u64, region: &Region| start + (region.len - 1);
        // A region that is only partly in the range can not be told apart any more.
        let before = regions.range(..unmap.address).next_back();
        let cut_before = before.is_some_and(|(start, region)| ends(start, region) >= unmap.address);
        let after = regions.range(unmap.address..=last).next_back();
        if cut_before || after.is_some_and(|(start, region)| ends(start, region) > last) {
            return Err(Errno::EINVAL);
        }
        inside.iter().for_each(|start| drop(regions.remove(start)));
        Ok(())
    }

    /// Removes all regions.
    pub(super) fn clear(&self) {
        self.lock_all().clear();
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Maps a part of a file, preferably by mapping all of it.
    fn open(&self, fd: &OwnedFd, offset: u64, len: u64, write: bool) -> Result<(Arc<Mapping>, usize), Errno> {
        let stat = fstat(fd)?;
        let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
        let exact = || {
            let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
            let mapping = Mapping::new(fd.as_fd(), offset, len, write).map_err(|error| errno(&error))?;
            Ok((Arc::new(mapping), 0))
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size == 0 {
            // No plain file: it has no size, but may be mapped.
            return exact();
        }
        // An access behind the end of a file would be deadly.
        if end > size {
            return Err(Errno::EINVAL);
        }
        let start = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (stat.st_dev, stat.st_ino, write);
        let known = files.get(&id).and_then(Weak::upgrade).filter(|mapping| mapping.len() as u64 >= end);
        if let Some(mapping) = known {
            return Ok((mapping, start));
        }
        let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
        match Mapping::new(fd.as_fd(), 0, size, write) {
            Ok(mapping) => {
                let mapping = Arc::new(mapping);
                files.retain(|_, mapping| mapping.strong_count() > 0);
                files.insert(id, Arc::downgrade(&mapping));
                Ok((mapping, start))
            }
            // Larger than our address space may be.
            Err(error) if errno(&error) == Errno::ENOMEM => exact(),
            Err(error) => Err(errno(&error)),
        }
    }

    /// Calls `each` with the memory behind a range of addresses, piece by piece.
    fn access(
        &self,
        fault: DmaFault,
        mut each: impl FnMut(Place<'_>, Range<usize>) -> Option<()>,
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < fault.len {
            let there = self.access_here(fault, &mut done, &mut each).ok_or(fault)?;
            if there > 0 {
                let place = Place::There(&self.remote, fault.addr.wrapping_add(done as u64));
                each(place, done..done + there).ok_or(fault)?;
                done += there;
            }
        }
        Ok(())
    }

    /// The pieces from byte `done` on that are here. Ends at one that is not, whose length it gives, or with 0 at the end.
    fn access_here(
        &self,
        fault: DmaFault,
        done: &mut usize,
        mut each: impl FnMut(Place<'_>, Range<usize>) -> Option<()>,
    ) -> Option<usize> {
        let regions = self.lock_shared();
        if !self.enabled.load(Ordering::Relaxed) {
            return None;
        }
        while *done < fault.len {
            let (memory, len) = piece(&regions, fault, *done)?;
            let Some((mapping, at)) = memory else { return Some(len) };
            each(Place::Here(mapping, at), *done..*done + len)?;
            *done += len;
        }
        Some(0)
    }

    fn lock_shared(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Region>> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_all(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Region>> {
        self.regions.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory behind an access from byte `done` on: mapping and place in it, if it is here; bytes (at least 1).
fn piece(
    regions: &BTreeMap<u64, Region>,
    access: DmaFault,
    done: usize,
) -> Option<(Option<(&Mapping, usize)>, usize)> {
    let addr = access.addr.checked_add(done as u64)?;
    let (start, region) = regions.range(..=addr).next_back()?;
    let allowed = if access.write { region.write } else { region.read };
    let offset = addr - start;
    if !allowed || offset >= region.len {
        return None;
    }
    let len = usize::try_from(region.len - offset).unwrap_or(usize::MAX).min(access.len - done);
    let Some((mapping, base)) = &region.memory else { return Some((None, len)) };
    Some((Some((&**mapping, base + usize::try_from(offset).ok()?)), len))
}

impl HostMemory for DmaTable {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: to.len(), write: false };
        self.access(fault, |place, range| match place {
            Place::Here(mapping, at) => mapping.read(at, to.get_mut(range)?),
            Place::There(remote, addr) => remote.read(addr, to.get_mut(range)?),
        })
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: from.len(), write: true };
        self.access(fault, |place, range| match place {
            Place::Here(mapping, at) => mapping.write(at, from.get(range)?),
            Place::There(remote, addr) => remote.write(addr, from.get(range)?),
        })
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: Cqe::SIZE, write: true };
        let (first, last) = cqe.as_bytes().split_at(Cqe::SIZE - 4);
        let mut dword = [0; 4];
        dword.copy_from_slice(last);
        // An entry is aligned and so never in two regions of whole pages.
        self.access(fault, |place, range| match place {
            _ if range != (0..Cqe::SIZE) => None,
            Place::Here(mapping, at) => {
                mapping.write(at, first)?;
                mapping.store(at + first.len(), u32::from_le_bytes(dword))
            }
            // In which order the client copies the bytes of one message is not said.
            Place::There(remote, addr) => {
                remote.write(addr, first)?;
                remote.write(addr.wrapping_add(first.len() as u64), last)
            }
        })
    }

    fn is_direct(&self, addr: u64, len: usize) -> bool {
        let Some(last) = addr.checked_add((len as u64).saturating_sub(1)) else { return true };
        let regions = self.lock_shared();
        let first = regions.range(..=addr).next_back().map_or(addr, |(start, _)| *start);
        let touched = regions.range(first..=last).filter(|(start, region)| *start + (region.len - 1) >= addr);
        touched.into_iter().all(|(_, region)| region.memory.is_some())
    }
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{memfd_create, MFdFlags};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn table() -> DmaTable {
        let table = DmaTable::default();
        table.enable(true);
        table
    }

    fn memory(len: u64) -> File {
        let file = File::from(memfd_create(c"test", MFdFlags::empty()).unwrap());
        file.set_len(len).unwrap();
        file
    }

    fn map(
        t: &DmaTable,
        flags: u32,
        address: u64,
        offset: u64,
        size: u64,
        f: Option<&File>,
    ) -> Result<(), Errno> {
        let fd = f.map(|f| f.try_clone().unwrap().into());
        t.map(&DmaMap { argsz: 32, flags, offset, address, size }, fd)
    }

    fn unmap(t: &DmaTable, flags: u32, address: u64, size: u64) -> Result<(), Errno> {
        t.unmap(&DmaUnmap { argsz: 24, flags, address, size })
    }

    #[test]
    fn accesses_cross_adjacent_regions_and_respect_rights() {
        let (t, a, b) = (table(), memory(8192), memory(4096));
        map(&t, 3, 0x1000, 4096, 4096, Some(&a)).unwrap();
        map(&t, 1, 0x2000, 0, 4096, Some(&b)).unwrap();
        map(&t, 3, 0x3000, 0, 4096, None).unwrap();
        b.write_all_at(b"world", 0).unwrap();
        t.write(0x1ffb, b"hello").unwrap();
        let mut back = [0; 10];
        t.read(0x1ffb, &mut back).unwrap();
        assert_eq!(&back, b"helloworld");
        assert!(t.write(0x2000, b"x").is_err());
        assert!(t.write(0x1fff, b"xy").is_err());
        map(&t, 2, 0x8000, 0, 4096, Some(&a)).unwrap();
        assert!(t.write(0x8000, b"x").is_ok());
        assert!(t.read(0x8000, &mut [0]).is_err(), "write only");
        assert!(t.read(0x3000, &mut back).is_err());
        assert!(t.read(0x2ffb, &mut back).is_err());
        assert!(t.read(0xffe, &mut back).is_err());
        assert!(t.read(u64::MAX - 3, &mut back).is_err());
        assert_eq!(t.read(0x9000, &mut []), Ok(()));
        t.enable(false);
        assert!(t.read(0x1ffb, &mut back).is_err());
    }

    #[test]
    fn completions_are_posted_where_they_can_be_written_at_once() {
        let (t, a) = (table(), memory(8192));
        map(&t, 3, 0x1000, 0, 4096, Some(&a)).unwrap();
        map(&t, 3, 0x2000, 4096, 4096, Some(&a)).unwrap();
        let cqe = Cqe::new(1, 2, 3, nvme_kv::Status::SUCCESS, 4).with_phase(true);
        t.post(0x1ff0, &cqe).unwrap();
        let mut back = [0; 16];
        t.read(0x1ff0, &mut back).unwrap();
        assert_eq!(back, cqe.as_bytes());
        assert!(t.post(0x1ff8, &cqe).is_err() && t.post(0x1002, &cqe).is_err());
    }

    #[test]
    fn maps_that_can_not_be_are_refused() {
        let (t, a) = (table(), memory(8192));
        map(&t, 3, 0x1000, 0, 0x1000, Some(&a)).unwrap();
        for (address, size) in [(0x1000, 0x1000), (0, 0x1001), (0x1fff, 1), (0, 0x4000)] {
            assert_eq!(map(&t, 3, address, 0, size, None), Err(Errno::EEXIST));
        }
        assert_eq!(map(&t, 3, 0x8000, 4096, 8192, Some(&a)), Err(Errno::EINVAL));
        assert_eq!(map(&t, 3, 0x8000, u64::MAX, 8192, Some(&a)), Err(Errno::EINVAL));
        assert_eq!(map(&t, 3, u64::MAX, 0, 2, None), Err(Errno::EINVAL));
        assert_eq!(map(&t, 3, 0, 0, 0, None), Err(Errno::EINVAL));
        assert_eq!(map(&t, 4, 0x8000, 0, 1, None), Err(Errno::EINVAL));
        assert_eq!(map(&t, 3, u64::MAX, 0, 1, None), Ok(()));
    }

    #[test]
    fn unmapping_more_than_was_mapped_is_fine_and_less_is_not() {
        let (t, a) = (table(), memory(8192));
        map(&t, 3, 0x1000, 0, 0x2000, Some(&a)).unwrap();
        assert_eq!(unmap(&t, 0, 0x1000, 0x1000), Err(Errno::EINVAL));
        assert_eq!(unmap(&t, 0, 0x2000, 0x1000), Err(Errno::EINVAL));
        assert_eq!(unmap(&t, 0, 0, 0), Err(Errno::EINVAL));
        assert_eq!(unmap(&t, 0, 0xfef0_0000, 0xffff_ffff_0110_0000), Ok(()));
        assert_eq!(unmap(&t, 0, 0, 1 << 63), Ok(()));
        assert!(t.read(0x1000, &mut [0]).is_err());
        map(&t, 3, 0x1000, 0, 0x2000, Some(&a)).unwrap();
        assert_eq!(unmap(&t, DmaUnmap::ALL, 0, 0), Ok(()));
        assert!(t.read(0x1000, &mut [0]).is_err());
        assert_eq!(unmap(&t, 1, 0, 1), Err(Errno::EINVAL));
    }

    #[test]
    fn many_regions_of_one_file_are_one_mapping() {
        let (t, a) = (table(), memory(4096 * 70_000));
        for page in 0..70_000u64 {
            map(&t, 3, page << 20, page << 12, 4096, Some(&a)).unwrap();
        }
        t.write(69_999 << 20, b"end").unwrap();
        let mut back = [0; 3];
        a.read_exact_at(&mut back, 69_999 << 12).unwrap();
        assert_eq!(&back, b"end");
        let mappings: std::collections::HashSet<_> =
            t.lock_shared().values().map(|r| Arc::as_ptr(&r.memory.as_ref().unwrap().0)).collect();
        assert_eq!(mappings.len(), 1);
    }
}
