// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of vfio-user (the protocol's specification in QEMU's and libvfio-user's documentation), and the VFIO
//! numbers in them (`linux/vfio.h`). All in the byte order of the machine.

use nix::errno::Errno;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands.
pub(super) mod command {
    pub(in super::super) const VERSION: u16 = 1;
    pub(in super::super) const DMA_MAP: u16 = 2;
    pub(in super::super) const DMA_UNMAP: u16 = 3;
    pub(in super::super) const DEVICE_GET_INFO: u16 = 4;
    pub(in super::super) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(in super::super) const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub(in super::super) const DEVICE_SET_IRQS: u16 = 8;
    pub(in super::super) const REGION_READ: u16 = 9;
    pub(in super::super) const REGION_WRITE: u16 = 10;
    pub(in super::super) const DMA_READ: u16 = 11;
    pub(in super::super) const DMA_WRITE: u16 = 12;
    pub(in super::super) const DEVICE_RESET: u16 = 13;
}

/// Bytes of data that a message may carry to us, as negotiated.
pub(super) const MAX_DATA: usize = 1 << 20;
/// File descriptors that a message may carry, as negotiated.
pub(super) const MAX_FDS: usize = 16;

macro_rules! message {
    ($( $(#[$meta:meta])* $name:ident, $size:literal { $( $field:ident: $type:ty, )* } )*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(super) struct $name { $( pub(super) $field: $type, )* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

message! {
    /// Head of every message.
    Header, 16 { id: u16, command: u16, size: u32, flags: u32, error: u32, }
    /// Start of VERSION; JSON text follows.
    Version, 4 { major: u16, minor: u16, }
    /// DMA_MAP.
    DmaMap, 32 { argsz: u32, flags: u32, offset: u64, address: u64, size: u64, }
    /// DMA_UNMAP.
    DmaUnmap, 24 { argsz: u32, flags: u32, address: u64, size: u64, }
    /// DEVICE_GET_INFO.
    DeviceInfo, 16 { argsz: u32, flags: u32, regions: u32, irqs: u32, }
    /// DEVICE_GET_REGION_INFO.
    RegionInfo, 32 { argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64, }
    /// Capability of a region: the one part of it that can be mapped.
    SparseArea, 32 { id: u16, version: u16, next: u32, areas: u32, reserved: u32, offset: u64, size: u64, }
    /// DEVICE_GET_IRQ_INFO.
    IrqInfo, 16 { argsz: u32, flags: u32, index: u32, count: u32, }
    /// DEVICE_SET_IRQS; data follows.
    SetIrqs, 20 { argsz: u32, flags: u32, index: u32, start: u32, count: u32, }
    /// REGION_READ and REGION_WRITE; data follows in a write and in the reply of a read.
    RegionAccess, 16 { offset: u64, region: u32, count: u32, }
    /// DMA_READ and DMA_WRITE, which the client is sent; data follows in a write and in the reply of a read.
    DmaAccess, 16 { address: u64, count: u64, }
}

impl Header {
    const TYPE: u32 = 0xf;
    const COMMAND: u32 = 0;
    const REPLY: u32 = 1;
    const NO_REPLY: u32 = 1 << 4;
    const ERROR: u32 = 1 << 5;

    /// Whether this is a command, not a reply.
    pub(super) const fn is_command(&self) -> bool {
        self.flags & Self::TYPE == Self::COMMAND
    }

    /// Whether the sender waits for a reply.
    pub(super) const fn wants_reply(&self) -> bool {
        self.flags & Self::NO_REPLY == 0
    }

    /// Whether this reply says that the command failed.
    pub(super) const fn is_error(&self) -> bool {
        self.flags & Self::ERROR != 0
    }

    /// Head of a command of ours with `len` bytes of payload.
    pub(super) const fn request(id: u16, command: u16, len: usize) -> Self {
        let size = (size_of::<Self>() + len) as u32;
        Self { id, command, size, flags: Self::COMMAND, error: 0 }
    }

    /// Head of the reply with `len` bytes of payload.
    pub(super) const fn reply(&self, len: usize) -> Self {
        let size = (size_of::<Self>() + len) as u32;
        Self { id: self.id, command: self.command, size, flags: Self::REPLY, error: 0 }
    }

    /// The reply that says that the command failed.
    pub(super) const fn error(&self, errno: Errno) -> Self {
        let mut reply = self.reply(0);
        reply.flags |= Self::ERROR;
        reply.error = errno as u32;
        reply
    }
}

impl DmaMap {
    pub(super) const READ: u32 = 1 << 0;
    pub(super) const WRITE: u32 = 1 << 1;
}

impl DmaUnmap {
    pub(super) const ALL: u32 = 1 << 1;
}

impl DeviceInfo {
    pub(super) const RESET: u32 = 1 << 0;
    pub(super) const PCI: u32 = 1 << 1;
}

impl RegionInfo {
    pub(super) const READ: u32 = 1 << 0;
    pub(super) const WRITE: u32 = 1 << 1;
    pub(super) const MMAP: u32 = 1 << 2;
    pub(super) const CAPS: u32 = 1 << 3;
}

impl SparseArea {
    /// VFIO_REGION_INFO_CAP_SPARSE_MMAP.
    pub(super) const ID: u16 = 1;
}

impl IrqInfo {
    pub(super) const EVENTFD: u32 = 1 << 0;
    pub(super) const NORESIZE: u32 = 1 << 3;
}

impl SetIrqs {
    pub(super) const DATA_NONE: u32 = 1 << 0;
    pub(super) const DATA_EVENTFD: u32 = 1 << 2;
    pub(super) const ACTION_TRIGGER: u32 = 1 << 5;
}

/// Regions of a PCI device.
pub(super) const REGIONS: u32 = 9;
/// BAR 0.
pub(super) const REGION_BAR0: u32 = 0;
/// BAR 2.
pub(super) const REGION_BAR2: u32 = 2;
/// Configuration space.
pub(super) const REGION_CONFIG: u32 = 7;
/// Interrupts of a PCI device.
pub(super) const IRQS: u32 = 5;
/// MSI-X.
pub(super) const IRQ_MSIX: u32 = 2;
/// MSI.
pub(super) const IRQ_MSI: u32 = 1;
/// Unrecoverable error.
pub(super) const IRQ_ERROR: u32 = 3;
/// Request to let go of the device.
pub(super) const IRQ_REQUEST: u32 = 4;

/// Splits a message's payload into its structure and what follows.
pub(super) fn parse<T: zerocopy::FromBytes>(payload: &[u8]) -> Result<(T, &[u8]), Errno> {
    T::read_from_prefix(payload).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_keep_identifier_and_command() {
        let header = Header { id: 7, command: command::DMA_MAP, size: 48, flags: Header::NO_REPLY, error: 0 };
        assert!(header.is_command() && !header.wants_reply());
        let reply = header.error(Errno::EINVAL);
        assert_eq!((reply.id, reply.command, reply.size, reply.flags, reply.error), (7, 2, 16, 0x21, 22));
        assert!(!reply.is_command());
    }

    #[test]
    fn short_payloads_are_invalid() {
        assert_eq!(parse::<DmaMap>(&[0; 31]).err(), Some(Errno::EINVAL));
        assert_eq!(parse::<Version>(&[1, 0, 2, 0, 9]).unwrap().1, [9]);
    }
}
