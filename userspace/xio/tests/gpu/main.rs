// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels against software controllers. `XIO_GPU` says which device runs them (`host` unless told otherwise, `cuda:0`,
//! `hip:0`): the same tests serve all.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod controller;
mod doorbells;
mod encode;
mod faults;
mod memory;
mod operations;
mod resets;
mod rig;
mod runtimes;
mod sharing;
mod sizes;
mod symbols;
mod wraps;
