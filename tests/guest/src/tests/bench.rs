// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timing of single operations. Figures are reported, never tested.

use crate::kernel;
use crate::session::Client;
use anyhow::Result;
use std::time::{Duration, Instant};
use xio::{Controller, QueueOptions};

pub const CLIENTS: &[(&str, Client)] = &[("bench-direct", |_| direct())];

const OPERATIONS: usize = 2000;
/// A busy machine does fewer.
const ENOUGH: Duration = Duration::from_secs(10);

/// Runs an operation many times: its median, and its slowest tenth, in microseconds.
pub fn line(name: &str, mut operation: impl FnMut() -> Result<()>) -> Result<String> {
    let mut times = Vec::with_capacity(OPERATIONS);
    let begin = Instant::now();
    while times.is_empty() || (times.len() < OPERATIONS && begin.elapsed() < ENOUGH) {
        let start = Instant::now();
        operation()?;
        times.push(start.elapsed());
    }
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_nanos() as f64 / 1000.0;
    Ok(format!("{name}: p50 {:.1} us, p90 {:.1} us of {}", at(50), at(90), times.len()))
}

/// Store and Retrieve of 4 KiB and 4 MiB over a mapped queue.
fn direct() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let mut queue = controller.queue(QueueOptions::default())?;
    let buffer = controller.alloc(4 << 20)?;
    let key = "bench".parse()?;
    for (size, len) in [("4 KiB", 4 << 10), ("4 MiB", 4 << 20)] {
        let slice = buffer.slice(..len)?;
        let store = || Ok(queue.store(&namespace, &key, &slice, Default::default())?);
        println!("{}", line(&format!("mapped queue, Store of {size}"), store)?);
        let retrieve = || Ok(queue.retrieve(&namespace, &key, &slice, Default::default()).map(drop)?);
        println!("{}", line(&format!("mapped queue, Retrieve of {size}"), retrieve)?);
    }
    Ok(queue.delete_key(&namespace, &key)?)
}
