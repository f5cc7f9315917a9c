// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small driver for a controller behind any bus.
#![allow(dead_code)] // No test uses all of it.

pub mod client;
pub mod local;
pub mod remote;

use nvme_kv::admin::{self, CreateCq, CreateSq, Identify};
use nvme_kv::kv::{self, Condition, RetrieveOptions, StoreOptions};
use nvme_kv::regs::{offset, Aqa, Cap, Cc, Csts, Doorbells};
use nvme_kv::ring::{CqConsumer, SqProducer};
use nvme_kv::{prp, Cqe, DataPointer, Key, Sqe, Status, PAGE_SIZE};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const LIMIT: Duration = Duration::from_secs(20);
const PAGE: u64 = PAGE_SIZE as u64;

/// How the driver reaches the controller and its own memory.
pub trait Bus {
    fn read_register(&mut self, offset: usize, to: &mut [u8]);
    fn write_register(&mut self, offset: usize, from: &[u8]);
    fn ring(&mut self, offset: usize, value: u32);
    fn peek(&self, addr: u64, to: &mut [u8]);
    fn poke(&mut self, addr: u64, from: &[u8]);
    /// Lets the controller work; returns soon.
    fn work(&mut self);
}

struct Pair {
    sq: SqProducer,
    cq: CqConsumer,
    sq_base: u64,
    cq_base: u64,
    cid: u16,
}

pub struct Driver<B> {
    pub bus: B,
    free: u64,
    pairs: BTreeMap<u16, Pair>,
    doorbells: Option<Doorbells>,
}

/// A value's pages in the worst order, each on its own in the PRP list.
pub struct Buffer {
    pub pages: Vec<u64>,
    pub data: DataPointer,
}

impl<B: Bus> Driver<B> {
    /// A driver whose memory begins at `base`.
    pub fn new(bus: B, base: u64) -> Self {
        Self { bus, free: base, pairs: BTreeMap::new(), doorbells: None }
    }

    /// From now on memory is taken from `base` on.
    pub fn allocate_from(&mut self, base: u64) {
        self.free = base;
    }

    pub fn cap(&mut self) -> Cap {
        let mut cap = [0; 8];
        self.bus.read_register(offset::CAP, &mut cap);
        Cap(u64::from_le_bytes(cap))
    }

    fn doorbells(&mut self) -> Doorbells {
        if self.doorbells.is_none() {
            self.doorbells = Some(self.cap().doorbells());
        }
        self.doorbells.unwrap()
    }

    /// Offset of the tail doorbell of a queue.
    pub fn doorbell_of(&mut self, qid: u16) -> usize {
        self.doorbells().sq_tail(qid)
    }

    pub fn csts(&mut self) -> Csts {
        Csts(self.register(offset::CSTS))
    }

    pub fn register(&mut self, offset: usize) -> u32 {
        let mut dword = [0; 4];
        self.bus.read_register(offset, &mut dword);
        u32::from_le_bytes(dword)
    }

    pub fn set_register(&mut self, offset: usize, value: u32) {
        self.bus.write_register(offset, &value.to_le_bytes());
    }

    /// Enables with admin queues of that many entries, after which it should be ready.
    pub fn enable(&mut self, entries: u32) {
        self.pairs.clear();
        let pair = self.pair(entries);
        self.set_register(offset::AQA, Aqa(0).with_asqs(entries - 1).with_acqs(entries - 1).0);
        self.bus.write_register(offset::ASQ, &pair.sq_base.to_le_bytes());
        self.set_register(offset::ACQ, pair.cq_base as u32);
        self.set_register(offset::ACQ + 4, (pair.cq_base >> 32) as u32);
        self.set_register(offset::CC, Cc::KV_ENABLE.0);
        // Writes may be posted: not before the controller has seen it may a doorbell be rung.
        self.csts();
        self.pairs.insert(0, pair);
    }

    pub fn disable(&mut self) {
        self.set_register(offset::CC, 0);
        assert_eq!(self.csts().0, 0);
    }

    /// Contiguous pages, all zero.
    pub fn alloc(&mut self, pages: usize) -> u64 {
        let addr = self.free;
        self.free += pages as u64 * PAGE;
        self.bus.poke(addr, &vec![0; pages * PAGE_SIZE]);
        addr
    }

