// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller that misbehaves on purpose: what a host sees of each fault.

mod common;

use common::local::{plug, ready, Local};
use common::{key, pattern, Bus, Driver};
use nvme_kv::admin::{self, GetLogPage};
use nvme_kv::identify::{self, cns};
use nvme_kv::kv::{Command, Condition, RetrieveOptions};
use nvme_kv::regs::{offset, Cc, Csts};
use nvme_kv::{csi, Cqe, Sqe, Status};
use std::time::{Duration, Instant};
use xio_target::Config;
use zerocopy::FromBytes;

const LIMIT: Duration = Duration::from_secs(20);

/// A controller with I/O queue 1 that misbehaves.
fn bad(script: &str) -> Driver<Local> {
    let mut d = ready(Config::default(), 4);
    set(&mut d, script);
    d
}

fn set(d: &mut Driver<Local>, script: &str) {
    d.bus.controller.set_faults(script.parse().unwrap());
}

fn exist(text: &str) -> Sqe {
    Command::Exist { key: key(text) }.encode(0, 1)
}

/// Submits commands at once; their identifiers.
fn submit(d: &mut Driver<Local>, keys: &[&str]) -> Vec<u16> {
    let cids = keys.iter().map(|key| d.push(1, exist(key)).unwrap()).collect();
    d.ring(1);
    cids
}

/// Takes completions for a while, or until there are so many.
fn collect(d: &mut Driver<Local>, count: usize, time: Duration) -> Vec<Cqe> {
    let (end, mut all) = (Instant::now() + time, Vec::new());
    // On a busy machine, too, several times.
    for round in 0.. {
        if all.len() >= count || round > 9 && Instant::now() >= end {
            break;
        }
        d.bus.work();
        all.extend(d.take(1));
    }
    all
}

fn cids(all: &[Cqe]) -> Vec<u16> {
    all.iter().map(|cqe| cqe.cid.get()).collect()
}

const SHORT: Duration = Duration::from_millis(30);

#[test]
fn a_delayed_completion_comes_late_and_others_do_not_wait() {
    let mut d = bad("delay 80ms key=slow");
    let start = Instant::now();
    let sent = submit(&mut d, &["slow", "quick"]);
    assert_eq!(cids(&collect(&mut d, 1, LIMIT)), [sent[1]]);
    assert_eq!(cids(&collect(&mut d, 1, LIMIT)), [sent[0]]);
    assert!(start.elapsed() >= Duration::from_millis(80));
}

#[test]
fn a_dropped_completion_never_comes_and_the_command_is_done() {
    let mut d = bad("drop op=store key=lost");
    let buffer = d.buffer(4);
    let store = Command::Store { key: key("lost"), len: 4, options: Default::default(), data: buffer.data };
    d.push(1, store.encode(0, 1)).unwrap();
    let sent = submit(&mut d, &["lost"]);
    let all = collect(&mut d, 2, SHORT);
    assert_eq!((cids(&all), all[0].status()), (sent, Status::SUCCESS));
}

#[test]
fn completions_overtake_each_other() {
    let mut d = bad("reorder behind=2 within=10s key=a");
    let sent = submit(&mut d, &["a", "b", "c", "d"]);
    assert_eq!(cids(&collect(&mut d, 4, LIMIT)), [sent[1], sent[2], sent[0], sent[3]]);
    // Where nothing overtakes it, it comes in the end.
    set(&mut d, "reorder within=40ms");
    let (start, sent) = (Instant::now(), submit(&mut d, &["a"]));
    assert_eq!(cids(&collect(&mut d, 1, LIMIT)), sent);
    assert!(start.elapsed() >= Duration::from_millis(40));
}

#[test]
fn completions_are_posted_several_times_and_never_over_others() {
    let mut d = ready(Config::default(), 1);
    d.create(2, 4);
    set(&mut d, "duplicate times=5 queue=2");
    let first = d.push(2, exist("a")).unwrap();
    let second = d.push(2, exist("b")).unwrap();
    d.ring(2);
    let mut seen = Vec::new();
    let end = Instant::now() + LIMIT;
    while seen.len() < 12 && Instant::now() < end {
        (0..3).for_each(|_| d.bus.work());
        let cqe = d.take(2).unwrap();
        assert_eq!((cqe.status(), cqe.sqid.get()), (Status::KEY_NOT_FOUND, 2));
        seen.push(cqe.cid.get());
    }
    assert_eq!(seen, [[first; 6], [second; 6]].concat());
    d.bus.work();
    assert_eq!(d.take(2), None);
}

