// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: making, deleting, filling and breaking them.

mod common;

use common::key;
use common::local::{plug, ready};
use common::Bus;
use nvme_kv::admin::{feature, Command, CreateCq, CreateSq, Feature, GetLogPage, NumberOfQueues};
use nvme_kv::kv::{self, Condition};
use nvme_kv::regs::Csts;
use nvme_kv::{log, Cqe, DataPointer, Status};
use std::sync::atomic::Ordering;
use xio_target::Config;
use zerocopy::{FromBytes, IntoBytes};

#[test]
fn spec_base_5_2_queues_that_can_not_be_made() {
    let mut d = plug(Config { contiguous_queues: true, max_queues: 4, ..Config::default() }, 1);
    d.enable(16);
    let base = d.alloc(1);
    let cq = CreateCq { qid: 1, entries: 16, contiguous: true, base, vector: Some(4) };
    let sq = CreateSq { qid: 1, entries: 16, contiguous: true, base, priority: 0, cqid: 1 };
    for (create, status) in [
        (CreateCq { qid: 0, ..cq }, Status::INVALID_QUEUE_ID),
        (CreateCq { qid: 5, ..cq }, Status::INVALID_QUEUE_ID),
        (CreateCq { entries: 1, ..cq }, Status::INVALID_QUEUE_SIZE),
        (CreateCq { entries: 1025, ..cq }, Status::INVALID_QUEUE_SIZE),
        (CreateCq { vector: Some(5), ..cq }, Status::INVALID_INTERRUPT_VECTOR),
        (CreateCq { contiguous: false, ..cq }, Status::INVALID_FIELD),
        (CreateCq { base: base + 8, ..cq }, Status::PRP_OFFSET_INVALID),
    ] {
        assert_eq!(d.admin(Command::CreateCq(create)), Err(status), "{create:?}");
    }
    assert_eq!(d.admin(Command::CreateSq(sq)), Err(Status::COMPLETION_QUEUE_INVALID));
    assert_eq!(d.admin(Command::CreateCq(cq)), Ok(0));
    assert_eq!(d.admin(Command::CreateCq(cq)), Err(Status::INVALID_QUEUE_ID));
    for (create, status) in [
        (CreateSq { cqid: 0, ..sq }, Status::INVALID_QUEUE_ID),
        (CreateSq { cqid: 2, ..sq }, Status::COMPLETION_QUEUE_INVALID),
        (CreateSq { qid: 9, ..sq }, Status::INVALID_QUEUE_ID),
        (CreateSq { entries: 1025, ..sq }, Status::INVALID_QUEUE_SIZE),
    ] {
        assert_eq!(d.admin(Command::CreateSq(create)), Err(status), "{create:?}");
    }
    assert_eq!(d.admin(Command::CreateSq(sq)), Ok(0));
    assert_eq!(d.admin(Command::DeleteCq { qid: 1 }), Err(Status::INVALID_QUEUE_DELETION));
    assert_eq!(d.admin(Command::DeleteSq { qid: 0 }), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(d.admin(Command::DeleteSq { qid: 1 }), Ok(0));
    assert_eq!(d.admin(Command::DeleteSq { qid: 1 }), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(d.admin(Command::DeleteCq { qid: 1 }), Ok(0));
    assert_eq!(d.admin(Command::DeleteCq { qid: 1 }), Err(Status::INVALID_QUEUE_ID));
    let feature = Feature { fid: feature::NUMBER_OF_QUEUES, value: 0x000f_000f, ..Feature::default() };
    let four = NumberOfQueues { sq: 4, cq: 4 }.to_dword();
    assert_eq!(d.admin(Command::SetFeatures(feature)), Ok(four));
    assert_eq!(d.admin(Command::GetFeatures(feature)), Ok(four));
}

#[test]
fn spec_base_5_2_2_queues_in_scattered_pages() {
    let mut d = plug(Config { max_queue_entries: 65536, ..Config::default() }, 8);
    d.enable(16);
    // The list names the pages in order, so that the driver sees its queues as contiguous. 65536 entries need 1024
    // pages, and so a chain of lists.
    let (entries, sq_pages, cq_pages) = (65536, 1024u64, 256u64);
    let (sq_base, cq_base) = (d.alloc(1024), d.alloc(256));
    let lists = [d.alloc(1), d.alloc(1), d.alloc(1)];
    let entry = |base: u64, n: u64| (base + n * 4096).to_le_bytes();
    for n in 0..511 {
        d.bus.poke(lists[0] + n * 8, &entry(sq_base, n));
    }
    d.bus.poke(lists[0] + 511 * 8, &lists[1].to_le_bytes());
    for n in 511..1022 {
        d.bus.poke(lists[1] + (n - 511) * 8, &entry(sq_base, n));
    }
    d.bus.poke(lists[1] + 511 * 8, &lists[2].to_le_bytes());
    for n in 1022..sq_pages {
        d.bus.poke(lists[2] + (n - 1022) * 8, &entry(sq_base, n));
    }
    let cq_list = d.alloc(1);
    for n in 0..cq_pages {
        d.bus.poke(cq_list + n * 8, &entry(cq_base, n));
    }
    let cq = CreateCq { qid: 1, entries, contiguous: false, base: cq_list, vector: None };
    let sq = CreateSq { qid: 1, entries, contiguous: false, base: lists[0], priority: 0, cqid: 1 };
    assert_eq!(d.admin(Command::CreateCq(cq)), Ok(0));
    let nowhere = CreateSq { base: 1 << 40, ..sq };
    assert_eq!(d.admin(Command::CreateSq(nowhere)), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(d.admin(Command::CreateSq(sq)), Ok(0));
    d.adopt(1, entries, sq_base, cq_base);
    // More than once around.
    for _ in 0..70_000 {
        assert_eq!(d.kv(1, kv::Command::Exist { key: key("a") }), Err(Status::KEY_NOT_FOUND));
    }
}

#[test]
fn a_full_completion_queue_waits_for_the_host() {
    let mut d = plug(Config::default(), 1);
    d.enable(16);
    // A deep submission queue with a completion queue of four.
    let (cq_base, sq_base) = (d.alloc(1), d.alloc(1));
    let cq = CreateCq { qid: 3, entries: 4, contiguous: true, base: cq_base, vector: Some(2) };
    let sq = CreateSq { qid: 3, entries: 64, contiguous: true, base: sq_base, priority: 0, cqid: 3 };
    assert_eq!(d.admin(Command::CreateCq(cq)), Ok(0));
    assert_eq!(d.admin(Command::CreateSq(sq)), Ok(0));
    let sqe = kv::Command::Exist { key: key("a") }.encode(0, 1);
    for n in 0..63u64 {
        let mut sqe = sqe;
        sqe.cid = (n as u16).into();
        d.bus.poke(sq_base + n * 64, sqe.as_bytes());
    }
    let doorbells = d.cap().doorbells();
    d.bus.ring(doorbells.sq_tail(3), 63);
    let (mut head, mut seen, mut phase) = (0u32, 0u16, true);
    while seen < 63 {
        assert_eq!(d.bus.controller.poll(), 3.min(63 - usize::from(seen)));
        assert_eq!(d.bus.controller.poll(), 0, "no room");
        for _ in 0..3.min(63 - seen) {
            let mut bytes = [0; 16];
            d.bus.peek(cq_base + u64::from(head) * 16, &mut bytes);
            let cqe = Cqe::read_from_bytes(&bytes).unwrap();
            assert_eq!((cqe.phase(), cqe.cid.get(), cqe.sqhd.get()), (phase, seen, seen + 1));
            seen += 1;
            head = (head + 1) % 4;
            phase ^= head == 0;
        }
        d.bus.ring(doorbells.cq_head(3), head);
    }
    // One interrupt for each pass that completed something.
    assert_eq!(d.bus.host.interrupts[2].load(Ordering::Relaxed), 21);
}

#[test]
fn a_turn_serves_one_queue() {
    let mut d = ready(Config::default(), 1);
    d.create(2, 16);
    for qid in [1, 2] {
        d.push(qid, kv::Command::Exist { key: key("a") }.encode(0, 1));
        d.ring(qid);
    }
    let turns: Vec<_> = [0, 2, 1, 2, 3].into_iter().map(|qid| d.bus.controller.poll_queue(qid)).collect();
    assert_eq!(turns, [Some(0), Some(1), Some(1), Some(0), None]);
    d.disable();
    assert_eq!(d.bus.controller.poll_queue(0), None);
}

#[test]
fn queues_out_of_reach_are_fatal_until_reset() {
    let mut d = ready(Config::default(), 1);
    let nowhere = CreateSq { qid: 2, entries: 4, contiguous: true, base: 1 << 40, priority: 0, cqid: 1 };
    assert_eq!(d.admin(Command::CreateSq(nowhere)), Ok(0));
    let doorbell = d.cap().doorbells().sq_tail(2);
    d.bus.ring(doorbell, 1);
    d.bus.work();
    assert_eq!(d.csts().cfs(), 1);
    assert_eq!(d.bus.controller.poll(), 0);
    d.disable();
    d.enable(8);
    d.create(1, 8);
    assert_eq!(d.store(1, &key("a"), b"v", Condition::Always), Ok(0));
}

#[test]
fn invalid_doorbells_are_events_and_nothing_worse() {
    let mut d = ready(Config::default(), 1);
    let doorbells = d.cap().doorbells();
    let request = d.push(0, Command::AsyncEvent.encode(0)).unwrap();
    d.ring(0);
    d.bus.work();
    assert!(d.pop(0).is_none());
    d.bus.ring(doorbells.sq_tail(1), 16);
    d.bus.work();
    let event = d.wait(0);
    assert_eq!((event.cid.get(), event.dw0.get()), (request, 0x0001_0100));
    let addr = d.alloc(1);
    let data = DataPointer { prp1: addr, prp2: 0 };
    let get = GetLogPage { lid: log::id::ERROR, numd: 15, data, ..GetLogPage::default() };
    assert_eq!(d.admin(Command::GetLogPage(get)), Ok(0));
    let mut bytes = [0; 64];
    d.bus.peek(addr, &mut bytes);
    let entry = log::ErrorEntry::read_from_bytes(&bytes).unwrap();
    assert_eq!((entry.count.get(), entry.sqid.get(), entry.cid.get()), (1, 1, log::ErrorEntry::NO_COMMAND));
    // So is the head of the admin completion queue, once it is good again.
    let request = d.push(0, Command::AsyncEvent.encode(0)).unwrap();
    d.ring(0);
    d.bus.work();
    d.bus.ring(doorbells.cq_head(0), 16);
    for _ in 0..3 {
        d.bus.work();
    }
    assert!(d.pop(0).is_none());
    d.ring_head(0);
    let event = d.wait(0);
    assert_eq!((event.cid.get(), event.dw0.get()), (request, 0x0001_0100));
    assert_eq!(d.admin(Command::GetLogPage(get)), Ok(0));
    d.bus.peek(addr, &mut bytes);
    let entry = log::ErrorEntry::read_from_bytes(&bytes).unwrap();
    assert_eq!((entry.count.get(), entry.sqid.get()), (2, 0));
    // Told once; the queue works again with a good value.
    d.bus.ring(doorbells.cq_head(1), u32::MAX);
    for _ in 0..10 {
        d.bus.work();
    }
    d.bus.ring(doorbells.cq_head(1), 0);
    assert_eq!(d.store(1, &key("a"), b"v", Condition::Always), Ok(0));
    assert_eq!(d.csts(), Csts(1));
}
