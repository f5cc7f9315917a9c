// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any sequence of operations does what it does to a map.

use crate::common::{controller, pattern, WAYS};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use xio::{Condition, Error, Key, Kv, StoreOptions};

#[derive(Clone, Debug)]
enum Step {
    Store(Key, usize, StoreOptions),
    Retrieve(Key),
    Delete(Key),
    Exist(Key),
    List,
}

/// Few keys, so that steps meet.
fn any_key() -> impl Strategy<Value = Key> {
    proptest::collection::vec(0u8..3, 1..=3).prop_map(|bytes| Key::new(&bytes).unwrap())
}

fn any_step() -> impl Strategy<Value = Step> {
    let condition =
        prop_oneof![Just(Condition::Always), Just(Condition::IfExists), Just(Condition::IfAbsent)];
    let options = (condition, any::<bool>())
        .prop_map(|(condition, no_compress)| StoreOptions { condition, no_compress });
    let len = prop_oneof![0usize..100, 4090usize..4100, 60_000usize..70_000];
    prop_oneof![
        4 => (any_key(), len, options).prop_map(|(k, len, options)| Step::Store(k, len, options)),
        3 => any_key().prop_map(Step::Retrieve),
        2 => any_key().prop_map(Step::Delete),
        2 => any_key().prop_map(Step::Exist),
        1 => Just(Step::List),
    ]
}

fn store(kv: &mut Kv, model: &mut BTreeMap<Key, Vec<u8>>, n: u64, k: Key, len: usize, options: StoreOptions) {
    let value = pattern(n, len);
    let done = kv.store(&k, &value, options);
    match (options.condition, model.contains_key(&k)) {
        (Condition::IfExists, false) => assert!(matches!(done, Err(Error::NotFound { .. })), "{done:?}"),
        (Condition::IfAbsent, true) => assert!(matches!(done, Err(Error::Exists { .. })), "{done:?}"),
        _ => {
            done.unwrap();
            model.insert(k, value);
        }
    }
}

fn retrieve(kv: &mut Kv, model: &BTreeMap<Key, Vec<u8>>, k: Key) {
    match (kv.retrieve(&k), model.get(&k)) {
        (Ok(value), Some(expected)) => assert!(value == *expected, "{k}"),
        (Err(Error::NotFound { .. }), None) => {}
        (other, expected) => panic!("{k}: {other:?}, expected {expected:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn operations_do_what_they_do_to_a_map(
        way in proptest::sample::select(WAYS.to_vec()),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut kv = way.kv(&controller());
        let mut model = BTreeMap::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Store(k, len, options) => store(&mut kv, &mut model, n as u64, k, len, options),
                Step::Retrieve(k) => retrieve(&mut kv, &model, k),
                Step::Exist(k) => prop_assert_eq!(kv.exist(&k).unwrap(), model.contains_key(&k)),
                Step::Delete(k) => {
                    let done = kv.delete(&k);
                    prop_assert_eq!(done.is_ok(), model.remove(&k).is_some());
                }
                Step::List => {
                    let keys: Vec<Key> = kv.list(None).map(Result::unwrap).collect::<Vec<_>>().concat();
                    prop_assert_eq!(keys.len(), model.len());
                    prop_assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), model.keys().copied().collect());
                }
            }
        }
        for k in model.keys() {
            retrieve(&mut kv, &model, *k);
        }
    }
}
