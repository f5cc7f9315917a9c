// SPDX-License-Identifier: GPL-2.0
//! Memory that commands point at, with its address table and ready-made PRP lists.

use crate::sys::{
    cmb::CmbMemory,
    dma::{Access, DmaDevice, DmaMemory},
    dmabuf::ImportedMemory,
    pages::Pages,
    pin::{PinnedMemory, UserMemory},
};
use kernel::prelude::*;
use nvme_kv::{prp::ReadyLists, DataPointer, PAGE_SIZE};

/// Largest buffer in bytes.
pub(crate) const MAX_LEN: u64 = 1 << 30;

/// What a buffer is made of.
enum Memory {
    /// Pages of the module's own.
    Kernel(DmaMemory),
    /// Pages of a user.
    Pinned(PinnedMemory),
    /// Memory of another driver.
    Imported(ImportedMemory),
    /// Memory of the controller.
    Cmb(CmbMemory),
}

/// What of a buffer a user can map through it.
pub(crate) enum Data<'a> {
    /// Pages of memory.
    Pages(&'a Pages),
    /// Memory of the controller.
    Cmb(&'a CmbMemory),
}

impl Memory {
    fn addrs(&self) -> &[u64] {
        match self {
            Self::Kernel(memory) => memory.addrs(),
            Self::Pinned(memory) => memory.addrs(),
            Self::Imported(memory) => memory.addrs(),
            Self::Cmb(memory) => memory.addrs(),
        }
    }
}

/// A buffer.
pub(crate) struct Buffer {
    memory: Memory,
    /// Only read by the device; never mapped to a user.
    lists: [DmaMemory; ReadyLists::VARIANTS],
    /// `xio_uapi::Page` for each page; the user may only read it.
    pub(crate) table: Pages,
}

impl Buffer {
    /// Allocates a buffer of so many pages.
    pub(crate) fn alloc(dev: DmaDevice, pages: usize) -> Result<Self> {
        Self::new(dev, Memory::Kernel(DmaMemory::scattered(dev, pages, Access::ReadWrite)?))
    }

    /// Makes a buffer of a user's memory.
    pub(crate) fn register(dev: DmaDevice, memory: UserMemory) -> Result<Self> {
        Self::new(dev, Memory::Pinned(memory.map(dev)?))
    }

    /// Makes a buffer of another driver's memory.
    pub(crate) fn import(dev: DmaDevice, memory: ImportedMemory) -> Result<Self> {
        Self::new(dev, Memory::Imported(memory))
    }

    /// Makes a buffer of the controller's memory.
    pub(crate) fn in_cmb(dev: DmaDevice, memory: CmbMemory) -> Result<Self> {
        Self::new(dev, Memory::Cmb(memory))
    }

    fn new(dev: DmaDevice, memory: Memory) -> Result<Self> {
        let addrs = memory.addrs();
        let lists = [Self::list(dev, addrs, 0)?, Self::list(dev, addrs, 1)?];
        let table = Pages::scattered(dev.node(), Self::table_pages(addrs.len()))?;
        let this = Self { memory, lists, table };
        for page in 0..this.pages() {
            let entry = xio_uapi::Page {
                addr: this.addr(page),
                list: [this.entry(0, page), this.entry(1, page)],
                reserved: 0,
            };
            let bytes: [u8; size_of::<xio_uapi::Page>()] = zerocopy::transmute!(entry);
            this.table.write(page * size_of::<xio_uapi::Page>(), &bytes)?;
        }
        Ok(this)
    }

    /// Makes one of the ready-made lists.
    fn list(dev: DmaDevice, addrs: &[u64], variant: usize) -> Result<DmaMemory> {
        // A buffer of one or two pages needs no list; a page of it is simpler than none.
        let count = ReadyLists::new(addrs.len()).list_pages(variant).max(1);
        let list = DmaMemory::scattered(dev, count, Access::Read)?;
        for (page, addr) in addrs.iter().enumerate().skip(1) {
            let (at, slot) = ReadyLists::position(variant, page);
            list.write(at * PAGE_SIZE + slot * 8, &addr.to_le_bytes())?;
        }
        for next in 1..count {
            let chain = (next - 1) * PAGE_SIZE + ReadyLists::DATA_SLOTS * 8;
            list.write(chain, &list.addr(next)?.to_le_bytes())?;
        }
        Ok(list)
    }

    /// What it is made of, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.memory {
            Memory::Kernel(_) => "coherent",
            Memory::Pinned(_) => "pinned",
            Memory::Imported(memory) if memory.is_peer() => "peer",
            Memory::Imported(_) => "dmabuf",
            Memory::Cmb(_) => "cmb",
        }
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.memory.addrs().len()
    }

    /// What a user can map; its own memory is mapped already, and another driver's is that driver's to map.
    pub(crate) fn data(&self) -> Option<Data<'_>> {
        match &self.memory {
            Memory::Kernel(memory) => Some(Data::Pages(memory.pages())),
            Memory::Cmb(memory) => Some(Data::Cmb(memory)),
            Memory::Pinned(_) | Memory::Imported(_) => None,
        }
    }

    /// Whether another driver wants its memory back.
    pub(crate) fn is_taken_back(&self) -> bool {
        matches!(&self.memory, Memory::Imported(memory) if memory.is_taken_back())
    }

    /// Whether the device may write to it.
    pub(crate) fn is_writable(&self) -> bool {
        match &self.memory {
            Memory::Kernel(_) | Memory::Cmb(_) => true,
            Memory::Pinned(memory) => memory.is_writable(),
            Memory::Imported(memory) => memory.is_writable(),
        }
    }

    /// The device's addresses of all pages.
    pub(crate) fn addrs(&self) -> &[u64] {
        self.memory.addrs()
    }

    /// The device's address of a page; 0 beyond the end, which no caller asks for.
    fn addr(&self, page: usize) -> u64 {
        self.memory.addrs().get(page).copied().unwrap_or(0)
    }

    /// The device's address of the list entry of a page; 0 for page 0, which has none.
    fn entry(&self, variant: usize, page: usize) -> u64 {
        let (at, slot) = ReadyLists::position(variant, page);
        let list = self.lists.get(variant).filter(|_| page > 0);
        list.and_then(|list| list.addr(at).ok()).map_or(0, |addr| addr + 8 * slot as u64)
    }

    /// PRP entries of a range.
    pub(crate) fn point(&self, offset: u64, len: u32) -> Result<DataPointer> {
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        let lists = ReadyLists::new(self.pages());
        lists.point(offset, len as usize, |n| self.addr(n), |v, n| self.entry(v, n)).map_err(|_| EINVAL)
    }

    /// Pages of the address table of a buffer of so many pages.
    pub(crate) fn table_pages(pages: usize) -> usize {
        (pages * size_of::<xio_uapi::Page>()).div_ceil(PAGE_SIZE)
    }

    /// Bytes of memory that a buffer of so many pages takes.
    pub(crate) fn memory(pages: usize) -> u64 {
        (pages * PAGE_SIZE) as u64 + Self::overhead(pages)
    }

    /// Of these, what is not data. Memory of other devices costs the system no more.
    pub(crate) fn overhead(pages: usize) -> u64 {
        let lists = ReadyLists::new(pages);
        let lists: usize = (0..ReadyLists::VARIANTS).map(|v| lists.list_pages(v).max(1)).sum();
        ((lists + Self::table_pages(pages)) * PAGE_SIZE) as u64
    }

    /// Bytes that count against its client's limit.
    pub(crate) fn charge(&self) -> u64 {
        match self.memory {
            Memory::Kernel(_) | Memory::Pinned(_) => Self::memory(self.pages()),
            Memory::Imported(_) | Memory::Cmb(_) => Self::overhead(self.pages()),
        }
    }
}

const _: () = {
    assert!(xio_uapi::PAGE_SIZE as usize == PAGE_SIZE);
    assert!(xio_uapi::LIST_ENTRIES as usize == ReadyLists::DATA_SLOTS);
    assert!(xio_uapi::LIST_SHIFT as usize == ReadyLists::SHIFT);
};
