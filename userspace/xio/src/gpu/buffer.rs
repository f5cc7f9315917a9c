// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that kernels' commands point at.
#![allow(unsafe_code, reason = "a buffer is registered with the device's runtime")]

use super::abi;
use super::device::Gpu;
use super::executor::{Importer, Kind, Mapping};
use super::memory::{DeviceDmabuf, DeviceMemory, Registered};
use crate::buffer::Buffer;
use crate::controller::Controller;
use crate::dmabuf::Import;
use crate::error::{gpu, Error, Result};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A [`Buffer`] that a device knows: its data mapped, or [in the device's own memory](Self::in_device_memory); its table of
/// addresses in the device's memory.
///
/// Kernels that were given it must end before it is dropped, and commands that use it must be done: a command that was
/// given up (`XIO_STATUS_TIMEOUT`) may still write to it until its queue is deleted.
///
/// Drop order: taken from the device, then given back to the controller, then the device's memory freed. (A clone of the buffer
/// keeps the import, and that the memory.)
#[derive(Debug)]
pub struct GpuBuffer {
    data: u64,
    _registered: Option<Arc<Registered>>,
    table: DeviceMemory,
    buffer: Buffer,
    memory: Option<DeviceMemory>,
}

impl GpuBuffer {
    /// Makes a buffer known to a device.
    ///
    /// # Errors
    /// [`Error::NotMapped`] of memory that no processor reaches, [`Error::NoAddresses`], [`Error::Gpu`].
    pub fn new(gpu: &Gpu, buffer: Buffer) -> Result<Self> {
        if !buffer.is_mapped() {
            return Err(Error::NotMapped);
        }
        // SAFETY: mapped as long as `buffer`, which outlives the registration by the order of the fields.
        let registered =
            unsafe { gpu.registry.register(&gpu.executor, buffer.as_ptr(), buffer.len(), Mapping::Memory)? };
        let data = registered.address_of(buffer.as_ptr());
        let table = table(gpu, &buffer)?;
        Ok(Self { data, _registered: Some(registered), table, buffer, memory: None })
    }

    /// Makes a buffer in the device's own memory, all zeros, at least `len` bytes: the controller reads and writes values there,
    /// and nothing is copied. Of a GPU only from device to device: never by way of the system's memory.
    ///
    /// # Errors
    /// [`Error::NotPeer`] where controller and GPU have no path to each other; [`Error::Gpu`] where GPU or runtime export no
    /// memory; those of [`Controller::import`]; on the host, when `/dev/udmabuf` may not be opened.
    pub fn in_device_memory(gpu: &Gpu, controller: &Controller, len: usize) -> Result<Self> {
        Self::in_device_memory_with(gpu, controller, len, gpu.kind() != Kind::Host)
    }

    /// The same. Without `require_peer` a driver may move the memory to the system's where the controller does not reach the
    /// GPU's: slower, but it works.
    ///
    /// # Errors
    /// As above.
    pub fn in_device_memory_with(
        gpu: &Gpu,
        controller: &Controller,
        len: usize,
        require_peer: bool,
    ) -> Result<Self> {
        let memory = gpu.alloc_shared(len)?;
        let importer = if controller.path().is_some() { Importer::Driver } else { Importer::Process };
        let dmabuf = memory.export_to(importer)?;
        let buffer = import(gpu.kind(), controller, &dmabuf, memory.len(), require_peer)?;
        let table = table(gpu, &buffer)?;
        Ok(Self { data: memory.address(), _registered: None, table, buffer, memory: Some(memory) })
    }

    /// The buffer, for the host to fill and to look at between kernels, where the host [reaches it](Buffer::is_mapped);
    /// [`write`](Self::write) and [`read`](Self::read) always do.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The device's memory that the data is in; `None` for memory of the host.
    pub const fn memory(&self) -> Option<&DeviceMemory> {
        self.memory.as_ref()
    }

    /// Copies into it, wherever it is. No kernel may be using it; kernels of this library end before the call that starts them
    /// does.
    ///
    /// # Errors
    /// Those of [`Buffer::write`]; [`Error::Gpu`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        match &self.memory {
            Some(memory) => memory.write(offset, from),
            None => self.buffer.write(offset, from),
        }
    }

    /// Copies from it, as above.
    ///
    /// # Errors
    /// Those of [`Buffer::read`]; [`Error::Gpu`].
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        match &self.memory {
            Some(memory) => memory.read(offset, to),
            None => self.buffer.read(offset, to),
        }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Address of the data for kernels.
    pub const fn data(&self) -> u64 {
        self.data
    }

    /// The `xio_buffer` for kernels. Valid while this exists.
    pub fn descriptor(&self) -> abi::Buffer {
        abi::Buffer { pages: self.table.address(), data: self.data(), len: self.buffer.len() as u64 }
    }
}

/// The table of addresses, in the device's memory.
fn table(gpu: &Gpu, buffer: &Buffer) -> Result<DeviceMemory> {
    let pages = buffer.pages().as_bytes();
    if pages.is_empty() {
        return Err(Error::NoAddresses);
    }
    let table = gpu.alloc(pages.len())?;
    table.write(0, pages)?;
    Ok(table)
}

/// Makes a buffer of what a device exported.
fn import(
    kind: Kind,
    controller: &Controller,
    dmabuf: &DeviceDmabuf,
    len: usize,
    require_peer: bool,
) -> Result<Buffer> {
    let offset = dmabuf.offset();
    let made = controller.import(dmabuf.as_fd(), &Import { offset, len, read_only: false, require_peer });
    made.map_err(|error| advise(kind, controller.path().is_some(), error))
}

/// What can be done where the controller does not take a device's memory.
fn advise(kind: Kind, module: bool, error: Error) -> Error {
    let Error::Os { source, .. } = &error else { return error };
    let errno = source.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
    let advice = match (module, errno) {
        (false, _) => "a controller in this process takes only memory that a processor can map: use the module, or memory of \
                       the controller",
        (true, Errno::ENOTTY) => "the module is too old to import memory: update it",
        (true, Errno::EOPNOTSUPP) => "the GPU's driver shares no memory with the controller: look for what it says in the kernel \
                                      log, or use memory of the controller",
        _ => return error,
    };
    gpu(kind.name(), format!("{error}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_memory_says_what_to_do() {
        let refused = |module, errno: Errno| {
            advise(Kind::Hip, module, Error::Os { what: "importing memory", source: errno.into() })
                .to_string()
        };
        assert!(refused(true, Errno::ENOTTY).contains("update it"));
        assert!(refused(true, Errno::EOPNOTSUPP).starts_with("hip: importing memory: "));
        assert!(refused(false, Errno::EINVAL).contains("use the module"));
        assert!(refused(true, Errno::EINVAL).starts_with("importing memory: "));
        assert!(advise(Kind::Cuda, true, Error::NotPeer).to_string().contains("require_peer: false"));
    }
}
