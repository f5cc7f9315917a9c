// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller driven through its registers and queues, in this process.

mod common;

use common::{key, pattern, Bus, Driver};
use nvme_kv::admin::{
    feature, Command, CreateCq, CreateSq, Feature, GetLogPage, NumberOfQueues, NOT_ABORTED,
};
use nvme_kv::identify::{self, cns, nidt};
use nvme_kv::kv::{self, Condition};
use nvme_kv::regs::{offset, Cc, Csts};
use nvme_kv::{csi, list, log, Cqe, DataPointer, Key, Sqe, Status, PAGE_SIZE};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use xio_target::host::{DmaFault, Doorbells, Host, HostMemory, Interrupts};
use xio_target::{CommandSets, Config, Controller, NamespaceConfig};
use zerocopy::{FromBytes, IntoBytes};

struct TestHost {
    memory: Mutex<Vec<u8>>,
    /// Addresses that only the host may write.
    read_only: Mutex<Range<u64>>,
    doorbells: Vec<AtomicU32>,
    interrupts: Vec<AtomicU32>,
}

impl TestHost {
    fn range(&self, addr: u64, len: usize, write: bool) -> Result<Range<usize>, DmaFault> {
        let fault = DmaFault { addr, len, write };
        let end = addr.checked_add(len as u64).ok_or(fault)?;
        let protected = self.read_only.lock().unwrap();
        if end > self.memory.lock().unwrap().len() as u64
            || write && addr < protected.end && end > protected.start
        {
            return Err(fault);
        }
        Ok(addr as usize..end as usize)
    }
}

impl HostMemory for TestHost {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let range = self.range(addr, to.len(), false)?;
        to.copy_from_slice(&self.memory.lock().unwrap()[range]);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        let range = self.range(addr, from.len(), true)?;
        self.memory.lock().unwrap()[range].copy_from_slice(from);
        Ok(())
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        self.write(addr, cqe.as_bytes())
    }
}

impl Doorbells for TestHost {
    fn load(&self, offset: usize) -> u32 {
        self.doorbells[(offset - offset::DOORBELLS) / 4].load(Ordering::Acquire)
    }

    fn clear(&self, offset: usize) {
        self.doorbells[(offset - offset::DOORBELLS) / 4].store(0, Ordering::Release);
    }
}

impl Interrupts for TestHost {
    fn raise(&self, vector: u16) {
        self.interrupts[usize::from(vector)].fetch_add(1, Ordering::Relaxed);
    }
}

struct Local {
    controller: Controller,
    host: Arc<TestHost>,
}

impl Bus for Local {
    fn read_register(&mut self, offset: usize, to: &mut [u8]) {
        self.controller.read_register(offset, to);
    }
    fn write_register(&mut self, offset: usize, from: &[u8]) {
        self.controller.write_register(offset, from);
    }
    fn ring(&mut self, offset: usize, value: u32) {
        self.host.doorbells[(offset - offset::DOORBELLS) / 4].store(value, Ordering::Release);
    }
    fn peek(&self, addr: u64, to: &mut [u8]) {
        self.host.read(addr, to).unwrap();
    }
    fn poke(&mut self, addr: u64, from: &[u8]) {
        let at = addr as usize;
        self.host.memory.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
    }
    fn work(&mut self) {
        self.controller.poll();
    }
}

/// A controller with `mib` MiB of host memory.
fn plug(config: Config, mib: usize) -> Driver<Local> {
    let doorbells = (config.bar_len() - offset::DOORBELLS).div_ceil(4);
    let host = Arc::new(TestHost {
        memory: Mutex::new(vec![0; mib << 20]),
        read_only: Mutex::new(0..0),
        doorbells: (0..doorbells).map(|_| AtomicU32::new(0)).collect(),
        interrupts: (0..config.vectors()).map(|_| AtomicU32::new(0)).collect(),
    });
    let parts = Host { memory: host.clone(), doorbells: host.clone(), interrupts: host.clone() };
    let controller = Controller::new(config, parts).unwrap();
    Driver::new(Local { controller, host }, PAGE_SIZE as u64)
}

/// Enabled, with I/O queue 1.
fn ready(config: Config, mib: usize) -> Driver<Local> {
    let mut d = plug(config, mib);
    d.enable(16);
    d.create(1, 16);
    d
}

