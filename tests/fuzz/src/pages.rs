// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of pages: any list leads to an end, after a bounded number of reads, and lists that were built lead back.

use crate::input::{Input, Seed};
use nvme_kv::prp::{self, ReadyLists, Segment, LIST_SLOTS};
use nvme_kv::sgl::{self, Descriptor};
use nvme_kv::{DataPointer, Status, PAGE_SIZE};
use std::collections::HashMap;

/// Longest transfer: some list pages.
const MAX: usize = 5 << 20;
const PAGE: u64 = PAGE_SIZE as u64;

/// What a walk found.
#[derive(Default)]
struct Found {
    bytes: usize,
    segments: Vec<Segment>,
}

impl Found {
    fn add(&mut self, segment: Segment) -> Result<(), Status> {
        assert!(segment.len > 0);
        self.bytes += segment.len;
        self.segments.push(segment);
        Ok(())
    }
}

/// Even inputs are lists of somebody hostile, odd ones transfers to build lists for.
pub(crate) fn prp(data: &[u8]) {
    let mut input = Input(data);
    if input.u8() % 2 == 0 {
        hostile(&mut input);
    } else {
        built(&mut input);
    }
}

fn hostile(input: &mut Input<'_>) {
    let data = DataPointer { prp1: input.u64(), prp2: input.u64() };
    let (len, part) = (input.below(MAX), input.below(MAX));
    let (mut reads, mut found) = (0, Found::default());
    let pages = len.div_ceil(PAGE_SIZE) + 1;
    let most = pages + pages.div_ceil(LIST_SLOTS - 1) + LIST_SLOTS;
    let read = |addr: u64, to: &mut [u64]| {
        assert!(!to.is_empty() && addr % 8 == 0 && addr % PAGE + 8 * to.len() as u64 <= PAGE);
        reads += to.len();
        assert!(reads <= most, "{reads} entries for {len} bytes");
        let kind = input.u8();
        if kind == 1 {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        for (n, entry) in (0..).zip(to.iter_mut()) {
            *entry = (addr ^ u64::from(kind)).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n) << 12;
        }
        // One that is no page, and one that leads to the end of a page.
        let last = to.len() - 1;
        match kind {
            2 => to[input.below(last + 1)] |= 1 + u64::from(input.u8()),
            3 => to[last] |= 0xff8,
            _ => {}
        }
        Ok(())
    };
    let walked = prp::walk_part(data, len, part, read, |segment| {
        assert!(segment.addr % PAGE + segment.len as u64 <= PAGE);
        found.add(segment)
    });
    match walked {
        Ok(()) => assert_eq!(found.bytes, part.min(len)),
        Err(status) => assert!(!status.is_success() && found.bytes <= part.min(len)),
    }
}

/// Pages and their addresses.
fn address(page: usize) -> u64 {
    ((page as u64).wrapping_mul(7919) % 1_000_003 + 1) << 12
}

fn expected(offset: usize, len: usize) -> Vec<Segment> {
    let (mut at, mut all) = (offset, vec![]);
    while at < offset + len {
        let len = (PAGE_SIZE - at % PAGE_SIZE).min(offset + len - at);
        all.push(Segment { addr: address(at / PAGE_SIZE) + (at % PAGE_SIZE) as u64, len });
        at += len;
    }
    all
}

fn built(input: &mut Input<'_>) {
    let (offset, len) = (input.below(MAX) & !3, input.below(MAX));
    let part = input.below(MAX).min(len);
    let count = (offset + len).div_ceil(PAGE_SIZE);
    let addrs: Vec<u64> = (0..count).map(address).collect();
    let list = |n: usize| (1u64 << 40) + ((n as u64 * 3) << 12);
    let lists: Vec<u64> = (0..prp::list_pages(prp::pages(offset, len))).map(list).collect();
    let mut memory = HashMap::new();
    let data = prp::build(&addrs, offset, len, &lists, |list, slot, value| {
        assert!(memory.insert(lists[list] + 8 * slot as u64, value).is_none());
    });
    check(data.unwrap(), &memory, (offset, len, part));
    // The lists that are made once for all ranges of a buffer.
    let ready = ReadyLists::new(count);
    let page =
        |variant: usize, list: usize| (1u64 << 41) + ((variant as u64) << 40) + ((list as u64 * 5) << 12);
    let entry = |variant: usize, page_number: usize| {
        let (list, slot) = ReadyLists::position(variant, page_number);
        page(variant, list) + 8 * slot as u64
    };
    memory.clear();
    for variant in 0..ReadyLists::VARIANTS {
        let lists = ready.list_pages(variant);
        memory.extend((1..count).filter(|_| lists > 0).map(|n| (entry(variant, n), address(n))));
        let last = |list| page(variant, list) + 8 * (LIST_SLOTS as u64 - 1);
        memory.extend((1..lists).map(|list| (last(list - 1), page(variant, list))));
    }
    check(ready.point(offset, len, address, entry).unwrap(), &memory, (offset, len, part));
}