#[test]
fn each_field_of_a_completion_can_be_wrong() {
    let run = |script: &str| {
        let mut d = bad(script);
        let cid = submit(&mut d, &["a"])[0];
        d.bus.work();
        (d.next_entry(1), cid)
    };
    let (right, cid) = run("");
    assert_eq!((right.cid.get(), right.sqid.get(), right.sqhd.get(), right.phase()), (cid, 1, 1, true));
    for (script, wrong) in [
        ("cid 0xffff", Cqe { cid: 0xffff.into(), ..right }),
        ("cid +3", Cqe { cid: (cid + 3).into(), ..right }),
        ("sqid 9", Cqe { sqid: 9.into(), ..right }),
        ("sqhead 0xffff", Cqe { sqhd: 0xffff.into(), ..right }),
        ("dw0", Cqe { dw0: u32::MAX.into(), ..right }),
        ("phase", right.with_phase(false)),
        ("cid 7\nsqid -1", Cqe { cid: 7.into(), sqid: 0.into(), ..right }),
    ] {
        assert_eq!(run(script).0, wrong, "{script}");
    }
}

#[test]
fn errors_by_operation_and_key_instead_of_the_command() {
    let mut d = bad("error capacity-exceeded op=store prefix=full\nerror 0x7c1 op=exist key=odd");
    assert_eq!(d.store(1, &key("full.1"), b"value", Condition::Always), Err(Status::CAPACITY_EXCEEDED));
    assert_eq!(d.store(1, &key("room"), b"value", Condition::Always), Ok(0));
    assert_eq!(d.execute(1, exist("full.1")), Err(Status::KEY_NOT_FOUND));
    assert_eq!(d.execute(1, exist("odd")), Err(Status::from_bits(0x7c1)));
    set(&mut d, "error internal-error op=identify count=1");
    assert_eq!(d.identify(cns::CONTROLLER, 0, 0), Err(Status::INTERNAL_ERROR));
    assert!(d.identify(cns::CONTROLLER, 0, 0).is_ok());
}

#[test]
fn a_fatal_controller_does_nothing_until_it_is_reset() {
    let mut d = bad("fatal after=2 count=1");
    let sent = submit(&mut d, &["a", "b", "c", "d"]);
    assert_eq!(cids(&collect(&mut d, 4, SHORT)), sent[..2]);
    assert_eq!((d.csts().cfs(), d.csts().rdy()), (1, 1));
    d.disable();
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.execute(1, exist("a")), Err(Status::KEY_NOT_FOUND));
    set(&mut d, "fatal now");
    assert_eq!(d.csts().cfs(), 1);
}

#[test]
fn ready_does_not_follow_enable() {
    let mut d = plug(Config::default(), 1);
    set(&mut d, "never-ready count=1\nstay-ready count=1");
    d.enable(16);
    assert_eq!(d.csts(), Csts(0));
    d.set_register(offset::CC, 0);
    assert_eq!(d.csts(), Csts(1), "for the first time now that it should not be");
    d.enable(16);
    d.create(1, 16);
    d.disable();
    // Until the faults end.
    for (script, enabled, wrong) in [("never-ready", 1, 0), ("stay-ready", 0, 1)] {
        d.enable(16);
        set(&mut d, script);
        d.set_register(offset::CC, 0);
        d.set_register(offset::CC, Cc::KV_ENABLE.with_en(enabled).0);
        assert_eq!(d.csts(), Csts(wrong), "{script}");
        d.bus.controller.clear_faults();
        assert_eq!(d.csts(), Csts(enabled), "{script}");
    }
}

#[test]
fn identify_and_limits_are_garbage() {
    let mut d = bad(
        "identify 77 0xff cns=1 count=1\nidentify 0 random:4096 cns=5 after=1\nlimit mqes 0\nlimit kvvml max",
    );
    assert_eq!(d.cap().mqes(), 0);
    let mdts = |d: &mut Driver<Local>| d.identify(cns::CONTROLLER, 0, 0).unwrap()[77];
    assert_eq!((mdts(&mut d), mdts(&mut d)), (0xff, 0));
    let mut namespace = || d.identify(cns::CSI_NAMESPACE, 1, csi::KV).unwrap();
    let (right, garbage) = (namespace(), namespace());
    let (_, format) = identify::KvNamespace::ref_from_bytes(&right).unwrap().format().unwrap();
    assert_eq!((format.kvvml.get(), format.kvkml.get()), (u32::MAX, 16));
    assert!(garbage.iter().filter(|byte| **byte == 0).count() < 100);
    d.bus.controller.clear_faults();
    assert_eq!(d.cap().max_queue_entries(), 1024);
}

