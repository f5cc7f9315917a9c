// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fake GPU: a module for tests only (`tests/kmod`) whose video memory is a PCI BAR in shared memory. It exports
//! that memory as dma-bufs, and imports dma-bufs of others.
//!
//! ```ignore
//! fakegpu::load()?;
//! let gpu = FakeGpu::open()?;
//! let buffer = gpu.export(&Layout::scattered(1 << 20))?;   // buffer.fd is the dma-buf
//! buffer.memory.write(0, b"written by the GPU")?;
//! buffer.invalidate(INVALIDATE_MOVE, 7)?;                   // importers must have let go when it returns
//! let import = gpu.import(&queue_fd, 0)?;                   // somebody else's dma-buf
//! import.write(0, &1u32.to_le_bytes())?;                    // one store of a dword
//! ```
#![allow(dead_code)] // a toolbox: not each tool is in use at any time
#![allow(unsafe_code)] // descriptors that an ioctl makes

use crate::raw::Node;
use crate::{fs, kernel, pci};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The module's file.
pub const MODULE: &str = "/lib/modules/fakegpu.ko";
/// Its device node, for everybody.
pub const NODE: &str = "/dev/fakegpu";
/// How long importers may take to let go.
pub const LIMIT: Duration = Duration::from_secs(20);

/// [`Layout::flags`]: in system memory, and no importer gets peer-to-peer.
pub const EXPORT_SYSTEM: u32 = 1 << 0;
/// [`Layout::flags`]: pinning fails.
pub const EXPORT_REFUSE_PIN: u32 = 1 << 1;
/// [`Layout::flags`]: [`INVALIDATE_MOVE`] may move it.
pub const EXPORT_MOVABLE: u32 = 1 << 2;
/// [`Layout::flags`]: importers that can not be told to let go are welcome, too.
pub const EXPORT_ANY_IMPORTER: u32 = 1 << 3;
/// [`Layout::flags`]: mapped as if it were RAM, without which devices behind QEMU's virtio-iommu do not reach it.
pub const EXPORT_AS_RAM: u32 = 1 << 4;

/// Flag of imports: attaches without callback and peer-to-peer.
pub const IMPORT_STATIC: u32 = 1 << 0;
/// Flag of imports: pins.
pub const IMPORT_PIN: u32 = 1 << 1;
/// Flag of imports: does not let go when told to.
pub const IMPORT_STUBBORN: u32 = 1 << 2;
/// Flag of imports: lets go a while after it was told to.
pub const IMPORT_LATE: u32 = 1 << 3;

/// Flag of invalidations: moves the contents.
pub const INVALIDATE_MOVE: u32 = 1 << 0;
/// Flag of invalidations: nobody may map it until an invalidation without this flag.
pub const INVALIDATE_REVOKE: u32 = 1 << 1;

/// [`Stats::state`]: revoked.
pub const STATE_REVOKED: u32 = 1 << 0;
/// [`Stats::state`]: an import by peer-to-peer, an export in video memory.
pub const STATE_PEER: u32 = 1 << 1;

const ITSELF: u32 = u32::MAX;

/// What to export.
#[derive(Clone, Copy, Default)]
pub struct Layout {
    /// Bytes, in whole pages.
    pub len: u64,
    /// Pages that stay together.
    pub chunk_pages: u32,
    /// Of the order of the chunks; 0 is ascending.
    pub seed: u32,
    /// `EXPORT_…`.
    pub flags: u32,
}

impl Layout {
    /// Chunks of three pages in disorder, in video memory.
    pub fn scattered(len: u64) -> Self {
        Self { len, chunk_pages: 3, seed: 42, ..Self::default() }
    }

    /// The same with flags.
    pub fn with(self, flags: u32) -> Self {
        Self { flags, ..self }
    }
}

#[repr(C)]
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct ExportRequest {
    len: u64,
    chunk_pages: u32,
    seed: u32,
    flags: u32,
    fd: i32,
    id: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct ImportRequest {
    fd: i32,
    flags: u32,
    device: u32,
    id: u32,
    len: u64,
}

#[repr(C)]
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Access {
    offset: u64,
    len: u64,
    user: u64,
    id: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Invalidate {
    id: u32,
    flags: u32,
    timeout_ms: u32,
    seed: u32,
}

/// Of an export or import: `struct fakegpu_stats`.
#[repr(C)]
#[derive(Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Stats {
    id: u32,
    /// `STATE_…`.
    pub state: u32,
    /// Of exports.
    pub attachments: u32,
    /// Mappings that exist.
    pub mapped: u32,
    /// Pins.
    pub pinned: u32,
    /// How often importers were told to let go; of imports: how often it was told.
    pub invalidations: u32,
    /// Of exports: chunks; of imports: pieces of consecutive physical memory.
    pub segments: u32,
    /// Of imports: those that are no RAM.
    pub mmio_segments: u32,
}

/// Of all of it: `struct fakegpu_device`.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Device {
    /// Pages of video memory.
    pub pages: u32,
    /// Those in use.
    pub pages_used: u32,
    /// Exports whose dma-buf somebody has.
    pub exports: u32,
    /// Imports.
    pub imports: u32,
}

const READS: u32 = 2;
const WRITES: u32 = 1;

