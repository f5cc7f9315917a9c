// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log pages (Base, section 5.1.12).

use zerocopy::little_endian::U32;
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
    /// Data Units Read, Data Units Written, Host Read Commands, Host Write Commands: 16 bytes each.
    pub counters: [[u8; 16]; 4],
    /// The rest.
    pub reserved: [u8; 416],
}

const _: () = assert!(core::mem::size_of::<Smart>() == 512);