fn check(data: DataPointer, memory: &HashMap<u64, u64>, (offset, len, part): (usize, usize, usize)) {
    let mut found = Found::default();
    let read = |addr: u64, to: &mut [u64]| {
        for (at, entry) in (addr..).step_by(8).zip(to) {
            *entry = *memory.get(&at).ok_or(Status::DATA_TRANSFER_ERROR)?;
        }
        Ok(())
    };
    prp::walk_part(data, len, part, read, |segment| found.add(segment)).unwrap();
    assert_eq!(found.segments, expected(offset, part), "{offset} {len} {part}");
}

pub(crate) fn prp_seeds() -> Vec<Vec<u8>> {
    let hostile = |prp1, prp2, len: u32, kinds: &[u8]| {
        Seed::default().u8(0).u64(prp1).u64(prp2).u32(len).u32(len / 2 + 4096).bytes(kinds).0
    };
    let built = |offset: u32, len: u32| Seed::default().u8(1).u32(offset).u32(len).u32(len / 2).0;
    vec![
        hostile(0x1000, 0x2000, 8192, &[]),
        hostile(0x1008, 0x2000, 100_000, &[0]),
        hostile(0, 0x2ff8, 1 << 20, &[0, 0, 3]),
        hostile(4, 0x2000, 4 << 20, &[0, 0, 2, 7, 9]),
        // Lists of one slot that lead to each other.
        hostile(0, 0x2ff8, 4 << 20, &[3; 2000]),
        built(0, 4096),
        built(4092, 8192),
        built(2048, 513 * 4096),
        built(511 * 4096, 513 * 4096),
        built(0, 1024 * 4096),
    ]
}

/// Descriptors at any address, from the input's bytes over and over.
pub(crate) fn sgl(data: &[u8]) {
    let mut input = Input(data);
    let first = descriptor(&mut input);
    let (len, part) = (input.below(MAX), input.below(MAX));
    let (table, mut found, mut reads) = (input.0, Found::default(), 0);
    let read = |addr: u64, to: &mut [Descriptor]| {
        reads += to.len();
        assert!(reads <= sgl::MAX_DESCRIPTORS);
        for (n, place) in to.iter_mut().enumerate() {
            let at = (addr / 16) as usize + n;
            let size = table.len() / 16;
            if size == 0 || at > 64 * size {
                return Err(Status::DATA_TRANSFER_ERROR);
            }
            *place = descriptor(&mut Input(&table[at % size * 16..]));
        }
        Ok(())
    };
    let walked = sgl::walk_part(first, len, part, read, |segment| found.add(segment));
    match walked {
        Ok(()) => assert_eq!(found.bytes, part.min(len)),
        Err(status) => assert!(!status.is_success() && found.bytes <= part.min(len)),
    }
    assert_eq!(Descriptor::from(DataPointer::from(first)), Descriptor { reserved: [0; 3], ..first });
}

fn descriptor(input: &mut Input<'_>) -> Descriptor {
    Descriptor {
        address: input.u64().into(),
        length: input.u32().into(),
        reserved: input.array(),
        id: input.u8(),
    }
}

pub(crate) fn sgl_seeds() -> Vec<Vec<u8>> {
    let one = |seed: Seed, id: u8, addr: u64, len: u32| seed.u64(addr).u32(len).bytes(&[0, 0, 0, id]);
    let (data, segment, last) = (Descriptor::DATA, Descriptor::SEGMENT, Descriptor::LAST_SEGMENT);
    let lists = [(data, 0x1003, 100), (segment, 0, 48), (last, 16, 32), (segment, 32, 16)];
    let seed = |(id, addr, len)| {
        let seed = one(Seed::default(), id, addr, len).u32(5000).u32(4000);
        let seed = one(one(seed, data, 0x5000, 1000), data, 0x9001, 4000);
        one(seed, last, 0, 32).0
    };
    // A segment that leads to itself, and moves nothing.
    let around = one(Seed::default(), segment, 0, 32).u32(5000).u32(5000);
    let around = one(one(around, data, 0x5000, 0), segment, 0, 32).0;
    lists.into_iter().map(seed).chain([around]).collect()
}
