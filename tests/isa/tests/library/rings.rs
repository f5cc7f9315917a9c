// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring: full, around the ends of counters, answers in any order, answers that do not come.

use crate::common::rig::{item, key, right, status, Options, Rig, Run};
use crate::common::{library, seeds};
use nvme_kv::kv::opcode;
use nvme_kv::Status;
use xio_device_abi::device::{Item, STATUS_TIMEOUT};
use xio_isa::host::{Hold, Latency};
use xio_isa::Arch;

fn exists(count: usize) -> Vec<Item> {
    (0..count).map(|n| item(opcode::EXIST, &key(n), 0, 0)).collect()
}

#[test]
fn many_threads_on_a_small_ring() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        const SHAPES: [(u32, u64); 4] = [(2, 500), (4, 0), (8, 20_000), (32, 2000)];
        for seed in seeds(4) {
            let (entries, latency) = SHAPES[seed as usize % 4];
            let latency = Latency { least: 0, most: latency };
            let mut rig = Rig::new(&object, &Options { seed, entries, latency, ..Options::default() });
            let run = Run { blocks: 2, threads: 128, batch: 64, ..Run::default() };
            for kernel in ["xio_kernel_exist", "xio_kernel_batch"] {
                let done = right(arch, rig.run(kernel, &exists(150), &run));
                let missing = done.results.iter().all(|r| status(r) == Status::KEY_NOT_FOUND.bits());
                assert!(missing, "{arch} {kernel} {entries}");
                println!("{arch} {kernel} {entries}: {}", done.outcome);
            }
            let queue = rig.queue(0);
            assert_eq!(rig.counters(0), [300; 3], "{arch}");
            assert_eq!((queue.poisoned, queue.broken, queue.late), (0, 0, 0), "{arch}");
        }
    }
}

#[test]
fn counters_go_around() {
    // Of 32 bits, of 62 bits, which states of slots have, and of 64 bits.
    for first in [0xffff_ffe0, (1 << 62) - 32, u64::MAX - 31] {
        for arch in Arch::ALL {
            let mut rig = Rig::new(&library(arch, &[]), &Options { first, ..Options::default() });
            for kernel in ["xio_kernel_exist", "xio_kernel_batch"] {
                let done = right(arch, rig.run(kernel, &exists(60), &Run::default()));
                let missing = done.results.iter().all(|r| status(r) == Status::KEY_NOT_FOUND.bits());
                assert!(missing, "{arch} {kernel} {first:#x}");
            }
            let queue = rig.queue(0);
            assert_eq!((queue.tail, queue.broken), (first.wrapping_add(120), 0), "{arch}");
            let twice = queue.tail.wrapping_mul(2);
            assert_eq!((queue.published, queue.reaped), (twice, twice), "{arch}");
        }
    }
}

#[test]
fn an_answer_that_does_not_come_poisons_its_slot() {
    for arch in Arch::ALL {
        for kernel in ["xio_kernel_exist", "xio_kernel_batch"] {
            let options = Options { timeout: 50_000, entries: 8, ..Options::default() };
            let mut rig = Rig::new(&library(arch, &[]), &options);
            rig.controller.hold(Hold { after: 5, time: 3_000_000 });
            let run = Run { blocks: 1, threads: 64, batch: 64, ..Run::default() };
            // As many as the ring has places for: nobody waits for a place while the one that is late is not given up.
            let done = right(arch, rig.run(kernel, &exists(7), &run));
            let late = done.results.iter().filter(|r| r.get() == Some(STATUS_TIMEOUT)).count();
            let missing = done.results.iter().filter(|r| status(r) == Status::KEY_NOT_FOUND.bits()).count();
            assert_eq!((late, missing), (1, 6), "{arch} {kernel}: {:?}", done.results);
            assert_eq!((rig.queue(0).poisoned, rig.controller.outstanding()), (1, 1), "{arch} {kernel}");
            // The queue goes on, past the slot, for several laps.
            for _ in 0..3 {
                let done = right(arch, rig.run(kernel, &exists(30), &run));
                let missing = done.results.iter().all(|r| status(r) == Status::KEY_NOT_FOUND.bits());
                assert!(missing, "{arch} {kernel}: {:?}", done.results);
            }
            let queue = rig.queue(0);
            assert_eq!((queue.poisoned, queue.broken), (1, 0), "{arch} {kernel}");
            assert!(queue.tail > 97, "{arch} {kernel}: fillers go through the poisoned slot");
        }
    }
}
