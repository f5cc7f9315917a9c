// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device with the library's kernels, the software controller beside it, queues and a buffer.

use super::pairs::Pairs;
use super::Arena;
use nvme_kv::prp::{ReadyLists, LIST_SLOTS};
use nvme_kv::{Cqe, DataPointer, Key, Sqe, PAGE_SIZE};
use xio_device_abi::device::{Args, Buffer, Item, Queue, Slot, TaskResult};
use xio_isa::decode::Program;
use xio_isa::host::{KvController, Latency, QueuePair};
use xio_isa::machine::{Grid, Machine, Outcome};
use xio_isa::object::CodeObject;
use xio_isa::{Arch, Result};
use xio_target::Config;
use xio_uapi::Page;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// What a rig is made of.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    pub queues: usize,
    pub entries: u32,
    /// First ticket of each queue.
    pub first: u64,
    /// Ticks that a call waits.
    pub timeout: u64,
    /// Ticks that the controller takes for a command.
    pub latency: Latency,
    /// Pages of the buffer.
    pub pages: usize,
}

impl Default for Options {
    fn default() -> Self {
        let latency = Latency { least: 0, most: 3000 };
        Self { seed: 1, queues: 1, entries: 16, first: 0, timeout: 5_000_000, latency, pages: 64 }
    }
}

pub struct Rig {
    pub machine: Machine,
    pub controller: KvController,
    pub arena: Arena,
    /// What the controller keeps.
    pub pairs: Pairs,
    queues: Vec<u64>,
    list: u64,
    buffer: Buffer,
    pages: Vec<Page>,
    copy: u64,
}

/// What a kernel is started with, beside the rig's own.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub blocks: u32,
    pub threads: u32,
    pub batch: u32,
    pub rounds: u64,
    pub seed: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self { blocks: 2, threads: 96, batch: 24, rounds: 1, seed: 5 }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub results: Vec<TaskResult>,
    /// Words that the kernel wrote.
    pub out: Vec<u64>,
}

impl Rig {
    pub fn new(object: &CodeObject, options: &Options) -> Self {
        Self::with_program(object, object.program.clone(), options)
    }

    pub fn with_program(object: &CodeObject, program: Program, options: &Options) -> Self {
        let machine = Machine::with_program(object, program, options.seed).unwrap();
        let config = Config { max_queues: 8, ..Config::default() };
        let pairs = Pairs::new(&config.namespaces[0]);
        let seed = options.seed ^ 0xc0ffee;
        let store = |_, _: &_| pairs.store();
        let mut controller =
            KvController::new(&machine.memory, config, options.latency, seed, store).unwrap();
        let mut arena = Arena::new(&machine);
        let queues: Vec<u64> =
            (1..=options.queues).map(|n| queue(&mut arena, &mut controller, n as u16, options)).collect();
        let list = arena.longs("list of queues", &queues);
        let (buffer, pages) = buffer(&mut arena, &controller, options.pages);
        let copy = arena.add("copy", options.pages * PAGE_SIZE);
        Self { machine, controller, arena, pairs, queues, list, buffer, pages, copy }
    }

    /// Runs a kernel of the library on items.
    pub fn run(&mut self, kernel: &str, items: &[Item], run: &Run) -> Result<Done> {
        // Each run has tables of its own; results are rubbish.
        let table = self.arena.add("items", size_of_val(items));
        let results = self.arena.add("results", items.len() * size_of::<TaskResult>());
        let out = self.arena.add("out", 64 * items.len().max(2));
        self.arena.write(table, items.as_bytes());
        self.arena.write(results, &vec![0x5a; items.len() * size_of::<TaskResult>()]);
        let args = Args {
            queues: self.list,
            items: table,
            results,
            buffer: self.buffer,
            out,
            copy: self.copy,
            seed: run.seed,
            rounds: run.rounds,
            count: items.len() as u32,
            queue_count: self.queues.len() as u32,
            nsid: 1,
            batch: run.batch,
            threads: run.threads,
            blocks: run.blocks,
        };
        let outcome = self.launch(kernel, run.blocks, run.threads, args.as_bytes())?;
        let mut bytes = vec![0; items.len() * size_of::<TaskResult>()];
        self.machine.memory.lock().read(results, &mut bytes).unwrap();
        let results =
            bytes.chunks_exact(size_of::<TaskResult>()).map(|b| TaskResult::read_from_bytes(b).unwrap());
        let out = self.arena.read_longs(out, 8 * items.len().max(2));
        Ok(Done { outcome, results: results.collect(), out })
    }

    /// Address of a queue.
    pub fn queue_address(&self, n: usize) -> u64 {
        self.queues[n]
    }

    /// The buffer.
    pub const fn buffer(&self) -> Buffer {
        self.buffer
    }

    /// Runs any kernel.
    pub fn launch(&mut self, kernel: &str, blocks: u32, threads: u32, arguments: &[u8]) -> Result<Outcome> {
        self.machine.run(kernel, Grid { blocks, threads }, arguments, &mut self.controller)
    }

