// SPDX-License-Identifier: MIT OR Apache-2.0
//! BAR 0: registers, doorbells, MSI-X table and pending bits, each on pages of its own.

use super::mapping::Mapping;
use crate::host::Doorbells;
use crate::Config;
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nvme_kv::{regs, PAGE_SIZE};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of an MSI-X table entry.
const TABLE_ENTRY: usize = 16;

/// Where the parts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Bytes of the BAR, a power of two.
    pub(super) len: usize,
    /// Bytes of the doorbells, whole pages.
    pub(super) doorbells: usize,
    /// Offset of the MSI-X table.
    pub(super) table: usize,
    /// Offset of the pending bits.
    pub(super) pending: usize,
}

impl Layout {
    /// First doorbell.
    pub(super) const DOORBELLS: usize = regs::offset::DOORBELLS;

    pub(super) fn new(config: &Config) -> Self {
        let page = |len: usize| len.next_multiple_of(PAGE_SIZE);
        let table = page(config.bar_len());
        let pending = table + page(usize::from(config.vectors()) * TABLE_ENTRY);
        let len = (pending + PAGE_SIZE).next_power_of_two();
        Self { len, doorbells: table - Self::DOORBELLS, table, pending }
    }

    /// Whether an access is to doorbells alone.
    pub(super) fn is_doorbell(&self, offset: usize, len: usize) -> bool {
        offset >= Self::DOORBELLS && offset + len <= Self::DOORBELLS + self.doorbells
    }
}

/// The memory of the BAR, of which the client maps the doorbells.
pub(super) struct Bar {
    pub(super) layout: Layout,
    file: File,
    memory: Mapping,
}

impl Bar {
    pub(super) fn new(config: &Config) -> io::Result<Self> {
        let layout = Layout::new(config);
        let file =
            File::from(memfd_create(c"xio-target-bar", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
        file.set_len(layout.len as u64)?;
        // A client that made it shorter would take the memory from under our accesses.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let memory = Mapping::new(file.as_fd(), 0, layout.len, true)?;
        Ok(Self { layout, file, memory })
    }

    /// The file that the client maps; its offsets are those of the BAR.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads doorbells, each dword at once: the controller's thread may write them meanwhile.
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        let (mut at, mut rest) = (offset, to);
        while !rest.is_empty() {
            let dword = self.load(at & !3).to_le_bytes();
            let from = dword.get(at & 3..).unwrap_or(&[]);
            let (now, later) = rest.split_at_mut(from.len().min(rest.len()));
            now.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            (at, rest) = (at + now.len(), later);
        }
    }

    /// Writes a doorbell; anything but a whole dword is ignored.
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        let dword = from.try_into().ok().map(u32::from_le_bytes);
        if dword.and_then(|dword| self.memory.store(offset, dword)).is_none() {
            log::debug!("write of {} bytes to doorbell {offset:#x} ignored", from.len());
        }
    }
}

impl Doorbells for Bar {
    fn load(&self, offset: usize) -> u32 {
        // The layout has room for the doorbells of all queues.
        self.memory.load(offset).unwrap_or(0)
    }

    fn clear(&self, offset: usize) {
        if self.memory.store(offset, 0).is_none() {
            log::error!("there is no doorbell at {offset:#x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_share_a_page_for_any_stride() {
        for dstrd in 0..16 {
            for max_queues in [1, 31, 63, 64, 255] {
                let config = Config { dstrd, max_queues, ..Config::default() };
                if config.check().is_err() {
                    continue;
                }
                let l = Layout::new(&config);
                let last = config.doorbells().cq_head(max_queues) + 4;
                assert!(l.len.is_power_of_two() && l.doorbells % PAGE_SIZE == 0 && l.table % PAGE_SIZE == 0);
                assert!(last <= l.table && l.table < l.pending && l.pending + 8 <= l.len);
                assert!(l.is_doorbell(0x1000, 4) && !l.is_doorbell(0xffc, 8) && !l.is_doorbell(l.table, 4));
            }
        }
        let small = Layout::new(&Config::default());
        assert_eq!(small, Layout { len: 0x4000, doorbells: 0x1000, table: 0x2000, pending: 0x3000 });
    }

    #[test]
    fn doorbells_are_read_in_any_part_and_the_file_keeps_its_length() {
        let bar = Bar::new(&Config::default()).unwrap();
        bar.write(0x1000, &[1, 2, 3, 4]);
        bar.write(0x1004, &[5, 6, 7, 8]);
        for (start, len) in [(0, 8), (0, 4), (1, 2), (3, 3), (7, 1), (2, 0)] {
            let mut read = vec![0; len];
            bar.read(0x1000 + start, &mut read);
            assert_eq!(read, &[1, 2, 3, 4, 5, 6, 7, 8][start..start + len]);
        }
        for len in [0, 0x3000, 0x5000] {
            assert!(bar.file.set_len(len).is_err(), "{len:#x}");
        }
    }
}
