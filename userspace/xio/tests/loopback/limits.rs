// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of unusual controllers, and that errors name them.

use crate::common::{controller, controller_with, key, kv, numbered, options, pattern, queue};
use xio::loopback::{Config, NamespaceConfig};
use xio::{Controller, Error, LimitBy, Operation, QueueOptions, StoreOptions};

fn round_trip(controller: &Controller, lens: &[usize]) {
    let mut kv = kv(controller);
    for (n, len) in lens.iter().enumerate() {
        let value = pattern(n as u64, *len);
        kv.store(&numbered(n as u64), &value, StoreOptions::default()).unwrap();
        assert!(kv.retrieve(&numbered(n as u64)).unwrap() == value, "{len}");
    }
}

#[test]
fn doorbells_of_every_stride() {
    for dstrd in [0, 1, 4, 9, 10, 15] {
        let controller = Controller::loopback(Config { dstrd, ..Config::default() }).unwrap();
        assert_eq!(controller.info().unwrap().raw().doorbell_pages, u8::from(dstrd >= 10));
        let (_other, _) = queue(&controller, 8);
        round_trip(&controller, &[0, 5, 100_000]);
    }
}

#[test]
fn the_smallest_queues_carry_everything() {
    let controller = Controller::loopback(Config { max_queue_entries: 2, ..Config::default() }).unwrap();
    let info = controller.info().unwrap();
    assert_eq!(info.max_queue_entries(), 2);
    round_trip(&controller, &[0, 1, 4096, 4097, 1 << 20]);
    for entries in [0, 1, 3] {
        let error = controller.queue(options(entries)).unwrap_err();
        assert!(matches!(error, Error::QueueEntries { limit: 2, .. }), "{error}");
    }
}

#[test]
fn contiguous_queues_only() {
    let config = Config { contiguous_queues: true, ..Config::default() };
    let controller = Controller::loopback(config).unwrap();
    let (mut queue, ns) = queue(&controller, 1024);
    assert!(!queue.exist(&ns, &key("a")).unwrap());
}

#[test]
fn a_small_mdts_limits_values_and_says_so() {
    let controller = Controller::loopback(Config { mdts: 1, ..Config::default() }).unwrap();
    assert_eq!(controller.first_namespace().unwrap().max_value(), (8192, LimitBy::Controller));
    round_trip(&controller, &[0, 4096, 8191, 8192]);
    let error = kv(&controller).store(&key("k"), &[0; 8193], StoreOptions::default()).unwrap_err();
    let text = "key k: a value of 8193 bytes is more than the 8192 bytes that the controller (MDTS) allows: split it";
    assert_eq!(error.to_string(), text);
    // The buffer is larger than a command may move.
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.alloc(65536).unwrap();
    let retrieve = Operation::retrieve(key("k"), buffer.slice(..).unwrap());
    let error = queue.submit(&ns, retrieve).unwrap_err();
    assert!(matches!(error, Error::TransferTooLarge { op: "Retrieve", len: 65536, limit: 8192, .. }));
    assert_eq!(queue.in_flight(), 0);
    // All keys are listed nevertheless.
    let mut kv = kv(&controller);
    for n in 0..2000 {
        kv.store(&numbered(n), b"", StoreOptions::default()).unwrap();
    }
    let listed: usize = kv.list(None).map(|page| page.unwrap().len()).sum();
    assert_eq!(listed, 2000);
}

#[test]
fn values_and_keys_beyond_the_namespaces_limits() {
    let namespace = NamespaceConfig { max_value: 1000, max_key: 4, ..NamespaceConfig::default() };
    let controller = controller_with(namespace);
    let mut kv = kv(&controller);
    kv.store(&key("four"), &[1; 1000], StoreOptions::default()).unwrap();
    let error = kv.store(&key("k"), &[1; 1001], StoreOptions::default()).unwrap_err();
    assert!(matches!(error, Error::ValueTooLarge { limit: 1000, by: LimitBy::Namespace, .. }), "{error}");
    assert!(error.to_string().contains("1000 bytes that the namespace (KVVML) allows"), "{error}");
    let error = kv.exist(&key("fives")).unwrap_err();
    assert_eq!(error.to_string(), "key fives: it has 5 bytes and the namespace takes at most 4");
    // Not through the low-level calls either.
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.alloc(1001).unwrap();
    let store = Operation::store(key("k"), buffer.slice(..1001).unwrap());
    assert!(matches!(queue.submit(&ns, store), Err(Error::ValueTooLarge { .. })));
    let list = Operation::List { start: None, into: buffer.slice(..23).unwrap() };
    assert!(matches!(queue.submit(&ns, list), Err(Error::ListTooSmall { need: 24, have: 23 })));
}

#[test]
fn queues_run_out_and_come_back() {
    let controller = Controller::loopback(Config { max_queues: 2, ..Config::default() }).unwrap();
    let (one, _) = queue(&controller, 4);
    let raw = controller.raw_queue(4).unwrap();
    assert_ne!(one.qid(), raw.qid());
    assert!(matches!(controller.queue(QueueOptions::default()), Err(Error::NoQueueLeft)));
    raw.close().unwrap();
    round_trip(&controller, &[10]);
}

#[test]
fn memory_is_limited_and_given_back() {
    let controller = controller();
    let info = controller.info().unwrap();
    let (largest, all) = (info.max_buffer() as usize, info.raw().max_client_memory as usize);
    assert!(matches!(controller.alloc(0), Err(Error::BufferSize { len: 0, .. })));
    assert!(matches!(controller.alloc(largest + 1), Err(Error::BufferSize { .. })));
    for _ in 0..2 {
        let held: Vec<_> = (0..all / largest).map(|_| controller.alloc(largest).unwrap()).collect();
        assert!(matches!(controller.alloc(1), Err(Error::Quota { .. })));
        drop(held);
    }
}

#[test]
fn buffers_of_another_controller_are_refused() {
    let (mine, other) = (controller(), controller());
    let (mut queue, ns) = queue(&mine, 4);
    let buffer = other.alloc(4096).unwrap();
    let store = Operation::store(key("k"), buffer.slice(..).unwrap());
    assert!(matches!(queue.submit(&ns, store), Err(Error::ForeignBuffer)));
}

#[test]
fn controllers_without_key_value_are_refused() {
    let config = Config { dstrd: 16, ..Config::default() };
    assert!(matches!(Controller::loopback(config), Err(Error::Loopback(_))));
}

#[test]
fn a_value_may_use_the_last_of_the_memory_without_rounding() {
    let controller = controller();
    let limit = 1usize << 30;
    let mut kv = kv(&controller);
    // All but 24 MiB: a power of two for 20 MiB is more than that.
    let sizes = [256, 256, 256, 128, 64, 32, 8].map(|mib| mib << 20);
    let buffers: Vec<_> = sizes.iter().map(|len| controller.alloc(*len).unwrap()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), limit - (24 << 20));
    let value = pattern(1, 20 << 20);
    kv.store(&key("last"), &value, StoreOptions::default()).unwrap();
    assert!(kv.retrieve(&key("last")).unwrap() == value);
    drop(buffers);
}