    /// Writes into the buffer.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.machine.memory.lock().write(self.buffer.data + offset, bytes).unwrap();
    }

    /// Reads from the buffer.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.machine.memory.lock().read(self.buffer.data + offset, &mut bytes).unwrap();
        bytes
    }

    /// Reads what a kernel copied.
    pub fn read_copy(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.machine.memory.lock().read(self.copy + offset, &mut bytes).unwrap();
        bytes
    }

    /// The PRP entries of a range, as the host makes them.
    pub fn data(&self, offset: u64, len: u32) -> DataPointer {
        let page = |n: usize| self.pages[n].addr;
        let list = |variant: usize, n: usize| self.pages[n].list[variant];
        ReadyLists::new(self.pages.len()).point(offset as usize, len as usize, page, list).unwrap()
    }

    /// Tickets that were given, that the controller knows, and completions that were taken of a queue, while nobody is
    /// at it.
    pub fn counters(&self, n: usize) -> [u64; 3] {
        let queue = self.queue(n);
        assert_eq!((queue.published & 1, queue.reaped & 1), (0, 0), "locks are free");
        [queue.tail, queue.published / 2, queue.reaped / 2]
    }

    /// A queue as it is now.
    pub fn queue(&self, n: usize) -> Queue {
        let mut bytes = vec![0; size_of::<Queue>()];
        self.machine.memory.lock().read(self.queues[n], &mut bytes).unwrap();
        Queue::read_from_bytes(&bytes).unwrap()
    }
}

fn queue(arena: &mut Arena, controller: &mut KvController, qid: u16, options: &Options) -> u64 {
    let entries = options.entries;
    let sq = arena.add("submission queue", (entries as usize * Sqe::SIZE).next_multiple_of(PAGE_SIZE));
    let cq = arena.add("completion queue", (entries as usize * Cqe::SIZE).next_multiple_of(PAGE_SIZE));
    controller.create(&QueuePair { qid, entries, sq, cq }).unwrap();
    let at = arena.add("queue", size_of::<Queue>());
    let slots = arena.add("slots", entries as usize * size_of::<Slot>());
    let mut queue = Queue::new_zeroed();
    (queue.sq, queue.cq) = (sq, cq);
    (queue.sq_doorbell, queue.cq_doorbell) = controller.doorbells(qid);
    (queue.slots, queue.timeout) = (slots, options.timeout);
    (queue.entries, queue.shift, queue.qid) = (entries, entries.ilog2(), qid.into());
    let first = options.first;
    (queue.tail, queue.sq_head, queue.cq_known) = (first, first, first);
    (queue.published, queue.reaped) = (first.wrapping_mul(2), first.wrapping_mul(2));
    let all: Vec<Slot> =
        (0..u64::from(entries)).map(|n| Slot { state: first.wrapping_add(n) << 2, result: 0 }).collect();
    arena.write(at, queue.as_bytes());
    arena.write(slots, all.as_bytes());
    at
}

/// A buffer with its table and its ready-made lists, as the module makes them.
fn buffer(arena: &mut Arena, controller: &KvController, count: usize) -> (Buffer, Vec<Page>) {
    let data = arena.add("buffer", count * PAGE_SIZE);
    let addrs = controller.dma().scatter(data, count * PAGE_SIZE, true);
    let mut pages = vec![Page::new_zeroed(); count];
    for (page, addr) in pages.iter_mut().zip(&addrs) {
        page.addr = *addr;
    }
    for variant in 0..ReadyLists::VARIANTS {
        let len = ReadyLists::new(count).list_pages(variant) * PAGE_SIZE;
        if len == 0 {
            continue;
        }
        let list = arena.add("list", len);
        let at = controller.dma().scatter(list, len, false);
        let write = |page: usize, slot: usize, value: u64| {
            arena.write(list + (page * PAGE_SIZE + slot * 8) as u64, &value.to_le_bytes());
        };
        for (n, page) in pages.iter_mut().enumerate().skip(1) {
            let (list_page, slot) = ReadyLists::position(variant, n);
            write(list_page, slot, page.addr);
            page.list[variant] = at[list_page] + slot as u64 * 8;
        }
        for (n, next) in at.iter().enumerate().skip(1) {
            write(n - 1, LIST_SLOTS - 1, *next);
        }
    }
    let table = arena.add("table", size_of_val(pages.as_slice()));
    arena.write(table, pages.as_bytes());
    (Buffer { pages: table, data, len: (count * PAGE_SIZE) as u64 }, pages)
}

/// A run that must be right: without an error, and the controller never read too early.
pub fn right(arch: Arch, done: Result<Done>) -> Done {
    let done = done.unwrap_or_else(|e| panic!("{arch}: {e}"));
    if let Some(stale) = done.outcome.stale.first() {
        panic!("{arch}: {stale}");
    }
    done
}

/// The status of a result that must be there, and that is one of NVMe.
pub fn status(result: &TaskResult) -> u16 {
    result.get().and_then(|status| u16::try_from(status).ok()).unwrap_or(u16::MAX)
}

/// An item.
pub fn item(opcode: u8, key: &Key, offset: u64, len: u32) -> Item {
    Item { opcode: opcode.into(), options: 0, key: *key.padded(), key_len: key.len().into(), len, offset }
}

/// A key that differs for each number, of any length.
pub fn key(n: usize) -> Key {
    let text = format!("{n:03}-abcdefghijklm");
    Key::new(&text.as_bytes()[..4 + n % 13]).unwrap()
}
