// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel that applications are told to copy.

use crate::common::rig::{Options, Rig};
use crate::common::{example, tools};
use nvme_kv::Key;
use std::path::Path;
use std::sync::Arc;
use xio_device_abi::device::TaskResult;
use xio_isa::object::CodeObject;
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
        runs(&example(arch));
    }
}

#[test]
#[ignore = "needs what hipcc made of the example: ./scripts/test gpu-isa"]
fn it_runs_as_rocms_compiler_makes_it() {
    let files = std::env::var("XIO_EXAMPLE_OBJECTS").expect("files in XIO_EXAMPLE_OBJECTS");
    for file in files.split(':') {
        let whole = std::fs::read(file).unwrap();
        let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example.elf");
        std::fs::write(&object, in_bundle(&whole).unwrap_or(&whole)).unwrap();
        runs(&Arc::new(CodeObject::load(&tools(), &object).unwrap_or_else(|e| panic!("{file}: {e}"))));
    }
}

/// The first code object for AMD in a bundle of clang's (documentation of clang-offload-bundler): entries of offset, size, and
/// length and text of the target.
fn in_bundle(file: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?) as usize);
    let magic = b"__CLANG_OFFLOAD_BUNDLE__".len();
    file.starts_with(b"__CLANG_OFFLOAD_BUNDLE__").then_some(())?;
    let mut at = magic + 8;
    for _ in 0..number(magic)? {
        let (offset, size, len) = (number(at)?, number(at + 8)?, number(at + 16)?);
        at += 24 + len;
        if file.get(at - len..at)?.windows(6).any(|part| part == b"amdgcn") {
            return file.get(offset..offset + size);
        }
    }
    None
}

fn runs(object: &Arc<CodeObject>) {
    let arch = object.arch;
    let found = check::function(&object.program, "fetch_shards").unwrap();
    assert!(found.problems.is_empty() && found.doorbells > 0 && found.invalidations > 0, "{arch}: {found:?}");
    let mut rig = Rig::new(object, &Options { entries: 32, ..Options::default() });
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
