// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory as waves, the controller and the host see it: not always the same.
//!
//! A store of a wave goes through these stages, and each of them makes it visible to more:
//!
//! | stage | who sees it | how it is reached |
//! |---|---|---|
//! | issued | the waves that share the first level cache: those of the block on CDNA, the wave itself on RDNA in workgroup processor mode | at once |
//! | performed | other waves behind the same second level cache, once their first level cache does not hold something older | at some time, at the latest when the wave waits for it |
//! | device | waves behind other second level caches (MI300 series: other dies) | at once where there is one cache; else by a write-back at device scope, or if the store has that scope |
//! | system | the controller and the host | by a write-back at system scope that was waited for, or if the store has that scope; on RDNA 3 with being performed |
//!
//! A load sees what its scope lets it see. A plain load may be answered by the first level cache, which is taken to
//! hold everything as it was when it was last invalidated: nothing may be newer than that. What the controller wrote is
//! seen by plain loads only after an invalidation that reaches so far.
//!
//! Rules of an architecture are in `Memory::performed` and `Memory::invalidate`. They follow LLVM's memory model of
//! AMD GPUs, and where hardware only *may* do something, the model does it whenever that hurts.

mod access;
mod controller;
mod event;
mod region;

pub use access::Viewer;
pub use controller::Stale;
pub use event::{Handle, Origin};
pub use region::Kind;

use crate::arch::{Arch, Scope};
use crate::decode::Cache;
use crate::error::Violation;
use controller::Post;
use event::{Place, NEVER};
use region::Region;

/// When a first level cache was last invalidated.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// With regard to the block.
    group: u64,
    /// With regard to the device.
    device: u64,
}

/// All memory that a device can reach.
#[derive(Debug)]
pub struct Memory {
    arch: Arch,
    regions: Vec<Region>,
    /// Counts everything that happens.
    time: u64,
    next_id: u64,
    /// First level caches, block by block.
    first: Vec<Seen>,
    caches_of_block: usize,
    /// When the cache between first and second level was last invalidated, where there is one.
    middle: u64,
    /// When second level caches were last invalidated with regard to each other.
    second: Vec<u64>,
    /// When a second level cache was last invalidated with regard to the system.
    system: u64,
    /// Stores in each second level cache that were not written back to the device's memory.
    dirty: Vec<Vec<Place>>,
    /// Stores that the device sees, and the system does not.
    device_dirty: Vec<Place>,
    posts: Vec<Post>,
    stale: Vec<Stale>,
    rung: bool,
}