#[test]
fn a_controller_that_vanished_reads_as_ones_and_comes_back_as_after_power_on() {
    let mut d = bad("vanish after=1 count=1 back=500ms");
    assert_eq!(d.store(1, &key("a"), b"kept", Condition::Always), Ok(0));
    submit(&mut d, &["a"]);
    d.bus.work();
    assert_eq!((d.csts(), d.cap().0), (Csts::ABSENT, u64::MAX));
    d.set_register(offset::CC, Cc::KV_ENABLE.0);
    d.bus.controller.reset();
    assert!(d.csts().is_absent() && d.bus.controller.is_absent() && d.take(1).is_none());
    let end = Instant::now() + LIMIT;
    while d.csts().is_absent() {
        assert!(Instant::now() < end);
        d.bus.work();
    }
    assert_eq!((d.csts(), d.register(offset::AQA)), (Csts(0), 0));
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.retrieve(1, &key("a"), 4), Ok((b"kept".to_vec(), 4)));
    // For good, until the faults end.
    set(&mut d, "vanish now");
    d.bus.work();
    assert!(d.csts().is_absent());
    d.bus.controller.clear_faults();
    assert_eq!(d.csts(), Csts(0));
}

#[test]
fn slow_data_moves_late() {
    let mut d = ready(Config::default(), 4);
    let value = pattern(1 << 20, 5);
    assert_eq!(d.store(1, &key("large"), &value, Condition::Always), Ok(0));
    set(&mut d, "slow 10M/s");
    let buffer = d.buffer(1 << 20);
    let options = RetrieveOptions::default();
    let retrieve = Command::Retrieve { key: key("large"), len: 1 << 20, options, data: buffer.data };
    let start = Instant::now();
    d.push(1, retrieve.encode(0, 1)).unwrap();
    let quick = submit(&mut d, &["large"]);
    assert_eq!(cids(&collect(&mut d, 1, LIMIT)), quick);
    assert_eq!(d.content(&buffer, 1 << 20), vec![0; 1 << 20]);
    let late = collect(&mut d, 1, LIMIT);
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!((late[0].status(), late[0].dw0.get()), (Status::SUCCESS, 1 << 20));
    assert_eq!(d.content(&buffer, 1 << 20), value);
}

#[test]
fn a_torn_completion_has_its_status_first() {
    let mut d = bad("torn 30ms");
    let cid = submit(&mut d, &["a"])[0];
    d.bus.work();
    let torn = d.next_entry(1);
    assert_eq!((torn.phase(), torn.cid.get(), torn.status()), (true, cid, Status::KEY_NOT_FOUND));
    assert_eq!((torn.sqid.get(), torn.sqhd.get()), (0, 0), "not there yet");
    let end = Instant::now() + LIMIT;
    while d.next_entry(1).sqid.get() == 0 {
        assert!(Instant::now() < end);
        d.bus.work();
    }
    assert_eq!((d.next_entry(1).sqid.get(), d.next_entry(1).sqhd.get()), (1, 1));
    // An entry that is used again is not spoiled by the rest of the one before.
    set(&mut d, "torn 3600s");
    assert_eq!(cids(&collect(&mut d, 1, LIMIT)), [cid]);
    for round in 0..40 {
        let cid = submit(&mut d, &["a"]);
        assert_eq!(cids(&collect(&mut d, 1, LIMIT)), cid, "{round}");
    }
}

