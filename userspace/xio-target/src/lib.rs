// SPDX-License-Identifier: MIT OR Apache-2.0
//! A software NVMe Key Value controller.
#![warn(missing_docs)]

pub mod host;
