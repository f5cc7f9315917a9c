// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demonstration.
use crate::report::Report;

/// Later.
pub fn run(_: &mut Report, _: &[&str]) {}