    fn pair(&mut self, entries: u32) -> Pair {
        let pages = |size: usize| (entries as usize * size).div_ceil(PAGE_SIZE);
        Pair {
            sq: SqProducer::new(entries).unwrap(),
            cq: CqConsumer::new(entries).unwrap(),
            sq_base: self.alloc(pages(Sqe::SIZE)),
            cq_base: self.alloc(pages(Cqe::SIZE)),
            cid: 0,
        }
    }

    /// Creates an I/O queue pair.
    pub fn create(&mut self, qid: u16, entries: u32) {
        let pair = self.pair(entries);
        let vector = Some(qid);
        let cq = CreateCq { qid, entries, contiguous: true, base: pair.cq_base, vector };
        let sq = CreateSq { qid, entries, contiguous: true, base: pair.sq_base, priority: 0, cqid: qid };
        assert_eq!(self.admin(admin::Command::CreateCq(cq)), Ok(0));
        assert_eq!(self.admin(admin::Command::CreateSq(sq)), Ok(0));
        self.pairs.insert(qid, pair);
    }

    /// Uses a pair that was created in another way; `address` maps an offset in the queue to an address.
    pub fn adopt(&mut self, qid: u16, entries: u32, sq_base: u64, cq_base: u64) {
        let (sq, cq) = (SqProducer::new(entries).unwrap(), CqConsumer::new(entries).unwrap());
        self.pairs.insert(qid, Pair { sq, cq, sq_base, cq_base, cid: 0 });
    }

    /// Puts a command into the queue without ringing; `None` when it is full.
    pub fn push(&mut self, qid: u16, mut sqe: Sqe) -> Option<u16> {
        let pair = self.pairs.get_mut(&qid).unwrap();
        let slot = pair.sq.push()?;
        pair.cid = pair.cid.wrapping_add(1);
        sqe.cid = pair.cid.into();
        self.bus.poke(pair.sq_base + u64::from(slot) * 64, sqe.as_bytes());
        Some(pair.cid)
    }

    pub fn ring(&mut self, qid: u16) {
        let doorbell = self.doorbells().sq_tail(qid);
        self.bus.ring(doorbell, self.pairs[&qid].sq.tail());
    }

    /// The next completion, of which nothing is believed yet.
    fn next(&mut self, qid: u16) -> Option<Cqe> {
        let pair = self.pairs.get_mut(&qid).unwrap();
        let mut cqe = Cqe::new_zeroed();
        self.bus.peek(pair.cq_base + u64::from(pair.cq.head()) * 16, cqe.as_mut_bytes());
        if cqe.phase() != pair.cq.phase() {
            return None;
        }
        pair.cq.pop();
        Some(cqe)
    }

    /// Takes the next completion without telling the controller.
    pub fn pop(&mut self, qid: u16) -> Option<Cqe> {
        let cqe = self.next(qid)?;
        assert!(self.pairs.get_mut(&qid).unwrap().sq.update_head(cqe.sqhd.get()));
        assert_eq!(cqe.sqid.get(), qid);
        Some(cqe)
    }

    /// Takes the next completion and tells the controller, whatever is in it.
    pub fn take(&mut self, qid: u16) -> Option<Cqe> {
        let cqe = self.next(qid)?;
        // One that can not be changes nothing.
        let _ = self.pairs.get_mut(&qid).unwrap().sq.update_head(cqe.sqhd.get());
        self.ring_head(qid);
        Some(cqe)
    }

    /// The entry of a completion queue that the controller writes next, as it is.
    pub fn next_entry(&self, qid: u16) -> Cqe {
        let pair = &self.pairs[&qid];
        let mut cqe = Cqe::new_zeroed();
        self.bus.peek(pair.cq_base + u64::from(pair.cq.head()) * 16, cqe.as_mut_bytes());
        cqe
    }

    pub fn ring_head(&mut self, qid: u16) {
        let doorbell = self.doorbells().cq_head(qid);
        self.bus.ring(doorbell, self.pairs[&qid].cq.head());
    }