fn small(namespace: NamespaceConfig) -> Config {
    Config { namespaces: vec![namespace], ..Config::default() }
}

#[test]
fn spec_base_3_5_enable_reset_and_shutdown() {
    let mut d = plug(Config { dstrd: 3, ..Config::default() }, 1);
    let cap = d.cap();
    assert_eq!((cap.max_queue_entries(), cap.dstrd(), cap.cqr()), (1024, 3, 0));
    assert!(cap.has_io_command_sets() && cap.css() & 1 == 0);
    assert_eq!(d.register(offset::VS), 0x0002_0100);
    assert_eq!(d.csts(), Csts(0));
    d.enable(2);
    assert_eq!(d.csts(), Csts(1));
    // Queue registers do not change while enabled.
    let aqa = d.register(offset::AQA);
    d.set_register(offset::AQA, 0);
    assert_eq!(d.register(offset::AQA), aqa);
    assert!(d.identify(cns::CONTROLLER, 0, 0).is_ok());
    d.set_register(offset::CC, Cc::KV_ENABLE.with_shn(Cc::SHN_NORMAL).0);
    assert_eq!((d.csts().rdy(), d.csts().shst()), (1, Csts::SHST_COMPLETE));
    d.disable();
    assert_eq!(d.register(offset::AQA), aqa);
    d.bus.controller.reset();
    assert_eq!(d.register(offset::AQA), 0);
    d.enable(4);
    d.create(31, 1024);
    assert_eq!(d.store(31, &key("k"), b"after reset", Condition::Always), Ok(0));
}

#[test]
fn spec_base_3_1_4_5_what_can_not_be_enabled_is_fatal() {
    let enable = |d: &mut Driver<Local>, cc: Cc| {
        d.disable();
        d.set_register(offset::CC, cc.0);
        (d.csts().rdy(), d.csts().cfs())
    };
    let mut d = plug(Config::default(), 1);
    // Admin queues of one entry.
    assert_eq!(enable(&mut d, Cc::KV_ENABLE), (0, 1));
    d.disable();
    d.set_register(offset::AQA, 0x0003_0003);
    assert_eq!(enable(&mut d, Cc::KV_ENABLE), (1, 0));
    assert_eq!(enable(&mut d, Cc::KV_ENABLE.with_css(Cc::CSS_NVM)), (0, 1));
    assert_eq!(enable(&mut d, Cc::KV_ENABLE.with_mps(1)), (0, 1));
    // Register accesses of odd size or place do nothing.
    d.disable();
    d.bus.write_register(offset::CC, &[1]);
    d.bus.write_register(offset::CC + 1, &[1, 0, 0, 0]);
    d.bus.write_register(0xffc, &[1; 8]);
    assert_eq!((d.csts().0, d.register(0xffc)), (0, 0));
}

