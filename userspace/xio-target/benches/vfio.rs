// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller served over vfio-user, driven by a raw client without a virtual machine: rates, large values, and what
//! an idle controller costs. The client shares its memory and maps the doorbells, as QEMU does.
#![allow(missing_docs)]
#![allow(unsafe_code)] // Maps memory.

mod common;
#[path = "../tests/common/mod.rs"]
mod driver;

use common::{criterion, now, pointer, retrieve, store, Times, OWN, WALL};
use criterion::Criterion;
use driver::client::{plug, Machine};
use driver::Driver;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, MapFlags, ProtFlags};
use nix::time::ClockId;
use nvme_kv::{admin, kv, regs, Key, Sqe};
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use xio_target::vfio::Server;
use xio_target::{Config, NamespaceConfig};
use zerocopy::IntoBytes;

/// Where the memory is, and what is where in it.
const FAR: u64 = 1 << 40;
const LEN: usize = 144 << 20;
const CQ: u64 = 0x10000;
const LISTS: u64 = 0x20000;
const SMALL: u64 = 1 << 20;
const LARGE: u64 = 16 << 20;
const ENTRIES: u32 = 256;
const MIB64: usize = 64 << 20;

/// A file's first bytes, mapped for good.
struct Map(*mut u8);

impl Map {
    fn new(file: &File, len: usize) -> Self {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other one.
        let base = unsafe { mmap(None, len.try_into().unwrap(), protection, MapFlags::MAP_SHARED, file, 0) };
        Self(base.unwrap().as_ptr().cast())
    }

    fn dword(&self, at: u64) -> &AtomicU32 {
        // SAFETY: all places in this file are aligned and inside the mappings, which stay.
        unsafe { AtomicU32::from_ptr(self.0.add(at as usize).cast()) }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        // SAFETY: likewise; the controller only reads what it was told of.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.add(at as usize), bytes.len()) }
    }

    /// Memory that nobody else uses at the time.
    fn slice(&mut self, at: u64, len: usize) -> &mut [u8] {
        // SAFETY: likewise; no command that has it is under way.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(at as usize), len) }
    }
}

/// Queue 1 of a client.
struct Queue {
    memory: Map,
    bar: Map,
    doorbells: regs::Doorbells,
    tail: u32,
    head: u32,
    phase: u32,
}

impl Queue {
    fn push(&mut self, sqe: &Sqe) {
        self.memory.write(u64::from(self.tail) * 64, sqe.as_bytes());
        self.tail = (self.tail + 1) % ENTRIES;
    }

    /// Takes the completions that are there.
    fn take(&mut self) -> u64 {
        let mut taken = 0;
        loop {
            let status = self.memory.dword(CQ + u64::from(self.head) * 16 + 12).load(Ordering::Acquire) >> 16;
            if status & 1 != self.phase {
                return taken;
            }
            assert_eq!(status >> 1, 0, "status {status:#x}");
            self.head = (self.head + 1) % ENTRIES;
            self.phase ^= u32::from(self.head == 0);
            taken += 1;
        }
    }

    /// Sends `count` commands, as many at once as said, and waits for all.
    fn run(&mut self, sqe: &Sqe, count: u64, at_once: u64) {
        let (mut sent, mut done, mut idle) = (0, 0, 0u32);
        while done < count {
            let now = (done + at_once).min(count) - sent;
            if now > 0 {
                (0..now).for_each(|_| self.push(sqe));
                sent += now;
                let tail = self.doorbells.sq_tail(1) as u64;
                self.bar.dword(tail).store(self.tail, Ordering::Release);
            }
            let taken = self.take();
            if taken > 0 {
                done += taken;
                self.bar.dword(self.doorbells.cq_head(1) as u64).store(self.head, Ordering::Release);
            } else {
                idle += 1;
                // The controller may need this very core.
                if idle % 1000 == 0 {
                    thread::yield_now();
                }
            }
        }
    }
}

/// A client with queue 1 in its memory.
fn client(idle_cpu: u8) -> (Driver<Machine>, Queue) {
    let (stream, served) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let (_stop, stopped) = UnixStream::pair().unwrap();
        let namespace = NamespaceConfig { capacity: 4 << 30, ..NamespaceConfig::default() };
        let config = Config { namespaces: vec![namespace], idle_cpu, ..Config::default() };
        Server::new(config).unwrap().serve(served, stopped.as_fd()).unwrap();
    });
    let mut d = plug(stream);
    let file = File::from(memfd_create(c"bench", MFdFlags::empty()).unwrap());
    file.set_len(LEN as u64).unwrap();
    d.bus.client.map(FAR, 0, LEN as u64, 3, &file).unwrap();
    d.enable(16);
    let (entries, contiguous) = (ENTRIES, true);
    let cq = admin::CreateCq { qid: 1, entries, contiguous, base: FAR + CQ, vector: None };
    let sq = admin::CreateSq { qid: 1, entries, contiguous, base: FAR, priority: 0, cqid: 1 };
    assert_eq!(d.admin(admin::Command::CreateCq(cq)), Ok(0));
    assert_eq!(d.admin(admin::Command::CreateSq(sq)), Ok(0));
    let doorbells = d.cap().doorbells();
    let (memory, bar) = (Map::new(&file, LEN), Map::new(&d.bus.bar, 0x2000));
    (d, Queue { memory, bar, doorbells, tail: 0, head: 0, phase: 1 })
}