#[test]
fn the_same_seed_gives_the_same_sequence() {
    let run = |seed: u64| {
        let mut d = bad(&format!("seed {seed}\ndrop chance=40%\ndw0 random chance=0.5"));
        let mut seen = Vec::new();
        for _ in 0..30 {
            let sent = submit(&mut d, &["a", "b"]);
            d.bus.work();
            let all = [d.take(1), d.take(1)];
            seen.push(all.map(|cqe| cqe.map(|cqe| (cqe.cid.get().wrapping_sub(sent[0]), cqe.dw0.get()))));
        }
        seen
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn clearing_ends_it() {
    let mut d = bad("delay 3600s key=late\ndrop key=lost\nslow 1/s op=list\ntorn 3600s key=torn\nduplicate times=1000 key=copy");
    let sent = submit(&mut d, &["late", "lost", "torn"]);
    let data = d.buffer(4096).data;
    let list = d.push(1, Command::List { start: None, len: 4096, data }.encode(0, 1)).unwrap();
    let copy = submit(&mut d, &["copy"])[0];
    d.bus.work();
    assert_eq!(cids(&[d.take(1).unwrap(), d.take(1).unwrap()]), [sent[2], copy]);
    let (seed, rules) = d.bus.controller.faults().unwrap();
    let counts: Vec<_> = rules.iter().map(|rule| (rule.line, rule.met, rule.done)).collect();
    assert_eq!((seed, counts), (0, (1..=5).map(|line| (line, 1, 1)).collect()));
    d.bus.controller.clear_faults();
    assert_eq!(d.bus.controller.faults(), None);
    let rest = cids(&collect(&mut d, 1000, SHORT));
    let copies = rest.iter().filter(|cid| **cid == copy).count();
    assert!(rest.contains(&sent[0]) && rest.contains(&list) && copies < 1000, "{rest:?}");
    assert!(!rest.contains(&sent[1]));
    for _ in 0..40 {
        assert_eq!(d.execute(1, exist("late")), Err(Status::KEY_NOT_FOUND));
    }
    assert!(d.bus.controller.faults().is_none());
}

#[test]
fn what_waits_dies_with_its_queue() {
    let mut d = bad("delay 40ms\nslow 100/s op=retrieve\ntorn key=torn");
    submit(&mut d, &["a", "b", "torn"]);
    d.bus.work();
    assert_eq!(d.admin(admin::Command::DeleteSq { qid: 1 }), Ok(0));
    assert_eq!(d.admin(admin::Command::DeleteCq { qid: 1 }), Ok(0));
    d.create(1, 4);
    assert!(collect(&mut d, 1, Duration::from_millis(80)).is_empty());
    let sent = submit(&mut d, &["c", "d", "e"]);
    assert_eq!(cids(&collect(&mut d, 3, LIMIT)), sent);
    submit(&mut d, &["a"]);
    d.bus.work();
    d.disable();
    d.enable(16);
    d.create(1, 16);
    assert!(collect(&mut d, 1, Duration::from_millis(80)).is_empty());
}

#[test]
fn event_requests_and_log_pages_meet_rules_too() {
    let mut d = bad("dw0 0x55 op=async-event\ndelay 20ms op=abort\nslow 4096/s op=get-log-page");
    let event = d.push(0, admin::Command::AsyncEvent.encode(0)).unwrap();
    let abort = d.push(0, admin::Command::Abort { sqid: 0, cid: event }.encode(0)).unwrap();
    let start = Instant::now();
    d.ring(0);
    let (first, second) = (d.wait(0), d.wait(0));
    assert_eq!((first.cid.get(), first.dw0.get()), (event, 0x55));
    assert_eq!((first.status(), second.cid.get()), (Status::ABORT_REQUESTED, abort));
    assert!(start.elapsed() >= Duration::from_millis(20));
    let data = d.buffer(512).data;
    let page = GetLogPage { lid: 2, numd: 127, data, ..GetLogPage::default() };
    let start = Instant::now();
    assert_eq!(d.admin(admin::Command::GetLogPage(page)), Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(125));
}

#[test]
fn nothing_fails_in_a_storm() {
    let mut d = bad("seed 9\ndelay 1ms chance=0.3\nreorder within=2ms chance=0.3\nduplicate chance=0.2\ntorn 1ms chance=0.2\n\
                     cid random chance=0.1\nsqid random chance=0.1\nsqhead random chance=0.1\ndrop chance=0.1\n\
                     error internal-error chance=0.1\nslow 1M/s chance=0.5");
    let buffer = d.buffer(4096);
    let options = RetrieveOptions::default();
    let retrieve = Command::Retrieve { key: key("x"), len: 4096, options, data: buffer.data };
    for round in 0..2000 {
        if d.push(1, if round % 2 == 0 { exist("y") } else { retrieve.encode(0, 1) }).is_none() {
            // Heads were wrong or completions were lost: as a host would, by a new queue.
            d.admin(admin::Command::DeleteSq { qid: 1 }).unwrap();
            d.admin(admin::Command::DeleteCq { qid: 1 }).unwrap();
            d.allocate_from(2 << 20);
            d.create(1, 16);
        }
        d.ring(1);
        d.bus.work();
        d.take(1);
    }
    assert_eq!(d.csts(), Csts(1));
    d.bus.controller.clear_faults();
    collect(&mut d, 64, SHORT);
    d.admin(admin::Command::DeleteSq { qid: 1 }).unwrap();
    d.admin(admin::Command::DeleteCq { qid: 1 }).unwrap();
    d.create(1, 16);
    assert_eq!(d.execute(1, exist("y")), Err(Status::KEY_NOT_FOUND));
}

#[test]
fn the_script_of_the_book_is_one() {
    let book = include_str!("../../../docs/src/target.md");
    let (_, script) = book.split_once("```text\nseed 42").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let mut d = bad(&format!("seed 42{script}"));
    let (seed, rules) = d.bus.controller.faults().unwrap();
    assert_eq!((seed, rules.len()), (42, 7));
    assert!(d.identify(cns::CONTROLLER, 0, 0).is_ok_and(|data| data[77] == 0xff));
}
