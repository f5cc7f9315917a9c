// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs kernels: one trait, three kinds.
#![allow(unsafe_code, reason = "the trait's functions work on addresses that their callers vouch for")]

use super::code::Code;
use super::memory::DeviceDmabuf;
use crate::error::Result;
use std::ffi::CStr;
use std::fmt::{self, Debug};
use std::os::fd::OwnedFd;

/// A kind of executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// AMD, through HIP.
    Hip,
    /// NVIDIA, through CUDA's driver.
    Cuda,
    /// Threads of this process.
    Host,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hip => "hip",
            Self::Cuda => "cuda",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How host memory is made known to a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Mapping {
    /// Ordinary memory.
    Memory,
    /// Registers of a device, by the runtime.
    IoMemory,
    /// Registers of a device, by AMD's lower layer.
    HsaLock,
}

/// Who imports memory of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Importer {
    /// A driver in the kernel.
    Driver,
    /// A controller in this process, which maps it.
    Process,
}

/// A kernel of a loaded module: the runtime's handle of it, or on the host its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub(super) usize);

/// A device and its runtime. Addresses are those of the device.
pub(crate) trait Executor: Debug + Send + Sync {
    /// Kind.
    fn kind(&self) -> Kind;
    /// Name of the device for people.
    fn name(&self) -> String;
    /// Ticks of `xio_clock` in a second.
    fn clock_hz(&self) -> u64;
    /// Memory of the device, whole pages, zeroed.
    fn alloc(&self, len: usize) -> Result<u64>;
    /// The same, for `export`.
    fn alloc_shared(&self, len: usize) -> Result<u64> {
        self.alloc(len)
    }
    /// Frees what either gave.
    ///
    /// # Safety
    /// Nothing uses it any more.
    unsafe fn free(&self, address: u64);
    /// Copies to memory of the device.
    ///
    /// # Safety
    /// The range was given by `alloc` or `alloc_shared`, and no kernel uses it.
    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<()>;
    /// Copies from memory of the device, or from host memory that was registered.
    ///
    /// # Safety
    /// The range was given by `alloc` or `alloc_shared`, and no kernel writes it.
    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<()>;
    /// Makes host memory known to the device; its address there. Whole pages.
    ///
    /// # Safety
    /// The range is mapped until `unregister`.
    unsafe fn register(&self, ptr: *mut u8, len: usize, how: Mapping) -> Result<u64>;
    /// Takes it back.
    ///
    /// # Safety
    /// It was registered in this way, and no kernel uses it.
    unsafe fn unregister(&self, ptr: *mut u8, how: Mapping);
    /// A kernel of the library.
    fn builtin(&self, name: &CStr) -> Result<Function>;
    /// A kernel of the application's own code.
    fn load(&self, code: &Code<'_>, name: &CStr) -> Result<Function>;
    /// Runs a kernel and waits for its end. `params` is the address of its one argument.
    ///
    /// # Safety
    /// The kernel takes one argument of that size, and all it reaches is mapped for the device.
    unsafe fn launch(&self, kernel: Function, grid: Grid, params: Params<'_>) -> Result<()>;
    /// Exports what `alloc_shared` gave.
    fn export(&self, address: u64, len: usize, to: Importer) -> Result<DeviceDmabuf>;
    /// Maps a dma-buf of another driver for the device.
    fn map_dmabuf(&self, dmabuf: OwnedFd, len: usize) -> Result<MappedDmabuf>;
    /// Whether other devices can reach this one's memory over the bus, and what is known of it.
    fn peer_to_peer(&self) -> String;
    /// Which of the embedded kernels fits, for people.
    fn code(&self) -> String;
}

/// A dma-buf that is mapped for a device, until dropped.
#[derive(Debug)]
pub(crate) struct MappedDmabuf {
    /// Where the device has it.
    pub address: u64,
    /// What takes it back when it is dropped.
    pub _held: Box<dyn Debug + Send + Sync>,
}

/// Blocks, and threads of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub blocks: u32,
    pub threads: u32,
}

/// The one argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params<'a>(pub &'a [u8]);
