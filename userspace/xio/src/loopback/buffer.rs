// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers with their address table and ready-made PRP lists, made the way the module makes them.

use super::arena::{Arena, Mapped};
use crate::error::Result;
use crate::mapping::Region;
use nix::errno::Errno;
use nvme_kv::prp::{ReadyLists, LIST_SLOTS};
use nvme_kv::{DataPointer, PAGE_SIZE};
use std::sync::Arc;
use xio_uapi::Page;
use zerocopy::{FromZeros, IntoBytes};

/// A buffer that the controller can reach.
#[derive(Debug)]
pub(super) struct Allocation {
    data: Mapped,
    pages: Vec<Page>,
    /// Whether the controller can write to it.
    pub writable: bool,
    /// Whether the memory is the module's, which takes it back.
    ours: bool,
    /// The lists, which the controller only reads.
    _lists: Vec<Mapped>,
}

impl Allocation {
    /// Lets the controller reach whole pages.
    pub(super) fn new(arena: &Arc<Arena>, memory: Arc<Region>, writable: bool, ours: bool) -> Result<Self> {
        let data = arena.scatter_region(memory, writable);
        let mut pages = vec![Page::new_zeroed(); data.addrs.len()];
        for (page, addr) in pages.iter_mut().zip(&data.addrs) {
            page.addr = *addr;
        }
        let mut lists = Vec::new();
        for variant in 0..ReadyLists::VARIANTS {
            let count = ReadyLists::new(pages.len()).list_pages(variant);
            if count > 0 {
                let list = arena.scatter(count * PAGE_SIZE, false)?;
                fill(&list, variant, &mut pages);
                lists.push(list);
            }
        }
        Ok(Self { data, pages, writable, ours, _lists: lists })
    }

    /// The data.
    pub(super) fn data(&self) -> Arc<Region> {
        self.data.region.clone()
    }

    /// Whether the memory is the module's.
    pub(super) const fn is_ours(&self) -> bool {
        self.ours
    }

    /// The table, to map.
    pub(super) fn table(&self) -> Result<Arc<Region>> {
        let bytes = self.pages.as_bytes();
        let table = Region::anonymous(bytes.len().next_multiple_of(PAGE_SIZE))?;
        table.write(0, bytes);
        Ok(Arc::new(table))
    }

    /// PRP entries of a range.
    pub(super) fn point(&self, offset: u64, len: u32) -> nix::Result<DataPointer> {
        let offset = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let page = |n: usize| self.pages.get(n).copied().unwrap_or_else(Page::new_zeroed);
        let lists = ReadyLists::new(self.pages.len());
        let entry = |variant: usize, n: usize| page(n).list.get(variant).copied().unwrap_or_default();
        lists.point(offset, len as usize, |n| page(n).addr, entry).map_err(|_| Errno::EINVAL)
    }
}

/// Writes the entries of a list and its chain pointers, and tells the pages where their entries are.
fn fill(list: &Mapped, variant: usize, pages: &mut [Page]) {
    let write = |page: usize, slot: usize, value: u64| {
        list.region.write(page * PAGE_SIZE + slot * 8, &value.to_le_bytes());
    };
    for (n, page) in pages.iter_mut().enumerate().skip(1) {
        let (at, slot) = ReadyLists::position(variant, n);
        write(at, slot, page.addr);
        page.list[variant] = list.addrs[at] + slot as u64 * 8;
    }
    for (n, next) in list.addrs.iter().enumerate().skip(1) {
        write(n - 1, LIST_SLOTS - 1, *next);
    }
}
