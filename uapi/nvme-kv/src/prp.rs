// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical Region Pages (Base, section 4.3.1): walking them as a controller does, building lists for one
//! transfer, and the ready-made lists of a buffer from which any range can be pointed at.
//!
//! All for a page size of 4096 (CC.MPS = 0). A list page has 512 entries; when more data remains than the
//! last entry can describe, that entry is a pointer to the next list page instead.

use crate::{DataPointer, Status, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes of a list entry.
const ENTRY: u64 = 8;
/// Entries of a list page.
pub const LIST_SLOTS: usize = PAGE_SIZE / ENTRY as usize;

/// A run of bytes in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Address.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: usize,
}

/// Pages that a transfer touches.
pub const fn pages(offset: usize, len: usize) -> usize {
    if len == 0 {
        0
    } else {
        (offset % PAGE_SIZE + len).div_ceil(PAGE_SIZE)
    }
}

/// Walks the PRP entries of a transfer of `len` bytes the way a controller does.
///
/// `read` fills its slice with list entries from host memory; `each` gets the segments in order, each within
/// one page. The first error of either ends the walk.
pub fn walk(
    data: DataPointer,
    len: usize,
    read: impl FnMut(u64, &mut [u64]) -> Result<(), Status>,
    each: impl FnMut(Segment) -> Result<(), Status>,
) -> Result<(), Status> {
    walk_part(data, len, len, read, each)
}

/// Walks the first `part` bytes of a host buffer of `len` bytes, as when a value or a list is shorter than the buffer.
///
/// What the second PRP entry means, and which list entry is a chain pointer, depends on the length of the
/// buffer, not on how much of it is transferred.
pub fn walk_part(
    data: DataPointer,
    len: usize,
    part: usize,
    mut read: impl FnMut(u64, &mut [u64]) -> Result<(), Status>,
    mut each: impl FnMut(Segment) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut todo = part.min(len);
    if todo == 0 {
        return Ok(());
    }
    // Values are dword aligned (Base, Figure "PRP Entry Layout").
    if data.prp1 % 4 != 0 {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    let first = len.min(PAGE_SIZE - (data.prp1 % PAGE) as usize);
    each(Segment { addr: data.prp1, len: first.min(todo) })?;
    let mut left = len - first;
    todo = todo.saturating_sub(first);
    if todo == 0 {
        return Ok(());
    }
    if left <= PAGE_SIZE {
        return each(page(data.prp2, todo)?);
    }
    let mut list = data.prp2;
    let mut entries = [0u64; LIST_SLOTS];
    loop {
        if list % ENTRY != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let slots = ((PAGE - list % PAGE) / ENTRY) as usize;
        let wanted = left.div_ceil(PAGE_SIZE);
        // With more pages to come than slots, the last slot is a chain pointer.
        let chained = wanted > slots;
        let described = if chained { slots - 1 } else { wanted };
        let needed = todo.div_ceil(PAGE_SIZE);
        let count = if needed <= described { needed } else { slots };
        let chunk = entries.get_mut(..count).ok_or(Status::INTERNAL_ERROR)?;
        read(list, chunk)?;
        for entry in chunk.iter().take(described) {
            let n = todo.min(PAGE_SIZE);
            each(page(*entry, n)?)?;
            (todo, left) = (todo - n, left.saturating_sub(PAGE_SIZE));
        }
        match chunk.last() {
            _ if todo == 0 => return Ok(()),
            // A chain pointer leads to the start of a page; otherwise lists of one slot could go on for ever.
            Some(next) if next % PAGE == 0 => list = *next,
            _ => return Err(Status::PRP_OFFSET_INVALID),
        }
    }
}

/// A PRP entry that is not the first has no offset.
fn page(entry: u64, len: usize) -> Result<Segment, Status> {
    if entry % PAGE != 0 {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    Ok(Segment { addr: entry, len })
}

/// Why a transfer can not be described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrpError {
    /// The offset is not a multiple of 4.
    Unaligned,
    /// The transfer goes beyond the pages given.
    OutOfRange,
    /// The list needs this many list pages.
    ListPages(usize),
}

impl core::fmt::Display for PrpError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unaligned => f.write_str("the offset is not a multiple of 4"),
            Self::OutOfRange => f.write_str("the range goes beyond the end of the buffer"),
            Self::ListPages(n) => write!(f, "the PRP list needs {n} pages"),
        }
    }
}

impl core::error::Error for PrpError {}

/// List pages that a transfer over `pages` data pages needs.
pub const fn list_pages(pages: usize) -> usize {
    // PRP1 describes the first page; the last list page has a data entry in its last slot.
    if pages <= 2 {
        0
    } else {
        let entries = pages - 1;
        if entries <= LIST_SLOTS {
            1
        } else {
            (entries - 1).div_ceil(LIST_SLOTS - 1)
        }
    }
}

