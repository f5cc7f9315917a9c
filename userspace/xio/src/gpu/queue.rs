// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues that kernels drive.
#![allow(unsafe_code, reason = "memory of a queue is registered with the device's runtime")]

use super::abi::device::{Queue, Slot, MAX_ENTRIES};
use super::device::Gpu;
use super::doorbell::{Doorbell, Doorbells};
use super::executor::Mapping;
use super::memory::{DeviceMemory, Registered};
use crate::buffer::Buffer;
use crate::controller::Controller;
use crate::error::{gpu, Error, Result};
use crate::queue::RawQueue;
use nvme_kv::{Cqe, Sqe};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// What queue to make.
#[derive(Clone, Debug)]
pub struct GpuQueueOptions {
    /// Most entries of each of the two queues; the largest power of two up to it that the controller has is taken. One
    /// less commands can be in flight.
    pub entries: u32,
    /// For how long a call in a kernel waits.
    pub timeout: Duration,
    /// Take this way to the doorbells and no other.
    pub doorbell: Option<Doorbell>,
    /// First ticket; for tests of what happens when counters wrap. A multiple of 2 times the entries.
    pub first_ticket: u64,
}

impl Default for GpuQueueOptions {
    fn default() -> Self {
        Self { entries: 1024, timeout: Duration::from_secs(10), doorbell: None, first_ticket: 0 }
    }
}

/// What a queue has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueCounters {
    /// Commands submitted, fillers of poisoned places included.
    pub submitted: u64,
    /// Completions taken.
    pub completed: u64,
    /// How often the tail doorbell was written.
    pub doorbells: u64,
    /// How often the head doorbell was written.
    pub cq_doorbells: u64,
    /// Answers to commands that had been given up.
    pub late: u64,
    /// Slots that are poisoned: a command was given up there.
    pub poisoned: u32,
    /// Not 0 when the controller broke the protocol (`XIO_BROKEN_*`): the queue takes no more commands.
    pub broken: u32,
}

/// A queue pair for kernels: [`address`](Self::address) is what they are given. Any number of them, and of their waves and
/// blocks, may use it at once. Deleted when dropped.
///
/// Drop order: the doorbells taken from the device, deleted in the controller, the rings taken from the device, then unmapped.
#[derive(Debug)]
pub struct GpuQueue {
    doorbells: Doorbells,
    _rings: [Arc<Registered>; 2],
    /// Queue and slots.
    memory: DeviceMemory,
    first_ticket: u64,
    raw: RawQueue,
}

/// Where the slots begin.
const SLOTS: usize = size_of::<Queue>();

impl GpuQueue {
    /// Makes a queue of a controller.
    ///
    /// # Errors
    /// Those of [`Controller::raw_queue`], and [`Error::Gpu`].
    pub fn new(gpu: &Gpu, controller: &Controller, options: &GpuQueueOptions) -> Result<Self> {
        let limit = controller.info()?.max_queue_entries().min(MAX_ENTRIES);
        let wanted = options.entries.min(limit);
        if wanted < 2 {
            return Err(Error::QueueEntries { entries: options.entries, limit });
        }
        let raw = controller.raw_queue(1 << wanted.ilog2())?;
        Self::over(gpu, raw, controller.path().is_some(), options)
    }

