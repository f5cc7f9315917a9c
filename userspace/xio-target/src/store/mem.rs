// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs in memory.

use super::budget::Budget;
use super::{Answer, Later, Reply, Request, Store, Value};
use crate::{huge, NamespaceConfig};
use nvme_kv::kv::Condition;
use nvme_kv::{list, Key, Status};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Parts with a lock each, so that several controllers work on one namespace at the same time.
const SHARDS: usize = 16;

type Pairs = BTreeMap<Key, Arc<Vec<u8>>>;

/// Keeps pairs in memory until the program ends.
///
/// A pair uses as many bytes as key and value have. Replacing a value frees the old one in the same step, so
/// a full namespace still takes a new value of at most the old one's size.
pub struct MemStore {
    shards: [RwLock<Pairs>; SHARDS],
    used: Budget,
    pairs: Budget,
}

/// Bytes that a pair uses.
pub(super) fn cost(key: &Key, len: usize) -> u64 {
    u64::from(key.len()) + len as u64
}

/// The limit on the number of pairs that a namespace states.
pub(super) fn max_pairs(config: &NamespaceConfig) -> u64 {
    match config.max_keys {
        0 => u64::MAX,
        n => n.into(),
    }
}

/// Frees a value, unless it is being read.
fn free(value: Arc<Vec<u8>>) {
    if let Some(memory) = Arc::into_inner(value) {
        huge::recycle(memory);
    }
}

/// Whether a Store may happen, given whether the key exists.
pub(super) fn check(condition: Condition, exists: bool) -> Result<(), Status> {
    match (condition, exists) {
        (Condition::IfExists, false) => Err(Status::KEY_NOT_FOUND),
        (Condition::IfAbsent, true) => Err(Status::KEY_EXISTS),
        _ => Ok(()),
    }
}

impl MemStore {
    /// An empty store with the limits of a namespace.
    pub fn new(config: &NamespaceConfig) -> Self {
        Self {
            shards: Default::default(),
            used: Budget::new(config.capacity),
            pairs: Budget::new(max_pairs(config)),
        }
    }

