// SPDX-License-Identifier: MIT OR Apache-2.0
//! What host code and device code share: structures in memory, and constants.
//!
//! * [`device`]: structures that only this project knows: a queue and its slots, items, results, kernel arguments.
//! * [`wire`]: structures and constants of NVMe and of the module that device code needs.
//!
//! `kernels/include/xio_kv_wire.h` is generated from here by `cargo run -p xio-layout --bin gen-header`; a test says
//! when it is stale, and another compares what a C++ compiler makes of it with Rust.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod device;
pub mod wire;

pub use device::{Args, Buffer, Item, Queue, Slot, TaskResult};

/// A member of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Name.
    pub name: &'static str,
    /// Rust type as written, such as `u32` or `[u8; 16]`.
    pub ty: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Documentation, a line each.
    pub doc: &'static [&'static str],
}

/// A structure.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Name in C++.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes that C++ is told.
    pub align: usize,
    /// Members in order.
    pub members: &'static [Member],
    /// Documentation, a line each.
    pub doc: &'static [&'static str],
}

/// A constant.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Name in C++.
    pub name: &'static str,
    /// Type in Rust: `u32` or `u64`.
    pub ty: &'static str,
    /// Value.
    pub value: u64,
    /// Documentation.
    pub doc: &'static str,
}
