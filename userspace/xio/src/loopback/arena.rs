// SPDX-License-Identifier: MIT OR Apache-2.0
//! "DMA" memory of the software controller: pages at scattered addresses that have nothing to do with where they
//! are mapped, and nothing else. What an IOMMU is to a device.

use crate::error::Result;
use crate::mapping::Region;
use nvme_kv::{Cqe, PAGE_SIZE};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use xio_target::host::{DmaFault, Doorbells, HostMemory};
use zerocopy::IntoBytes;

/// First page number of scattered memory.
const SCATTERED: u64 = 1 << 20;
/// Page numbers of scattered memory are spread over this many.
const SPREAD: u64 = 1 << 32;
/// First page number of contiguous memory.
const CONTIGUOUS: u64 = 1 << 36;

/// A page that the controller may reach.
#[derive(Debug)]
struct Target {
    region: Arc<Region>,
    at: usize,
    writable: bool,
}

/// The pages that the controller may reach, by page number.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pages: RwLock<HashMap<u64, Target>>,
    scattered: AtomicU64,
    contiguous: AtomicU64,
}

/// Memory with an address, until dropped.
#[derive(Debug)]
pub(super) struct Mapped {
    arena: Arc<Arena>,
    /// Memory.
    pub region: Arc<Region>,
    /// Address of each page.
    pub addrs: Vec<u64>,
}

impl Arena {
    /// Makes memory whose pages have addresses somewhere.
    pub(super) fn scatter(self: &Arc<Self>, len: usize, writable: bool) -> Result<Mapped> {
        Ok(self.scatter_region(Arc::new(Region::anonymous(len)?), writable))
    }

    /// Gives each page of the region an address somewhere. Addresses are never used again.
    pub(super) fn scatter_region(self: &Arc<Self>, region: Arc<Region>, writable: bool) -> Mapped {
        let count = region.len().div_ceil(PAGE_SIZE) as u64;
        let first = self.scattered.fetch_add(count, Ordering::Relaxed);
        // An odd factor maps the numbers below a power of two to each other.
        let number = |n: u64| SCATTERED + n.wrapping_mul(0x9e37_79b1) % SPREAD;
        self.insert(region, writable, (first..first + count).map(number))
    }

    /// Makes memory whose pages have addresses that follow each other, with a gap before and behind. It can be revoked.
    pub(super) fn contiguous(self: &Arc<Self>, len: usize, writable: bool) -> Result<Mapped> {
        let region = Arc::new(Region::anonymous(len)?.revocable());
        let count = region.len().div_ceil(PAGE_SIZE) as u64;
        let first = CONTIGUOUS + self.contiguous.fetch_add(count + 1, Ordering::Relaxed);
        Ok(self.insert(region, writable, first..first + count))
    }

    fn insert(
        self: &Arc<Self>,
        region: Arc<Region>,
        writable: bool,
        numbers: impl Iterator<Item = u64>,
    ) -> Mapped {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let mut addrs = Vec::new();
        for (n, number) in numbers.enumerate() {
            let target = Target { region: region.clone(), at: n * PAGE_SIZE, writable };
            let before = pages.insert(number, target);
            debug_assert!(before.is_none(), "page {number} given twice");
            addrs.push(number * PAGE_SIZE as u64);
        }
        Mapped { arena: self.clone(), region, addrs }
    }

    /// Calls `each` with the memory behind a range and the range of the caller's bytes, page by page.
    fn access(
        &self,
        addr: u64,
        len: usize,
        write: bool,
        mut each: impl FnMut(&Region, usize, std::ops::Range<usize>),
    ) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len, write };
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < len {
            let at = addr.checked_add(done as u64).ok_or(fault)?;
            let in_page = (at % PAGE_SIZE as u64) as usize;
            let count = (len - done).min(PAGE_SIZE - in_page);
            let page = pages.get(&(at / PAGE_SIZE as u64)).ok_or(fault)?;
            if write && !page.writable {
                return Err(fault);
            }
            each(&page.region, page.at + in_page, done..done + count);
            done += count;
        }
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The lock waits for accesses under way: afterwards the controller reaches the memory no more.
        let mut pages = self.arena.pages.write().unwrap_or_else(PoisonError::into_inner);
        for addr in &self.addrs {
            pages.remove(&(addr / PAGE_SIZE as u64));
        }
    }
}

impl HostMemory for Arena {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.access(addr, to.len(), false, |region, at, range| region.read(at, &mut to[range]))
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.access(addr, from.len(), true, |region, at, range| region.write(at, &from[range]))
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        if addr % Cqe::SIZE as u64 != 0 {
            return Err(DmaFault { addr, len: Cqe::SIZE, write: true });
        }
        let bytes = cqe.as_bytes();
        let (rest, _) = bytes.split_at(Cqe::SIZE - 4);
        let last = u32::from(cqe.status.get()) << 16 | u32::from(cqe.cid.get());
        self.access(addr, Cqe::SIZE, true, |region, at, _| {
            region.write(at, rest);
            region.store_release(at + rest.len(), last);
        })
    }
}

