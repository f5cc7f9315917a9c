// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log pages (Base, section 5.1.12).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Log page identifiers (Base, Figure "Log Page Identifiers").
pub mod id {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Feature Identifiers Supported and Effects.
    pub const FEATURES: u8 = 0x12;
}

/// Feature Identifiers Supported and Effects (Base, section 5.1.12.1.18), one entry for each feature.
pub mod features {
    /// FSUPP: the feature is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// FSP: its scope is a namespace.
    pub const SCOPE_NAMESPACE: u32 = 1 << 20;
    /// FSP: its scope is a controller.
    pub const SCOPE_CONTROLLER: u32 = 1 << 21;
}

/// Commands Supported and Effects (Base, section 5.1.12.1.6), by opcode.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Effects {
    /// Admin commands.
    pub admin: [U32; 256],
    /// I/O commands of the command set asked for.
    pub io: [U32; 256],
    /// Reserved.
    pub reserved: [u8; 2048],
}

const _: () = assert!(core::mem::size_of::<Effects>() == 4096);

/// Effect bit CSUPP: the command is supported.
pub const CSUPP: u32 = 1 << 0;
/// Effect bit LBCC: the command may change user data.
pub const LBCC: u32 = 1 << 1;

/// SMART / Health Information (Base, section 5.1.12.1.3), the fields that are always there.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Smart {
    /// Critical Warning.
    pub critical_warning: u8,
    /// Composite Temperature in kelvin.
    pub temperature: [u8; 2],
    /// Available Spare in percent.
    pub spare: u8,
    /// Available Spare Threshold in percent.
    pub spare_threshold: u8,
    /// Percentage Used.
    pub used: u8,
    /// Endurance Group Critical Warning Summary, reserved.
    pub reserved0: [u8; 26],
    /// Data Units Read, Data Units Written, Host Read Commands, Host Write Commands, Controller Busy Time, Power Cycles,
    /// Power On Hours, Unsafe Shutdowns, Media Errors, Error Log Entries: 16 bytes each.
    pub counters: [[u8; 16]; 10],
    /// The rest.
    pub reserved: [u8; 320],
}

const _: () = assert!(core::mem::size_of::<Smart>() == 512);

/// Error Information Log Entry (Base, section 5.1.12.1.2), the newest first in the log.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ErrorEntry {
    /// Number of this error, from 1; 0 in an entry that is not in use.
    pub count: U64,
    /// Submission queue.
    pub sqid: U16,
    /// Command Identifier, or [`NO_COMMAND`](Self::NO_COMMAND).
    pub cid: U16,
    /// Status Field of the completion; phase tag in bit 0.
    pub status: U16,
    /// Parameter Error Location.
    pub location: U16,
    /// First logical block in error.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// The rest.
    pub reserved: [u8; 36],
}

const _: () = {
    assert!(core::mem::size_of::<ErrorEntry>() == 64);
    assert!(core::mem::offset_of!(ErrorEntry, nsid) == 24);
};

impl ErrorEntry {
    /// `cid` and `sqid`: the error belongs to no command or no queue.
    pub const NO_COMMAND: u16 = 0xffff;
    /// `location`: the error belongs to no field.
    pub const NO_FIELD: u16 = 0xffff;
}

/// Firmware Slot Information (Base, section 5.1.12.1.4).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Firmware {
    /// Active Firmware Info: slot in bits 2:0.
    pub afi: u8,
    /// Reserved.
    pub reserved0: [u8; 7],
    /// Revision in each slot.
    pub slots: [[u8; 8]; 7],
    /// Reserved.
    pub reserved: [u8; 448],
}

const _: () = assert!(core::mem::size_of::<Firmware>() == 512);
