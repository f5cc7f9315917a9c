// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of several waves that carry out tables of any operations together.

use crate::common::rig::{item, key, right, status, Options, Rig, Run};
use crate::common::{library, seeds};
use nvme_kv::kv::opcode;
use nvme_kv::Status;
use std::collections::BTreeMap;
use xio_device_abi::device::{Item, STATUS_INVALID};
use xio_isa::rng::Rng;
use xio_isa::Arch;

const ROOM: u64 = 512;

#[test]
fn tables_of_mixed_operations() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        const SHAPES: [(u32, u32, u32); 4] = [(16, 256, 40), (64, 192, 63), (8, 100, 7), (128, 256, 120)];
        for seed in seeds(4) {
            let (entries, threads, batch) = SHAPES[seed as usize % 4];
            let options = Options { seed, entries, queues: 2, ..Options::default() };
            let mut rig = Rig::new(&object, &options);
            let mut rng = Rng::new(seed);
            let mut model: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
            for round in 0..3 {
                // Each key once in a table: nothing is said of the order.
                let table: Vec<(usize, Item)> = (0..120)
                    .map(|n| {
                        let value: Vec<u8> = (0..1 + rng.below(300)).map(|_| rng.next() as u8).collect();
                        let (offset, len) = (n as u64 * ROOM, value.len() as u32);
                        let op =
                            [opcode::STORE, opcode::STORE, opcode::RETRIEVE, opcode::DELETE, opcode::EXIST]
                                [rng.below(5) as usize];
                        let room = if op == opcode::RETRIEVE { 400 } else { len };
                        let fill = if op == opcode::STORE { value } else { vec![0xaa; ROOM as usize] };
                        rig.write(offset, &fill);
                        (n, item(op, &key(n), offset, room))
                    })
                    .collect();
                let items: Vec<Item> = table.iter().map(|(_, item)| *item).collect();
                let run = Run { blocks: 3, threads, batch, ..Run::default() };
                let done = right(arch, rig.run("xio_kernel_batch", &items, &run));
                for ((n, item), result) in table.iter().zip(&done.results) {
                    let at = format!("{arch} seed {seed} round {round} item {n}: {item:?}");
                    let there = model.get(n).cloned();
                    let want = match there {
                        None if item.opcode != u32::from(opcode::STORE) => Status::KEY_NOT_FOUND,
                        _ => Status::SUCCESS,
                    };
                    assert_eq!(status(result), want.bits(), "{at}");
                    match (item.opcode as u8, there) {
                        (opcode::STORE, _) => {
                            model.insert(*n, rig.read(item.offset, item.len as usize));
                        }
                        (opcode::DELETE, _) => {
                            model.remove(n);
                        }
                        (opcode::RETRIEVE, Some(value)) => {
                            assert_eq!(result.length as usize, value.len(), "{at}");
                            let got = rig.read(item.offset, 400);
                            assert!(got[..value.len()] == value, "{at}");
                            assert!(got[value.len()..].iter().all(|byte| *byte == 0xaa), "{at}");
                        }
                        _ => {}
                    }
                }
                println!("{arch} {seed}: {}", done.outcome);
            }
        }
    }
}

#[test]
fn one_doorbell_for_a_batch() {
    for arch in Arch::ALL {
        let mut rig = Rig::new(&library(arch, &[]), &Options { entries: 128, ..Options::default() });
        let items: Vec<Item> = (0..64).map(|n| item(opcode::EXIST, &key(n), 0, 0)).collect();
        let run = Run { blocks: 1, threads: 64, batch: 64, ..Run::default() };
        right(arch, rig.run("xio_kernel_batch", &items, &run));
        assert_eq!((rig.counters(0), rig.queue(0).doorbells), ([64; 3], 1), "{arch}");
    }
}

#[test]
fn what_is_no_command_is_told_and_not_sent() {
    for arch in Arch::ALL {
        let mut rig = Rig::new(&library(arch, &[]), &Options::default());
        let good = item(opcode::EXIST, &key(1), 0, 0);
        let far = 64 * 4096 - 8;
        let items = [
            good,
            Item { key_len: 17, ..good },
            Item { key_len: 0, ..good },
            Item { opcode: 0x99, ..good },
            Item { opcode: opcode::STORE.into(), offset: 2, len: 4, ..good },
            Item { opcode: opcode::RETRIEVE.into(), offset: far, len: 16, ..good },
            Item { opcode: opcode::RETRIEVE.into(), offset: far, len: 8, ..good },
        ];
        let (sent, invalid) = (Status::KEY_NOT_FOUND.bits().into(), STATUS_INVALID);
        let want = [sent, invalid, invalid, invalid, invalid, invalid, sent];
        for kernel in ["xio_kernel_batch", "xio_kernel_encode"] {
            let done = right(arch, rig.run(kernel, &items, &Run::default()));
            if kernel == "xio_kernel_batch" {
                let got: Vec<u32> = done.results.iter().map(|r| r.get().unwrap()).collect();
                assert_eq!(got, want, "{arch}");
            } else {
                // Entries of 64 bytes, zeros for what is no command.
                let zero: Vec<bool> =
                    done.out.chunks(8).map(|entry| entry.iter().all(|word| *word == 0)).collect();
                assert_eq!(zero, want.map(|status| status == invalid), "{arch}");
            }
        }
    }
}
