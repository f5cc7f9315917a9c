// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of many sizes: made, verified and summed up by kernels.

use crate::common::numbered;
use crate::rig::kv;
use xio::gpu::{Builtin, Task};

const SIZES: [u32; 12] = [0, 1, 63, 4095, 4096, 4097, 8192, 12_289, 65_536, 300_001, 1 << 20, (2 << 20) + 5];

#[test]
fn values_of_all_sizes_come_back_as_kernels_made_them() {
    let mut kv = kv(32, 5);
    let total: usize = SIZES.iter().map(|len| (*len as usize).next_multiple_of(4) + 4).sum();
    let (from, to) = (kv.buffer(total).unwrap(), kv.buffer(total).unwrap());
    let mut at = 0;
    let places = SIZES.map(|len| {
        let offset = at;
        at += (len as usize).next_multiple_of(4) + 4;
        (offset, len)
    });
    let tasks = |make: fn(xio::Key, usize, u32) -> Task| -> Vec<Task> {
        places.iter().zip(0..).map(|((offset, len), n)| make(numbered(n), *offset, *len)).collect()
    };
    let (store, retrieve) = (tasks(Task::store), tasks(Task::retrieve));
    kv.run_as(Builtin::Fill, &from, &store).unwrap();
    assert!(kv.run(&from, &store).unwrap().iter().all(|o| o.code == 0));
    let outcomes = kv.run(&to, &retrieve).unwrap();
    for (outcome, len) in outcomes.iter().zip(SIZES) {
        assert_eq!((outcome.code, outcome.length), (0, len));
    }
    let wrong = kv.run_as(Builtin::Verify, &to, &retrieve).unwrap().1;
    assert_eq!(wrong, [0; SIZES.len()], "bytes that differ");
    // The kernel that verifies does see a difference.
    let mut byte = [0];
    let last = places[SIZES.len() - 1].0 + 77_777;
    to.buffer().read(last, &mut byte).unwrap();
    to.buffer().write(last, &[!byte[0]]).unwrap();
    assert_eq!(kv.run_as(Builtin::Verify, &to, &retrieve).unwrap().1[SIZES.len() - 1], 1);
    // Retrieved again, and summed up where they arrive.
    let (outcomes, sums) = kv.run_as(Builtin::Checksum, &to, &retrieve).unwrap();
    for (n, (offset, len)) in places.iter().enumerate() {
        let mut bytes = vec![0; *len as usize];
        from.buffer().read(*offset, &mut bytes).unwrap();
        let sum = bytes.iter().zip(0u64..).fold(0u64, |sum, (b, at)| sum.wrapping_add(checksum(at, *b)));
        assert_eq!((outcomes[n].code, sums[n]), (0, sum), "value {n} of {len} bytes");
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn checksum(at: u64, byte: u8) -> u64 {
    mix((at << 8 | u64::from(byte)).wrapping_add(0x9e37_79b9_7f4a_7c15))
}
