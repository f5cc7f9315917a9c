// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many threads on one queue, and one kernel on many queues.

use crate::common::{numbered, pattern};
use crate::rig::{self, kv};
use xio::gpu::{Builtin, GpuOptions, Task};

/// 64 threads, each for itself, on a queue that takes 15 commands: the ring is full all the time.
#[test]
fn sixty_four_threads_share_a_small_queue() {
    share(16, Builtin::Store, Builtin::Retrieve);
}

#[test]
fn sixty_four_threads_share_the_smallest_queue() {
    share(2, Builtin::Store, Builtin::Retrieve);
}

#[test]
fn sixty_four_threads_share_a_large_queue() {
    share(1024, Builtin::Store, Builtin::Retrieve);
}

fn share(entries: u32, store_by: Builtin, retrieve_by: Builtin) {
    const KEYS: usize = 1500;
    let options = GpuOptions { threads: 8, batch: 188, ..rig::options(entries, 188) };
    let mut kv = rig::kv_on(&crate::common::controller(), options);
    let buffer = kv.buffer(KEYS * 128).unwrap();
    for n in 0..KEYS {
        buffer.buffer().write(n * 128, &pattern(n as u64, 64)).unwrap();
    }
    let store: Vec<Task> = (0..KEYS).map(|n| Task::store(numbered(n as u64), n * 128, 64)).collect();
    let retrieve: Vec<Task> =
        (0..KEYS).map(|n| Task::retrieve(numbered(n as u64), n * 128 + 64, 64)).collect();
    assert!(kv.run_as(store_by, &buffer, &store).unwrap().0.iter().all(|o| o.code == 0));
    let outcomes = kv.run_as(retrieve_by, &buffer, &retrieve).unwrap().0;
    for (n, outcome) in outcomes.iter().enumerate() {
        let mut back = vec![0; 64];
        buffer.buffer().read(n * 128 + 64, &mut back).unwrap();
        assert_eq!((outcome.code, outcome.length), (0, 64), "key {n}");
        assert_eq!(back, pattern(n as u64, 64), "key {n}");
    }
    let counters = kv.queues()[0].counters().unwrap();
    assert_eq!((counters.submitted, counters.completed), (2 * KEYS as u64, 2 * KEYS as u64));
    assert_eq!((counters.poisoned, counters.late, counters.broken), (0, 0, 0));
}

#[test]
fn a_batch_rings_once() {
    let mut kv = kv(256, 64);
    let buffer = kv.buffer(4096).unwrap();
    let tasks: Vec<Task> = (0..64).map(|n| Task::exist(numbered(n))).collect();
    for _ in 0..10 {
        kv.run(&buffer, &tasks).unwrap();
    }
    let counters = kv.queues()[0].counters().unwrap();
    assert_eq!((counters.submitted, counters.doorbells), (640, 10));
}

#[test]
fn blocks_take_turns_at_several_queues() {
    let options = GpuOptions { queues: 3, ..rig::options(16, 10) };
    let mut kv = rig::kv_on(&crate::common::controller(), options);
    let buffer = kv.buffer(4096).unwrap();
    let tasks: Vec<Task> = (0..300).map(|n| Task::exist(numbered(n))).collect();
    assert!(kv.run(&buffer, &tasks).unwrap().iter().all(|o| o.code == 0x87));
    for queue in kv.queues() {
        assert_eq!(queue.counters().unwrap().submitted, 100);
    }
}
