// SPDX-License-Identifier: GPL-2.0
//! Memory that commands point at, with its address table and ready-made PRP lists.

use crate::sys::{
    dma::{Access, DmaDevice, DmaMemory},
    pages::Pages,
};
use kernel::prelude::*;
use nvme_kv::{prp::ReadyLists, PAGE_SIZE};

/// Largest buffer in bytes.
pub(crate) const MAX_LEN: u64 = 1 << 30;

/// A buffer.
pub(crate) struct Buffer {
    pub(crate) data: DmaMemory,
    /// Only read by the device; never mapped to a user.
    _lists: [DmaMemory; ReadyLists::VARIANTS],
    /// `xio_uapi::Page` for each page; the user may only read it.
    pub(crate) table: Pages,
}

impl Buffer {
    /// Allocates a buffer of so many pages.
    pub(crate) fn new(dev: DmaDevice, pages: usize) -> Result<Self> {
        let data = DmaMemory::scattered(dev, pages, Access::ReadWrite)?;
        let lists = [Self::list(dev, &data, 0)?, Self::list(dev, &data, 1)?];
        let table = Pages::scattered(dev.node(), Self::table_pages(pages))?;
        for page in 0..pages {
            let list = |variant: usize| -> Result<u64> {
                let (at, slot) = ReadyLists::position(variant, page);
                match lists.get(variant) {
                    Some(list) if page > 0 && list.len() > 0 => Ok(list.addr(at)? + 8 * slot as u64),
                    _ => Ok(0),
                }
            };
            let entry = xio_uapi::Page { addr: data.addr(page)?, list: [list(0)?, list(1)?], reserved: 0 };
            let bytes: [u8; size_of::<xio_uapi::Page>()] = zerocopy::transmute!(entry);
            table.write(page * size_of::<xio_uapi::Page>(), &bytes)?;
        }
        Ok(Self { data, _lists: lists, table })
    }

    /// Makes one of the ready-made lists.
    fn list(dev: DmaDevice, data: &DmaMemory, variant: usize) -> Result<DmaMemory> {
        // A buffer of one or two pages needs no list; a page of it is simpler than none.
        let count = ReadyLists::new(data.len()).list_pages(variant).max(1);
        let list = DmaMemory::scattered(dev, count, Access::Read)?;
        for page in 1..data.len() {
            let (at, slot) = ReadyLists::position(variant, page);
            list.write(at * PAGE_SIZE + slot * 8, &data.addr(page)?.to_le_bytes())?;
        }
        for next in 1..count {
            let chain = (next - 1) * PAGE_SIZE + ReadyLists::DATA_SLOTS * 8;
            list.write(chain, &list.addr(next)?.to_le_bytes())?;
        }
        Ok(list)
    }

    /// Pages of the address table of a buffer of so many pages.
    pub(crate) fn table_pages(pages: usize) -> usize {
        (pages * size_of::<xio_uapi::Page>()).div_ceil(PAGE_SIZE)
    }

    /// Bytes of memory that a buffer of so many pages takes.
    pub(crate) fn memory(pages: usize) -> u64 {
        let lists = ReadyLists::new(pages);
        let lists: usize = (0..ReadyLists::VARIANTS).map(|v| lists.list_pages(v).max(1)).sum();
        ((pages + lists + Self::table_pages(pages)) * PAGE_SIZE) as u64
    }
}

const _: () = {
    assert!(xio_uapi::PAGE_SIZE as usize == PAGE_SIZE);
    assert!(xio_uapi::LIST_ENTRIES as usize == ReadyLists::DATA_SLOTS);
    assert!(xio_uapi::LIST_SHIFT as usize == ReadyLists::SHIFT);
};
