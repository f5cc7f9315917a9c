// SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT
//! The interface of `/dev/rocm-xioN`: ioctl numbers and structures, mmap areas, version.
//!
//! This crate is the only place where the interface is written down; `include/rocm_xio.h` is
//! generated from it (`cargo run -p xio-layout --bin gen-header`), and a test says when it is stale.
//!
//! Rules that every request follows:
//!
//! * The argument is a structure whose first field, `size`, is its size in bytes as the caller was
//!   compiled. It must equal the size in the ioctl number, else `EINVAL`.
//! * An older caller (smaller `size`) gets the fields that it knows. A newer caller (larger `size`)
//!   is served when everything this kernel does not know is zero, else `E2BIG`; the part that this
//!   kernel does not know comes back as zero.
//! * `flags` and reserved fields must be zero, else `EINVAL`.
//! * Handles belong to the open file that made them; any other handle is `ENOENT`.
//! * Offsets for `mmap` are opaque. No address of a register, of memory or of a bus is ever taken
//!   from the caller.
#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

#[macro_use]
mod describe;
mod requests;

pub use describe::{Constant, Field, Layout};
pub use requests::*;

/// `_IOC_TYPE` of every request.
pub const IOC_TYPE: u8 = 0xBD;

/// Reads of the argument structure are `_IOC_WRITE`, writes of it `_IOC_READ`; all requests do both.
const IOC_READ_WRITE: u32 = 3;

/// `_IOWR(IOC_TYPE, nr, size)` as in `asm-generic/ioctl.h`.
pub const fn iowr(nr: u8, size: usize) -> u32 {
    IOC_READ_WRITE << 30 | (size as u32 & 0x3fff) << 16 | (IOC_TYPE as u32) << 8 | nr as u32
}

/// Number of a request within [`IOC_TYPE`].
pub const fn ioc_nr(cmd: u32) -> u8 {
    cmd as u8
}

/// Size that an ioctl number carries.
pub const fn ioc_size(cmd: u32) -> usize {
    (cmd >> 16 & 0x3fff) as usize
}

/// Whether direction and type of an ioctl number are ours; the size may be an older or newer one.
pub const fn ioc_is_ours(cmd: u32) -> bool {
    cmd >> 30 == IOC_READ_WRITE && (cmd >> 8) as u8 == IOC_TYPE
}
