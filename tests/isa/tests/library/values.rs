// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that work on values: pattern, verification, checksum behind retrieval.

use crate::common::rig::{item, key, right, status, Options, Rig, Run};
use crate::common::{library, seeds};
use nvme_kv::kv::{opcode, Command, RetrieveOptions};
use nvme_kv::Sqe;
use xio_device_abi::device::Item;
use xio_isa::Arch;
use zerocopy::IntoBytes;

const COUNT: usize = 10;

const fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Byte of the pattern of a value.
fn pattern(seed: u64, i: u64, at: u64) -> u8 {
    let word = mix(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(at / 8));
    (word >> (at % 8 * 8)) as u8
}

fn checksum(bytes: &[u8]) -> u64 {
    let term = |(at, byte): (u64, &u8)| mix((at << 8 | u64::from(*byte)).wrapping_add(0x9e37_79b9_7f4a_7c15));
    (0..).zip(bytes).map(term).fold(0, u64::wrapping_add)
}

fn items(opcode: u8) -> Vec<Item> {
    let len = |n: usize| [1, 700, 4096, 5000, 9000][n % 5];
    (0..COUNT).map(|n| item(opcode, &key(n), n as u64 * 12288, len(n))).collect()
}

#[test]
fn pattern_store_retrieve_verify_and_checksum() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        for seed in seeds(2) {
            let mut rig = Rig::new(&object, &Options { seed, ..Options::default() });
            let run = Run { blocks: 2, threads: 128, batch: 8, seed: 99 + seed, rounds: 1 };
            right(arch, rig.run("xio_kernel_fill", &items(opcode::STORE), &run));
            let values: Vec<Vec<u8>> =
                items(opcode::STORE).iter().map(|item| rig.read(item.offset, item.len as usize)).collect();
            for (i, value) in (0..).zip(&values) {
                assert!(
                    (0..).zip(value).all(|(at, byte)| *byte == pattern(run.seed, i, at)),
                    "{arch}: value {i}"
                );
            }
            let done = right(arch, rig.run("xio_kernel_batch", &items(opcode::STORE), &run));
            assert!(done.results.iter().all(|r| status(r) == 0), "{arch}");
            rig.write(0, &vec![0; COUNT * 12288]);
            let done = right(arch, rig.run("xio_kernel_checksum", &items(opcode::RETRIEVE), &run));
            let sums: Vec<u64> = values.iter().map(|value| checksum(value)).collect();
            assert_eq!(done.out[..COUNT], sums, "{arch} seed {seed}");
            println!("{arch} {seed}: {}", done.outcome);
            let done = right(arch, rig.run("xio_kernel_verify", &items(opcode::RETRIEVE), &run));
            assert_eq!(done.out[..COUNT], [0; COUNT], "{arch}");
            rig.write(3 * 12288 + 4321, &[!values[3][4321], !values[3][4322]]);
            let done = right(arch, rig.run("xio_kernel_verify", &items(opcode::RETRIEVE), &run));
            let wrong: Vec<u64> = (0..COUNT).map(|n| if n == 3 { 2 } else { 0 }).collect();
            assert_eq!(done.out[..COUNT], wrong, "{arch}");
        }
    }
}

#[test]
fn entries_are_those_of_the_host() {
    for arch in Arch::ALL {
        let mut rig = Rig::new(&library(arch, &[]), &Options::default());
        let mut table = items(opcode::RETRIEVE);
        table[1].options = 1;
        table.extend((0..4).map(|n| item(opcode::DELETE, &key(n), 0, 0)));
        let done = right(arch, rig.run("xio_kernel_encode", &table, &Run::default()));
        for (n, (item, entry)) in table.iter().zip(done.out.chunks(8)).enumerate() {
            let key = key(if n < COUNT { n } else { n - COUNT });
            let data = rig.data(item.offset, item.len);
            let options = RetrieveOptions { raw: n == 1 };
            let command = match item.opcode as u8 {
                opcode::RETRIEVE => Command::Retrieve { key, len: item.len, options, data },
                _ => Command::Delete { key },
            };
            let want: Sqe = command.encode(0, 1);
            assert_eq!(entry.as_bytes(), want.as_bytes(), "{arch}: {item:?}");
        }
    }
}
