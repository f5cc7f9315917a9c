// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole-machine tests: the host's half.
//!
//! A [`Machine`] says what the virtual machine has: an IOMMU, software controllers, a disk. A
//! [`Case`](cases::Case) names a machine and the group of guest tests that runs in it. [`run`] builds the
//! initial RAM disk, starts the controllers and QEMU, follows the guest's reports under a deadline and takes
//! everything down. The guest's half is the crate `xio-guest`, which is `/init` there.
//!
//! The guest has two serial lines: `ttyS0` is its console (kept in `serial.log`), `ttyS1` carries the
//! [reports](tap), so that kernel messages never tear them.
//!
//! To add a test, see the top of `cases.rs`.

#![forbid(unsafe_code)]

pub mod accel;
pub mod cases;
pub mod host;
pub mod initramfs;
pub mod machine;
pub mod run;
pub mod setup;
pub mod tap;

pub use machine::{Iommu, Machine};
