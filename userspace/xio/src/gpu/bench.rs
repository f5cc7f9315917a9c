// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates, as kernels see them: of a queue whose controller only echoes, of operations on values, and of bytes.
#![allow(unsafe_code, reason = "starts kernels")]

use super::abi::{Args, Item};
use super::device::{Gpu, Which};
use super::kernel::{Builtin, Kernel};
use super::kv::{queue_table, Task};
use super::memory::DeviceMemory;
use super::queue::{GpuQueue, GpuQueueOptions};
use super::{GpuBuffer, GpuKv, GpuOptions};
use crate::controller::Controller;
use crate::error::{gpu, Error, Result};
use crate::loopback::{self, bare, Config, NamespaceConfig};
use crate::mapping::Region;
use nvme_kv::Key;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// How commands go through a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// The block owns the queue and keeps no account of commands: what the queue itself costs.
    Plain,
    /// The library's batches.
    Batch,
    /// The library's blocking calls, a thread each.
    Call,
    /// A lock and a doorbell for each command.
    Lock,
}

impl Style {
    const fn kernel(self) -> Builtin {
        match self {
            Self::Plain => Builtin::BenchPlain,
            Self::Batch => Builtin::Bench,
            Self::Call => Builtin::BenchCall,
            Self::Lock => Builtin::BenchLock,
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Commands.
    pub commands: u64,
    /// How long they took, by the device's clock, or by the host's where several kernels ran.
    pub time: Duration,
    /// How often tail doorbells were written; 0 where the style does not count.
    pub doorbells: u64,
    /// Bytes of values.
    pub bytes: u64,
}

impl Rate {
    /// Commands in a second.
    pub fn per_second(&self) -> f64 {
        self.commands as f64 / self.time.as_secs_f64()
    }

    /// Bytes in a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64()
    }

    /// Commands for each doorbell.
    pub fn per_doorbell(&self) -> f64 {
        self.commands as f64 / self.doorbells.max(1) as f64
    }

    /// For how long a round took, when there were `batch` commands in each.
    pub fn round(&self, batch: u32) -> Duration {
        self.time.div_f64(self.commands as f64 / f64::from(batch))
    }
}

/// A kernel's work: everything it needs, and what it reported.
struct Work<'a> {
    gpu: &'a Gpu,
    queue: &'a GpuQueue,
    buffer: Option<&'a GpuBuffer>,
    items: Vec<Item>,
    copy: u64,
}

impl Work<'_> {
    /// Runs rounds of all items by one block.
    fn run(&self, kernel: Builtin, rounds: u64) -> Result<Rate> {
        let (gpu, count) = (self.gpu, self.items.len() as u32);
        let table = gpu.alloc(self.items.as_bytes().len())?;
        table.write(0, self.items.as_bytes())?;
        let (results, out) = (gpu.alloc(self.items.len() * 16)?, gpu.alloc(16)?);
        let queues = queue_table(gpu, std::slice::from_ref(self.queue))?;
        let mut args = Args::new_zeroed();
        (args.queues, args.queue_count, args.nsid) = (queues.address(), 1, 1);
        (args.items, args.results, args.out) = (table.address(), results.address(), out.address());
        if let Some(buffer) = self.buffer {
            args.buffer = buffer.descriptor();
        }
        (args.count, args.batch, args.rounds, args.copy) = (count, count, rounds, self.copy);
        // A copy goes better with all the threads there can be.
        let threads = if self.copy == 0 { count } else { 256 };
        (args.blocks, args.threads) = (1, threads.min(256));
        let before = self.queue.counters()?;
        // SAFETY: all addresses were made here or are those of `self`, as long as `count` says.
        unsafe { Kernel::builtin(gpu, kernel)?.launch(&args)? };
        let after = self.queue.counters()?;
        let mut words = [0u8; 16];
        out.read(0, &mut words)?;
        let [ticks, failed] = <[u64; 2]>::read_from_bytes(&words).unwrap_or_default();
        if failed != 0 {
            return Err(Error::Protocol(format!("{failed} commands of a benchmark failed")));
        }
        Ok(Rate {
            commands: rounds * u64::from(count),
            time: Duration::from_secs_f64(ticks as f64 / gpu.clock_hz() as f64),
            doorbells: after.doorbells - before.doorbells,
            bytes: rounds * self.items.iter().map(|item| u64::from(item.len)).sum::<u64>(),
        })
    }
}

fn queue_options() -> GpuQueueOptions {
    GpuQueueOptions { timeout: Duration::from_secs(60), ..GpuQueueOptions::default() }
}