    /// Waits for a completion.
    pub fn wait(&mut self, qid: u16) -> Cqe {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(cqe) = self.pop(qid) {
                self.ring_head(qid);
                return cqe;
            }
            assert!(Instant::now() < end, "no completion, CSTS {:#x}", self.csts().0);
            self.bus.work();
        }
    }

    /// Waits until the controller reports a fatal error.
    pub fn wait_for_failure(&mut self) {
        let end = Instant::now() + LIMIT;
        while self.csts().cfs() == 0 {
            assert!(Instant::now() < end, "still running");
            self.bus.work();
        }
    }

    /// Executes one command: dword 0, or the status.
    pub fn execute(&mut self, qid: u16, sqe: Sqe) -> Result<u32, Status> {
        let cid = self.push(qid, sqe).unwrap();
        self.ring(qid);
        let cqe = self.wait(qid);
        assert_eq!(cqe.cid.get(), cid);
        match cqe.status() {
            Status::SUCCESS => Ok(cqe.dw0.get()),
            status => Err(status),
        }
    }

    pub fn admin(&mut self, command: admin::Command) -> Result<u32, Status> {
        self.execute(0, command.encode(0))
    }

    pub fn identify(&mut self, cns: u8, nsid: u32, csi: u8) -> Result<Vec<u8>, Status> {
        let addr = self.alloc(1);
        let data = DataPointer { prp1: addr, prp2: 0 };
        self.admin(admin::Command::Identify(Identify { cns, nsid, csi, data, cntid: 0 }))?;
        let mut bytes = vec![0; PAGE_SIZE];
        self.bus.peek(addr, &mut bytes);
        Ok(bytes)
    }

    /// A buffer for `len` bytes.
    pub fn buffer(&mut self, len: usize) -> Buffer {
        let count = len.div_ceil(PAGE_SIZE).max(1);
        let first = self.alloc(count);
        let pages: Vec<u64> = (0..count as u64).rev().map(|n| first + n * PAGE).collect();
        let lists: Vec<u64> = (0..prp::list_pages(count)).map(|_| self.alloc(1)).collect();
        let bus = &mut self.bus;
        let write = |list: usize, slot: usize, entry: u64| {
            bus.poke(lists[list] + slot as u64 * 8, &entry.to_le_bytes())
        };
        let data = prp::build(&pages, 0, len, &lists, write).unwrap();
        Buffer { pages, data }
    }

    /// The data pointer for the first `len` bytes of a buffer.
    pub fn buffer_part(&self, buffer: &Buffer, len: usize) -> DataPointer {
        match len.div_ceil(PAGE_SIZE) {
            0 | 1 => DataPointer { prp1: buffer.pages[0], prp2: 0 },
            2 => DataPointer { prp1: buffer.pages[0], prp2: buffer.pages[1] },
            _ => buffer.data,
        }
    }

    /// Gives back the memory of a buffer, which was the last to be allocated.
    pub fn free(&mut self, buffer: &Buffer) {
        self.free = *buffer.pages.last().unwrap();
    }

    pub fn fill(&mut self, buffer: &Buffer, value: &[u8]) {
        for (page, part) in buffer.pages.iter().zip(value.chunks(PAGE_SIZE)) {
            self.bus.poke(*page, part);
        }
    }

    pub fn content(&self, buffer: &Buffer, len: usize) -> Vec<u8> {
        let mut value = vec![0; len];
        for (page, part) in buffer.pages.iter().zip(value.chunks_mut(PAGE_SIZE)) {
            self.bus.peek(*page, part);
        }
        value
    }

    pub fn kv(&mut self, qid: u16, command: kv::Command) -> Result<u32, Status> {
        self.execute(qid, command.encode(0, 1))
    }

    /// Stores through a buffer of its own.
    pub fn store(&mut self, qid: u16, key: &Key, value: &[u8], condition: Condition) -> Result<u32, Status> {
        let buffer = self.buffer(value.len());
        self.fill(&buffer, value);
        let options = StoreOptions { condition, no_compress: false };
        self.kv(qid, kv::Command::Store { key: *key, len: value.len() as u32, options, data: buffer.data })
    }

    /// Retrieves at most `len` bytes; the length of the value as well.
    pub fn retrieve(&mut self, qid: u16, key: &Key, len: usize) -> Result<(Vec<u8>, u32), Status> {
        let buffer = self.buffer(len);
        let options = RetrieveOptions::default();
        let command = kv::Command::Retrieve { key: *key, len: len as u32, options, data: buffer.data };
        let true_len = self.kv(qid, command)?;
        Ok((self.content(&buffer, len.min(true_len as usize)), true_len))
    }
}

pub fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
