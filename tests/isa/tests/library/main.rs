// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's kernels as machine code of all architectures: looked at, and run against the software controller.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod bench;
mod code;
mod example;
mod operations;
mod rings;
mod spoiled;
mod values;
