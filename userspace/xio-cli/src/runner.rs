// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out operations on many keys: by a kernel, or by this program itself.

use crate::args::{Global, Many};
use crate::exit::Failure;
use crate::open;
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

/// Who does it.
pub enum Runner {
    /// A kernel. The queues go before the buffer.
    Kernel(Box<GpuKv>, Option<GpuBuffer>),
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
        Ok(Self::Kernel(Box::new(kv), None))
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        match self {
            Self::Kernel(kv, _) => kv.namespace(),
            Self::Own(kv) => kv.namespace(),
        }
    }

    /// Carries out the operation for each job, in no order.
    pub fn run(&mut self, operation: Operation, jobs: &[Job]) -> Result<Vec<Done>, Failure> {
        match self {
            Self::Kernel(kv, buffer) => by_kernel(kv, buffer, operation, jobs),
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

fn by_kernel(
    kv: &mut GpuKv,
    kept: &mut Option<GpuBuffer>,
    operation: Operation,
    jobs: &[Job],
) -> Result<Vec<Done>, Failure> {
    let mut end = 0;
    let places: Vec<usize> = jobs
        .iter()
        .map(|job| {
            let at = aligned(end, job.size());
            end = at + job.size();
            at
        })
        .collect();
    if kept.as_ref().is_none_or(|buffer| buffer.len() < end) {
        // The old one first, so that both need not fit.
        *kept = None;
    }
    let buffer = match kept.take() {
        Some(buffer) => buffer,
        None => kv.buffer(end.max(1))?,
    };
    let mut tasks = Vec::with_capacity(jobs.len());
    for (job, at) in jobs.iter().zip(&places) {
        buffer.buffer().write(*at, &job.value)?;
        tasks.push(match operation {
            Operation::Store(options) => Task::store_with(job.key, *at, job.value.len() as u32, options),
            Operation::Retrieve(options) => Task::retrieve_with(job.key, *at, job.room, options),
            Operation::Exist => Task::exist(job.key),
            Operation::Delete => Task::delete(job.key),
        });
    }
    let outcomes = kv.run(&buffer, &tasks)?;
    let retrieve = matches!(operation, Operation::Retrieve(_));
    let mut all = Vec::with_capacity(jobs.len());
    for (n, outcome) in outcomes.iter().enumerate() {
        let (job, at) = (&jobs[n], places[n]);
        let length = if retrieve { outcome.length } else { job.value.len() as u32 };
        let result = outcome.check(&tasks[n], kv.timeout()).map(|()| length);
        let mut value = vec![0; if retrieve && result.is_ok() { length.min(job.room) as usize } else { 0 }];
        buffer.buffer().read(at, &mut value)?;
        all.push(Done { result, value });
    }
    // A command without an answer may still write there: then the buffer must outlive the queue.
    *kept = Some(buffer);
    Ok(all)
}
