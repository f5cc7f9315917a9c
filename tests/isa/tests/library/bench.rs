// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks' kernels: that they run, and do what they count.

use crate::common::library;
use crate::common::rig::{item, key, right, Options, Rig, Run};
use nvme_kv::kv::opcode;
use xio_device_abi::device::Item;
use xio_isa::Arch;

#[test]
fn benchmarks_do_what_they_count() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        let run = Run { blocks: 1, threads: 64, batch: 64, rounds: 3, seed: 1 };
        let table = |opcode: u8| -> Vec<Item> {
            (0..64).map(|n| item(opcode, &key(n), n as u64 * 256, 200)).collect()
        };
        for kernel in ["bench", "bench_call", "bench_stream", "bench_plain", "bench_lock"] {
            let mut rig = Rig::new(&object, &Options { entries: 128, pages: 8, ..Options::default() });
            let value: Vec<u8> = (0..64 * 256).map(|n| (n * 7 / 5) as u8).collect();
            rig.write(0, &value);
            right(arch, rig.run("xio_kernel_store", &table(opcode::STORE), &run));
            let before = rig.queue(0);
            rig.write(0, &vec![0; 64 * 256]);
            let done = right(arch, rig.run(&format!("xio_kernel_{kernel}"), &table(opcode::RETRIEVE), &run));
            println!("{arch} {kernel}: {}", done.outcome);
            let [ticks, failed] = [done.out[0], done.out[1]];
            assert!(
                failed == 0 && ticks > 0 && ticks <= done.outcome.time,
                "{arch} {kernel}: {:?}",
                done.out
            );
            for item in table(opcode::RETRIEVE) {
                let at = item.offset as usize;
                assert!(rig.read(item.offset, 200) == value[at..at + 200], "{arch} {kernel}");
                if kernel == "bench_stream" {
                    assert!(rig.read_copy(item.offset, 200) == value[at..at + 200], "{arch}: the copy");
                }
            }
            let queue = rig.queue(0);
            assert_eq!(queue.tail, before.tail + 192, "{arch} {kernel}");
            assert_eq!(queue.reaped, before.reaped + 2 * 192, "{arch} {kernel}");
            if kernel == "bench" {
                assert_eq!(queue.doorbells - before.doorbells, 3, "{arch}: one doorbell for a batch");
            }
        }
    }
}
