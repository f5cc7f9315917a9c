// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's code objects: which instructions they have, and what can be told of memory order without running them.

use crate::common::library;
use xio_isa::{check, Arch};

#[test]
fn probe() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        for name in check::functions(&object.program) {
            let r = check::function(&object.program, &name).unwrap();
            println!(
                "{arch} {name}: wb {} db {} polls {} inv {} {}",
                r.write_backs,
                r.doorbells,
                r.polls,
                r.invalidations,
                r.problems.len()
            );
            for p in r.problems.iter().take(3) {
                println!("   {p}");
            }
        }
    }
}
