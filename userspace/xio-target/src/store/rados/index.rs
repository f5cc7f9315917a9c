// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index: which keys there are, in the cluster and in memory.

use super::super::mem::cost;
use super::pool::{Held, Operation, Pool};
use nvme_kv::{list, Key};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::ops::Bound;
use std::time::{Duration, Instant};

/// Objects that the index is spread over, by the first digit of the key.
const SHARDS: &str = "0123456789abcdef";
/// Entries that are read at once.
const PAGE: u64 = 1000;
/// How long the lock lasts without being renewed.
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// The object that the lock is on.
pub(super) const LOCKED: &str = "index-0";

const CERTAIN: u8 = b'c';
const UNCERTAIN: u8 = b'u';

/// All keys, with the lengths of their values.
pub(super) struct Index {
    pub(super) keys: BTreeMap<Key, u64>,
}

/// An entry of the index.
pub(super) fn entry(len: u64, certain: bool) -> [u8; 9] {
    let mut bytes = [if certain { CERTAIN } else { UNCERTAIN }; 9];
    for (to, from) in bytes.iter_mut().skip(1).zip(len.to_le_bytes()) {
        *to = from;
    }
    bytes
}

/// Length, if it is certain.
fn certain(entry: &[u8]) -> Option<u64> {
    match entry {
        [CERTAIN, len @ ..] => len.try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}

/// Name of a key's object.
pub(super) fn name(key: &Key) -> String {
    key.as_bytes().iter().fold(String::new(), |mut text, byte| {
        // Writing to a text never fails.
        let _ok = write!(text, "{byte:02x}");
        text
    })
}

/// The key of an object.
fn key(name: &str) -> Option<Key> {
    let bytes = name.as_bytes().chunks(2).map(|pair| {
        std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    });
    Key::new(&bytes.collect::<Option<Vec<u8>>>()?).ok()
}

/// The object that has the entry of a key.
pub(super) fn shard(name: &str) -> String {
    format!("index-{}", name.get(..1).unwrap_or("0"))
}

impl Index {
    /// Takes the lock, if the user may.
    pub(super) fn lock(pool: &Pool) -> io::Result<Held> {
        let end = Instant::now() + LEASE + Duration::from_secs(2);
        loop {
            match pool.lock(LOCKED, LEASE) {
                Ok(()) => return Ok(Held::Locked),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Held::ReadOnly),
                // Of a program that was killed it will be over soon.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the index; what is uncertain becomes certain.
    pub(super) fn load(pool: &Pool, held: Held) -> io::Result<Self> {
        let mut index = Self { keys: BTreeMap::new() };
        for digit in SHARDS.chars() {
            index.load_shard(pool, held, &format!("index-{digit}"))?;
        }
        Ok(index)
    }

    fn load_shard(&mut self, pool: &Pool, held: Held, object: &str) -> io::Result<()> {
        let mut after = String::new();
        loop {
            let page = pool.index(object, &after, PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after.clone_from(last);
            for (name, entry) in page {
                let Some(key) = key(&name) else {
                    log::warn!("{object} has an entry {name:?}, which is no key");
                    continue;
                };
                if let Some(len) = certain(&entry).or(Self::settle(pool, held, object, &name, &entry)?) {
                    self.keys.insert(key, len);
                }
            }
        }
    }

    /// Looks whether there is an object, and brings its entry up to date if it may.
    fn settle(pool: &Pool, held: Held, object: &str, name: &str, old: &[u8]) -> io::Result<Option<u64>> {
        if certain(old).is_some() {
            return Ok(None);
        }
        let size = pool.stat(name)?;
        log::info!("{name} was uncertain, and is {size:?}");
        match size {
            _ if held == Held::ReadOnly => {}
            Some(len) => pool.change(object, &Operation::SetIndex { key: name, value: &entry(len, true) })?,
            None => pool.change(object, &Operation::RemoveIndex { key: name })?,
        }
        Ok(size)
    }

    /// Bytes of all pairs.
    pub(super) fn bytes(&self) -> u64 {
        self.keys.iter().map(|(key, len)| cost(key, 0) + len).sum()
    }

    /// The keys from `start` on that fit a list of `room` bytes.
    pub(super) fn list(&self, start: Option<Key>, room: usize) -> Vec<Key> {
        let from = start.map_or(Bound::Unbounded, Bound::Included);
        let mut left = room.saturating_sub(list::EMPTY_LEN);
        let fits = self.keys.range((from, Bound::Unbounded)).map_while(|(key, _)| {
            left = left.checked_sub(list::entry_len(key.len().into()))?;
            Some(*key)
        });
        fits.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_entries_round_trip() {
        let k = Key::new(b"\x00k\xff").unwrap();
        assert_eq!((&*name(&k), key("006bff"), shard("006bff")), ("006bff", Some(k), "index-0".into()));
        for bad in ["", "0", "0g", "abc", "é", &"00".repeat(17)] {
            assert_eq!(key(bad), None, "{bad}");
        }
        assert_eq!(certain(&entry(1 << 40, true)), Some(1 << 40));
        assert_eq!((certain(&entry(5, false)), certain(b"c123"), certain(b"")), (None, None, None));
    }
}
