// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's code objects: which instructions they have, and what can be told of memory order without running them.

use crate::common::library;
use crate::common::rig::{item, key, right, Options, Rig, Run};
use nvme_kv::kv::opcode;
use std::collections::BTreeSet;
use xio_device_abi::device::Item;
use xio_isa::{check, Arch};

/// Kernels that have nothing to do with a queue.
const WITHOUT_QUEUE: [&str; 4] =
    ["xio_kernel_encode", "xio_kernel_fill", "xio_kernel_verify", "xio_kernel_bench_pull"];

#[test]
fn doorbells_are_written_back_and_waited_for() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        let names: BTreeSet<_> = object.kernels.iter().map(|kernel| kernel.name.clone()).collect();
        assert!(
            names.len() >= 16 && names.is_superset(&WITHOUT_QUEUE.map(str::to_owned).into()),
            "{arch}: {names:?}"
        );
        for name in check::functions(&object.program) {
            let found = check::function(&object.program, &name).unwrap();
            assert!(found.problems.is_empty(), "{arch} {name}: {}", found.problems[0]);
            let (rings, looks) = (found.doorbells > 0, found.polls > 0 && found.invalidations > 0);
            if WITHOUT_QUEUE.contains(&name.as_str()) {
                assert!(!rings && found.others == 0 && found.write_backs == 0, "{arch} {name}: {found:?}");
            } else if names.contains(&name) {
                assert!(rings && looks && found.write_backs >= found.doorbells, "{arch} {name}: {found:?}");
                // Each write-back at system scope is there for a doorbell.
                assert!(
                    !arch.writes_back() || found.write_backs == found.doorbells,
                    "{arch} {name}: {found:?}"
                );
            }
            println!("{arch} {name}: {found:?}");
        }
    }
}

#[test]
fn nearly_every_kind_of_instruction_is_run() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        let mut executed = BTreeSet::new();
        for seed in 1..=2 {
            // The second time the rings are full all the time.
            let entries = [64, 4][seed as usize - 1];
            let mut rig = Rig::new(&object, &Options { seed, queues: 2, entries, ..Options::default() });
            let run = Run { blocks: 2, threads: 72, batch: 30, rounds: 2, seed };
            let table = |op: u8, bytes: u32| -> Vec<Item> {
                (0..50).map(|n| item(op, &key(n), n as u64 * 4096, bytes)).collect()
            };
            let mut go = |kernel: &str, items: &[Item], run: &Run| {
                executed.extend(
                    right(arch, rig.run(&format!("xio_kernel_{kernel}"), items, run)).outcome.executed,
                );
            };
            for (kernel, op) in [
                ("fill", opcode::STORE),
                ("store", opcode::STORE),
                ("retrieve", opcode::RETRIEVE),
                ("verify", opcode::RETRIEVE),
                ("checksum", opcode::RETRIEVE),
                ("encode", opcode::RETRIEVE),
                ("list", opcode::LIST),
                ("exist", opcode::EXIST),
                ("batch", opcode::RETRIEVE),
                ("delete", opcode::DELETE),
            ] {
                go(kernel, &table(op, 3000 + seed as u32), &run);
            }
            if seed == 2 {
                continue;
            }
            let run = Run { blocks: 1, threads: 8, batch: 8, ..run };
            for kernel in ["bench", "bench_call", "bench_stream", "bench_pull", "bench_plain", "bench_lock"] {
                go(kernel, &table(opcode::STORE, 100), &run);
            }
        }
        let all = object.program.mnemonics();
        let rest: Vec<_> = all.difference(&executed).cloned().collect();
        println!(
            "{arch}: {} of {} kinds of instructions were run, but not {}",
            all.len() - rest.len(),
            all.len(),
            rest.join(" ")
        );
        assert!(rest.len() * 10 <= all.len(), "{arch}: {rest:?}");
    }
}