fn key(n: u64) -> Key {
    Key::new(&n.to_le_bytes()).unwrap()
}

/// The clock that goes while the thread of the latest controller runs.
fn controller_clock() -> ClockId {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_controller = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "controller\n")
    };
    let id = |task: std::fs::DirEntry| task.file_name().to_str()?.parse::<i32>().ok();
    let id = tasks.into_iter().filter(is_controller).filter_map(id).max().unwrap();
    // As the kernel makes them of threads (CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED).
    ClockId::from_raw(!id << 3 | 4 | 2)
}

fn small(c: &mut Criterion, times: &mut Times, queue: &mut Queue) {
    let controller = controller_clock();
    for (size, len) in [("64 B", 64), ("4 KiB", 4096)] {
        let data = pointer(FAR + SMALL, len, 0, |_, _| {});
        for (what, sqe) in [("store", store(key(0), len, data)), ("retrieve", retrieve(key(0), len, data))] {
            for (how, at_once, clock) in [
                ("128 at once", 128, WALL),
                ("time of its core", 128, controller),
                ("one at a time", 1, WALL),
            ] {
                let name = format!("vfio {what} {size}, {how}");
                times.measure(c, (&name, len), clock, |count| queue.run(&sqe, count, at_once));
                times.tell(&name, len, None);
            }
        }
    }
}

/// Times are those of the threads that copy, since others would wait for them.
fn large(c: &mut Criterion, times: &mut Times, queue: &mut Queue) {
    const STORE: &str = "vfio store 64 MiB";
    const STORE_NEW: &str = "vfio store 64 MiB, new keys";
    const RETRIEVE: &str = "vfio retrieve 64 MiB";
    const COPY: &str = "copy 64 MiB";
    const COPY_FRESH: &str = "copy 64 MiB to fresh memory";
    let controller = controller_clock();
    let data = pointer(FAR + LARGE, MIB64, FAR + LISTS, |at, entry| {
        queue.memory.write(at - FAR, &entry.to_le_bytes());
    });
    queue.memory.slice(LARGE, MIB64).fill(7);
    let mut kept = Vec::new();
    for round in 0..2 {
        kept.clear();
        for n in 1..=20 {
            // New keys take memory that the kernel has to clear first; so does a copy to fresh memory.
            let (name, clock) = if n % 2 == 0 { (STORE_NEW, controller) } else { (COPY_FRESH, OWN) };
            let start = now(clock);
            if n % 2 == 0 {
                queue.run(&store(key(n), MIB64, data), 1, 1);
            } else {
                kept.push(black_box(queue.memory.slice(LARGE, MIB64).to_vec()));
            }
            // The first round is for the kernel to have memory at all, in a virtual machine; the first keys get that of
            // deleted ones.
            if round == 1 && n > 4 {
                times.note(name, (now(clock) - start).as_secs_f64());
            }
        }
        for n in (2..=20).step_by(2).filter(|_| round == 0) {
            queue.run(&kv::Command::Delete { key: key(n) }.encode(0, 1), 1, 1);
        }
    }
    let to = &mut kept[0];
    times.measure(c, (COPY, MIB64), OWN, |count| {
        (0..count).for_each(|_| to.copy_from_slice(black_box(queue.memory.slice(LARGE, MIB64))));
    });
    for (name, sqe) in [(STORE, store(key(2), MIB64, data)), (RETRIEVE, retrieve(key(2), MIB64, data))] {
        times.measure(c, (name, MIB64), controller, |count| queue.run(&sqe, count, 1));
    }
    times.tell(COPY_FRESH, MIB64, None);
    times.tell(STORE_NEW, MIB64, Some(COPY_FRESH));
    times.tell(COPY, MIB64, None);
    times.tell(STORE, MIB64, Some(COPY));
    times.tell(RETRIEVE, MIB64, Some(COPY));
}

/// What an idle controller costs, and how soon it answers then.
fn idle(queue: &mut Queue) {
    let (pause, controller) = (Duration::from_millis(1500), controller_clock());
    let sqe = kv::Command::Flush.encode(0, 1);
    let (mut times, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        // Naps have found their length by then.
        thread::sleep(pause / 3);
        let before = (now(controller), now(WALL));
        thread::sleep(pause);
        shares.push((now(controller) - before.0).as_secs_f64() / (now(WALL) - before.1).as_secs_f64());
        let start = Instant::now();
        queue.run(&sqe, 1, 1);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    shares.sort_unstable_by(f64::total_cmp);
    let percent = |n: usize| shares[n] * 100.0;
    println!("idle: {:.2} % of a core, {:.2} % at most; then answered within", percent(7), percent(14));
    println!("      {:?} at best, {:?} in the middle, {:?} at worst", times[0], times[7], times[14]);
}

fn main() {
    let (mut c, mut times) = (criterion(), Times::default());
    let (driver, mut queue) = client(2);
    small(&mut c, &mut times, &mut queue);
    large(&mut c, &mut times, &mut queue);
    idle(&mut queue);
    drop(driver);
    idle(&mut client(15).1);
    c.final_summary();
}
