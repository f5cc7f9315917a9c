// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out operations on many keys: by a kernel, or by this program itself.

use crate::args::{Global, Many, MemoryArg};
use crate::exit::Failure;
use crate::{open, output};
use xio::gpu::{Gpu, GpuBuffer, GpuKv, GpuOptions, GpuQueueOptions, Task};
use xio::{Controller, Error, Key, Kv, Namespace, RetrieveOptions, StoreOptions};

/// What to do with keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Store.
    Store(StoreOptions),
    /// Retrieve.
    Retrieve(RetrieveOptions),
    /// Exist.
    Exist,
    /// Delete.
    Delete,
}

/// A key, and what its operation needs.
#[derive(Debug)]
pub struct Job {
    /// Key.
    pub key: Key,
    /// Value to store.
    pub value: Vec<u8>,
    /// Bytes of room for a value to retrieve.
    pub room: u32,
}

impl Job {
    /// Bytes that it takes in a buffer.
    pub fn size(&self) -> usize {
        self.value.len().max(self.room as usize)
    }
}

/// What came of a job.
#[derive(Debug)]
pub struct Done {
    /// True length of the value: of a retrieved one, or of the one stored.
    pub result: xio::Result<u32>,
    /// What was retrieved, no more than there was room for.
    pub value: Vec<u8>,
}

/// Kernels of a device.
///
/// Drop order: the queues, then the buffer.
pub struct Kernels {
    kv: GpuKv,
    buffer: Option<GpuBuffer>,
    /// Values are in the device's own memory.
    in_device: bool,
}

/// Who does it.
pub enum Runner {
    /// Kernels.
    Kernels(Box<Kernels>),
    /// This program's own thread.
    Own(Box<Kv>),
}

/// Where the next value can begin.
fn aligned(at: usize, size: usize) -> usize {
    at.next_multiple_of(if size >= 4096 { 4096 } else { 64 })
}

impl Runner {
    /// Gets the queues.
    pub fn open(global: &Global, many: &Many, controller: &Controller) -> Result<Self, Failure> {
        let Some(which) = many.gpu else { return Ok(Self::Own(Box::new(open::kv(global, controller)?))) };
        let gpu = Gpu::open(which)?;
        // Room for a whole batch.
        let entries = (many.batch + 1).next_power_of_two().max(64);
        let queue = GpuQueueOptions { entries, timeout: global.timeout, ..GpuQueueOptions::default() };
        let options = GpuOptions { queue, batch: many.batch, ..GpuOptions::default() };
        let kv = open::retry(global, || GpuKv::open(&gpu, controller, global.nsid, options.clone()))?;
        let kernels = Kernels { kv, buffer: None, in_device: global.memory == MemoryArg::Dmabuf };
        if global.verbose {
            kernels.tell(&gpu);
        }
        Ok(Self::Kernels(Box::new(kernels)))
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        match self {
            Self::Kernels(kernels) => kernels.kv.namespace(),
            Self::Own(kv) => kv.namespace(),
        }
    }

    /// Carries out the operation for each job, in no order.
    pub fn run(&mut self, operation: Operation, jobs: &[Job]) -> Result<Vec<Done>, Failure> {
        match self {
            Self::Kernels(kernels) => kernels.run(operation, jobs),
            Self::Own(kv) => Ok(jobs.iter().map(|job| by_hand(kv, operation, job)).collect()),
        }
    }
}

fn by_hand(kv: &mut Kv, operation: Operation, job: &Job) -> Done {
    let mut value = Vec::new();
    let result = match operation {
        Operation::Store(options) => kv.store(&job.key, &job.value, options).map(|()| job.value.len() as u32),
        Operation::Retrieve(options) => kv.retrieve_with(&job.key, options).map(|got| {
            value = got;
            value.len() as u32
        }),
        Operation::Exist => {
            let missing = Error::NotFound { key: job.key };
            kv.exist(&job.key).and_then(|there| if there { Ok(0) } else { Err(missing) })
        }
        Operation::Delete => kv.delete(&job.key).map(|()| 0),
    };
    Done { result, value }
}

impl Kernels {
    /// Says who does it, and where values are.
    fn tell(&self, gpu: &Gpu) {
        let doorbell =
            self.kv.queues().first().map_or_else(String::new, |queue| queue.doorbell().to_string());
        let memory = if self.in_device { "dmabuf, the device's own" } else { "coherent" };
        let which = gpu.info().which;
        output::message(&format!("xio: kernels: {which}, doorbell: {doorbell}, memory: {memory}"));
    }

    /// A buffer of at least `len` bytes: the one that is kept, if it is large enough.
    fn take_buffer(&mut self, len: usize, values: bool) -> xio::Result<GpuBuffer> {
        // The old one goes first, so that both need not fit.
        match self.buffer.take().filter(|buffer| buffer.len() >= len) {
            Some(buffer) => Ok(buffer),
            None if self.in_device && values => self.kv.device_buffer(len.max(1)),
            None => self.kv.buffer(len.max(1)),
        }
    }

    fn run(&mut self, operation: Operation, jobs: &[Job]) -> Result<Vec<Done>, Failure> {
        let mut end = 0;
        let places: Vec<usize> = jobs
            .iter()
            .map(|job| {
                let at = aligned(end, job.size());
                end = at + job.size();
                at
            })
            .collect();
        let values = matches!(operation, Operation::Store(_) | Operation::Retrieve(_));
        let buffer = self.take_buffer(end, values)?;
        let mut tasks = Vec::with_capacity(jobs.len());
        for (job, at) in jobs.iter().zip(&places) {
            buffer.write(*at, &job.value)?;
            tasks.push(match operation {
                Operation::Store(options) => Task::store_with(job.key, *at, job.value.len() as u32, options),
                Operation::Retrieve(options) => Task::retrieve_with(job.key, *at, job.room, options),
                Operation::Exist => Task::exist(job.key),
                Operation::Delete => Task::delete(job.key),
            });
        }
        let outcomes = self.kv.run(&buffer, &tasks)?;
        let retrieve = matches!(operation, Operation::Retrieve(_));
        let mut all = Vec::with_capacity(jobs.len());
        for (n, outcome) in outcomes.iter().enumerate() {
            let (job, at) = (&jobs[n], places[n]);
            let length = if retrieve { outcome.length } else { job.value.len() as u32 };
            let result = outcome.check(&tasks[n], self.kv.timeout()).map(|()| length);
            let mut value =
                vec![0; if retrieve && result.is_ok() { length.min(job.room) as usize } else { 0 }];
            buffer.read(at, &mut value)?;
            all.push(Done { result, value });
        }
        // A command without an answer may still write there: then the buffer must outlive the queue.
        self.buffer = Some(buffer);
        Ok(all)
    }
}
