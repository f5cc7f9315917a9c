// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device, and kernels over queues without a controller.
#![allow(unsafe_code, reason = "starts kernels with hand-made arguments")]

use std::time::Duration;
use xio::gpu::abi::{device, Args, Item, TaskResult};
use xio::gpu::{Builtin, Gpu, GpuKv, GpuOptions, GpuQueue, GpuQueueOptions, Kernel, Kind, Which};
use xio::loopback::Bare;
use xio::{Controller, Key};
use zerocopy::{FromZeros, IntoBytes};

/// No kernel of a test waits longer for one answer.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The device that `XIO_GPU` names.
pub fn gpu() -> Gpu {
    let which: Which =
        std::env::var("XIO_GPU").map_or(Which::One(Kind::Host, 0), |text| text.parse().unwrap());
    Gpu::open(which).unwrap()
}

/// Threads of a block: on the host each is one of the operating system, and there are few processors.
pub fn threads() -> u32 {
    if gpu().kind() == Kind::Host {
        4
    } else {
        64
    }
}

pub fn queue_options(entries: u32) -> GpuQueueOptions {
    GpuQueueOptions { entries, timeout: TIMEOUT, ..GpuQueueOptions::default() }
}

pub fn options(entries: u32, batch: u32) -> GpuOptions {
    GpuOptions { queue: queue_options(entries), queues: 1, batch, threads: threads() }
}

/// A namespace of a new controller.
pub fn kv(entries: u32, batch: u32) -> GpuKv {
    kv_on(&crate::common::controller(), options(entries, batch))
}

pub fn kv_on(controller: &Controller, options: GpuOptions) -> GpuKv {
    GpuKv::open(&gpu(), controller, None, options).unwrap()
}

/// A queue whose controller is the test.
pub struct Rig {
    pub gpu: Gpu,
    pub queue: GpuQueue,
}

impl Rig {
    pub fn new(options: &GpuQueueOptions) -> (Self, Bare) {
        let gpu = gpu();
        let (raw, bare) = xio::loopback::bare(options.entries).unwrap();
        let queue = GpuQueue::over(&gpu, raw, false, options).unwrap();
        (Self { gpu, queue }, bare)
    }

    /// Exist commands of numbered keys.
    pub fn items(count: u32) -> Vec<Item> {
        let key = |n: u32| Key::new(&n.to_be_bytes()).unwrap();
        let item = |n| Item {
            opcode: nvme_kv::kv::opcode::EXIST.into(),
            options: 0,
            key: *key(n).padded(),
            key_len: 4,
            len: 0,
            offset: 0,
        };
        (0..count).map(item).collect()
    }

    /// Runs a kernel over Exist commands of numbered keys; their results.
    pub fn exist(&self, kernel: Builtin, count: u32, blocks: u32, threads: u32) -> Vec<TaskResult> {
        self.run(kernel, &Self::items(count), blocks, threads)
    }

    /// Runs a kernel over items.
    pub fn run(&self, kernel: Builtin, items: &[Item], blocks: u32, threads: u32) -> Vec<TaskResult> {
        let count = items.len() as u32;
        let table = self.gpu.alloc(items.as_bytes().len()).unwrap();
        table.write(0, items.as_bytes()).unwrap();
        let results = self.gpu.alloc(count as usize * size_of::<TaskResult>()).unwrap();
        let queues = self.gpu.alloc(8).unwrap();
        queues.write(0, self.queue.address().as_bytes()).unwrap();
        let mut args = Args::new_zeroed();
        (args.queues, args.queue_count, args.nsid) = (queues.address(), 1, 1);
        (args.items, args.results, args.count) = (table.address(), results.address(), count);
        (args.batch, args.blocks, args.threads) = (count, blocks, threads);
        // SAFETY: all was made here and stays until the kernel's end.
        unsafe { Kernel::builtin(&self.gpu, kernel).unwrap().launch(&args).unwrap() };
        let mut back = vec![TaskResult::EMPTY; count as usize];
        results.read(0, back.as_mut_bytes()).unwrap();
        back
    }
}

/// Statuses of results, all of which must be there.
pub fn statuses(results: &[TaskResult]) -> Vec<u32> {
    results.iter().map(|r| r.get().expect("a result is missing")).collect()
}

pub const TIMED_OUT: u32 = device::STATUS_TIMEOUT;