    fn shard(&self, key: &Key) -> &RwLock<Pairs> {
        // Multiplicative hash; the upper bits are the mixed ones.
        let word = u128::from_le_bytes(*key.padded());
        let word = (word as u64 ^ (word >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [first, ..] = &self.shards;
        self.shards.get((word >> 60) as usize % SHARDS).unwrap_or(first)
    }

    fn read(&self, key: &Key) -> RwLockReadGuard<'_, Pairs> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, key: &Key) -> RwLockWriteGuard<'_, Pairs> {
        self.shard(key).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &Key, offset: usize, len: usize) -> Answer {
        let value = self.read(key).get(key).cloned().ok_or(Status::KEY_NOT_FOUND)?;
        Ok(Reply::Value(Value::shared(value, offset, len)))
    }

    fn put(&self, key: Key, value: Vec<u8>, condition: Condition) -> Answer {
        let mut pairs = self.write(&key);
        let old = pairs.get(&key).map(|value| cost(&key, value.len()));
        check(condition, old.is_some())?;
        let new = u64::from(old.is_none());
        if !self.pairs.exchange(0, new) {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        if !self.used.exchange(old.unwrap_or(0), cost(&key, value.len())) {
            self.pairs.give_back(new);
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let old = pairs.insert(key, Arc::new(value));
        // Freeing a large value takes a while.
        drop(pairs);
        if let Some(old) = old {
            free(old);
        }
        Ok(Reply::Done)
    }

    fn delete(&self, key: &Key) -> Answer {
        let value = self.write(key).remove(key).ok_or(Status::KEY_NOT_FOUND)?;
        self.used.give_back(cost(key, value.len()));
        self.pairs.give_back(1);
        free(value);
        Ok(Reply::Done)
    }

    /// All shards are held, so that the list is of one moment.
    fn list(&self, start: Option<Key>, room: usize) -> Answer {
        let from = start.map_or(Bound::Unbounded, Bound::Included);
        let all: Vec<_> =
            self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner)).collect();
        let mut next: Vec<_> = all
            .iter()
            .map(|pairs| pairs.range((from, Bound::Unbounded)).map(|(key, _)| *key).peekable())
            .collect();
        let mut keys = Vec::new();
        let mut left = room.saturating_sub(list::EMPTY_LEN);
        loop {
            let least = next.iter_mut().filter_map(|keys| Some((*keys.peek()?, keys)));
            let Some((key, from)) = least.min_by_key(|(key, _)| *key) else { break };
            let Some(rest) = left.checked_sub(list::entry_len(key.len().into())) else { break };
            left = rest;
            keys.push(key);
            from.next();
        }
        Ok(Reply::Keys(keys))
    }
}

impl Store for MemStore {
    fn admit(&self, key: &Key, len: usize, condition: Condition) -> Result<(), Status> {
        let old = self.read(key).get(key).map(|value| cost(key, value.len()));
        check(condition, old.is_some())?;
        let fits = self.pairs.allows(0, u64::from(old.is_none()))
            && self.used.allows(old.unwrap_or(0), cost(key, len));
        if fits {
            Ok(())
        } else {
            Err(Status::CAPACITY_EXCEEDED)
        }
    }

    fn start(&self, request: Request, _later: &Later<'_>) -> Option<Answer> {
        Some(match request {
            Request::Get { key, offset, len } => self.get(&key, offset, len),
            Request::Put { key, value, condition } => self.put(key, value, condition),
            Request::Delete { key } => self.delete(&key),
            Request::Exist { key } => match self.read(&key).contains_key(&key) {
                true => Ok(Reply::Done),
                false => Err(Status::KEY_NOT_FOUND),
            },
            Request::List { start, room } => self.list(start, room),
            // There is nothing more durable than the map.
            Request::Flush => Ok(Reply::Done),
        })
    }

    fn usage(&self) -> u64 {
        self.used.used()
    }

    fn pairs(&self) -> u64 {
        self.pairs.used()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Answers;
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn store(capacity: u64, max_keys: u32) -> MemStore {
        MemStore::new(&NamespaceConfig { capacity, max_keys, ..NamespaceConfig::default() })
    }

    fn ask(store: &MemStore, request: Request) -> Answer {
        store.start(request, &Later::new(0, &Arc::default())).expect("an answer at once")
    }

    fn put(store: &MemStore, key: Key, value: Vec<u8>, condition: Condition) -> Result<(), Status> {
        let admitted = store.admit(&key, value.len(), condition);
        let done = ask(store, Request::Put { key, value, condition }).map(drop);
        assert_eq!(admitted, done);
        done
    }

    fn value(store: &MemStore, key: &Key) -> Vec<u8> {
        match ask(store, Request::Get { key: *key, offset: 0, len: usize::MAX }) {
            Ok(Reply::Value(value)) => value.bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_store_beyond_the_capacity_leaves_the_old_value() {
        let s = store(10, 0);
        assert_eq!(put(&s, key("a"), vec![1; 9], Condition::Always), Ok(()));
        assert_eq!(put(&s, key("a"), vec![2; 10], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
        assert_eq!(put(&s, key("b"), vec![], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
        assert_eq!((value(&s, &key("a")), s.usage(), s.pairs()), (vec![1; 9], 10, 1));
        assert_eq!(put(&s, key("a"), vec![3; 9], Condition::Always), Ok(()));
        assert!(ask(&s, Request::Delete { key: key("a") }).is_ok());
        let gone = ask(&s, Request::Delete { key: key("a") });
        assert!(matches!(gone, Err(Status::KEY_NOT_FOUND)));
        assert_eq!((s.usage(), s.pairs()), (0, 0));
    }

    #[test]
    fn spec_kv_3_2_6_conditional_stores() {
        let s = store(100, 1);
        assert_eq!(put(&s, key("a"), vec![1], Condition::IfExists), Err(Status::KEY_NOT_FOUND));
        assert_eq!(put(&s, key("a"), vec![1], Condition::IfAbsent), Ok(()));
        assert_eq!(put(&s, key("a"), vec![2], Condition::IfAbsent), Err(Status::KEY_EXISTS));
        assert_eq!(put(&s, key("a"), vec![3], Condition::IfExists), Ok(()));
        assert_eq!(value(&s, &key("a")), [3]);
        assert_eq!(put(&s, key("b"), vec![1], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
    }

    #[test]
    fn parts_of_values() {
        let s = store(100, 0);
        put(&s, key("a"), vec![1, 2, 3, 4], Condition::Always).unwrap();
        for (offset, len, part) in
            [(0, 2, &[1, 2][..]), (1, 9, &[2, 3, 4]), (4, 1, &[]), (usize::MAX, 1, &[])]
        {
            match ask(&s, Request::Get { key: key("a"), offset, len }) {
                Ok(Reply::Value(value)) => assert_eq!((value.bytes(), value.len()), (part, 4)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn lists_are_ordered_whatever_the_shards_and_end_where_the_room_does() {
        let s = store(1 << 20, 0);
        let mut keys: Vec<Key> = (0..500u32).map(|n| key(&format!("{:x}", n * 7919))).collect();
        for key in &keys {
            put(&s, *key, vec![], Condition::Always).unwrap();
        }
        keys.sort_unstable();
        let list = |start, room| match ask(&s, Request::List { start, room }) {
            Ok(Reply::Keys(keys)) => keys,
            other => panic!("{other:?}"),
        };
        assert_eq!(list(None, 1 << 20), keys);
        assert_eq!(list(Some(keys[100]), 1 << 20), keys[100..]);
        assert_eq!(list(Some(key("zzz")), 1 << 20), []);
        let two = list::EMPTY_LEN + keys[..2].iter().map(|k| list::entry_len(k.len().into())).sum::<usize>();
        assert_eq!(
            (list(None, two), list(None, two - 1), list(None, 0)),
            (keys[..2].to_vec(), keys[..1].to_vec(), vec![])
        );
    }

    #[test]
    fn the_capacity_is_exact_with_many_writers() {
        let s = store(17 * 100, 0);
        let stored: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|w| {
                    let s = &s;
                    let answers: Arc<Answers> = Arc::default();
                    scope.spawn(move || {
                        let later = Later::new(0, &answers);
                        let put = |n: u32| Request::Put {
                            key: key(&format!("{w}-{n:06}")),
                            value: vec![0; 9],
                            condition: Condition::Always,
                        };
                        (0..100).filter(|n| matches!(s.start(put(*n), &later), Some(Ok(_)))).count()
                    })
                })
                .collect();
            writers.into_iter().map(|w| w.join().unwrap()).sum()
        });
        assert_eq!((stored, s.usage(), s.pairs()), (100, 1700, 100));
    }

    proptest! {
        #[test]
        fn usage_is_the_sum_of_all_pairs(ops in proptest::collection::vec((any::<bool>(), 0u8..8, 0usize..40), 0..200)) {
            let s = store(100, 0);
            for (is_put, k, len) in ops {
                let key = Key::new(&vec![7; usize::from(k) + 1]).unwrap();
                // The outcome does not matter here, only what it leaves behind.
                let _outcome = if is_put {
                    put(&s, key, vec![k; len], Condition::Always)
                } else {
                    ask(&s, Request::Delete { key }).map(drop)
                };
                let shards = s.shards.iter().flat_map(|shard| {
                    shard.read().unwrap().iter().map(|(k, v)| cost(k, v.len())).collect::<Vec<_>>()
                });
                let costs: Vec<u64> = shards.collect();
                prop_assert_eq!(s.usage(), costs.iter().sum::<u64>());
                prop_assert_eq!(s.pairs(), costs.len() as u64);
                prop_assert!(s.usage() <= 100);
            }
        }
    }
}
