// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller with its back end in memory, driven through queues in the same thread.
#![allow(missing_docs)]

mod common;

use common::{criterion, pointer, retrieve, store, Times, OWN};
use nvme_kv::regs::{offset, Aqa, Cc};
use nvme_kv::{admin, Cqe, Key, Sqe};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use xio_target::host::{DmaFault, Doorbells, Host, HostMemory, Interrupts};
use xio_target::{Config, Controller};
use zerocopy::IntoBytes;

const MEMORY: usize = 160 << 20;
const VALUES: u64 = 1 << 20;
const ENTRIES: u32 = 256;

/// Memory that only this thread touches.
struct Memory(UnsafeCell<Vec<u8>>, Vec<AtomicU32>);

// SAFETY: there is one thread.
#[allow(unsafe_code)]
unsafe impl Sync for Memory {}

#[allow(unsafe_code)]
impl Memory {
    /// Copies between a place of the memory and elsewhere; `None` for one that is not in it.
    fn with(&self, addr: u64, len: usize, copy: impl FnOnce(&mut [u8])) -> Option<()> {
        // SAFETY: there is one thread, and no borrow outlives the copy it is for.
        let all = unsafe { &mut *self.0.get() };
        all.get_mut(addr as usize..addr as usize + len).map(copy)
    }
}

impl HostMemory for Memory {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: to.len(), write: false };
        self.with(addr, to.len(), |place| to.copy_from_slice(place)).ok_or(fault)
    }
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: from.len(), write: true };
        self.with(addr, from.len(), |place| place.copy_from_slice(from)).ok_or(fault)
    }
    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        self.write(addr, cqe.as_bytes())
    }
}

impl Doorbells for Memory {
    fn load(&self, at: usize) -> u32 {
        self.1[(at - offset::DOORBELLS) / 4].load(Ordering::Acquire)
    }
    fn clear(&self, at: usize) {
        self.1[(at - offset::DOORBELLS) / 4].store(0, Ordering::Release);
    }
}

impl Interrupts for Memory {
    fn raise(&self, _vector: u16) {}
}

/// A controller with I/O queue 1, whose entries are at 0x10000 and 0x20000.
struct Bench {
    controller: Controller,
    memory: Arc<Memory>,
    tail: u32,
}

impl Bench {
    fn new() -> Self {
        let doorbells = (0..1024).map(|_| AtomicU32::new(0)).collect();
        let memory = Arc::new(Memory(UnsafeCell::new(vec![0; MEMORY]), doorbells));
        let host = Host { memory: memory.clone(), doorbells: memory.clone(), interrupts: memory.clone() };
        let mut controller = Controller::new(Config::default(), host).unwrap();
        let mut set = |at, value: u32| controller.write_register(at, &value.to_le_bytes());
        set(offset::AQA, Aqa(0).with_asqs(15).with_acqs(15).0);
        set(offset::ASQ, 0x1000);
        set(offset::ACQ, 0x2000);
        set(offset::CC, Cc::KV_ENABLE.0);
        let mut bench = Self { controller, memory, tail: 0 };
        let (entries, contiguous) = (ENTRIES, true);
        let cq = admin::CreateCq { qid: 1, entries, contiguous, base: 0x20000, vector: None };
        let sq = admin::CreateSq { qid: 1, entries, contiguous, base: 0x10000, priority: 0, cqid: 1 };
        for (n, command) in
            [admin::Command::CreateCq(cq), admin::Command::CreateSq(sq)].into_iter().enumerate()
        {
            bench.memory.write(0x1000 + n as u64 * 64, command.encode(n as u16).as_bytes()).unwrap();
            bench.memory.1[0].store(n as u32 + 1, Ordering::Release);
            assert_eq!(bench.controller.poll(), 1);
        }
        bench
    }

    /// Sends `count` commands, some at once.
    fn run_all(&mut self, sqe: &Sqe, count: u64, at_once: u64) {
        (0..count / at_once).for_each(|_| self.run(sqe, at_once as u32));
        self.run(sqe, (count % at_once) as u32);
    }

    /// Sends as many commands at once and waits for all of them.
    fn run(&mut self, sqe: &Sqe, count: u32) {
        for _ in 0..count {
            self.memory.write(0x10000 + u64::from(self.tail) * 64, sqe.as_bytes()).unwrap();
            self.tail = (self.tail + 1) % ENTRIES;
        }
        self.memory.1[2].store(self.tail, Ordering::Release);
        let mut left = count as usize;
        while left > 0 {
            left -= self.controller.poll();
        }
        self.memory.1[3].store(self.tail, Ordering::Release);
    }
}

fn main() {
    let (mut c, mut times, mut bench) = (criterion(), Times::default(), Bench::new());
    let key = Key::new(b"key of 16 bytes!").unwrap();
    for (name, len, at_once) in [("64 B", 64usize, 128u64), ("4 KiB", 4096, 128), ("64 MiB", 64 << 20, 1)] {
        let memory = bench.memory.clone();
        let data = pointer(VALUES * 2, len, 0x40000, |at, entry| {
            memory.write(at, &entry.to_le_bytes()).unwrap();
        });
        let (from, mut to) = (vec![1u8; len], vec![2u8; len]);
        let [copied, stored, retrieved] = ["copy", "store", "retrieve"].map(|what| format!("{what} {name}"));
        times.measure(&mut c, (&copied, len), OWN, |count| {
            (0..count).for_each(|_| to.copy_from_slice(black_box(&from)));
        });
        for (what, sqe) in [(&stored, store(key, len, data)), (&retrieved, retrieve(key, len, data))] {
            times.measure(&mut c, (what, len), OWN, |count| bench.run_all(&sqe, count, at_once));
        }
        // A small copy takes less than it takes to look at a clock.
        let copied = (len > 4096).then_some(&*copied);
        times.tell(&stored, len, copied);
        times.tell(&retrieved, len, copied);
    }
    c.final_summary();
}
