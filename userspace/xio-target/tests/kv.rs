// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Key Value command set.

mod common;

use common::local::{ready, small, Local};
use common::{key, pattern, Driver};
use nvme_kv::admin::{self, GetLogPage};
use nvme_kv::identify::{self, cns};
use nvme_kv::kv::{self, Condition};
use nvme_kv::regs::Csts;
use nvme_kv::{csi, list, log, DataPointer, Key, Sqe, Status};
use xio_target::{Config, NamespaceConfig};
use zerocopy::FromBytes;

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
fn spec_base_4_3_1_the_buffer_decides_what_prp2_is() {
    let mut d = ready(Config::default(), 40);
    for len in [1, 4096, 4097, 8192, 20_000, 3 << 20] {
        let value = pattern(len, len as u64);
        assert_eq!(d.store(1, &key("k"), &value, Condition::Always), Ok(0));
        for room in [4096, 8192, 8193, 65536, 4 << 20] {
            let want = value[..len.min(room)].to_vec();
            assert_eq!(d.retrieve(1, &key("k"), room), Ok((want, len as u32)), "{len} bytes into {room}");
        }
    }
    let buffer = d.buffer(65536);
    assert_eq!(d.kv(1, kv::Command::List { start: None, len: 65536, data: buffer.data }), Ok(0));
    let keys: Vec<_> = list::Keys::new(&d.content(&buffer, 4096)).unwrap().collect();
    assert_eq!(keys, [Ok(key("k"))]);
    // A log page of 512 bytes.
    let get =
        GetLogPage { lid: log::id::SMART, numd: 65536 / 4 - 1, data: buffer.data, ..Default::default() };
    assert_eq!(d.admin(admin::Command::GetLogPage(get)), Ok(0));
    assert_eq!(d.content(&buffer, 4)[1..3], 300u16.to_le_bytes());
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