fn numbered(n: u32) -> Result<Key> {
    Key::new(&n.to_be_bytes()).map_err(|e| gpu("gpu", e.to_string()))
}

/// A queue of 1024 entries whose controller, a thread of this process, answers every command at once and does nothing
/// else: `rounds` rounds of `batch` commands (1 to 256).
///
/// # Errors
/// [`Error::Gpu`], [`Error::Protocol`].
pub fn echo(gpu: &Gpu, style: Style, batch: u32, rounds: u64) -> Result<Rate> {
    let (raw, mut controller) = bare(1024)?;
    let queue = GpuQueue::over(gpu, raw, false, &queue_options())?;
    let items = (0..batch.clamp(1, 256)).map(|n| Ok(*Task::exist(numbered(n)?).item()));
    let items = items.collect::<Result<Vec<_>>>()?;
    let work = Work { gpu, queue: &queue, buffer: None, items, copy: 0 };
    let done = AtomicBool::new(false);
    let host = gpu.kind() == super::Kind::Host;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if controller.echo() == 0 {
                    if host {
                        std::thread::yield_now();
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        });
        // A tenth first, to warm up.
        let rate = work.run(style.kernel(), rounds / 10 + 1).and_then(|_| work.run(style.kernel(), rounds));
        done.store(true, Ordering::Relaxed);
        rate
    })
}

/// A loopback controller with a queue, and values of `len` bytes under numbered keys.
struct Station {
    gpu: Gpu,
    queue: GpuQueue,
    buffer: GpuBuffer,
    items: Vec<Item>,
    _controller: Controller,
}

impl Station {
    fn new(which: Which, batch: u32, len: u32) -> Result<Self> {
        // A GPU of its own has a stream of its own.
        let gpu = Gpu::open(which)?;
        let namespace = NamespaceConfig { capacity: 16 << 30, max_value: 256 << 20, ..Default::default() };
        let config = Config { namespaces: vec![namespace], ..Config::default() };
        let (controller, _hooks) = loopback::start(config)?;
        let stride = (len as usize).next_multiple_of(64);
        let buffer = GpuBuffer::new(&gpu, controller.alloc(stride * batch as usize)?)?;
        let task =
            |make: fn(Key, usize, u32) -> Task, n: u32| Ok(make(numbered(n)?, n as usize * stride, len));
        let store = (0..batch).map(|n| task(Task::store, n)).collect::<Result<Vec<_>>>()?;
        let options = GpuOptions { queue: queue_options(), ..GpuOptions::default() };
        let mut kv = GpuKv::open(&gpu, &controller, None, options)?;
        for (task, outcome) in store.iter().zip(kv.run(&buffer, &store)?) {
            outcome.check(task, kv.timeout())?;
        }
        drop(kv);
        let items = (0..batch).map(|n| Ok(*task(Task::retrieve, n)?.item())).collect::<Result<_>>()?;
        let queue = GpuQueue::new(&gpu, &controller, &queue_options())?;
        Ok(Self { gpu, queue, buffer, items, _controller: controller })
    }

    fn work(&self, copy: u64) -> Work<'_> {
        let (gpu, queue, buffer) = (&self.gpu, &self.queue, Some(&self.buffer));
        Work { gpu, queue, buffer, items: self.items.clone(), copy }
    }
}

/// Retrieves values of `len` bytes from `controllers` loopback controllers, each a thread of this process with a queue
/// and a kernel of its own, `batch` at a time, for `rounds` rounds. The time is that of the host, from the first
/// kernel's start to the last one's end.
///
/// # Errors
/// [`Error::Gpu`], [`Error::Protocol`].
pub fn retrieve(which: Which, controllers: u32, batch: u32, len: u32, rounds: u64) -> Result<Rate> {
    let stations = (0..controllers).map(|_| Station::new(which, batch, len)).collect::<Result<Vec<_>>>()?;
    together(&stations, Builtin::Bench, rounds)
}

