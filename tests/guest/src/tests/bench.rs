// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timing of single operations. Figures are reported, never tested.

use anyhow::Result;
use std::time::Instant;

const OPERATIONS: usize = 2000;

/// Runs an operation many times: its median, and its slowest tenth, in microseconds.
pub fn line(name: &str, mut operation: impl FnMut() -> Result<()>) -> Result<String> {
    let mut times = Vec::with_capacity(OPERATIONS);
    for _ in 0..OPERATIONS {
        let start = Instant::now();
        operation()?;
        times.push(start.elapsed());
    }
    times.sort();
    let at = |part: usize| times[OPERATIONS * part / 100].as_nanos() as f64 / 1000.0;
    Ok(format!("{name}: p50 {:.1} us, p90 {:.1} us of {OPERATIONS}", at(50), at(90)))
}
