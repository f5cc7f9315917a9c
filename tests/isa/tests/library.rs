// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's kernels as machine code of all architectures, against the software controller.

mod common;

use common::library;
use common::rig::{item, key, Options, Rig, Run};
use nvme_kv::kv::opcode;
use nvme_kv::Status;
use xio_isa::rng::Rng;
use xio_isa::Arch;

/// Lengths of values: parts of pages, several pages, and odd ones.
const LENGTHS: [u32; 8] = [4, 100, 4096, 4097, 64, 9001, 1, 0];

#[test]
fn store_and_retrieve() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        let start = std::time::Instant::now();
        let mut rig = Rig::new(&object, &Options::default());
        let mut rng = Rng::new(3);
        let values: Vec<Vec<u8>> =
            (0..24).map(|n| (0..LENGTHS[n % 8]).map(|_| rng.next() as u8).collect()).collect();
        let (mut offset, mut items) = (0, Vec::new());
        for (n, value) in values.iter().enumerate() {
            rig.write(offset, value);
            items.push(item(opcode::STORE, &key(n), offset, value.len() as u32));
            offset += (value.len() as u64).next_multiple_of(4) + 4;
        }
        let done = rig.run("xio_kernel_store", &items, &Run::default()).unwrap_or_else(|e| panic!("{arch}: {e}"));
        println!("{arch}: {} {:?}", done.outcome, start.elapsed());
        assert!(done.outcome.stale.is_empty(), "{arch}: {}", done.outcome.stale[0]);
        assert!(done.results.iter().all(|r| r.get() == Some(Status::SUCCESS.bits().into())), "{arch}: {:?}", done.results);
    }
}
