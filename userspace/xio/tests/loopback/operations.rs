// SPDX-License-Identifier: MIT OR Apache-2.0
//! The five operations and their options.

use crate::common::{controller, controller_with, every_way, key, numbered, pattern, queue};
use xio::loopback::{Config, NamespaceConfig};
use xio::{Condition, Controller, Error, Key, RetrieveOptions, StoreOptions};

const IF_ABSENT: StoreOptions = StoreOptions { condition: Condition::IfAbsent, no_compress: false };
const IF_EXISTS: StoreOptions = StoreOptions { condition: Condition::IfExists, no_compress: false };

#[test]
fn a_value_is_stored_replaced_found_and_deleted() {
    every_way(|way| {
        let mut kv = way.kv(&controller());
        let k = key("weights.7");
        assert!(!kv.exist(&k).unwrap());
        kv.store(&k, b"first", StoreOptions::default()).unwrap();
        kv.store(&k, b"the second", StoreOptions { no_compress: true, ..StoreOptions::default() }).unwrap();
        assert!(kv.exist(&k).unwrap());
        assert_eq!(kv.retrieve(&k).unwrap(), b"the second");
        assert_eq!(kv.retrieve_with(&k, RetrieveOptions { raw: true }).unwrap(), b"the second");
        kv.flush().unwrap();
        kv.delete(&k).unwrap();
        assert!(!kv.exist(&k).unwrap());
        assert!(matches!(kv.retrieve(&k), Err(Error::NotFound { key }) if key == k));
        assert!(matches!(kv.delete(&k), Err(Error::NotFound { key }) if key == k));
    });
}

#[test]
fn conditional_stores_depend_on_the_key() {
    every_way(|way| {
        let mut kv = way.kv(&controller());
        let k = key("k");
        assert!(matches!(kv.store(&k, b"0", IF_EXISTS), Err(Error::NotFound { .. })));
        assert!(!kv.exist(&k).unwrap());
        kv.store(&k, b"1", IF_ABSENT).unwrap();
        assert!(matches!(kv.store(&k, b"2", IF_ABSENT), Err(Error::Exists { .. })));
        assert_eq!(kv.retrieve(&k).unwrap(), b"1");
        kv.store(&k, b"3", IF_EXISTS).unwrap();
        assert_eq!(kv.retrieve(&k).unwrap(), b"3");
    });
}

#[test]
fn keys_are_any_bytes_of_any_length() {
    every_way(|way| {
        let mut kv = way.kv(&controller());
        let mut keys: Vec<Key> = (1..=16).map(|len| Key::new(&vec![0; len]).unwrap()).collect();
        keys.push(Key::new(b"\0\xff\0\x01\0\0\0\0\x80\0\0\0\0\0\0\0").unwrap());
        keys.push(Key::new(&[0xff; 16]).unwrap());
        for (n, k) in keys.iter().enumerate() {
            kv.store(k, &[n as u8], IF_ABSENT).unwrap();
        }
        for (n, k) in keys.iter().enumerate() {
            assert_eq!(kv.retrieve(k).unwrap(), [n as u8], "{k}");
        }
    });
}

#[test]
fn namespaces_are_apart() {
    let namespace = |max_value| NamespaceConfig { max_value, ..NamespaceConfig::default() };
    let config = Config { namespaces: vec![namespace(1000), namespace(2000)], ..Config::default() };
    let controller = Controller::loopback(config).unwrap();
    let all = controller.namespaces().unwrap();
    assert_eq!(all.iter().map(|n| (n.nsid(), n.max_value().0)).collect::<Vec<_>>(), [(1, 1000), (2, 2000)]);
    assert!(matches!(controller.namespace(3), Err(Error::NoNamespace { nsid: 3 })));
    assert!(matches!(controller.namespace(0), Err(Error::NoNamespace { nsid: 0 })));
    let mut one = xio::Kv::open(&controller, None).unwrap();
    let mut two = xio::Kv::open(&controller, Some(2)).unwrap();
    one.store(&key("a"), b"one", IF_ABSENT).unwrap();
    two.store(&key("a"), b"two", IF_ABSENT).unwrap();
    assert_eq!(
        (one.retrieve(&key("a")).unwrap(), two.retrieve(&key("a")).unwrap()),
        (b"one".into(), b"two".into())
    );
    assert!(controller.namespace(2).unwrap().used() > 0);
}

