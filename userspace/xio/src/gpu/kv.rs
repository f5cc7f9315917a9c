// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of operations, carried out by kernels.
#![allow(unsafe_code, reason = "starts kernels")]

use super::abi::{device, Args, Item, TaskResult};
use super::buffer::GpuBuffer;
use super::device::Gpu;
use super::kernel::{Builtin, Kernel};
use super::memory::DeviceMemory;
use super::queue::{GpuQueue, GpuQueueOptions};
use crate::controller::Controller;
use crate::error::{gpu, Error, Result};
use crate::info::Namespace;
use nvme_kv::kv::{opcode, Command, RetrieveOptions, StoreOptions};
use nvme_kv::{DataPointer, Key, Status};
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

/// How to work.
#[derive(Clone, Debug)]
pub struct GpuOptions {
    /// The queue.
    pub queue: GpuQueueOptions,
    /// Queues; blocks take turns.
    pub queues: u32,
    /// Operations of a batch, which share a doorbell.
    pub batch: u32,
    /// Threads of a block, 1 to 256.
    pub threads: u32,
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self { queue: GpuQueueOptions::default(), queues: 1, batch: 64, threads: 64 }
    }
}

/// An operation for a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    item: Item,
    key: Key,
}

impl Task {
    fn new(command: Command, key: Key, offset: usize) -> Self {
        let sqe = command.encode(0, 0);
        let item = Item {
            opcode: sqe.opcode.into(),
            options: sqe.dword(11) >> 8,
            key: *key.padded(),
            key_len: key.len().into(),
            len: sqe.dword(10),
            offset: offset as u64,
        };
        Self { item, key }
    }

    /// Stores `len` bytes at `offset` of the buffer.
    pub fn store(key: Key, offset: usize, len: u32) -> Self {
        Self::store_with(key, offset, len, StoreOptions::default())
    }

    /// The same, with options.
    pub fn store_with(key: Key, offset: usize, len: u32, options: StoreOptions) -> Self {
        Self::new(Command::Store { key, len, options, data: DataPointer::default() }, key, offset)
    }

    /// Retrieves at most `len` bytes to `offset` of the buffer.
    pub fn retrieve(key: Key, offset: usize, len: u32) -> Self {
        Self::retrieve_with(key, offset, len, RetrieveOptions::default())
    }

    /// The same, with options.
    pub fn retrieve_with(key: Key, offset: usize, len: u32, options: RetrieveOptions) -> Self {
        Self::new(Command::Retrieve { key, len, options, data: DataPointer::default() }, key, offset)
    }

    /// Asks whether the key exists.
    pub fn exist(key: Key) -> Self {
        Self::new(Command::Exist { key }, key, 0)
    }

    /// Deletes the key and its value.
    pub fn delete(key: Key) -> Self {
        Self::new(Command::Delete { key }, key, 0)
    }

    /// Lists keys from this one on into at most `len` bytes at `offset` of the buffer.
    pub fn list(start: Key, offset: usize, len: u32) -> Self {
        Self::new(Command::List { start: Some(start), len, data: DataPointer::default() }, start, offset)
    }

    /// The key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// As kernels see it.
    pub const fn item(&self) -> &Item {
        &self.item
    }

    fn check(&self, buffer: &GpuBuffer, namespace: &Namespace) -> Result<()> {
        namespace.check_key(&self.key)?;
        let (offset, len, size) = (self.item.offset as usize, self.item.len as usize, buffer.len());
        if offset % 4 != 0 || offset > size || len > size - offset {
            return Err(Error::Range { offset, len, size });
        }
        if self.item.opcode == u32::from(opcode::STORE) {
            namespace.check_value(&self.key, len as u64)?;
        }
        Ok(())
    }
}

/// What came of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The status as device code has it: that of NVMe, or one of `abi::device::STATUS_*`.
    pub code: u32,
    /// For Retrieve the true length of the value in bytes, also when it is longer than the room was.
    pub length: u32,
}

impl Outcome {
    /// The status that the controller gave; `None` when it gave none in time.
    pub const fn status(&self) -> Option<Status> {
        if self.code > 0x7ff {
            return None;
        }
        Some(Status::from_bits(self.code as u16))
    }

    /// As the library's own calls have it: success, or the error that fits.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::Capacity`], [`Error::Timeout`], [`Error::Status`], …
    pub fn check(&self, task: &Task, timeout: Duration) -> Result<()> {
        let key = task.key;
        let op = match task.item.opcode as u8 {
            opcode::STORE => "Store",
            opcode::RETRIEVE => "Retrieve",
            opcode::DELETE => "Delete",
            opcode::LIST => "List",
            _ => "Exist",
        };
        match self.status() {
            Some(Status::SUCCESS) => Ok(()),
            Some(Status::KEY_NOT_FOUND) => Err(Error::NotFound { key }),
            Some(Status::KEY_EXISTS) => Err(Error::Exists { key }),
            Some(Status::CAPACITY_EXCEEDED) => Err(Error::Capacity { key, capacity: None }),
            Some(status) => Err(Error::Status { op, key: Some(key), status }),
            None => Err(match self.code {
                device::STATUS_TIMEOUT => Error::Timeout { what: op, after: timeout, state: None },
                device::STATUS_FULL => {
                    Error::Timeout { what: "waiting for room in a queue", after: timeout, state: None }
                }
                device::STATUS_BROKEN => Error::Protocol("its queue is broken".into()),
                _ => gpu("gpu", format!("{op} of key {key}: the kernel refused the item")),
            }),
        }
    }
}

