// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs.

use super::lane::{Lane, Workers};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{thread, Arc};

/// Jobs that come while workers wait, work or go to sleep are all done, once, before the workers end.
pub fn jobs_are_done_before_the_end() {
    let (lane, sum) = (Arc::new(Lane::default()), Arc::new(AtomicU64::new(0)));
    let mut workers = Workers::default();
    for _ in 0..2 {
        let sum = sum.clone();
        let run = move |lane: &Lane<u64>| {
            let mut work = |batch: &mut Vec<u64>| {
                for job in batch.drain(..) {
                    sum.fetch_add(job, Ordering::Relaxed);
                }
            };
            while lane.take((1, 1), |_| 1, &mut work) {}
        };
        workers.start("worker", &lane, run).unwrap();
    }
    lane.push(1);
    lane.push(10);
    drop(workers);
    assert_eq!(sum.load(Ordering::Relaxed), 11);
}

/// A worker that waits is woken by a job, and not only by the end.
pub fn jobs_wake_workers() {
    let (lane, sum) = (Arc::new(Lane::default()), Arc::new(AtomicU64::new(0)));
    let mut workers = Workers::default();
    let (theirs, asker) = (sum.clone(), thread::current());
    let run = move |lane: &Lane<u64>| {
        let mut work = |batch: &mut Vec<u64>| {
            for job in batch.drain(..) {
                theirs.fetch_add(job, Ordering::Relaxed);
                asker.unpark();
            }
        };
        while lane.take((2, 2), |_| 1, &mut work) {}
    };
    workers.start("worker", &lane, run).unwrap();
    lane.push(1);
    lane.push(10);
    while sum.load(Ordering::Relaxed) != 11 {
        thread::park();
    }
    drop(workers);
}
