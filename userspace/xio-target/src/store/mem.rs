// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs in memory.

use super::Store;
use crate::NamespaceConfig;
use nvme_kv::kv::Condition;
use nvme_kv::{Key, Status};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Keeps pairs in memory, in the order of their keys, until the program ends.
///
/// A pair uses as many bytes as key and value have. Replacing a value frees the old one in the same step, so
/// a full namespace still takes a new value of at most the old one's size.
pub struct MemStore {
    pairs: BTreeMap<Key, Vec<u8>>,
    // INVARIANT: the sum of `cost` over `pairs`, at most `capacity`.
    used: u64,
    capacity: u64,
    /// Most pairs.
    max_keys: usize,
}

/// Bytes that a pair uses.
fn cost(key: &Key, len: usize) -> u64 {
    u64::from(key.len()) + len as u64
}

impl MemStore {
    /// An empty store with the limits of a namespace.
    pub fn new(config: &NamespaceConfig) -> Self {
        let max_keys = match config.max_keys {
            0 => usize::MAX,
            n => n as usize,
        };
        Self { pairs: BTreeMap::new(), used: 0, capacity: config.capacity, max_keys }
    }

    /// Bytes in use after a Store, if it may happen.
    fn used_after(&self, key: &Key, len: usize, condition: Condition) -> Result<u64, Status> {
        let old = self.pairs.get(key);
        match (condition, old) {
            (Condition::IfExists, None) => return Err(Status::KEY_NOT_FOUND),
            (Condition::IfAbsent, Some(_)) => return Err(Status::KEY_EXISTS),
            (_, None) if self.pairs.len() >= self.max_keys => return Err(Status::CAPACITY_EXCEEDED),
            _ => {}
        }
        let freed = old.map_or(0, |value| cost(key, value.len()));
        let used = self.used - freed + cost(key, len);
        if used > self.capacity {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        Ok(used)
    }
}

impl Store for MemStore {
    fn admit(&self, key: &Key, len: usize, condition: Condition) -> Result<(), Status> {
        self.used_after(key, len, condition).map(drop)
    }

    fn put(&mut self, key: Key, value: Vec<u8>, condition: Condition) -> Result<(), Status> {
        self.used = self.used_after(&key, value.len(), condition)?;
        self.pairs.insert(key, value);
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Cow<'_, [u8]>, Status> {
        self.pairs.get(key).map(|value| Cow::Borrowed(&value[..])).ok_or(Status::KEY_NOT_FOUND)
    }

    fn exists(&self, key: &Key) -> Result<bool, Status> {
        Ok(self.pairs.contains_key(key))
    }

    fn delete(&mut self, key: &Key) -> Result<(), Status> {
        let value = self.pairs.remove(key).ok_or(Status::KEY_NOT_FOUND)?;
        self.used -= cost(key, value.len());
        Ok(())
    }

    fn list(&self, start: Option<&Key>, each: &mut dyn FnMut(&Key) -> bool) -> Result<(), Status> {
        let from = start.map_or(Bound::Unbounded, |key| Bound::Included(*key));
        let _stopped = self.pairs.range((from, Bound::Unbounded)).all(|(key, _)| each(key));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Status> {
        // There is nothing more durable than the map.
        Ok(())
    }

    fn usage(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn store(capacity: u64, max_keys: u32) -> MemStore {
        MemStore::new(&NamespaceConfig { capacity, max_keys, ..NamespaceConfig::default() })
    }

    #[test]
    fn a_store_beyond_the_capacity_leaves_the_old_value() {
        let mut s = store(10, 0);
        assert_eq!(s.put(key("a"), vec![1; 9], Condition::Always), Ok(()));
        assert_eq!(s.put(key("a"), vec![2; 10], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
        assert_eq!(s.put(key("b"), vec![], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
        assert_eq!((s.get(&key("a")).unwrap().as_ref(), s.usage()), (&[1; 9][..], 10));
        assert_eq!(s.put(key("a"), vec![3; 9], Condition::Always), Ok(()));
        assert_eq!(s.delete(&key("a")), Ok(()));
        assert_eq!((s.delete(&key("a")), s.usage()), (Err(Status::KEY_NOT_FOUND), 0));
    }

    #[test]
    fn spec_kv_3_2_6_conditional_stores() {
        let mut s = store(100, 1);
        assert_eq!(s.put(key("a"), vec![1], Condition::IfExists), Err(Status::KEY_NOT_FOUND));
        assert_eq!(s.put(key("a"), vec![1], Condition::IfAbsent), Ok(()));
        assert_eq!(s.put(key("a"), vec![2], Condition::IfAbsent), Err(Status::KEY_EXISTS));
        assert_eq!(s.put(key("a"), vec![3], Condition::IfExists), Ok(()));
        assert_eq!(s.get(&key("a")).unwrap().as_ref(), [3]);
        assert_eq!(s.put(key("b"), vec![1], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
    }

    proptest! {
        #[test]
        fn usage_is_the_sum_of_all_pairs(ops in proptest::collection::vec((any::<bool>(), 0u8..8, 0usize..40), 0..200)) {
            let mut s = store(100, 0);
            for (put, k, len) in ops {
                let key = Key::new(&vec![7; usize::from(k) + 1]).unwrap();
                // The outcome does not matter here, only what it leaves behind.
                let _outcome = if put { s.put(key, vec![k; len], Condition::Always) } else { s.delete(&key) };
                let sum: u64 = s.pairs.iter().map(|(k, v)| cost(k, v.len())).sum();
                prop_assert_eq!(s.usage(), sum);
                prop_assert!(sum <= 100);
            }
        }
    }
}
