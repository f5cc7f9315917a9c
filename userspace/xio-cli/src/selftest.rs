// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio kv selftest`: what a controller was given comes back.

use crate::exit::Failure;
use crate::output;
use std::time::Instant;
use xio::{Condition, Error, Key, Kv, MemoryKind, StoreOptions};

const SIZES: [u64; 8] = [0, 1, 4095, 4096, 4097, 65_536, (1 << 20) + 3, 64 << 20];

/// Stores, finds, reads back and deletes values of many sizes under a key that did not exist.
pub fn run(kv: &mut Kv) -> Result<(), Failure> {
    let key: Key = format!("xio-st-{}", std::process::id()).parse().map_err(|e| wrong(format!("{e}")))?;
    let mut limit = kv.namespace().max_value().0;
    if kv.memory() == MemoryKind::Cmb {
        limit = limit.min(kv.controller().info()?.cmb().map_or(0, |cmb| cmb.free));
    }
    let sizes = SIZES.into_iter().filter(|size| *size < limit).chain([limit.min(64 << 20)]);
    for size in sizes {
        let tested = one(kv, &key, size);
        if tested.is_err() {
            // The first error is the one to report.
            let _ = kv.delete(&key);
        }
        output::text(&tested?)?;
    }
    Ok(())
}

fn wrong(what: String) -> Failure {
    Failure::SelfTest(what)
}

/// One size; the line to print.
fn one(kv: &mut Kv, key: &Key, size: u64) -> Result<String, Failure> {
    let value: Vec<u8> = (0..size).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
    let absent = StoreOptions { condition: Condition::IfAbsent, ..StoreOptions::default() };
    let start = Instant::now();
    kv.store(key, &value, absent)?;
    let stored = start.elapsed();
    if !matches!(kv.store(key, &value, absent), Err(Error::Exists { .. })) {
        return Err(wrong(format!("key {key} was stored twice although it was to be absent")));
    }
    let start = Instant::now();
    let back = kv.retrieve(key)?;
    let retrieved = start.elapsed();
    if back != value {
        return Err(wrong(format!("a value of {size} bytes came back as another of {}", back.len())));
    }
    kv.delete(key)?;
    if kv.exist(key)? {
        return Err(wrong(format!("key {key} exists after it was deleted")));
    }
    Ok(format!("{size:>9} bytes: ok, stored in {stored:.1?}, retrieved in {retrieved:.1?}\n"))
}
