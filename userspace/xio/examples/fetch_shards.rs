// SPDX-License-Identifier: MIT OR Apache-2.0
//! An application with a kernel of its own: stores weight shards, lets the kernel of `examples/gpu/fetch_shards.hip`
//! fetch them into the GPU's memory, and compares.
//!
//! usage: fetch_shards CODE GPU [NODE]     CODE: the compiled kernel; GPU: hip:0, cuda:0; NODE: else a loopback controller
#![allow(unsafe_code, reason = "runs a kernel of the application's own")]

use std::error::Error;
use xio::gpu::abi::{Buffer, TaskResult};
use xio::gpu::{Gpu, GpuBuffer, GpuQueue, GpuQueueOptions, Kernel};
use xio::{Controller, Key, Kv, StoreOptions};
use zerocopy::IntoBytes as _;
use zerocopy_derive::{Immutable, IntoBytes};

const SHARDS: u32 = 6;
const PIECES: u32 = 16;
const PIECE: u32 = 64 << 10;
const BLOCKS: u32 = 2;
const THREADS: u32 = 64;

/// `fetch_arguments` of the kernel.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Arguments {
    queue: u64,
    buffer: Buffer,
    results: u64,
    weights: u64,
    nsid: u32,
    shards: u32,
    pieces: u32,
    piece: u32,
    threads: u32,
    blocks: u32,
}

fn key(shard: u32, piece: u32) -> Result<Key, xio::KeyError> {
    Key::new(&[&b"w"[..], &shard.to_be_bytes(), &piece.to_be_bytes()].concat())
}

/// The bytes of a piece.
fn bytes(shard: u32, piece: u32) -> Vec<u8> {
    let word = |n: u32| (shard * 1000 + piece).wrapping_mul(0x9e37_79b9).wrapping_add(n).to_le_bytes();
    (0..PIECE / 4).flat_map(word).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, code, gpu, node @ ..] = arguments.as_slice() else {
        return Err("usage: fetch_shards CODE GPU [NODE]".into());
    };
    let controller = match node {
        [node, ..] => Controller::open(node)?,
        [] => Controller::loopback(xio::loopback::Config::default())?,
    };
    let mut kv = Kv::open(&controller, None)?;
    for (shard, piece) in (0..SHARDS).flat_map(|shard| (0..PIECES).map(move |piece| (shard, piece))) {
        kv.store(&key(shard, piece)?, &bytes(shard, piece), StoreOptions::default())?;
    }
    let nsid = kv.namespace().nsid();
    let gpu = Gpu::open(gpu.parse()?)?;
    let queue = GpuQueue::new(&gpu, &controller, &GpuQueueOptions::default())?;
    println!("{}: doorbells by {}", gpu.info().name, queue.doorbell());
    let buffer = GpuBuffer::new(&gpu, controller.alloc((BLOCKS * PIECES * PIECE) as usize)?)?;
    let count = (SHARDS * PIECES) as usize;
    let (results, weights) =
        (gpu.alloc(count * size_of::<TaskResult>())?, gpu.alloc(count * PIECE as usize)?);
    let argument = Arguments {
        queue: queue.address(),
        buffer: buffer.descriptor(),
        results: results.address(),
        weights: weights.address(),
        nsid,
        shards: SHARDS,
        pieces: PIECES,
        piece: PIECE,
        threads: THREADS,
        blocks: BLOCKS,
    };
    let code = std::fs::read(code)?;
    // SAFETY: the code is a compiler's output; the kernel takes this argument, whose addresses were all made here.
    unsafe { Kernel::load(&gpu, &code, "fetch_shards")?.launch_with(BLOCKS, THREADS, &argument)? };
    let mut back = vec![TaskResult::EMPTY; count];
    results.read(0, back.as_mut_bytes())?;
    let mut value = vec![0; PIECE as usize];
    for (n, result) in back.iter().enumerate() {
        let (shard, piece) = (n as u32 / PIECES, n as u32 % PIECES);
        weights.read(n * PIECE as usize, &mut value)?;
        if result.get() != Some(0) || value != bytes(shard, piece) {
            return Err(format!("piece {piece} of shard {shard}: {result:?}").into());
        }
    }
    println!("{SHARDS} shards of {PIECES} pieces are in the GPU's memory, every byte as it was stored");
    Ok(())
}
