// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submission and completion queue entries (Base, sections 4.1 and 4.2).

use crate::Status;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Submission queue entry, 64 bytes (Base, Figure "Common Command Format").
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Sqe {
    /// Opcode (OPC).
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Command Identifier (CID).
    pub cid: U16,
    /// Namespace Identifier (NSID).
    pub nsid: U32,
    /// Command dwords 2 and 3.
    pub cdw2: [U32; 2],
    /// Metadata Pointer (MPTR).
    pub mptr: U64,
    /// Data Pointer, first entry (PRP1).
    pub prp1: U64,
    /// Data Pointer, second entry (PRP2).
    pub prp2: U64,
    /// Command dwords 10 to 15.
    pub cdw10: [U32; 6],
}

const _: () = {
    assert!(core::mem::size_of::<Sqe>() == 64);
    assert!(core::mem::offset_of!(Sqe, nsid) == 4);
    assert!(core::mem::offset_of!(Sqe, mptr) == 16);
    assert!(core::mem::offset_of!(Sqe, prp1) == 24);
    assert!(core::mem::offset_of!(Sqe, cdw10) == 40);
};

impl Sqe {
    /// Size in bytes.
    pub const SIZE: usize = 64;

    /// An entry with nothing but opcode, command identifier and namespace.
    pub fn new(opcode: u8, cid: u16, nsid: u32) -> Self {
        Self { opcode, cid: cid.into(), nsid: nsid.into(), ..Self::default() }
    }

    /// Command dword `n`, 10 to 15.
    pub fn dword(&self, n: usize) -> u32 {
        self.cdw10.get(n.wrapping_sub(10)).map_or(0, |d| d.get())
    }

    /// Fused operation (FUSE).
    pub const fn fuse(&self) -> u8 {
        self.flags & 3
    }

    /// PRP or SGL for Data Transfer (PSDT): 0 is PRP, 1 and 2 are SGL, 3 is reserved.
    pub const fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// The data pointer as PRP entries.
    pub fn data(&self) -> DataPointer {
        DataPointer { prp1: self.prp1.get(), prp2: self.prp2.get() }
    }

    /// Sets the data pointer.
    pub fn with_data(mut self, data: DataPointer) -> Self {
        (self.prp1, self.prp2) = (data.prp1.into(), data.prp2.into());
        self
    }
}

/// The two PRP entries of a command, or its [SGL descriptor](crate::sgl::Descriptor).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataPointer {
    /// First page, with the offset in it.
    pub prp1: u64,
    /// Nothing, the second page, or the PRP list.
    pub prp2: u64,
}

/// Completion queue entry, 16 bytes (Base, Figure "Common Completion Queue Entry Layout").
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Cqe {
    /// Command-specific result (DW0).
    pub dw0: U32,
    /// Command-specific result (DW1).
    pub dw1: U32,
    /// Submission Queue Head Pointer (SQHD).
    pub sqhd: U16,
    /// Submission Queue Identifier (SQID).
    pub sqid: U16,
    /// Command Identifier (CID).
    pub cid: U16,
    /// Phase Tag in bit 0, Status in bits 15:1.
    pub status: U16,
}

const _: () = {
    assert!(core::mem::size_of::<Cqe>() == 16);
    assert!(core::mem::offset_of!(Cqe, sqhd) == 8);
    assert!(core::mem::offset_of!(Cqe, status) == 14);
};

impl Cqe {
    /// Size in bytes.
    pub const SIZE: usize = 16;

    /// A completion; the phase is set by whoever posts it.
    pub fn new(sqid: u16, sqhd: u16, cid: u16, status: Status, dw0: u32) -> Self {
        Self {
            dw0: dw0.into(),
            dw1: 0.into(),
            sqhd: sqhd.into(),
            sqid: sqid.into(),
            cid: cid.into(),
            status: (status.bits() << 1).into(),
        }
    }

    /// Sets the phase tag.
    pub fn with_phase(mut self, phase: bool) -> Self {
        self.status = (self.status.get() & !1 | u16::from(phase)).into();
        self
    }

    /// Sets Do Not Retry: the same command will fail again.
    pub fn with_dnr(mut self) -> Self {
        self.status = (self.status.get() | 1 << 15).into();
        self
    }

    /// Phase Tag (P).
    pub fn phase(&self) -> bool {
        self.status.get() & 1 == 1
    }

    /// Status Code Type and Status Code.
    pub fn status(&self) -> Status {
        Status::from_bits(self.status.get() >> 1)
    }

    /// Do Not Retry (DNR).
    pub fn dnr(&self) -> bool {
        self.status.get() >> 15 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn spec_base_4_2_completion_bits() {
        let c = Cqe::new(3, 7, 0xabcd, Status::KEY_NOT_FOUND, 5).with_phase(true).with_dnr();
        assert_eq!(c.as_bytes(), [5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 3, 0, 0xcd, 0xab, 0x0f, 0x81]);
        assert!(c.phase() && c.dnr() && c.status() == Status::KEY_NOT_FOUND);
        assert!(!c.with_phase(false).phase());
    }
}
