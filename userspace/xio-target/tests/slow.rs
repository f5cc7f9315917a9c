// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores that answer later, in any order, or never.

mod common;

use common::key;
use common::local::{plug_stores, Local};
use common::Driver;
use nvme_kv::admin;
use nvme_kv::kv::{Command, Condition, RetrieveOptions, StoreOptions};
use nvme_kv::regs::{offset, Cc, Csts};
use nvme_kv::{Key, Sqe, Status};
use std::sync::{Arc, Mutex};
use xio_target::store::{Later, MemStore, Promise, Reply, Request, Store, Value};
use xio_target::{Config, NamespaceConfig};

/// Answers nothing but when a test does.
#[derive(Default)]
struct Slow {
    asked: Mutex<Vec<(Request, Promise)>>,
}

impl Slow {
    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn take(&self, n: usize) -> (Request, Promise) {
        self.asked.lock().unwrap().remove(n)
    }
}

impl Store for Slow {
    fn start(&self, request: Request, later: &Later<'_>) -> Option<xio_target::store::Answer> {
        self.asked.lock().unwrap().push((request, later.promise()));
        None
    }
    fn usage(&self) -> u64 {
        0
    }
    fn pairs(&self) -> u64 {
        0
    }
}

/// Namespace 1 is slow, namespace 2 is not; queues 1 and 2.
fn slow() -> (Driver<Local>, Arc<Slow>) {
    let store = Arc::new(Slow::default());
    let namespaces = vec![NamespaceConfig::default(); 2];
    let config = Config { namespaces, ..Config::default() };
    let mut d = plug_stores(config, 8, |nsid, config| match nsid {
        1 => store.clone(),
        _ => Arc::new(MemStore::new(config)),
    });
    d.enable(16);
    d.create(1, 4);
    d.create(2, 4);
    (d, store)
}

fn retrieve(d: &mut Driver<Local>, key: Key) -> (Sqe, u64) {
    let addr = d.alloc(1);
    let data = nvme_kv::DataPointer { prp1: addr, prp2: 0 };
    (Command::Retrieve { key, len: 4096, options: RetrieveOptions::default(), data }.encode(0, 1), addr)
}

fn start(d: &mut Driver<Local>, qid: u16, sqe: Sqe) -> u16 {
    let cid = d.push(qid, sqe).unwrap();
    d.ring(qid);
    d.bus.controller.poll();
    cid
}