#[test]
fn linux_finds_what_it_asks_for() {
    let mut d = ready(Config { namespaces: vec![NamespaceConfig::default(); 3], ..Config::default() }, 1);
    let bytes = d.identify(cns::CONTROLLER, 0, 0).unwrap();
    let (c, _) = identify::Controller::read_from_prefix(&bytes).unwrap();
    assert_eq!((c.nn.get(), c.cntrltype, c.sqes, c.cqes, c.mdts), (3, 1, 0x66, 0x44, 0));
    assert!(c.subnqn.starts_with(b"nqn.2014-08.org.nvmexpress:uuid:"));
    let list = |d: &mut Driver<Local>, cns, after, csi| {
        let bytes = d.identify(cns, after, csi).unwrap();
        identify::NamespaceList::read_from_bytes(&bytes).unwrap().iter().collect::<Vec<_>>()
    };
    assert_eq!(list(&mut d, cns::ACTIVE_NAMESPACES, 0, 0), [1, 2, 3]);
    assert_eq!(list(&mut d, cns::ACTIVE_NAMESPACES, 2, 0), [3]);
    assert_eq!(list(&mut d, cns::CSI_ACTIVE_NAMESPACES, 0, csi::KV), [1, 2, 3]);
    assert_eq!(list(&mut d, cns::CSI_ACTIVE_NAMESPACES, 0, csi::NVM), [0u32; 0]);
    assert_eq!(d.identify(cns::ACTIVE_NAMESPACES, u32::MAX, 0), Err(Status::INVALID_NAMESPACE));
    let descriptors = |d: &mut Driver<Local>, nsid| d.identify(cns::DESCRIPTORS, nsid, 0).unwrap();
    let (one, two) = (descriptors(&mut d, 1), descriptors(&mut d, 2));
    assert_ne!(one, two);
    let all: Vec<_> = identify::descriptors(&one).collect();
    assert_eq!((all[0].0, all[1]), (nidt::UUID, (nidt::CSI, &[csi::KV][..])));
    let bytes = d.identify(cns::CSI_NAMESPACE, 3, csi::KV).unwrap();
    let ns = identify::KvNamespace::read_from_bytes(&bytes).unwrap();
    let (_, format) = ns.format().unwrap();
    assert_eq!((ns.nsze.get(), format.kvkml.get(), format.kvvml.get()), (1 << 30, 16, 64 << 20));
    assert_eq!(d.identify(cns::INDEPENDENT_NAMESPACE, 1, 0).unwrap()[14], 1);
    assert!(d.identify(cns::CSI_CONTROLLER, 0, csi::KV).is_ok());
    assert_eq!(d.identify(cns::CSI_CONTROLLER, 0, csi::NVM), Err(Status::INVALID_FIELD));
    let bytes = d.identify(cns::COMMAND_SETS, 0xffff_ffff, 0);
    assert_eq!(bytes, Err(Status::INVALID_FIELD), "controller 0 is not this one");
    for nsid in [0, 4, u32::MAX] {
        assert_eq!(d.identify(cns::CSI_NAMESPACE, nsid, csi::KV), Err(Status::INVALID_NAMESPACE));
    }
}

#[test]
fn effects_let_users_without_privileges_pass() {
    let mut d = ready(Config::default(), 1);
    let addr = d.alloc(1);
    let data = DataPointer { prp1: addr, prp2: 0 };
    let get = |lid, csi, offset| GetLogPage { lid, csi, offset, numd: 1023, data, ..GetLogPage::default() };
    for (kind, store) in [(csi::NVM, 0), (csi::KV, log::CSUPP | log::LBCC)] {
        assert_eq!(d.admin(Command::GetLogPage(get(log::id::EFFECTS, kind, 0))), Ok(0));
        let mut bytes = vec![0; 4096];
        d.bus.peek(addr, &mut bytes);
        let effects = log::Effects::read_from_bytes(&bytes).unwrap();
        assert_eq!(effects.io[usize::from(kv::opcode::STORE)].get(), store);
        assert_eq!(effects.admin[usize::from(nvme_kv::admin::opcode::IDENTIFY)].get(), log::CSUPP);
    }
    for lid in 0..=5 {
        assert_eq!(d.admin(Command::GetLogPage(get(lid, 0, 0))), Ok(0));
        assert_eq!(d.admin(Command::GetLogPage(get(lid, 0, 1 << 40))), Err(Status::INVALID_FIELD));
        assert_eq!(d.admin(Command::GetLogPage(get(lid, 0, 2))), Err(Status::INVALID_FIELD));
    }
    assert_eq!(d.admin(Command::GetLogPage(get(0x70, 0, 0))), Err(Status::INVALID_LOG_PAGE));
}