/// The doorbell registers: BAR 0, of which only the doorbells are used.
#[derive(Debug)]
pub(super) struct DoorbellMemory(pub Arc<Region>);

impl Doorbells for DoorbellMemory {
    fn load(&self, offset: usize) -> u32 {
        self.0.load_acquire(offset)
    }

    fn clear(&self, offset: usize) {
        self.0.store_release(offset, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_kv::ring::{CqConsumer, CqProducer, SqConsumer, SqProducer};
    use nvme_kv::Sqe;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn only_given_addresses_can_be_reached() {
        let arena = Arc::new(Arena::default());
        let data = arena.scatter(3 * PAGE_SIZE, true).unwrap();
        let constant = arena.contiguous(2 * PAGE_SIZE, false).unwrap();
        assert!(data.addrs.windows(2).all(|w| w[0].abs_diff(w[1]) != 4096));
        arena.write(data.addrs[1] + 8, b"abc").unwrap();
        let mut back = [0; 3];
        data.region.read(PAGE_SIZE + 8, &mut back);
        assert_eq!(back, *b"abc");
        assert!(arena.write(constant.addrs[0], b"x").is_err());
        let mut two = [0; 8192];
        assert!(arena.read(constant.addrs[0], &mut two).is_ok());
        assert!(arena.read(constant.addrs[0] + 1, &mut two).is_err());
        assert!(arena.read(data.addrs[0], &mut two).is_err());
        let (gone, mut byte) = (data.addrs[0], [0]);
        assert!(arena.read(gone, &mut byte).is_ok());
        drop(data);
        assert!(arena.read(gone, &mut byte).is_err());
        assert!(arena.read(u64::MAX, &mut byte).is_err() && arena.read(0, &mut byte).is_err());
    }

    /// Says that its thread has failed, so that the other one need not wait for ever.
    struct Failed<'a>(&'a AtomicBool);

    impl Drop for Failed<'_> {
        fn drop(&mut self) {
            self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
        }
    }

    /// Host and controller in two threads. Of most use in an interpreter that reorders what may be reordered (Miri).
    #[test]
    fn entries_are_handed_over_whole() {
        const SIZE: u32 = 4;
        let rounds = if cfg!(miri) { 10 } else { 1000 };
        let arena = Arc::new(Arena::default());
        let sq = arena.contiguous(PAGE_SIZE, false).unwrap();
        let cq = arena.contiguous(PAGE_SIZE, true).unwrap();
        let bells = Arc::new(Region::anonymous(PAGE_SIZE).unwrap());
        let failed = AtomicBool::new(false);
        let wait = || {
            assert!(!failed.load(Ordering::Relaxed), "the other side has failed");
            std::thread::yield_now();
        };
        let device = || {
            let _told = Failed(&failed);
            let (sq, cq) = (sq.addrs[0], cq.addrs[0]);
            let bells = DoorbellMemory(bells.clone());
            let (mut from, mut to) = (SqConsumer::new(SIZE).unwrap(), CqProducer::new(SIZE).unwrap());
            for n in 0..rounds {
                let slot = loop {
                    match from.pop(bells.load(0)).unwrap() {
                        Some(slot) => break slot,
                        None => wait(),
                    }
                };
                let mut sqe = [0; Sqe::SIZE];
                arena.read(sq + u64::from(slot) * 64, &mut sqe).unwrap();
                assert_eq!(sqe, [n as u8; Sqe::SIZE]);
                let (slot, phase) = to.push(bells.load(4)).unwrap().unwrap();
                let cqe = Cqe::new(n as u16, from.head(), n as u16, nvme_kv::Status::SUCCESS, n);
                arena.post(cq + u64::from(slot) * 16, &cqe.with_phase(phase)).unwrap();
            }
        };
        let host = || {
            let _told = Failed(&failed);
            let (mut to, mut from) = (SqProducer::new(SIZE).unwrap(), CqConsumer::new(SIZE).unwrap());
            for n in 0..rounds {
                sq.region.write(to.push().unwrap() as usize * Sqe::SIZE, &[n as u8; Sqe::SIZE]);
                bells.store_release(0, to.tail());
                let cqe = loop {
                    match crate::queue::read(&cq.region, from.head(), from.phase()) {
                        Some(cqe) => break cqe,
                        None => wait(),
                    }
                };
                assert_eq!((cqe.dw0.get(), cqe.cid.get(), cqe.sqid.get()), (n, n as u16, n as u16));
                assert!(to.update_head(cqe.sqhd.get()));
                from.pop();
                bells.store_release(4, from.head());
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(device);
            host();
        });
    }

    #[test]
    fn a_posted_entry_reads_back() {
        let arena = Arc::new(Arena::default());
        let queue = arena.contiguous(PAGE_SIZE, true).unwrap();
        let cqe = Cqe::new(3, 4, 0xabcd, nvme_kv::Status::KEY_EXISTS, 7).with_phase(true);
        arena.post(queue.addrs[0] + 16, &cqe).unwrap();
        let mut back = [0; 16];
        queue.region.read(16, &mut back);
        assert_eq!(back, cqe.as_bytes());
        assert!(arena.post(queue.addrs[0] + 8, &cqe).is_err());
    }
}