#[test]
fn what_a_controller_is_can_be_asked() {
    let config = Config { model: "A model".into(), serial: "S1".into(), mdts: 5, ..Config::default() };
    let info = Controller::loopback(config).unwrap().info().unwrap();
    assert_eq!((info.model(), info.serial()), ("A model".into(), "S1".into()));
    assert_eq!((info.max_transfer(), info.max_queue_entries()), (Some(128 << 10), 1024));
    assert!(info.direct().allowed());
    let none = Controller::loopback(Config { namespaces: vec![], ..Config::default() }).unwrap();
    assert!(matches!(none.first_namespace(), Err(Error::NoNamespaces)));
}

#[test]
fn capacity_runs_out_with_an_error_and_comes_back() {
    every_way(|way| {
        let namespace = NamespaceConfig { capacity: 1 << 20, ..NamespaceConfig::default() };
        let controller = controller_with(namespace);
        let mut kv = way.kv(&controller);
        let value = pattern(1, 100_000);
        let stored = (0..20).take_while(|n| match kv.store(&numbered(*n), &value, IF_ABSENT) {
            Ok(()) => true,
            Err(Error::Capacity { .. }) => false,
            Err(error) => panic!("{error}"),
        });
        let count = stored.count() as u64;
        assert!((5..=10).contains(&count), "{count}");
        let used = controller.first_namespace().unwrap().used();
        assert!(used >= count * 100_000, "{used}");
        kv.delete(&numbered(0)).unwrap();
        kv.store(&key("again"), &value, IF_ABSENT).unwrap();
    });
}

#[test]
fn the_number_of_keys_is_limited() {
    every_way(|way| {
        let mut kv = way.kv(&controller_with(NamespaceConfig { max_keys: 3, ..NamespaceConfig::default() }));
        assert_eq!(kv.namespace().max_keys(), Some(3));
        for n in 0..3 {
            kv.store(&numbered(n), b"", IF_ABSENT).unwrap();
        }
        assert!(matches!(kv.store(&numbered(3), b"", IF_ABSENT), Err(Error::Capacity { .. })));
        kv.store(&numbered(2), b"replaced", IF_EXISTS).unwrap();
    });
}

#[test]
fn a_read_only_namespace_says_so() {
    every_way(|way| {
        let mut kv =
            way.kv(&controller_with(NamespaceConfig { read_only: true, ..NamespaceConfig::default() }));
        let error = kv.store(&key("a"), b"x", StoreOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Status { op: "Store", .. }), "{error}");
        assert!(!kv.exist(&key("a")).unwrap());
    });
}

#[test]
fn blocking_calls_of_a_queue_name_what_failed() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.alloc(4096).unwrap();
    let (k, slice) = (key("k"), buffer.slice(4..104).unwrap());
    buffer.write(4, &[7; 100]).unwrap();
    queue.store(&ns, &k, &slice, IF_ABSENT).unwrap();
    let error = queue.store(&ns, &k, &slice, IF_ABSENT).unwrap_err();
    assert_eq!(error.to_string(), "key k: exists already");
    assert_eq!(queue.retrieve(&ns, &k, &slice, RetrieveOptions::default()).unwrap(), 100);
    assert!(queue.exist(&ns, &k).unwrap());
    assert_eq!(queue.list(&ns, None, &slice).unwrap(), [k]);
    queue.delete_key(&ns, &k).unwrap();
    let error = queue.retrieve(&ns, &k, &slice, RetrieveOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "key k: not found");
    queue.close().unwrap();
}
