// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel that applications are told to copy.

use crate::common::example;
use crate::common::rig::{Options, Rig};
use nvme_kv::Key;
use xio_device_abi::device::TaskResult;
use xio_isa::rng::Rng;
use xio_isa::{check, Arch};
use zerocopy::IntoBytes;

const SHARDS: u32 = 5;
const PIECES: u32 = 6;
const PIECE: u32 = 8192;

fn key(shard: u32, piece: u32) -> Key {
    let bytes: Vec<u8> = [b'w'].into_iter().chain(shard.to_be_bytes()).chain(piece.to_be_bytes()).collect();
    Key::new(&bytes).unwrap()
}

#[test]
fn shards_arrive_where_the_model_wants_them() {
    for arch in Arch::ALL {
        let object = example(arch);
        let found = check::function(&object.program, "fetch_shards").unwrap();
        assert!(
            found.problems.is_empty() && found.doorbells > 0 && found.invalidations > 0,
            "{arch}: {found:?}"
        );
        let mut rig = Rig::new(&object, &Options { entries: 32, ..Options::default() });
        let (count, len) = ((SHARDS * PIECES) as usize, (SHARDS * PIECES * PIECE) as usize);
        let mut rng = Rng::new(11);
        let mut want = vec![0x77; len];
        for (n, piece) in want.chunks_exact_mut(PIECE as usize).enumerate() {
            // One is not there.
            if n != 8 {
                piece.fill_with(|| rng.next() as u8);
                rig.pairs.add(&key(n as u32 / PIECES, n as u32 % PIECES), piece);
            }
        }
        let weights = rig.arena.add("weights", len);
        rig.arena.write(weights, &vec![0x77; len]);
        let results = rig.arena.add("results", count * size_of::<TaskResult>());
        let (blocks, threads, buffer) = (2, 128, rig.buffer());
        let mut arguments = rig.queue_address(0).to_le_bytes().to_vec();
        arguments.extend(buffer.as_bytes());
        arguments.extend([results, weights].as_bytes());
        arguments.extend([1, SHARDS, PIECES, PIECE, threads, blocks].as_bytes());
        let outcome = rig.launch("fetch_shards", blocks, threads, &arguments);
        let outcome = outcome.unwrap_or_else(|e| panic!("{arch}: {e}"));
        assert!(outcome.stale.is_empty(), "{arch}: {}", outcome.stale[0]);
        let mut got = vec![0; len];
        rig.machine.memory.lock().read(weights, &mut got).unwrap();
        assert!(got == want, "{arch}");
        println!("{arch}: {outcome}");
    }
}
