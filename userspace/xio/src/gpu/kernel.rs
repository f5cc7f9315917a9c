// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels: the library's and the application's.
#![allow(unsafe_code, reason = "a kernel works on addresses that it is given")]

use super::abi::{device::MAX_THREADS, Args};
use super::code::Code;
use super::cuda::c_name;
use super::device::Gpu;
use super::executor::{Executor, Function, Grid, Params};
use crate::error::{gpu, Result};
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// Kernels of the library. All take an [`Args`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Builtin {
    /// Stores each item's value, a thread an item, blocking calls.
    Store,
    /// Retrieves.
    Retrieve,
    /// Asks whether keys exist.
    Exist,
    /// Deletes.
    Delete,
    /// Lists keys.
    List,
    /// Any operations mixed, a block for each `batch` of items.
    Batch,
    /// Writes the items' queue entries, without a queue.
    Encode,
    /// Fills items' ranges with a seeded pattern.
    Fill,
    /// Counts the bytes that differ from the pattern.
    Verify,
    /// Retrieves and sums up.
    Checksum,
    /// Benchmark of batches.
    Bench,
    /// Benchmark of blocking calls.
    BenchCall,
    /// Benchmark of values into the device's memory: commands and copies at the same time.
    BenchStream,
    /// Benchmark of the copies alone.
    BenchPull,
    /// The block owns the queue, to compare with.
    BenchPlain,
    /// A lock and a doorbell for each command, to compare with.
    BenchLock,
}

impl Builtin {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Store,
        Self::Retrieve,
        Self::Exist,
        Self::Delete,
        Self::List,
        Self::Batch,
        Self::Encode,
        Self::Fill,
        Self::Verify,
        Self::Checksum,
        Self::Bench,
        Self::BenchCall,
        Self::BenchStream,
        Self::BenchPull,
        Self::BenchPlain,
        Self::BenchLock,
    ];

    /// Name in the code.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "xio_kernel_store",
            Self::Retrieve => "xio_kernel_retrieve",
            Self::Exist => "xio_kernel_exist",
            Self::Delete => "xio_kernel_delete",
            Self::List => "xio_kernel_list",
            Self::Batch => "xio_kernel_batch",
            Self::Encode => "xio_kernel_encode",
            Self::Fill => "xio_kernel_fill",
            Self::Verify => "xio_kernel_verify",
            Self::Checksum => "xio_kernel_checksum",
            Self::Bench => "xio_kernel_bench",
            Self::BenchCall => "xio_kernel_bench_call",
            Self::BenchStream => "xio_kernel_bench_stream",
            Self::BenchPull => "xio_kernel_bench_pull",
            Self::BenchPlain => "xio_kernel_bench_plain",
            Self::BenchLock => "xio_kernel_bench_lock",
        }
    }
}

/// A kernel that can be started.
#[derive(Clone, Debug)]
pub struct Kernel {
    executor: Arc<dyn Executor>,
    function: Function,
}

impl Kernel {
    /// A kernel of the library.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when the library was built without kernels for this device.
    pub fn builtin(gpu: &Gpu, which: Builtin) -> Result<Self> {
        let function = gpu.executor.builtin(&c_name("gpu", which.name())?)?;
        Ok(Self { executor: gpu.executor.clone(), function })
    }

    /// A kernel of the application's own code: an AMD code object, a CUDA binary, or PTX. The code stays loaded until the
    /// process ends.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when the runtime does not take the code or finds no such kernel; always on the
    /// host.
    ///
    /// # Safety
    /// The code is whole, and made for kernels: runtimes read as much as its header says.
    pub unsafe fn load(gpu: &Gpu, code: &[u8], name: &str) -> Result<Self> {
        let function = gpu.executor.load(&Code(code), &c_name("gpu", name)?)?;
        Ok(Self { executor: gpu.executor.clone(), function })
    }

    /// Runs a kernel of the library with `args.blocks` blocks of `args.threads` threads, and waits for its end.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    ///
    /// # Safety
    /// All addresses in `args` are of this device, as long as the counts say, and nothing that this process has
    /// references to.
    pub unsafe fn launch(&self, args: &Args) -> Result<()> {
        // SAFETY: kernels of the library take `Args`; the rest is the caller's promise.
        unsafe { self.launch_with(args.blocks, args.threads, args) }
    }

    /// Runs a kernel with one argument, by value, and waits for its end. 1 to 256 threads a block.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    ///
    /// # Safety
    /// The kernel takes one argument of this very layout; and as above.
    pub unsafe fn launch_with<T: IntoBytes + Immutable>(
        &self,
        blocks: u32,
        threads: u32,
        argument: &T,
    ) -> Result<()> {
        if !(1..=MAX_THREADS).contains(&threads) || blocks == 0 {
            return Err(gpu("gpu", format!("no kernel runs {blocks} blocks of {threads} threads")));
        }
        // SAFETY: the caller's promise.
        unsafe { self.executor.launch(self.function, Grid { blocks, threads }, Params(argument.as_bytes())) }
    }
}