const fn number<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | (b'F' as u32) << 8 | number
}

/// Loads the module and waits for its node.
pub fn load() -> Result<()> {
    kernel::insmod(MODULE, "").context("insmod fakegpu.ko")?;
    fs::wait_for_file(NODE, kernel::NODE_LIMIT)
}

/// The addresses of the PCI functions that the module is for.
pub fn function() -> Result<String> {
    let found = pci::functions_with("device", "0x1110")?;
    ensure!(found.len() == 1, "fake GPUs: {found:?}");
    found.into_iter().next().context("no fake GPU")
}

/// The open device.
pub struct FakeGpu(Node);

impl FakeGpu {
    /// Opens it.
    pub fn open() -> Result<Self> {
        Node::open(NODE).map(Self)
    }

    fn request<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
        &self,
        direction: u32,
        nr: u32,
        argument: &mut T,
    ) -> Result<(), Errno> {
        self.0.ioctl(number::<T>(direction, nr), argument.as_mut_bytes())
    }

    /// Makes a buffer and its dma-buf.
    pub fn export(&self, layout: &Layout) -> Result<Export<'_>, Errno> {
        let Layout { len, chunk_pages, seed, flags } = *layout;
        let mut request = ExportRequest { len, chunk_pages, seed, flags, ..Default::default() };
        self.request(READS | WRITES, 0, &mut request)?;
        // SAFETY: The ioctl made the descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(request.fd) };
        Ok(Export { memory: Memory { gpu: self, id: request.id, len }, fd })
    }

    /// Maps a dma-buf for the fake GPU.
    pub fn import(&self, fd: &impl AsFd, flags: u32) -> Result<Memory<'_>, Errno> {
        self.import_for(ITSELF, fd, flags)
    }

    /// Maps a dma-buf for another PCI function, such as `0000:00:03.0`, at whose DMA addresses the fake GPU then looks.
    pub fn import_as(&self, function: &str, fd: &impl AsFd, flags: u32) -> Result<Memory<'_>> {
        Ok(self.import_for(pci::number(function)?, fd, flags)?)
    }

    fn import_for(&self, device: u32, fd: &impl AsFd, flags: u32) -> Result<Memory<'_>, Errno> {
        let fd = fd.as_fd().as_raw_fd();
        let mut request = ImportRequest { fd, flags, device, ..Default::default() };
        self.request(READS | WRITES, 1, &mut request)?;
        Ok(Memory { gpu: self, id: request.id, len: request.len })
    }

    /// What is in use.
    pub fn device(&self) -> Result<Device, Errno> {
        let mut device = Device::default();
        self.request(READS, 6, &mut device).map(|()| device)
    }
}

/// An export or import, as the GPU's own code sees it; dropping it gives it up.
pub struct Memory<'a> {
    gpu: &'a FakeGpu,
    id: u32,
    /// Bytes.
    pub len: u64,
}

impl Memory<'_> {
    fn access(&self, nr: u32, offset: u64, user: u64, len: usize) -> Result<(), Errno> {
        let mut access = Access { offset, len: len as u64, user, id: self.id, reserved: 0 };
        self.gpu.request(WRITES, nr, &mut access)
    }

    /// Loads bytes; four aligned ones in one access.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.access(2, offset, bytes.as_mut_ptr() as u64, bytes.len())
    }

    /// Loads all of it.
    pub fn read_all(&self) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes).map(|()| bytes)
    }

    /// Loads a dword.
    pub fn read_u32(&self, offset: u64) -> Result<u32, Errno> {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes).map(|()| u32::from_le_bytes(bytes))
    }

    /// Stores bytes; four aligned ones in one access.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.access(3, offset, bytes.as_ptr() as u64, bytes.len())
    }

    /// Stores a dword.
    pub fn write_u32(&self, offset: u64, value: u32) -> Result<(), Errno> {
        self.write(offset, &value.to_le_bytes())
    }

    /// How it is.
    pub fn stats(&self) -> Result<Stats, Errno> {
        let mut stats = Stats { id: self.id, ..Default::default() };
        self.gpu.request(READS | WRITES, 5, &mut stats).map(|()| stats)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // Fails only if the device is gone, and then the end of the file does it.
        let _ = self.gpu.request(WRITES, 7, &mut self.id);
    }
}

/// Memory that is shared with others. Its dma-buf lives as long as somebody has it.
pub struct Export<'a> {
    /// The GPU's own view.
    pub memory: Memory<'a>,
    /// The dma-buf.
    pub fd: OwnedFd,
}

impl Export<'_> {
    /// Tells importers to let go, waits until they have, and does what the flags say. `seed` is for the new places.
    pub fn invalidate(&self, flags: u32, seed: u32) -> Result<(), Errno> {
        self.invalidate_within(flags, seed, LIMIT)
    }

    /// The same with another limit: ETIMEDOUT if an importer does not let go. It is revoked then.
    pub fn invalidate_within(&self, flags: u32, seed: u32, limit: Duration) -> Result<(), Errno> {
        let timeout_ms = limit.as_millis() as u32;
        let mut request = Invalidate { id: self.memory.id, flags, timeout_ms, seed };
        self.memory.gpu.request(WRITES, 4, &mut request)
    }
}
