// SPDX-License-Identifier: MIT OR Apache-2.0
//! The five operations, a thread a command.

use crate::common::rig::{item, key, right, status, Options, Rig, Run};
use crate::common::{library, seeds};
use nvme_kv::kv::opcode;
use nvme_kv::list::Keys;
use nvme_kv::{Key, Status};
use xio_device_abi::device::Item;
use xio_isa::rng::Rng;
use xio_isa::Arch;

/// Lengths of values: parts of pages, several pages, and odd ones.
const LENGTHS: [usize; 8] = [4, 100, 4096, 4097, 64, 9001, 1, 16 << 10];
const COUNT: usize = 24;
/// Room of each value, so that more than two pages are touched.
const ROOM: u64 = 20 << 10;

fn values(seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let value = |n: usize| (0..LENGTHS[n % 8]).map(|_| rng.next() as u8).collect();
    (0..COUNT).map(value).collect()
}

/// Items for all values, at offsets that are multiples of 4 only.
fn items(opcode: u8, values: &[Vec<u8>]) -> Vec<Item> {
    let each = values.iter().enumerate();
    each.map(|(n, value)| item(opcode, &key(n), n as u64 * ROOM + 4 * (n as u64 % 7), value.len() as u32))
        .collect()
}

#[test]
fn values_come_back_byte_for_byte() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        for seed in seeds(3) {
            let options = Options { seed, pages: 128, queues: 1 + seed as usize % 2, ..Options::default() };
            let mut rig = Rig::new(&object, &options);
            let values = values(seed);
            let stores = items(opcode::STORE, &values);
            for (item, value) in stores.iter().zip(&values) {
                rig.write(item.offset, value);
            }
            let of = seed as u32 % 3;
            let run = Run { blocks: 2 + of, threads: 40 + 40 * of, ..Run::default() };
            let done = right(arch, rig.run("xio_kernel_store", &stores, &run));
            assert!(done.results.iter().all(|r| status(r) == Status::SUCCESS.bits()), "{arch}");
            for (n, value) in values.iter().enumerate() {
                assert!(
                    rig.pairs.value(&key(n)).as_ref() == Some(value),
                    "{arch} seed {seed}: {:?}",
                    stores[n]
                );
            }
            rig.write(0, &vec![0xee; COUNT * ROOM as usize]);
            let done = right(arch, rig.run("xio_kernel_retrieve", &items(opcode::RETRIEVE, &values), &run));
            for ((item, value), result) in stores.iter().zip(&values).zip(&done.results) {
                assert_eq!((status(result), result.length as usize), (0, value.len()), "{arch}");
                assert!(rig.read(item.offset, value.len()) == *value, "{arch} seed {seed}: {item:?}");
                assert_eq!(
                    rig.read(item.offset + value.len() as u64, 1),
                    [0xee],
                    "{arch}: nothing behind it"
                );
            }
            println!("{arch} {seed}: {}", done.outcome);
        }
    }
}

#[test]
fn the_true_length_is_told_of_values_that_are_longer() {
    for arch in Arch::ALL {
        let mut rig = Rig::new(&library(arch, &[]), &Options { pages: 128, ..Options::default() });
        let key = key(1);
        rig.write(0, &[7; 5000]);
        right(arch, rig.run("xio_kernel_store", &[item(opcode::STORE, &key, 0, 5000)], &Run::default()));
        let rooms: Vec<_> = [8, 4096, 5000, 5001]
            .iter()
            .zip(2..)
            .map(|(len, n)| item(opcode::RETRIEVE, &key, n * 8192, *len))
            .collect();
        let done = right(arch, rig.run("xio_kernel_retrieve", &rooms, &Run::default()));
        for (item, result) in rooms.iter().zip(&done.results) {
            assert_eq!((status(result), result.length), (0, 5000), "{arch}");
            let got = rig.read(item.offset, 5004);
            let len = item.len.min(5000) as usize;
            assert!(
                got[..len].iter().all(|b| *b == 7) && got[len..].iter().all(|b| *b == 0),
                "{arch}: {item:?}"
            );
        }
    }
}

#[test]
fn keys_exist_until_they_are_deleted() {
    for arch in Arch::ALL {
        let mut rig = Rig::new(&library(arch, &[]), &Options { pages: 128, ..Options::default() });
        let run = Run::default();
        let values: Vec<Vec<u8>> = (0..COUNT).map(|n| vec![n as u8; 8]).collect();
        right(arch, rig.run("xio_kernel_store", &items(opcode::STORE, &values), &run));
        let all: Vec<Item> = (0..2 * COUNT).map(|n| item(opcode::EXIST, &key(n), 0, 0)).collect();
        let exist = |rig: &mut Rig| -> Vec<bool> {
            let done = right(arch, rig.run("xio_kernel_exist", &all, &run));
            let known = [0, Status::KEY_NOT_FOUND.bits()];
            assert!(done.results.iter().all(|r| known.contains(&status(r))), "{arch}");
            done.results.iter().map(|r| status(r) == 0).collect()
        };
        assert_eq!(exist(&mut rig), (0..2 * COUNT).map(|n| n < COUNT).collect::<Vec<_>>(), "{arch}");
        let third: Vec<Item> =
            (0..2 * COUNT).step_by(3).map(|n| item(opcode::DELETE, &key(n), 0, 0)).collect();
        let done = right(arch, rig.run("xio_kernel_delete", &third, &run));
        for (n, result) in (0..2 * COUNT).step_by(3).zip(&done.results) {
            let want = if n < COUNT { Status::SUCCESS } else { Status::KEY_NOT_FOUND };
            assert_eq!(status(result), want.bits(), "{arch}: {n}");
        }
        assert_eq!(
            exist(&mut rig),
            (0..2 * COUNT).map(|n| n < COUNT && n % 3 != 0).collect::<Vec<_>>(),
            "{arch}"
        );
    }
}

#[test]
fn lists_go_on_from_a_key() {
    for arch in Arch::ALL {
        let mut rig = Rig::new(&library(arch, &[]), &Options { pages: 128, ..Options::default() });
        let values = vec![vec![1; 4]; COUNT];
        right(arch, rig.run("xio_kernel_store", &items(opcode::STORE, &values), &Run::default()));
        let mut keys: Vec<Key> = (0..COUNT).map(key).collect();
        keys.sort();
        // From each third key on, and from the beginning: there is no key.
        let starts: Vec<usize> = (0..COUNT).step_by(3).collect();
        let room = |n: usize| n as u64 * 1024;
        let mut lists: Vec<Item> =
            starts.iter().map(|s| item(opcode::LIST, &keys[*s], room(*s), 100 + 20 * *s as u32)).collect();
        lists.push(Item { key: [0; 16], key_len: 0, ..item(opcode::LIST, &keys[0], room(COUNT), 1000) });
        let done = right(arch, rig.run("xio_kernel_list", &lists, &Run::default()));
        for ((item, start), result) in lists.iter().zip(starts.into_iter().chain([0])).zip(&done.results) {
            assert_eq!(status(result), 0, "{arch}: {item:?}");
            let bytes = rig.read(item.offset, item.len as usize);
            let got: Vec<Key> = Keys::new(&bytes).unwrap().map(|key| key.unwrap()).collect();
            assert!(!got.is_empty() && keys[start..].starts_with(&got), "{arch}: {got:?}");
            assert!(got.len() >= 4.min(COUNT - start), "{arch}: {got:?}");
        }
    }
}
