// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters that wrap: of the ring, of 32 bits, of 62 bits (which slots keep), of 64 bits.

use crate::common::{numbered, pattern};
use crate::rig;
use xio::gpu::{Builtin, GpuOptions, GpuQueueOptions, Task};

/// Several laps of the ring, starting two laps before the counter is `at`.
fn across(at: u64) {
    let entries = 16u64;
    let first_ticket = at.wrapping_sub(2 * entries);
    let queue = GpuQueueOptions { first_ticket, ..rig::queue_options(entries as u32) };
    let mut kv = rig::kv_on(&crate::common::controller(), GpuOptions { queue, ..rig::options(16, 11) });
    let buffer = kv.buffer(128 * 128).unwrap();
    for n in 0..64 {
        buffer.buffer().write(n * 64, &pattern(n as u64, 64)).unwrap();
    }
    let store: Vec<Task> = (0..64).map(|n| Task::store(numbered(n), n as usize * 64, 64)).collect();
    let retrieve: Vec<Task> =
        (0..64).map(|n| Task::retrieve(numbered(n), n as usize * 64 + 8192, 64)).collect();
    assert!(kv.run(&buffer, &store).unwrap().iter().all(|o| o.code == 0), "from {first_ticket:#x}");
    assert!(kv.run_as(Builtin::Retrieve, &buffer, &retrieve).unwrap().0.iter().all(|o| o.code == 0));
    for n in 0..64 {
        let mut back = vec![0; 64];
        buffer.buffer().read(n * 64 + 8192, &mut back).unwrap();
        assert_eq!(back, pattern(n as u64, 64), "from {first_ticket:#x}");
    }
    let counters = kv.queues()[0].counters().unwrap();
    assert_eq!((counters.submitted, counters.completed, counters.broken), (128, 128, 0));
}

#[test]
fn the_ring_and_32_bits_wrap() {
    across(1 << 32);
    across(1 << 31);
}

#[test]
fn what_a_slot_keeps_of_a_ticket_wraps() {
    across(1 << 62);
    across(1 << 63);
}

#[test]
fn all_64_bits_wrap() {
    across(0);
}

/// More commands through a queue than command identifiers have values.
#[test]
fn command_identifiers_wrap() {
    let mut kv = rig::kv_on(&crate::common::controller(), rig::options(256, 255));
    let buffer = kv.buffer(4096).unwrap();
    let tasks: Vec<Task> = (0..70_000).map(|n| Task::exist(numbered(n))).collect();
    assert!(kv.run(&buffer, &tasks).unwrap().iter().all(|o| o.code == 0x87));
    assert_eq!(kv.queues()[0].counters().unwrap().submitted, 70_000);
}