/// Builds the PRP entries of one transfer.
///
/// `addrs` are the addresses of the pages of the buffer, `offset` counts from the first, `lists` are the addresses
/// of the list pages that may be used, and `write` stores an entry: list page, slot, value.
pub fn build(
    addrs: &[u64],
    offset: usize,
    len: usize,
    lists: &[u64],
    mut write: impl FnMut(usize, usize, u64),
) -> Result<DataPointer, PrpError> {
    let range = Range::new(offset, len, addrs.len())?;
    let Some((first, last)) = range.pages else { return Ok(DataPointer::default()) };
    let page = |n: usize| addrs.get(n).copied().ok_or(PrpError::OutOfRange);
    let prp1 = page(first)? + range.in_page;
    let prp2 = match last - first {
        0 => 0,
        1 => page(last)?,
        rest => {
            let needed = list_pages(rest + 1);
            let lists = lists.get(..needed).ok_or(PrpError::ListPages(needed))?;
            for (list, addr) in lists.iter().enumerate() {
                let start = list * (LIST_SLOTS - 1);
                let data = if list + 1 == needed { rest - start } else { LIST_SLOTS - 1 };
                for slot in 0..data {
                    write(list, slot, page(first + 1 + start + slot)?);
                }
                if list > 0 {
                    write(list - 1, LIST_SLOTS - 1, *addr);
                }
            }
            lists.first().copied().ok_or(PrpError::ListPages(needed))?
        }
    };
    Ok(DataPointer { prp1, prp2 })
}

/// A checked byte range of a buffer.
struct Range {
    in_page: u64,
    /// First and last page; `None` for an empty range.
    pages: Option<(usize, usize)>,
}

impl Range {
    fn new(offset: usize, len: usize, pages: usize) -> Result<Self, PrpError> {
        if offset % 4 != 0 {
            return Err(PrpError::Unaligned);
        }
        let end = offset.checked_add(len).filter(|end| end.div_ceil(PAGE_SIZE) <= pages);
        let end = end.ok_or(PrpError::OutOfRange)?;
        let pages = (len > 0).then(|| (offset / PAGE_SIZE, (end - 1) / PAGE_SIZE));
        Ok(Self { in_page: (offset % PAGE_SIZE) as u64, pages })
    }
}

/// The ready-made lists of a buffer: made once, good for any range.
///
/// The entry of each data page stands at a fixed place, [`DATA_SLOTS`](Self::DATA_SLOTS) to a list page and then a
/// chain pointer. A range points into the middle of the list and the controller stops when it has all bytes.
/// One case does not work: a range whose last page comes first on a new list page. There the controller, with one
/// page left, takes the chain pointer before it for data. So each buffer has two lists, the second shifted
/// by [`SHIFT`](Self::SHIFT) slots, and [`variant`](Self::variant) says which one serves a range.
#[derive(Clone, Copy, Debug)]
pub struct ReadyLists {
    pages: usize,
}

impl ReadyLists {
    /// Number of lists.
    pub const VARIANTS: usize = 2;
    /// Data entries of a list page.
    pub const DATA_SLOTS: usize = LIST_SLOTS - 1;
    /// Slot of the first entry of list 1.
    pub const SHIFT: usize = 256;

    /// Lists of a buffer of so many pages.
    pub const fn new(pages: usize) -> Self {
        Self { pages }
    }

    /// List pages of each list.
    pub const fn list_pages(self, variant: usize) -> usize {
        match self.pages {
            0..=2 => 0,
            n => Self::position(variant, n - 1).0 + 1,
        }
    }

    /// Where the entry of data page `page` (not 0: that one is always PRP1) stands: list page and slot.
    pub const fn position(variant: usize, page: usize) -> (usize, usize) {
        let shift = if variant == 0 { 0 } else { Self::SHIFT };
        let at = page.saturating_sub(1) + shift;
        (at / Self::DATA_SLOTS, at % Self::DATA_SLOTS)
    }

    /// The list that serves a range which ends in page `last`.
    pub const fn variant(last: usize) -> usize {
        if Self::position(0, last).1 == 0 {
            1
        } else {
            0
        }
    }

