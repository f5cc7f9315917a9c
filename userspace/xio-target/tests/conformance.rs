// SPDX-License-Identifier: MIT OR Apache-2.0
//! Optional parts of the specification that are there, and refusals of those that are not.

mod common;

use common::key;
use common::local::{plug_stores, ready, small, Local};
use common::{Bus, Driver};
use nvme_kv::admin::{feature, Command, CreateCq, CreateSq, Feature, GetLogPage};
use nvme_kv::kv::{self, Condition};
use nvme_kv::{log, DataPointer, Sqe, Status};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use xio_target::store::{Later, MemStore, Promise, Request, Store};
use xio_target::{Config, NamespaceConfig};
use zerocopy::FromBytes;

fn set(d: &mut Driver<Local>, fid: u8, nsid: u32, value: u32) -> Result<u32, Status> {
    d.admin(Command::SetFeatures(Feature { fid, nsid, value, ..Feature::default() }))
}

fn get(d: &mut Driver<Local>, fid: u8, nsid: u32) -> Result<u32, Status> {
    d.admin(Command::GetFeatures(Feature { fid, nsid, ..Feature::default() }))
}

fn page(d: &mut Driver<Local>, lid: u8, nsid: u32, len: usize) -> Result<Vec<u8>, Status> {
    let data = DataPointer { prp1: d.alloc(1), prp2: 0 };
    let numd = len as u32 / 4 - 1;
    d.admin(Command::GetLogPage(GetLogPage { lid, nsid, numd, data, ..GetLogPage::default() }))?;
    let mut bytes = vec![0; len];
    d.bus.peek(data.prp1, &mut bytes);
    Ok(bytes)
}

fn delete(name: &str, nsid: u32) -> Sqe {
    kv::Command::Delete { key: key(name) }.encode(0, nsid)
}

