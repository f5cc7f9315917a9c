// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue entries as device code builds them are those of `nvme-kv`, byte for byte.
#![allow(unsafe_code, reason = "starts a kernel with hand-made arguments")]

use crate::rig;
use nvme_kv::kv::{opcode, Command};
use proptest::prelude::*;
use std::sync::OnceLock;
use xio::gpu::abi::{Args, Item};
use xio::gpu::{Builtin, Gpu, GpuBuffer, Kernel};
use xio::{Condition, Controller, Key, RetrieveOptions, StoreOptions};
use zerocopy::{FromZeros, IntoBytes};

const LEN: usize = 6 << 20;

struct World {
    gpu: Gpu,
    buffer: GpuBuffer,
    _controller: Controller,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let (gpu, controller) = (rig::gpu(), crate::common::controller());
        let buffer = GpuBuffer::new(&gpu, controller.alloc(LEN).unwrap()).unwrap();
        World { gpu, buffer, _controller: controller }
    })
}

/// What the kernel makes of items.
fn encoded(items: &[Item]) -> Vec<[u8; 64]> {
    let world = world();
    let table = world.gpu.alloc(items.as_bytes().len()).unwrap();
    table.write(0, items.as_bytes()).unwrap();
    let out = world.gpu.alloc(items.len() * 64).unwrap();
    let mut args = Args::new_zeroed();
    (args.items, args.out, args.count) = (table.address(), out.address(), items.len() as u32);
    (args.buffer, args.nsid, args.blocks, args.threads) = (world.buffer.descriptor(), 0x0102_0304, 1, 1);
    // SAFETY: all was made here and stays until the kernel's end.
    unsafe { Kernel::builtin(&world.gpu, Builtin::Encode).unwrap().launch(&args).unwrap() };
    let mut back = vec![[0; 64]; items.len()];
    out.read(0, back.as_mut_bytes()).unwrap();
    back
}

fn item(command: &Command, offset: usize) -> Item {
    let sqe = command.encode(0, 0);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&sqe.as_bytes()[8..16]);
    key[8..].copy_from_slice(&sqe.as_bytes()[56..64]);
    let (cdw11, opcode) = (sqe.dword(11), sqe.opcode.into());
    Item {
        opcode,
        options: cdw11 >> 8,
        key,
        key_len: cdw11 & 0xff,
        len: sqe.dword(10),
        offset: offset as u64,
    }
}

fn check(make: impl Fn(nvme_kv::DataPointer, u32) -> Command, offset: usize, len: usize) {
    let slice = world().buffer.buffer().slice(offset..offset + len).unwrap();
    let command = make(slice.data_pointer().unwrap(), len as u32);
    let expected = command.encode(0, 0x0102_0304);
    let got = encoded(&[item(&command, offset)]);
    assert_eq!(got[0], expected.as_bytes(), "{command:?} at {offset}");
}

fn any_key() -> impl Strategy<Value = Key> {
    proptest::collection::vec(any::<u8>(), 1..=16).prop_map(|k| Key::new(&k).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn entries_are_those_of_nvme_kv(
        key in any_key(), op in 0..5, flag: bool, condition in 0..3, a: u32, b: u32, small: bool,
    ) {
        let offset = (a as usize % LEN) & !3;
        let room = if small { (LEN - offset).min(3 * 4096) } else { LEN - offset };
        let len = b as usize % (room + 1);
        let condition = [Condition::Always, Condition::IfExists, Condition::IfAbsent][condition as usize];
        match op {
            0 => check(|data, len| {
                let options = StoreOptions { condition, no_compress: flag };
                Command::Store { key, len, options, data }
            }, offset, len),
            1 => check(|data, len| {
                Command::Retrieve { key, len, options: RetrieveOptions { raw: flag }, data }
            }, offset, len),
            2 => check(|data, len| Command::List { start: flag.then_some(key), len, data }, offset, len),
            3 => check(|_, _| Command::Delete { key }, 0, 0),
            _ => check(|_, _| Command::Exist { key }, 0, 0),
        }
    }
}

#[test]
fn ranges_that_end_where_a_list_page_begins_use_the_other_list() {
    let key: Key = "k".parse().unwrap();
    let retrieve = |data, len| Command::Retrieve { key, len, options: RetrieveOptions::default(), data };
    for last in [510, 511, 512, 513, 1022, 1023, 1024] {
        for first in [0, 1, last - 2, last - 1, last] {
            check(retrieve, first * 4096 + 8, (last - first) * 4096 + 100);
        }
    }
}

#[test]
fn what_is_no_command_is_not_encoded() {
    let good = Item { opcode: 2, options: 0, key: [1; 16], key_len: 16, len: 4096, offset: 0 };
    let bad = [
        Item { key_len: 0, ..good },
        Item { key_len: 17, ..good },
        Item { offset: 2, ..good },
        Item { offset: LEN as u64, ..good },
        Item { offset: u64::MAX - 3, ..good },
        Item { len: LEN as u32 + 1, ..good },
        Item { opcode: opcode::FLUSH.into(), ..good },
        Item { opcode: 0x99, ..good },
        Item { options: 0x100, ..good },
    ];
    assert!(encoded(&bad).iter().all(|entry| *entry == [0; 64]));
    assert!(encoded(&[good]).iter().all(|entry| *entry != [0; 64]));
}
