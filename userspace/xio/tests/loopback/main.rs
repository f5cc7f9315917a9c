// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library against the controller inside the process.

#[path = "../common/mod.rs"]
mod common;

mod limits;
mod listing;
mod model;
mod no_syscall;
mod operations;
mod paths;
mod queues;
mod resets;
mod ring;
mod sizes;
mod stall;