#[test]
fn spec_base_8_2_6_doorbells_in_memory() {
    let mut d = ready(Config { dstrd: 1, ..Config::default() }, 4);
    assert_eq!(d.store(1, &key("a"), &[1; 100], Condition::Always), Ok(0));
    let (values, events) = (d.alloc(1), d.alloc(1));
    let config = |prp1, prp2| Command::DoorbellBuffers(DataPointer { prp1, prp2 });
    assert_eq!(d.admin(config(values + 4, events)), Err(Status::INVALID_FIELD));
    assert_eq!(d.admin(config(1 << 40, events)), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(d.admin(config(values, events)), Ok(0));
    // Of the queue that is there, what it was.
    let word = |d: &Driver<Local>, addr| {
        let mut bytes = [0; 4];
        d.bus.peek(addr, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    assert_eq!((word(&d, values + 16), word(&d, values + 24)), (1, 1));
    // The register alone has no effect on an I/O queue, the memory has.
    d.push(1, delete("a", 1)).unwrap();
    d.ring(1);
    assert_eq!(d.bus.controller.poll(), 0);
    d.bus.poke(values + 16, &2u32.to_le_bytes());
    assert_eq!(d.bus.controller.poll(), 1);
    assert_eq!(d.pop(1).unwrap().status(), Status::SUCCESS);
    assert_eq!(d.bus.controller.poll(), 0);
    assert_eq!(word(&d, events + 16), 2);
    // The admin queue keeps its registers; a new queue starts at zero.
    d.bus.poke(values + 32, &99u32.to_le_bytes());
    let base = d.alloc(2);
    let cq = CreateCq { qid: 2, entries: 16, contiguous: true, base, vector: None };
    let sq = CreateSq { qid: 2, entries: 16, contiguous: true, base: base + 4096, priority: 0, cqid: 2 };
    assert_eq!(d.admin(Command::CreateCq(cq)), Ok(0));
    assert_eq!(d.admin(Command::CreateSq(sq)), Ok(0));
    assert_eq!(word(&d, values + 32), 0);
    // A reset ends it.
    d.disable();
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.execute(1, delete("a", 1)), Err(Status::KEY_NOT_FOUND));
}

#[test]
fn spec_base_5_1_25_interrupts_are_coalesced() {
    let mut d = ready(Config::default(), 4);
    let raised = |d: &Driver<Local>| d.bus.host.interrupts[1].load(Ordering::Relaxed);
    let fire = |d: &mut Driver<Local>, n: usize| {
        for _ in 0..n {
            d.push(1, delete("a", 1)).unwrap();
            d.ring(1);
            d.bus.controller.poll();
        }
        for _ in 0..n {
            d.pop(1).unwrap();
        }
        d.ring_head(1);
    };
    fire(&mut d, 3);
    assert_eq!(raised(&d), 3);
    // Four completions, or 25 ms.
    assert_eq!(set(&mut d, feature::INTERRUPT_COALESCING, 0, 0xfa03), Ok(0));
    // On a busy machine it may take longer than that to ask.
    for _ in 0..50 {
        let (start, before) = (Instant::now(), raised(&d));
        fire(&mut d, 8);
        fire(&mut d, 1);
        let after = raised(&d);
        if start.elapsed() < Duration::from_millis(20) {
            assert_eq!(after - before, 2);
            break;
        }
    }
    let before = raised(&d);
    std::thread::sleep(Duration::from_millis(26));
    d.bus.controller.poll();
    assert_eq!(d.bus.controller.poll(), 0);
    assert!(raised(&d) > 3 && raised(&d) <= before + 1);
    // Not for a vector that does not want it.
    assert_eq!(set(&mut d, feature::INTERRUPT_VECTOR, 0, 1 << 16 | 1), Ok(0));
    let before = raised(&d);
    fire(&mut d, 2);
    assert_eq!(raised(&d), before + 2);
}

#[test]
fn spec_kv_4_1_4_a_delete_of_nothing_fails_only_if_it_is_to() {
    let namespaces = vec![NamespaceConfig::default(); 2];
    let mut d = ready(Config { namespaces, ..Config::default() }, 4);
    assert_eq!(get(&mut d, feature::KEY_VALUE, 1), Ok(1));
    assert_eq!(set(&mut d, feature::KEY_VALUE, 1, 0), Ok(0));
    assert_eq!((get(&mut d, feature::KEY_VALUE, 1), get(&mut d, feature::KEY_VALUE, 2)), (Ok(0), Ok(1)));
    assert_eq!(d.execute(1, delete("none", 1)), Ok(0));
    assert_eq!(d.execute(1, delete("none", 2)), Err(Status::KEY_NOT_FOUND));
    assert_eq!(set(&mut d, feature::KEY_VALUE, u32::MAX, 0), Ok(0));
    assert_eq!(d.execute(1, delete("none", 2)), Ok(0));
    for nsid in [0, 3] {
        assert_eq!(set(&mut d, feature::KEY_VALUE, nsid, 0), Err(Status::INVALID_NAMESPACE));
        assert_eq!(get(&mut d, feature::KEY_VALUE, nsid), Err(Status::INVALID_NAMESPACE));
    }
    // Other features are the controller's.
    let error = Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
    assert_eq!(set(&mut d, feature::ARBITRATION, 1, 0), error);
    assert_eq!(set(&mut d, feature::ARBITRATION, u32::MAX, 3), Ok(0));
    d.disable();
    d.enable(16);
    assert_eq!((get(&mut d, feature::KEY_VALUE, 1), get(&mut d, feature::ARBITRATION, 0)), (Ok(1), Ok(0)));
}

#[test]
fn spec_base_5_1_12_log_pages_that_are_supported_can_be_read() {
    let mut d = ready(Config::default(), 4);
    let supported = page(&mut d, log::id::SUPPORTED, 0, 1024).unwrap();
    for lid in 0..=255u8 {
        let listed = supported[usize::from(lid) * 4] & 1 == 1;
        let read = page(&mut d, lid, 0, 512);
        assert_eq!(read.is_ok(), listed, "log page {lid:#x}");
        if !listed {
            assert_eq!(read, Err(Status::INVALID_LOG_PAGE));
        }
    }
    let features = page(&mut d, log::id::FEATURES, 0, 1024).unwrap();
    for fid in 0..=255u8 {
        let listed = features[usize::from(fid) * 4] & 1 == 1;
        assert_eq!(get(&mut d, fid, 1).is_ok(), listed, "feature {fid:#x}");
    }
    assert_eq!(page(&mut d, log::id::SMART, 1, 512), Err(Status::INVALID_FIELD));
    assert!(page(&mut d, log::id::SMART, u32::MAX, 512).is_ok());
    // Errors that are nobody's mistake are counted and logged.
    let nowhere = DataPointer { prp1: 1 << 40, prp2: 0 };
    let list = kv::Command::List { start: None, len: 4096, data: nowhere };
    assert_eq!(d.kv(1, list), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(d.execute(1, delete("none", 1)), Err(Status::KEY_NOT_FOUND));
    let smart = log::Smart::read_from_bytes(&page(&mut d, log::id::SMART, 0, 512).unwrap()).unwrap();
    assert_eq!(u128::from_le_bytes(smart.counters[9]), 1);
    let errors = page(&mut d, log::id::ERROR, 0, 64).unwrap();
    let entry = log::ErrorEntry::read_from_bytes(&errors).unwrap();
    assert_eq!((entry.count.get(), entry.sqid.get(), entry.status.get()), (1, 1, 0x04 << 1));
}

#[test]
fn what_is_not_offered_is_refused() {
    let mut d = ready(Config::default(), 4);
    // A reserved kind of pointer, fused operations: FUSES is zero.
    for flags in [0xc0, 0x01, 0x02] {
        let sqe = Sqe { flags, ..delete("a", 1) };
        assert_eq!(d.execute(1, sqe), Err(Status::INVALID_FIELD), "{flags:#x}");
    }
    for opcode in [0x0d, 0x10, 0x11, 0x14, 0x15, 0x18, 0x19, 0x1a, 0x80, 0x81, 0x82, 0x84, 0xc0] {
        assert_eq!(d.execute(0, Sqe::new(opcode, 0, 0)), Err(Status::INVALID_OPCODE), "admin {opcode:#x}");
    }
    for opcode in [0x04, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x83] {
        assert_eq!(d.execute(1, Sqe::new(opcode, 0, 1)), Err(Status::INVALID_OPCODE), "I/O {opcode:#x}");
    }
}

/// A store that answers in the order and at the moments of a test.
#[derive(Default)]
struct Random {
    asked: Mutex<Vec<(Request, Promise)>>,
}

impl Store for Random {
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

#[test]
fn spec_base_3_7_a_reset_in_the_middle_of_anything() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut below = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let slow = Arc::new(Random::default());
    let config = Config { namespaces: vec![NamespaceConfig::default(); 2], ..Config::default() };
    let mut d = plug_stores(config, 64, |nsid, config| match nsid {
        1 => slow.clone(),
        _ => Arc::new(MemStore::new(config)),
    });
    let floor = d.alloc(1);
    for _ in 0..400 {
        d.allocate_from(floor);
        d.enable(8);
        d.create(1, 8);
        d.create(2, 8);
        let buffer = d.buffer(20_000);
        for _ in 0..below(40) {
            let (qid, nsid) = (1 + below(2) as u16, 1 + below(2) as u32);
            match below(8) {
                0..=3 => {
                    let (key, len, data) = (key(&below(9).to_string()), 20_000, buffer.data);
                    let command = match below(3) {
                        0 => kv::Command::Store { key, len, options: Default::default(), data },
                        1 => kv::Command::Retrieve { key, len, options: Default::default(), data },
                        _ => kv::Command::Delete { key },
                    };
                    if d.push(qid, command.encode(0, nsid)).is_some() {
                        d.ring(qid);
                    }
                }
                4 => {
                    let mut asked = slow.asked.lock().unwrap();
                    if !asked.is_empty() {
                        let n = below(asked.len() as u64) as usize;
                        asked.remove(n).1.answer(Err(Status::KEY_NOT_FOUND));
                    }
                }
                5 => {
                    let doorbell = d.doorbell_of(qid);
                    d.bus.ring(doorbell, below(1 << 20) as u32);
                }
                6 => {
                    d.bus.controller.poll();
                }
                _ => {
                    if d.pop(qid).is_some() {
                        d.ring_head(qid);
                    }
                }
            }
        }
        match below(3) {
            0 => d.disable(),
            1 => d.bus.controller.reset(),
            _ => drop(d.bus.controller.poll()),
        }
        d.set_register(nvme_kv::regs::offset::CC, 0);
    }
    slow.asked.lock().unwrap().clear();
    d.allocate_from(floor);
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.bus.controller.statistics().under_way, 0);
    let k =
        kv::Command::Store { key: key("end"), len: 10, options: Default::default(), data: d.buffer(10).data };
    assert_eq!(d.execute(1, k.encode(0, 2)), Ok(0));
    // Nothing of the old time is left in another controller of the same store either.
    let mut other = ready(small(NamespaceConfig::default()), 4);
    assert_eq!(other.execute(1, delete("end", 1)), Err(Status::KEY_NOT_FOUND));
}