/// Runs a kernel at all stations at once, warmed up, for some rounds each.
fn together(stations: &[Station], kernel: Builtin, rounds: u64) -> Result<Rate> {
    let copy = matches!(kernel, Builtin::BenchStream | Builtin::BenchPull);
    let start = Barrier::new(stations.len());
    let memory = |station: &Station| copy.then(|| station.gpu.alloc(station.buffer.len())).transpose();
    let memories = stations.iter().map(memory).collect::<Result<Vec<_>>>()?;
    let one = |station: &Station, to: Option<&DeviceMemory>| {
        let work = station.work(to.map_or(0, DeviceMemory::address));
        let warm = work.run(kernel, rounds / 10 + 1);
        // All come here, also one that failed.
        start.wait();
        warm?;
        let begin = Instant::now();
        let rate = work.run(kernel, rounds)?;
        Ok((rate, (begin, Instant::now())))
    };
    let both = std::thread::scope(|scope| {
        let one = &one;
        let pairs = stations.iter().zip(&memories);
        let threads: Vec<_> =
            pairs.map(|(station, to)| scope.spawn(move || one(station, to.as_ref()))).collect();
        threads.into_iter().map(joined).collect::<Result<Vec<_>>>()
    })?;
    let (rates, times): (Vec<Rate>, Vec<_>) = both.into_iter().unzip();
    let sum = |what: fn(&Rate) -> u64| rates.iter().map(what).sum();
    let (commands, doorbells, bytes) = (sum(|r| r.commands), sum(|r| r.doorbells), sum(|r| r.bytes));
    Ok(Rate { commands, time: span(&times), doorbells, bytes })
}

/// Rates of bytes on their way to a device's memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bandwidth {
    /// Of the controllers alone: values go to memory of the host, and nobody copies them on.
    pub controllers: Rate,
    /// Of the kernels alone: they copy what is in memory of the host already.
    pub pull: Rate,
    /// Of both at the same time: each value is copied on while others are on their way.
    pub both: Rate,
}

/// Retrieves values of `len` bytes, about 64 MiB a round, from `controllers` loopback controllers at once, and copies
/// them to the device's memory; and each of the two alone.
///
/// # Errors
/// [`Error::Gpu`], [`Error::Protocol`].
pub fn bandwidth(which: Which, controllers: u32, len: u32, rounds: u64) -> Result<Bandwidth> {
    let batch = ((64 << 20) / len.max(1)).clamp(1, 64);
    let stations = (0..controllers).map(|_| Station::new(which, batch, len)).collect::<Result<Vec<_>>>()?;
    let rate = |kernel| together(&stations, kernel, rounds);
    Ok(Bandwidth {
        controllers: rate(Builtin::Bench)?,
        pull: rate(Builtin::BenchPull)?,
        both: rate(Builtin::BenchStream)?,
    })
}

/// Copies `len` bytes of host memory that the device knows to its own memory, by the runtime's own copy: the limit for
/// [`bandwidth`].
///
/// # Errors
/// [`Error::Gpu`].
pub fn copy_limit(which: Which, len: usize, rounds: u64) -> Result<Rate> {
    let gpu = Gpu::open(which)?;
    let controller = Controller::loopback(Config::default())?;
    let buffer = GpuBuffer::new(&gpu, controller.alloc(len)?)?;
    let to = gpu.alloc(len)?;
    // SAFETY: a buffer of `len` bytes that nothing else uses.
    let from = unsafe { std::slice::from_raw_parts(buffer.buffer().as_ptr(), len) };
    to.write(0, from)?;
    let start = Instant::now();
    for _ in 0..rounds {
        to.write(0, from)?;
    }
    Ok(Rate { commands: rounds, time: start.elapsed(), doorbells: 0, bytes: rounds * len as u64 })
}

/// Copies `len` bytes by `threads` threads of this process at once, each in memory of its own: the limit for controllers, which do
/// the same with values.
///
/// # Errors
/// When there is not so much memory.
pub fn host_limit(threads: u32, len: usize, rounds: u64) -> Result<Rate> {
    let start = Barrier::new(threads as usize);
    let one = || {
        let from = vec![1; len];
        let to = Region::anonymous(len);
        // Once before, for the pages to be there.
        to.iter().for_each(|to| to.write(0, &from));
        start.wait();
        let (to, begin) = (to?, Instant::now());
        (0..rounds).for_each(|_| to.write(0, &from));
        Ok((begin, Instant::now()))
    };
    let times = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(joined).collect::<Result<Vec<_>>>()
    })?;
    let commands = rounds * u64::from(threads);
    Ok(Rate { commands, time: span(&times), doorbells: 0, bytes: commands * len as u64 })
}

/// What a thread found out.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(gpu("gpu", "a thread of the benchmark panicked")))
}

/// From the first start to the last end.
fn span(times: &[(Instant, Instant)]) -> Duration {
    let (begin, end) = (times.iter().map(|t| t.0).min(), times.iter().map(|t| t.1).max());
    end.zip(begin).map_or(Duration::ZERO, |(end, begin)| end - begin)
}