#[test]
fn spec_kv_3_2_all_commands() {
    let mut d = ready(Config::default(), 4);
    let exist = |key| kv::Command::Exist { key };
    assert_eq!(d.kv(1, exist(key("a"))), Err(Status::KEY_NOT_FOUND));
    for (k, len) in [("a", 0), ("b", 1), ("c", 22), ("d", 4096), ("e", 4097), ("f", 8192), ("g", 300_001)] {
        let value = pattern(len, len as u64);
        assert_eq!(d.store(1, &key(k), &value, Condition::Always), Ok(0));
        assert_eq!(d.retrieve(1, &key(k), len.max(1)), Ok((value, len as u32)));
        assert_eq!(d.kv(1, exist(key(k))), Ok(0));
    }
    // A buffer that is too small gets what fits, and the completion tells the true length.
    assert_eq!(d.retrieve(1, &key("g"), 5000), Ok((pattern(300_001, 300_001)[..5000].to_vec(), 300_001)));
    assert_eq!(d.retrieve(1, &key("g"), 0), Ok((vec![], 300_001)));
    assert_eq!(d.store(1, &key("b"), b"x", Condition::IfAbsent), Err(Status::KEY_EXISTS));
    assert_eq!(d.store(1, &key("z"), b"x", Condition::IfExists), Err(Status::KEY_NOT_FOUND));
    assert_eq!(d.kv(1, kv::Command::Delete { key: key("c") }), Ok(0));
    assert_eq!(d.kv(1, kv::Command::Delete { key: key("c") }), Err(Status::KEY_NOT_FOUND));
    assert_eq!(d.kv(1, kv::Command::Flush), Ok(0));
    assert_eq!(d.execute(1, kv::Command::Flush.encode(0, u32::MAX)), Ok(0));
    let listed = |d: &mut Driver<Local>, start: Option<Key>, len: usize| {
        let buffer = d.buffer(len);
        assert_eq!(d.kv(1, kv::Command::List { start, len: len as u32, data: buffer.data }), Ok(0));
        let keys: Result<Vec<Key>, _> = list::Keys::new(&d.content(&buffer, len)).unwrap().collect();
        keys.unwrap().iter().map(Key::to_string).collect::<String>()
    };
    assert_eq!(listed(&mut d, None, 4096), "abdefg");
    assert_eq!(listed(&mut d, Some(key("c")), 4096), "defg");
    assert_eq!(listed(&mut d, Some(key("d")), 4 + 4 * 2), "de");
    assert_eq!(listed(&mut d, Some(key("zz")), 4), "");
}

#[test]
fn values_of_64_mib_go_through_chained_prp_lists() {
    let mut d = ready(Config::default(), 200);
    let value = pattern(64 << 20, 3);
    assert_eq!(d.store(1, &key("big"), &value, Condition::Always), Ok(0));
    assert!(d.retrieve(1, &key("big"), 64 << 20).unwrap().0 == value);
    let options = kv::StoreOptions::default();
    let over =
        kv::Command::Store { key: key("x"), len: (64 << 20) + 1, options, data: DataPointer::default() };
    assert_eq!(d.kv(1, over), Err(Status::INVALID_VALUE_SIZE));
}

