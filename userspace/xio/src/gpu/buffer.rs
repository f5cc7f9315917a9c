// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that kernels' commands point at.
#![allow(unsafe_code, reason = "a buffer is registered with the device's runtime")]

use super::abi;
use super::device::Gpu;
use super::executor::Mapping;
use super::memory::{DeviceMemory, Registered};
use crate::buffer::Buffer;
use crate::error::Result;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A [`Buffer`] that a device knows: its data mapped, its table of addresses in the device's memory.
///
/// Kernels that were given it must end before it is dropped, and commands that use it must be done: a command that was
/// given up (`XIO_STATUS_TIMEOUT`) may still write to it until its queue is deleted.
///
/// Drop order: taken from the device, then freed.
#[derive(Debug)]
pub struct GpuBuffer {
    registered: Arc<Registered>,
    table: DeviceMemory,
    buffer: Buffer,
}

impl GpuBuffer {
    /// Makes a buffer known to a device.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn new(gpu: &Gpu, buffer: Buffer) -> Result<Self> {
        // SAFETY: mapped as long as `buffer`, which outlives the registration by the order of the fields.
        let registered =
            unsafe { gpu.registry.register(&gpu.executor, buffer.as_ptr(), buffer.len(), Mapping::Memory)? };
        let pages = buffer.pages().as_bytes();
        let table = gpu.alloc(pages.len())?;
        table.write(0, pages)?;
        Ok(Self { registered, table, buffer })
    }

    /// The buffer, for the host to fill and to look at between kernels.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Address of the data for kernels.
    pub fn data(&self) -> u64 {
        self.registered.address_of(self.buffer.as_ptr())
    }

    /// The `xio_buffer` for kernels. Valid while this exists.
    pub fn descriptor(&self) -> abi::Buffer {
        abi::Buffer { pages: self.table.address(), data: self.data(), len: self.buffer.len() as u64 }
    }
}