    /// PRP entries of a range. `page` gives the address of a data page, `list` the address of the entry
    /// of a data page in a list: variant, page.
    pub fn point(
        self,
        offset: usize,
        len: usize,
        page: impl Fn(usize) -> u64,
        list: impl Fn(usize, usize) -> u64,
    ) -> Result<DataPointer, PrpError> {
        let range = Range::new(offset, len, self.pages)?;
        let Some((first, last)) = range.pages else { return Ok(DataPointer::default()) };
        let prp2 = match last - first {
            0 => 0,
            1 => page(last),
            _ => list(Self::variant(last), first + 1),
        };
        Ok(DataPointer { prp1: page(first) + range.in_page, prp2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::HashMap, vec, vec::Vec};

    const MAX: usize = 64 << 20;

    /// Scattered page addresses.
    fn addrs(pages: usize) -> Vec<u64> {
        (0..pages as u64).map(|i| ((i * 7919 + 13) % 1_000_003 + 1) << 12).collect()
    }

    /// List memory: entries by address.
    type Memory = HashMap<u64, u64>;

    fn segments(memory: &Memory, data: DataPointer, len: usize) -> Result<Vec<Segment>, Status> {
        segments_of_part(memory, data, len, len)
    }

    fn segments_of_part(
        memory: &Memory,
        data: DataPointer,
        len: usize,
        part: usize,
    ) -> Result<Vec<Segment>, Status> {
        let mut out = vec![];
        let read = |addr: u64, to: &mut [u64]| {
            for (i, slot) in to.iter_mut().enumerate() {
                let at = addr + 8 * i as u64;
                *slot = *memory.get(&at).ok_or(Status::DATA_TRANSFER_ERROR)?;
            }
            Ok(())
        };
        walk_part(data, len, part, read, |s| {
            out.push(s);
            Ok(())
        })?;
        Ok(out)
    }

    fn expected(addrs: &[u64], offset: usize, len: usize) -> Vec<Segment> {
        let (mut at, end, mut out) = (offset, offset + len, vec![]);
        while at < end {
            let n = (PAGE_SIZE - at % PAGE_SIZE).min(end - at);
            out.push(Segment { addr: addrs[at / PAGE_SIZE] + (at % PAGE_SIZE) as u64, len: n });
            at += n;
        }
        out
    }

    fn check_built(offset: usize, len: usize) {
        let addrs = addrs((offset + len).div_ceil(PAGE_SIZE));
        let lists: Vec<u64> =
            (0..list_pages(pages(offset, len)) as u64).map(|i| (1 << 40) + ((i * 3) << 12)).collect();
        let mut memory = Memory::new();
        let data = build(&addrs, offset, len, &lists, |list, slot, value| {
            assert!(memory.insert(lists[list] + 8 * slot as u64, value).is_none(), "entry written twice");
        })
        .unwrap();
        assert_eq!(segments(&memory, data, len).unwrap(), expected(&addrs, offset, len), "{offset} {len}");
    }

    /// A buffer with its ready-made lists in `memory`.
    struct Ready {
        addrs: Vec<u64>,
        memory: Memory,
    }

    impl Ready {
        fn list_addr(variant: usize, list: usize) -> u64 {
            (1 << 41) + ((variant as u64) << 40) + ((list as u64 * 5) << 12)
        }
        fn entry(variant: usize, page: usize) -> u64 {
            let (list, slot) = ReadyLists::position(variant, page);
            Self::list_addr(variant, list) + 8 * slot as u64
        }
        fn new(pages: usize) -> Self {
            let addrs = addrs(pages);
            let mut memory = Memory::new();
            for variant in 0..ReadyLists::VARIANTS {
                let lists = ReadyLists::new(pages).list_pages(variant);
                for (page, addr) in addrs.iter().enumerate().skip(1).filter(|_| lists > 0) {
                    assert!(ReadyLists::position(variant, page).0 < lists);
                    memory.insert(Self::entry(variant, page), *addr);
                }
                for list in 1..lists {
                    let last = Self::list_addr(variant, list - 1) + 8 * (LIST_SLOTS as u64 - 1);
                    memory.insert(last, Self::list_addr(variant, list));
                }
            }
            Self { addrs, memory }
        }
        fn check(&self, offset: usize, len: usize) {
            let lists = ReadyLists::new(self.addrs.len());
            let data = lists.point(offset, len, |p| self.addrs[p], Self::entry).unwrap();
            let got = segments(&self.memory, data, len).unwrap();
            assert_eq!(got, expected(&self.addrs, offset, len), "{offset} {len}");
        }
    }

    #[test]
    fn spec_base_4_3_1_exact_fit_and_chained_lists() {
        // Around each place where a list page fills up exactly.
        for full in [1, 2, 3, 512, 513, 514, 1023, 1024, 1025, 1534, 1535, 1536, 16384] {
            for extra in [-4096i64, -4, -1, 0, 1, 4, 4096] {
                let len = (full as i64 * 4096 + extra).clamp(1, MAX as i64) as usize;
                for offset in [0, 4, 2048, 4092] {
                    check_built(offset, len);
                }
            }
        }
        assert_eq!([2, 3, 513, 514, 1024, 1025, 1535, 1536].map(list_pages), [0, 1, 1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn ready_lists_serve_every_page_range() {
        let ready = Ready::new(1600);
        // All ends near list page boundaries, from all starts that matter.
        let near = |n: usize| n.saturating_sub(3)..=n + 3;
        let marks: Vec<usize> =
            [1, 255, 256, 257, 510, 511, 512, 766, 767, 1022, 1023, 1277, 1278, 1533, 1534, 1596]
                .into_iter()
                .flat_map(near)
                .collect();
        for &first in &marks {
            for &last in marks.iter().filter(|l| **l >= first) {
                ready.check(first * 4096 + 8, (last - first) * 4096 + 100);
            }
        }
    }

    #[test]
    fn ready_lists_of_every_small_buffer() {
        for pages in 1..40 {
            Ready::new(pages).check(0, pages * 4096);
        }
        Ready::new(16384).check(0, MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn built_lists_walk_back(offset in (0usize..4096).prop_map(|o| o & !3), len in 1usize..=MAX) {
            check_built(offset, len);
        }

        #[test]
        fn short_built_lists_walk_back(offset in (0usize..40960).prop_map(|o| o & !3), len in 0usize..40960) {
            check_built(offset, len);
        }

        #[test]
        fn ready_lists_walk_back(pages in 1usize..1700, a: u32, b: u32) {
            let ready = Ready::new(pages);
            let end = pages * 4096;
            let offset = (a as usize % end) & !3;
            ready.check(offset, b as usize % (end - offset) + 1);
        }

        /// A part of a buffer is the beginning of the whole, whatever its length would mean alone.
        #[test]
        fn a_part_is_the_beginning_of_the_whole(pages in 1usize..1700, a: u32, b: u32, c: u32) {
            let ready = Ready::new(pages);
            let end = pages * 4096;
            let offset = (a as usize % end) & !3;
            let len = b as usize % (end - offset) + 1;
            let part = c as usize % (len + 1);
            let data = ReadyLists::new(pages).point(offset, len, |p| ready.addrs[p], Ready::entry).unwrap();
            let got = segments_of_part(&ready.memory, data, len, part).unwrap();
            prop_assert_eq!(got, expected(&ready.addrs, offset, part));
        }

        #[test]
        fn any_list_walks_to_an_end(prp1: u64, prp2: u64, len in 0usize..(8 << 20), seed: u64) {
            let mut total = 0;
            let read = |addr: u64, to: &mut [u64]| {
                for (i, e) in to.iter_mut().enumerate() {
                    *e = (addr ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i as u64) & !0xfff;
                }
                Ok(())
            };
            let result = walk(DataPointer { prp1, prp2 }, len, read, |s| { total += s.len; Ok(()) });
            if result.is_ok() {
                prop_assert_eq!(total, len);
            }
        }
    }

    #[test]
    fn spec_base_4_3_1_offsets_that_are_not_allowed() {
        let none = Memory::new();
        let refused = Err(Status::PRP_OFFSET_INVALID);
        assert_eq!(segments(&none, DataPointer { prp1: 2, prp2: 0 }, 1), refused);
        assert_eq!(segments(&none, DataPointer { prp1: 0, prp2: 8 }, 5000), refused);
        assert_eq!(segments(&none, DataPointer { prp1: 0, prp2: 4 }, 9000), refused);
        let memory = Memory::from([(8, 0x1000), (16, 0x2004)]);
        assert_eq!(segments(&memory, DataPointer { prp1: 0, prp2: 8 }, 12000), refused);
        // A list that starts in the last slot of its page and chains to itself.
        let memory = Memory::from([(4088, 4088)]);
        assert_eq!(segments(&memory, DataPointer { prp1: 0, prp2: 4088 }, 1 << 20), refused);
    }

    #[test]
    fn ranges_outside_the_buffer_are_refused() {
        let build = |offset, len| build(&[4096], offset, len, &[], |_, _, _| {}).err();
        assert_eq!(build(0, 4097), Some(PrpError::OutOfRange));
        assert_eq!(build(4, 4093), Some(PrpError::OutOfRange));
        assert_eq!(build(usize::MAX - 3, 8), Some(PrpError::OutOfRange));
        assert_eq!(build(1, 1), Some(PrpError::Unaligned));
        assert_eq!(build(4096, 0), None);
        let four = super::build(&[1 << 12; 4], 0, 16384, &[], |_, _, _| {});
        assert_eq!(four, Err(PrpError::ListPages(1)));
    }
}