    /// Takes a queue pair that was just made. `registers` says whether its doorbells are registers of a device, not
    /// memory.
    ///
    /// # Errors
    /// [`Error::QueueEntries`] unless the entries are a power of two, 2 to 16384; [`Error::Gpu`].
    pub fn over(gpu: &Gpu, raw: RawQueue, registers: bool, options: &GpuQueueOptions) -> Result<Self> {
        let entries = raw.entries();
        if !entries.is_power_of_two() || !(2..=MAX_ENTRIES).contains(&entries) {
            return Err(Error::QueueEntries { entries, limit: MAX_ENTRIES });
        }
        let (sq, cq) = (raw.sq_ptr(), raw.cq_ptr());
        let register = |ptr, entry: usize| {
            let len = entries as usize * entry;
            // SAFETY: mapped as long as `raw`, which outlives the registrations by the order of the fields.
            unsafe { gpu.registry.register(&gpu.executor, ptr, len, Mapping::Memory) }
        };
        let rings = [register(sq, Sqe::SIZE)?, register(cq, Cqe::SIZE)?];
        // SAFETY: dropped before `raw`, as above.
        let doorbells = unsafe { Doorbells::reach(gpu, &raw, registers, options.doorbell)? };
        let memory = gpu.alloc(SLOTS + entries as usize * size_of::<Slot>())?;
        let ticks = options.timeout.as_nanos() * u128::from(gpu.clock_hz()) / 1_000_000_000;
        let mut queue = Queue::new_zeroed();
        (queue.sq, queue.cq) = (rings[0].address_of(sq), rings[1].address_of(cq));
        (queue.sq_doorbell, queue.cq_doorbell) = (doorbells.sq, doorbells.cq);
        queue.slots = memory.address() + SLOTS as u64;
        // More than three times this must not overflow.
        queue.timeout = u64::try_from(ticks).unwrap_or(u64::MAX).min(u64::MAX >> 3);
        (queue.entries, queue.shift, queue.qid) = (entries, entries.ilog2(), raw.qid().into());
        let first = options.first_ticket;
        if first % (2 * u64::from(entries)) != 0 {
            return Err(gpu_error(format!(
                "the first ticket must be a multiple of {}, not {first}",
                2 * entries
            )));
        }
        (queue.tail, queue.published, queue.sq_head, queue.reaped) = (first, first << 1, first, first << 1);
        queue.cq_known = first;
        let slot = |n: u32| Slot { state: first.wrapping_add(n.into()) << 2, result: 0 };
        let slots: Vec<Slot> = (0..entries).map(slot).collect();
        memory.write(0, queue.as_bytes())?;
        memory.write(SLOTS, slots.as_bytes())?;
        Ok(Self { doorbells, _rings: rings, memory, first_ticket: first, raw })
    }

    /// Address of the `xio_queue` for kernels of this device. Valid while this exists.
    pub const fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Queue identifier.
    pub const fn qid(&self) -> u16 {
        self.raw.qid()
    }

    /// Entries of each of the two queues.
    pub const fn entries(&self) -> u32 {
        self.raw.entries()
    }

    /// How the device reaches the doorbells.
    pub const fn doorbell(&self) -> Doorbell {
        self.doorbells.way
    }

    /// Why faster ways to the doorbells were not taken, a text each.
    pub fn refused(&self) -> &[String] {
        &self.doorbells.refused
    }

    pub(super) fn queue(&self) -> Result<Queue> {
        let mut bytes = [0; SLOTS];
        self.memory.read(0, &mut bytes)?;
        Queue::read_from_bytes(&bytes).map_err(|_| gpu_error("a queue of another size"))
    }

    /// What the queue has counted, between kernels.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn counters(&self) -> Result<QueueCounters> {
        let queue = self.queue()?;
        Ok(QueueCounters {
            submitted: queue.tail.wrapping_sub(self.first_ticket),
            // The topmost bit is shifted out on both sides.
            completed: queue.reaped.wrapping_sub(self.first_ticket << 1) >> 1,
            doorbells: queue.doorbells,
            cq_doorbells: queue.cq_doorbells,
            late: queue.late,
            poisoned: queue.poisoned,
            broken: queue.broken,
        })
    }

    /// Whether the queue is there at this moment, between kernels: if so, what the last one took for completions were some. Of a
    /// queue that is no more, kernels get no answers.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Gone`].
    pub fn intact(&self) -> Result<()> {
        self.raw.intact()
    }

    /// Whether commands of this queue may point at a buffer of the same controller.
    pub(super) fn admit(&self, buffer: &Buffer) -> Result<()> {
        self.raw.admit(buffer)
    }

    /// Deletes the queue. When it returns `Ok` the controller does nothing for it any more.
    ///
    /// # Errors
    /// When the controller does not delete it; then it is reset.
    pub fn close(mut self) -> Result<()> {
        self.delete()
    }

    /// The doorbells first, so that no driver is asked to give them back.
    fn delete(&mut self) -> Result<()> {
        self.doorbells.release();
        self.raw.delete()
    }
}

impl Drop for GpuQueue {
    fn drop(&mut self) {
        // Nobody to tell, see `close`.
        let _ = self.delete();
    }
}

fn gpu_error(what: impl Into<String>) -> Error {
    gpu("gpu", what)
}