#[test]
fn commands_are_completed_in_the_order_of_their_answers_and_others_go_on() {
    let (mut d, slow) = slow();
    let (first, to_first) = retrieve(&mut d, key("a"));
    let (second, to_second) = retrieve(&mut d, key("b"));
    let cids = [start(&mut d, 1, first), start(&mut d, 1, second)];
    assert_eq!((slow.asked(), d.pop(1)), (2, None));
    // Other queues and other namespaces do not notice.
    assert!(d.identify(1, 0, 0).is_ok());
    let exist = |nsid| Command::Exist { key: key("a") }.encode(0, nsid);
    assert_eq!(d.execute(2, exist(2)), Err(Status::KEY_NOT_FOUND));
    let (request, promise) = slow.take(1);
    assert!(matches!(request, Request::Get { key: k, offset: 0, len: 4096 } if k == key("b")));
    // From another thread.
    let answer = std::thread::spawn(move || promise.answer(Ok(Reply::Value(Value::part(vec![7; 10], 5000)))));
    answer.join().unwrap();
    let cqe = d.wait(1);
    assert_eq!((cqe.cid.get(), cqe.dw0.get(), cqe.status()), (cids[1], 5000, Status::SUCCESS));
    slow.take(0).1.answer(Err(Status::UNRECOVERED_ERROR));
    let cqe = d.wait(1);
    assert_eq!((cqe.cid.get(), cqe.status()), (cids[0], Status::UNRECOVERED_ERROR));
    let mut bytes = [0; 11];
    common::Bus::peek(&d.bus, to_second, &mut bytes);
    assert_eq!(bytes, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    common::Bus::peek(&d.bus, to_first, &mut bytes);
    assert_eq!(bytes, [0; 11]);
}

#[test]
fn room_is_kept_for_completions_that_come_later() {
    let (mut d, slow) = slow();
    let (sqe, _) = retrieve(&mut d, key("a"));
    // A completion queue of four has room for three.
    for _ in 0..3 {
        start(&mut d, 1, sqe);
    }
    assert_eq!(slow.asked(), 3);
    d.bus.controller.poll();
    for _ in 0..3 {
        slow.take(0).1.answer(Err(Status::KEY_NOT_FOUND));
    }
    assert_eq!(d.bus.controller.poll(), 3);
    // The host takes one without saying so: a fourth command has to wait.
    assert!(d.pop(1).is_some());
    start(&mut d, 1, sqe);
    assert_eq!(slow.asked(), 0);
    d.ring_head(1);
    d.bus.controller.poll();
    assert_eq!(slow.asked(), 1);
}

#[test]
fn what_was_under_way_before_a_reset_or_deletion_leaves_no_trace() {
    let (mut d, slow) = slow();
    for how in 0..3 {
        let (sqe, addr) = retrieve(&mut d, key("a"));
        start(&mut d, 1, sqe);
        match how {
            0 => {
                assert_eq!(d.admin(admin::Command::DeleteSq { qid: 1 }), Ok(0));
                assert_eq!(d.admin(admin::Command::DeleteCq { qid: 1 }), Ok(0));
            }
            1 => {
                d.disable();
                d.enable(16);
            }
            _ => {
                d.bus.controller.reset();
                d.enable(16);
            }
        }
        d.create(1, 4);
        slow.take(0).1.answer(Ok(Reply::Value(Value::part(vec![7; 4096], 4096))));
        assert_eq!((d.bus.controller.poll(), d.pop(1)), (0, None));
        let mut bytes = [0; 4096];
        common::Bus::peek(&d.bus, addr, &mut bytes);
        assert_eq!(bytes, [0; 4096]);
    }
}

#[test]
fn memory_for_values_under_way_is_limited_for_each_namespace() {
    let (mut d, slow) = slow();
    d.create(3, 16);
    let len = 2 << 20;
    let buffer = d.buffer(len);
    let (key, options) = (key("big"), StoreOptions::default());
    let store = |nsid| Command::Store { key, len: len as u32, options, data: buffer.data }.encode(0, nsid);
    // More than 256 MiB of values are never under way.
    let many =
        Command::Retrieve { key, len: 64 << 20, options: RetrieveOptions::default(), data: buffer.data };
    for _ in 0..5 {
        start(&mut d, 3, many.encode(0, 1));
    }
    assert_eq!(slow.asked(), 4);
    // The queue waits; another namespace on another queue does not.
    start(&mut d, 3, Command::Exist { key }.encode(0, 2));
    assert_eq!(d.pop(3), None);
    assert_eq!(d.execute(2, store(2)), Ok(0));
    slow.take(0).1.answer(Err(Status::KEY_NOT_FOUND));
    assert_eq!(d.wait(3).status(), Status::KEY_NOT_FOUND);
    // Now the one that was held is asked for, and what is behind it gets its turn.
    assert_eq!(d.wait(3).status(), Status::SUCCESS);
    assert_eq!(slow.asked(), 4);
}

#[test]
fn spec_base_3_6_shutdown_waits_for_the_stores() {
    let (mut d, slow) = slow();
    d.set_register(offset::CC, Cc::KV_ENABLE.with_shn(Cc::SHN_NORMAL).0);
    assert_eq!(d.csts().shst(), Csts::SHST_OCCURRING);
    d.bus.controller.poll();
    assert_eq!(d.csts().shst(), Csts::SHST_OCCURRING);
    let (request, promise) = slow.take(0);
    assert!(matches!(request, Request::Flush));
    promise.answer(Ok(Reply::Done));
    d.bus.controller.poll();
    assert_eq!(d.csts().shst(), Csts::SHST_COMPLETE);
}

#[test]
fn a_flush_of_all_namespaces_is_done_when_all_are() {
    let (mut d, slow) = slow();
    let flush = Command::Flush.encode(0, u32::MAX);
    let cid = start(&mut d, 1, flush);
    assert_eq!(d.pop(1), None);
    slow.take(0).1.answer(Err(Status::INTERNAL_ERROR));
    let cqe = d.wait(1);
    assert_eq!((cqe.cid.get(), cqe.status()), (cid, Status::INTERNAL_ERROR));
    // A promise that nobody keeps is an error, not a command that hangs.
    start(&mut d, 1, flush);
    drop(slow.take(0));
    assert_eq!(d.wait(1).status(), Status::INTERNAL_ERROR);
}

#[test]
fn conditions_reach_the_store() {
    let (mut d, slow) = slow();
    let buffer = d.buffer(10);
    let options = StoreOptions { condition: Condition::IfAbsent, no_compress: true };
    start(&mut d, 1, Command::Store { key: key("a"), len: 10, options, data: buffer.data }.encode(0, 1));
    let (request, _promise) = slow.take(0);
    assert!(
        matches!(request, Request::Put { condition: Condition::IfAbsent, ref value, .. } if value.len() == 10)
    );
}