/// Key Value operations by kernels, in one namespace.
///
/// Drop order: the queues first; buffers are the caller's, and commands that were given up may write to them until then.
#[derive(Debug)]
pub struct GpuKv {
    queues: Vec<GpuQueue>,
    gpu: Gpu,
    namespace: Namespace,
    controller: Controller,
    options: GpuOptions,
}

impl GpuKv {
    /// Opens a namespace, the first one unless `nsid` names one.
    ///
    /// # Errors
    /// Those of [`Controller::namespace`] and [`GpuQueue::new`].
    pub fn open(gpu: &Gpu, controller: &Controller, nsid: Option<u32>, options: GpuOptions) -> Result<Self> {
        let namespace = match nsid {
            Some(nsid) => controller.namespace(nsid)?,
            None => controller.first_namespace()?,
        };
        let queues = (0..options.queues.max(1)).map(|_| GpuQueue::new(gpu, controller, &options.queue));
        let queues = queues.collect::<Result<_>>()?;
        Ok(Self { queues, gpu: gpu.clone(), namespace, controller: controller.clone(), options })
    }

    /// The namespace, as it was when it was opened.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The queues.
    pub fn queues(&self) -> &[GpuQueue] {
        &self.queues
    }

    /// For how long a call in a kernel waits.
    pub const fn timeout(&self) -> Duration {
        self.options.queue.timeout
    }

    /// Allocates a buffer that both the controller and the device reach, all zeros.
    ///
    /// # Errors
    /// Those of [`Controller::alloc`], and [`Error::Gpu`].
    pub fn buffer(&self, len: usize) -> Result<GpuBuffer> {
        GpuBuffer::new(&self.gpu, self.controller.alloc(len)?)
    }

    /// The same in the device's own memory: what kernels retrieve lands there without a copy.
    ///
    /// # Errors
    /// Those of [`GpuBuffer::in_device_memory`].
    pub fn device_buffer(&self, len: usize) -> Result<GpuBuffer> {
        GpuBuffer::in_device_memory(&self.gpu, &self.controller, len)
    }

    /// Carries out a table of operations in batches, in no order; the outcome of each.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLarge`], [`Error::Range`] (then nothing was done), [`Error::BufferGone`] of a
    /// buffer from before a reset, [`Error::Gpu`]; [`Error::Revoked`] and [`Error::Gone`] when the controller was reset or went
    /// away meanwhile: any of the operations may have been done or not. What the controller says is an outcome.
    pub fn run(&mut self, buffer: &GpuBuffer, tasks: &[Task]) -> Result<Vec<Outcome>> {
        self.run_as(Builtin::Batch, buffer, tasks).map(|(outcomes, _)| outcomes)
    }

    /// The same by another kernel of the library, with the words that it writes to `out`, one for each operation.
    ///
    /// # Errors
    /// As above.
    pub fn run_as(
        &mut self,
        kernel: Builtin,
        buffer: &GpuBuffer,
        tasks: &[Task],
    ) -> Result<(Vec<Outcome>, Vec<u64>)> {
        self.queues.iter().try_for_each(|queue| queue.admit(buffer.buffer()))?;
        tasks.iter().try_for_each(|task| task.check(buffer, &self.namespace))?;
        if tasks.is_empty() {
            return Ok((vec![], vec![]));
        }
        let count =
            u32::try_from(tasks.len()).map_err(|_| gpu("gpu", "too many operations for one table"))?;
        let items: Vec<Item> = tasks.iter().map(|task| task.item).collect();
        let table = self.gpu.alloc(items.as_bytes().len())?;
        table.write(0, items.as_bytes())?;
        let results = self.gpu.alloc(tasks.len() * size_of::<TaskResult>())?;
        // The kernel that encodes writes an entry of 64 bytes for each.
        let words = if kernel == Builtin::Encode { tasks.len() * 8 } else { tasks.len() };
        let out = self.gpu.alloc(words * 8)?;
        let queues = queue_table(&self.gpu, &self.queues)?;
        let mut args = Args::new_zeroed();
        (args.queues, args.queue_count) = (queues.address(), self.queues.len() as u32);
        (args.items, args.results, args.out) = (table.address(), results.address(), out.address());
        (args.count, args.nsid, args.buffer) = (count, self.namespace.nsid(), buffer.descriptor());
        (args.batch, args.threads) = (self.options.batch.max(1), self.options.threads.clamp(1, count));
        args.blocks = count.div_ceil(args.batch).min(1024);
        // SAFETY: all addresses were made here, as long as `count` says; nothing else uses them before the end.
        unsafe { Kernel::builtin(&self.gpu, kernel)?.launch(&args)? };
        // What the kernel took for completions may have been read from memory that was no more.
        self.queues.iter().try_for_each(GpuQueue::intact)?;
        let mut back = vec![TaskResult::EMPTY; tasks.len()];
        results.read(0, back.as_mut_bytes())?;
        let mut found = vec![0; words];
        out.read(0, found.as_mut_bytes())?;
        // Kernels that submit nothing write no results.
        let none = match kernel {
            Builtin::Encode | Builtin::Fill | Builtin::Verify => 0,
            _ => device::STATUS_BROKEN,
        };
        let outcome = |r: &TaskResult| Outcome { code: r.get().unwrap_or(none), length: r.length };
        Ok((back.iter().map(outcome).collect(), found))
    }
}

/// The table of queues that kernels take.
pub(super) fn queue_table(gpu: &Gpu, queues: &[GpuQueue]) -> Result<DeviceMemory> {
    let addresses: Vec<u64> = queues.iter().map(GpuQueue::address).collect();
    let table = gpu.alloc(addresses.as_bytes().len())?;
    table.write(0, addresses.as_bytes())?;
    Ok(table)
}
