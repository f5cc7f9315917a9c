// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the benchmarks share: times to compare, and the controller's queue in memory that is mapped.
#![allow(dead_code)] // No benchmark uses all of it.

use criterion::{Criterion, Throughput};
use nix::time::{clock_gettime, ClockId};
use nvme_kv::kv::{Command, RetrieveOptions, StoreOptions};
use nvme_kv::{DataPointer, Key, Sqe};
use std::collections::BTreeMap;
use std::time::Duration;

/// The middle time of each thing that was measured.
#[derive(Default)]
pub struct Times(BTreeMap<String, Vec<f64>>);

impl Times {
    /// Measures how much of `clock` passes while `run` does something as often as it is told, with `bytes` each.
    pub fn measure(
        &mut self,
        c: &mut Criterion,
        (name, bytes): (&str, usize),
        clock: ClockId,
        mut run: impl FnMut(u64),
    ) {
        let mut group = c.benchmark_group("xio-target");
        group.throughput(if bytes < 4096 {
            Throughput::Elements(1)
        } else {
            Throughput::Bytes(bytes as u64)
        });
        group.bench_function(name, |b| {
            b.iter_custom(|count| {
                let start = now(clock);
                run(count);
                let time = now(clock) - start;
                self.note(name, time.as_secs_f64() / count as f64);
                time
            });
        });
        group.finish();
    }

    /// Notes a time in seconds.
    pub fn note(&mut self, name: &str, time: f64) {
        self.0.entry(name.into()).or_default().push(time);
    }

    fn median(&self, name: &str) -> Option<f64> {
        let mut all = self.0.get(name)?.clone();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Says how fast `what` was, and compared with a plain copy of as many bytes.
    pub fn tell(&self, what: &str, bytes: usize, copy: Option<&str>) {
        let Some(time) = self.median(what) else { return };
        let ratio = copy
            .and_then(|copy| self.median(copy))
            .map_or(String::new(), |copy| format!(", {:.2} of the speed of a plain copy", copy / time));
        let (rate, time) = (1.0 / time, Duration::from_secs_f64(time));
        println!(
            "{what:36} {time:>10.3?} {rate:>10.0}/s {:>8.2} GiB/s{ratio}",
            rate * bytes as f64 / 1073741824.0
        );
    }
}

/// The time that passes for everybody, and that for which this thread runs, whatever else the machine does.
pub const WALL: ClockId = ClockId::CLOCK_MONOTONIC;
pub const OWN: ClockId = ClockId::CLOCK_THREAD_CPUTIME_ID;

/// What a clock says.
pub fn now(clock: ClockId) -> Duration {
    clock_gettime(clock).unwrap().into()
}

/// Criterion with short measurements; the machine is not ours alone.
pub fn criterion() -> Criterion {
    let c = Criterion::default().sample_size(10);
    c.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).configure_from_args()
}

pub fn store(key: Key, len: usize, data: DataPointer) -> Sqe {
    Command::Store { key, len: len as u32, options: StoreOptions::default(), data }.encode(0, 1)
}

pub fn retrieve(key: Key, len: usize, data: DataPointer) -> Sqe {
    Command::Retrieve { key, len: len as u32, options: RetrieveOptions::default(), data }.encode(0, 1)
}

/// The data pointer of `len` bytes at `at`, with lists from `lists` on that `write` makes.
pub fn pointer(at: u64, len: usize, lists: u64, mut write: impl FnMut(u64, u64)) -> DataPointer {
    let pages: Vec<u64> = (0..len.div_ceil(4096).max(1) as u64).map(|n| at + n * 4096).collect();
    let count = nvme_kv::prp::list_pages(pages.len()) as u64;
    let lists: Vec<u64> = (0..count).map(|n| lists + n * 4096).collect();
    nvme_kv::prp::build(&pages, 0, len, &lists, |list, slot, entry| {
        write(lists[list] + slot as u64 * 8, entry)
    })
    .unwrap()
}