#[test]
fn spec_kv_3_2_limits_of_a_namespace() {
    let limits =
        NamespaceConfig { capacity: 1000, max_value: 900, max_key: 8, max_keys: 2, read_only: false };
    let mut d = ready(Config { mdts: 1, ..small(limits.clone()) }, 1);
    assert_eq!(d.store(1, &key("123456789"), b"v", Condition::Always), Err(Status::INVALID_KEY_SIZE));
    assert_eq!(d.store(1, &key("a"), &[1; 901], Condition::Always), Err(Status::INVALID_VALUE_SIZE));
    assert_eq!(d.store(1, &key("a"), &[1; 900], Condition::Always), Ok(0));
    assert_eq!(d.store(1, &key("b"), &[1; 100], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
    assert_eq!(d.store(1, &key("b"), &[1; 98], Condition::Always), Ok(0));
    assert_eq!(d.store(1, &key("c"), &[], Condition::Always), Err(Status::CAPACITY_EXCEEDED));
    let bytes = d.identify(cns::CSI_NAMESPACE, 1, csi::KV).unwrap();
    assert_eq!(identify::KvNamespace::read_from_bytes(&bytes).unwrap().nuse.get(), 1000);
    assert!(d.retrieve(1, &key("a"), 8192).is_ok());
    assert_eq!(d.retrieve(1, &key("a"), 8193), Err(Status::INVALID_FIELD));
    let bad_namespace = kv::Command::Exist { key: key("a") }.encode(0, 2);
    assert_eq!(d.execute(1, bad_namespace), Err(Status::INVALID_NAMESPACE));
    assert_eq!(d.execute(1, Sqe::new(0x83, 0, 1)), Err(Status::INVALID_OPCODE));
    let mut d = ready(small(NamespaceConfig { read_only: true, ..limits }), 1);
    assert_eq!(d.store(1, &key("a"), b"v", Condition::Always), Err(Status::WRITE_PROTECTED));
    assert_eq!(d.kv(1, kv::Command::Delete { key: key("a") }), Err(Status::WRITE_PROTECTED));
    assert_eq!(d.kv(1, kv::Command::Exist { key: key("a") }), Err(Status::KEY_NOT_FOUND));
}

#[test]
fn clients_may_fill_reserved_fields() {
    let mut d = ready(Config::default(), 1);
    // Mooncake: block count in CDW12, metadata pointer and CDW13 in use.
    let mut sqe = kv::Command::Exist { key: key("a") }.encode(0, 1);
    (sqe.cdw10[2], sqe.cdw10[3], sqe.mptr) = (511.into(), 7.into(), 9.into());
    assert_eq!(d.execute(1, sqe), Err(Status::KEY_NOT_FOUND));
}

#[test]
fn addresses_that_are_not_allowed_are_transfer_errors() {
    let mut d = ready(Config::default(), 1);
    assert_eq!(d.store(1, &key("a"), &[7; 10000], Condition::Always), Ok(0));
    let options = kv::StoreOptions::default();
    let store = |data| kv::Command::Store { key: key("a"), len: 10000, options, data };
    let retrieve =
        |data| kv::Command::Retrieve { key: key("a"), len: 10000, options: Default::default(), data };
    let good = d.alloc(1);
    let nowhere = 1 << 40;
    for data in [
        DataPointer { prp1: nowhere, prp2: good },
        DataPointer { prp1: good, prp2: nowhere },
        DataPointer { prp1: u64::MAX - 4095, prp2: u64::MAX - 4095 },
    ] {
        assert_eq!(d.kv(1, store(data)), Err(Status::DATA_TRANSFER_ERROR));
        assert_eq!(d.kv(1, retrieve(data)), Err(Status::DATA_TRANSFER_ERROR));
    }
    assert_eq!(d.kv(1, store(DataPointer { prp1: good + 1, prp2: good })), Err(Status::PRP_OFFSET_INVALID));
    let buffer = d.buffer(10000);
    *d.bus.host.read_only.lock().unwrap() = buffer.pages[2]..buffer.pages[2] + 4096;
    assert_eq!(d.kv(1, store(buffer.data)), Ok(0));
    assert_eq!(d.kv(1, retrieve(buffer.data)), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(d.csts(), Csts(1));
}

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
    // Told once; the queue works again with a good value.
    d.bus.ring(doorbells.cq_head(1), u32::MAX);
    for _ in 0..10 {
        d.bus.work();
    }
    d.bus.ring(doorbells.cq_head(1), 0);
    assert_eq!(d.store(1, &key("a"), b"v", Condition::Always), Ok(0));
    assert_eq!(d.csts(), Csts(1));
}

#[test]
fn spec_base_5_1_1_only_event_requests_can_be_aborted() {
    let mut d = ready(Config::default(), 1);
    let event = Command::AsyncEvent.encode(0);
    let requests: Vec<u16> = (0..4).map(|_| d.push(0, event).unwrap()).collect();
    assert_eq!(d.execute(0, event), Err(Status::AER_LIMIT_EXCEEDED));
    assert_eq!(d.admin(Command::Abort { sqid: 1, cid: 7 }), Ok(NOT_ABORTED));
    assert_eq!(d.admin(Command::Abort { sqid: 0, cid: requests[1] }), Ok(0));
    let aborted = d.wait(0);
    assert_eq!((aborted.cid.get(), aborted.status()), (requests[1], Status::ABORT_REQUESTED));
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
fn controllers_without_key_value_say_so() {
    for (css, bit6, combinations) in
        [(CommandSets::Nvm, false, None), (CommandSets::NvmAndZoned, true, Some(5))]
    {
        let mut d = plug(Config { css, ..Config::default() }, 1);
        assert_eq!(d.cap().has_io_command_sets(), bit6);
        d.enable(16);
        if !bit6 {
            assert_eq!(d.csts().cfs(), 1);
            continue;
        }
        let addr = d.alloc(1);
        let data = DataPointer { prp1: addr, prp2: 0 };
        let command =
            nvme_kv::admin::Identify { cns: cns::COMMAND_SETS, cntid: 0xffff, data, ..Default::default() };
        assert_eq!(d.admin(Command::Identify(command)), Ok(0));
        let mut bytes = vec![0; 4096];
        d.bus.peek(addr, &mut bytes);
        let sets = identify::CommandSets::read_from_bytes(&bytes).unwrap();
        assert_eq!((sets.find_kv(), sets.vector.get(1).map(|v| v.get())), (None, combinations));
        let bytes = d.identify(cns::ACTIVE_NAMESPACES, 0, 0).unwrap();
        assert!(bytes.iter().all(|b| *b == 0));
    }
}
