// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing over many pages.

use crate::common::{controller, every_way, key, kv, numbered};
use std::collections::BTreeSet;
use xio::{Key, StoreOptions};

const COUNT: u64 = 5_000;

/// 5,000 keys of 1 to 16 bytes.
fn mixed(n: u64) -> Key {
    let mut bytes = numbered(n * 0x1_0001).as_bytes().to_vec();
    bytes.extend_from_slice(&[0xee; 8][..(n % 9) as usize]);
    Key::new(&bytes[if n < 256 { 7 } else { 0 }..]).unwrap()
}

#[test]
fn five_thousand_keys_are_listed_once_each() {
    every_way(|way| {
        let mut kv = way.kv(&controller());
        let keys: BTreeSet<Key> = (0..COUNT).map(mixed).collect();
        for key in &keys {
            kv.store(key, b"", StoreOptions::default()).unwrap();
        }
        let pages: Vec<Vec<Key>> = kv.list(None).collect::<Result<_, _>>().unwrap();
        assert!(pages.len() > 1, "{} pages", pages.len());
        let listed: Vec<Key> = pages.concat();
        assert_eq!(listed.len(), keys.len());
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), keys);
        // From any key on: that one and what the controller listed after it.
        for at in [0, 1, 2_500, listed.len() - 1] {
            let rest: Vec<Key> = kv.list(Some(listed[at])).map(Result::unwrap).collect::<Vec<_>>().concat();
            assert_eq!(rest, listed[at..]);
        }
    });
}

#[test]
fn an_empty_namespace_lists_nothing() {
    every_way(|way| {
        let mut kv = way.kv(&controller());
        assert_eq!(kv.list(None).count(), 0);
        assert_eq!(kv.list(Some(key("a"))).count(), 0);
        kv.store(&key("only"), b"", StoreOptions::default()).unwrap();
        assert_eq!(kv.list(None).map(Result::unwrap).collect::<Vec<_>>(), [[key("only")]]);
    });
}

#[test]
fn keys_deleted_between_pages_do_not_stop_the_listing() {
    let mut kv = kv(&controller());
    for n in 0..COUNT {
        kv.store(&numbered(n), b"", StoreOptions::default()).unwrap();
    }
    let first = kv.list(None).next().unwrap().unwrap();
    let last = *first.last().unwrap();
    kv.delete(&last).unwrap();
    let rest: usize = kv.list(Some(last)).map(|page| page.unwrap().len()).sum();
    assert_eq!(first.len() + rest, COUNT as usize);
}
