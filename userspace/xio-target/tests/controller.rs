// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers and admin commands.

mod common;

use common::local::{plug, ready, small, Local};
use common::{key, Bus, Driver};
use nvme_kv::admin::{Command, GetLogPage, NOT_ABORTED};
use nvme_kv::identify::{self, cns, nidt};
use nvme_kv::kv::{self, Condition};
use nvme_kv::regs::{offset, Cc, Csts};
use nvme_kv::{csi, log, DataPointer, Sqe, Status};
use proptest::prelude::*;
use xio_target::{CommandSets, Config, NamespaceConfig};
use zerocopy::FromBytes;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_entries_are_taken_without_panic(entries in proptest::collection::vec((any::<[[u8; 32]; 2]>(), 0u8..0x20, any::<bool>()), 1..12)) {
        let mut d = ready(small(NamespaceConfig::default()), 1);
        for (bytes, opcode, admin) in entries {
            let mut sqe: Sqe = zerocopy::transmute!(bytes);
            // Mostly commands that exist, with pages that exist and small sizes.
            sqe.opcode = opcode;
            sqe.flags = 0;
            sqe.nsid = 1.into();
            sqe.prp1 = (sqe.prp1.get() & 0x1f_fffc).into();
            sqe.cdw10[0] = (sqe.cdw10[0].get() & 0xffff).into();
            sqe.cdw10[1] = (sqe.cdw10[1].get() & 0x7_071f).into();
            let qid = u16::from(!admin);
            if d.push(qid, sqe).is_none() {
                break;
            }
            d.ring(qid);
            d.bus.work();
            if d.csts() != Csts(1) {
                break;
            }
            // Data may have gone over the queues themselves, so completions are not looked at.
        }
    }
}
