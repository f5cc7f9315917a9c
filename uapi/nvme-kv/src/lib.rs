// SPDX-License-Identifier: MIT OR Apache-2.0
//! NVMe Key Value on the wire: registers, queue entries, commands, status, identify data, lists,
//! queue arithmetic, PRP lists and SGLs. No allocation, no unsafe code; the same source is compiled by
//! Kbuild into the kernel module and by cargo into everything else.
//!
//! Cited documents: "Base" is the NVM Express Base Specification 2.1, "KV" the NVM Express Key Value
//! Command Set Specification 1.1, "PCIe" the NVMe over PCIe Transport Specification 1.1.
//!
//! Raw commands are parsed into typed ones ([`kv::Command`], [`admin::Command`]) and back; each pair is
//! held together by a round-trip property test.
#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[macro_use]
mod bits;
pub mod admin;
pub mod entry;
pub mod identify;
mod key;
pub mod kv;
pub mod list;
pub mod log;
pub mod prp;
pub mod regs;
pub mod ring;
pub mod sgl;
mod status;

pub use entry::{Cqe, DataPointer, Sqe};
pub use key::{Key, KeyError, ParseKeyError};
pub use status::Status;

/// Memory page size used throughout: CC.MPS = 0.
pub const PAGE_SIZE: usize = 4096;

/// Command Set Identifiers (Base, Figure "Command Set Identifiers").
pub mod csi {
    /// NVM (blocks).
    pub const NVM: u8 = 0;
    /// Key Value.
    pub const KV: u8 = 1;
    /// Zoned namespaces.
    pub const ZNS: u8 = 2;
}