impl Memory {
    /// Memory of a device, with nothing in it.
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            regions: Vec::new(),
            time: 0,
            next_id: 0,
            first: Vec::new(),
            caches_of_block: 1,
            middle: 0,
            second: Vec::new(),
            system: 0,
            dirty: Vec::new(),
            device_dirty: Vec::new(),
            posts: Vec::new(),
            stale: Vec::new(),
            rung: false,
        }
    }

    /// Architecture of the device.
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// Adds zeroed memory.
    ///
    /// # Panics
    ///
    /// When there is something already.
    pub fn map(&mut self, name: &str, base: u64, len: usize, kind: Kind) {
        let region = Region::new(name, base, len, kind);
        let free = self.regions.iter().all(|r| r.end() <= region.base || region.end() <= r.base);
        assert!(free, "{name} at {base:#x} overlaps other memory");
        self.regions.push(region);
    }

    /// Removes what was mapped at an address.
    pub fn unmap(&mut self, base: u64) {
        self.regions.retain(|region| region.base != base);
    }

    /// Kind of the memory at an address.
    pub fn kind(&self, addr: u64) -> Option<Kind> {
        self.regions.iter().find(|r| addr >= r.base && addr < r.end()).map(|r| r.kind)
    }

    /// Writes as the host does, while no kernel runs, and also where kernels only read.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Violation> {
        let n = self.find(addr, bytes.len(), true)?;
        let region = &mut self.regions[n];
        let at = (addr - region.base) as usize;
        region.data.get_mut(at..at + bytes.len()).unwrap_or_default().copy_from_slice(bytes);
        Ok(())
    }

    /// Reads as the host does, while no kernel runs.
    pub fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), Violation> {
        let region = &self.regions[self.find(addr, to.len(), false)?];
        let at = (addr - region.base) as usize;
        to.copy_from_slice(region.data.get(at..at + to.len()).unwrap_or_default());
        Ok(())
    }

    /// Starts a kernel of so many blocks, each of whose waves use so many first level caches: all caches are empty.
    pub fn begin(&mut self, blocks: usize, caches_of_block: usize) {
        self.time += 1;
        let now = self.time;
        self.caches_of_block = caches_of_block;
        self.first = vec![Seen { group: now, device: now }; blocks * caches_of_block];
        self.second = vec![now; self.arch.second_level_caches()];
        self.dirty = vec![Vec::new(); self.arch.second_level_caches()];
        (self.middle, self.system) = (now, now);
        self.posts.clear();
        self.stale.clear();
    }

    /// Ends a kernel: everybody sees everything.
    pub fn end(&mut self) {
        for region in &mut self.regions {
            region.settle();
        }
        self.device_dirty.clear();
        self.dirty.clear();
        self.rung = true;
    }

    /// What the controller read too early since the kernel was started.
    pub fn stale(&self) -> &[Stale] {
        &self.stale
    }

    /// Whether a doorbell was written that was not taken note of.
    pub const fn rings(&self) -> bool {
        self.rung
    }

    /// Whether a doorbell was written since this was asked last.
    pub fn take_rung(&mut self) -> bool {
        std::mem::take(&mut self.rung)
    }

    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    fn find(&self, addr: u64, len: usize, write: bool) -> Result<usize, Violation> {
        let fault = Violation::Fault { addr, len: len as u32, write };
        let end = addr.checked_add(len as u64).ok_or_else(|| fault.clone())?;
        self.regions.iter().position(|r| addr >= r.base && end <= r.end()).ok_or(fault)
    }

    /// When a store that is performed now is seen by the device and by the system.
    fn performed(&self, scope: Scope, kind: Kind, now: u64) -> (u64, u64) {
        match self.arch {
            // Doorbells are not cached. All else is taken to be, so that the write-back is needed.
            Arch::Gfx90a => (now, if kind == Kind::Registers { now } else { NEVER }),
            Arch::Gfx942 | Arch::Gfx950 => match scope {
                Scope::System => (now, now),
                Scope::Agent => (now, NEVER),
                Scope::Group | Scope::Wave => (NEVER, NEVER),
            },
            // The second level cache writes host memory through.
            Arch::Gfx1100 => (now, now),
            Arch::Gfx1201 => (now, if scope == Scope::System { now } else { NEVER }),
        }
    }

    /// Invalidates caches for a wave.
    pub fn invalidate(&mut self, viewer: &Viewer, cache: Cache) {
        let now = self.tick();
        let block = viewer.group as usize * self.caches_of_block;
        let of_block = self.first.iter().skip(block).take(self.caches_of_block).map(|seen| seen.device).max();
        let of_block = of_block.unwrap_or_default();
        let first = &mut self.first[viewer.domain as usize];
        match (self.arch, cache) {
            (_, Cache::WriteBack(_) | Cache::Invalidate(Scope::Wave)) => {}
            (Arch::Gfx90a, Cache::InvalidateSecond) => self.system = now,
            (_, Cache::InvalidateSecond) => {}
            (_, Cache::InvalidateMiddle) => self.middle = now,
            (Arch::Gfx1100, Cache::Invalidate(_)) => {
                *first = Seen { group: now, device: self.middle };
            }
            (_, Cache::Invalidate(Scope::Group)) => {
                // What another wave of the block has acquired further out is acquired with it.
                *first = Seen { group: now, device: of_block.max(first.device) };
            }
            (_, Cache::Invalidate(scope)) => {
                *first = Seen { group: now, device: now };
                if self.arch != Arch::Gfx90a {
                    self.second[viewer.second as usize] = now;
                    if scope == Scope::System {
                        self.system = now;
                    }
                }
            }
        }
        self.acquired(viewer);
    }

    /// Up to when a plain load sees what the controller wrote.
    fn sees_system(&self, viewer: &Viewer) -> u64 {
        let device = self.first[viewer.domain as usize].device;
        match self.arch {
            Arch::Gfx1100 => device,
            _ => device.min(self.system),
        }
    }
}

#[cfg(test)]
mod tests;
