// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single structures: what is decoded is encoded to what is decoded to the same.

use crate::input::Input;
use nvme_kv::identify::{self, CommandSets, Controller, KvNamespace, NamespaceList};
use nvme_kv::kv::{Condition, RetrieveOptions, StoreOptions};
use nvme_kv::list::{self, Keys};
use nvme_kv::{admin, csi, kv, DataPointer, Key, Sqe};
use zerocopy::{FromBytes, IntoBytes};

/// 64 bytes of a submission queue entry.
pub(crate) fn sqe(data: &[u8]) {
    let sqe = Sqe::read_from_bytes(&Input(data).array::<64>()).unwrap();
    let (cid, nsid) = (sqe.cid.get(), sqe.nsid.get());
    match kv::Command::decode(&sqe) {
        Ok(command) => {
            assert_eq!(command.opcode(), sqe.opcode);
            let again = command.encode(cid, nsid);
            assert_eq!(kv::Command::decode(&again), Ok(command));
            assert_eq!(again.as_bytes()[..8], [&[sqe.opcode, 0], &sqe.as_bytes()[2..8]].concat());
            // Key length and options: nothing that is defined gets lost.
            let defined = match sqe.opcode {
                kv::opcode::FLUSH => 0,
                kv::opcode::STORE => 0x7ff,
                kv::opcode::RETRIEVE => 0x1ff,
                _ => 0xff,
            };
            assert_eq!(again.dword(11) & defined, sqe.dword(11) & defined);
        }
        Err(status) => assert!(!status.is_success()),
    }
    match admin::Command::decode(&sqe) {
        Ok(command) => {
            assert_eq!(command.opcode(), sqe.opcode);
            assert_eq!(admin::Command::decode(&command.encode(cid)), Ok(command));
        }
        Err(status) => assert!(!status.is_success()),
    }
}

pub(crate) fn sqe_seeds() -> Vec<Vec<u8>> {
    let key = Key::new(b"weights.7").unwrap();
    let data = DataPointer { prp1: 0x1234_5000, prp2: 0x9000 };
    let options = StoreOptions { condition: Condition::IfAbsent, no_compress: true };
    let io = [
        kv::Command::Store { key, len: 70_000, options, data },
        kv::Command::Retrieve { key, len: 4096, options: RetrieveOptions { raw: true }, data },
        kv::Command::List { start: Some(key), len: 4096, data },
        kv::Command::List { start: None, len: 4096, data },
        kv::Command::Delete { key },
        kv::Command::Exist { key },
        kv::Command::Flush,
    ];
    let feature = admin::Feature { fid: admin::feature::NUMBER_OF_QUEUES, ..Default::default() };
    let admin = [
        admin::Command::DeleteSq { qid: 1 },
        admin::Command::CreateSq(admin::CreateSq { qid: 1, entries: 16, cqid: 1, ..Default::default() }),
        admin::Command::GetLogPage(admin::GetLogPage { lid: 5, numd: 1023, data, ..Default::default() }),
        admin::Command::DeleteCq { qid: 1 },
        admin::Command::CreateCq(admin::CreateCq {
            qid: 1,
            entries: 16,
            vector: Some(1),
            ..Default::default()
        }),
        admin::Command::Identify(admin::Identify {
            cns: 5,
            csi: csi::KV,
            nsid: 1,
            data,
            ..Default::default()
        }),
        admin::Command::Abort { sqid: 1, cid: 2 },
        admin::Command::SetFeatures(admin::Feature { value: 0x10_0010, ..feature }),
        admin::Command::GetFeatures(feature),
        admin::Command::AsyncEvent,
        admin::Command::KeepAlive,
        admin::Command::DoorbellBuffers(data),
    ];
    let io = io.iter().map(|command| command.encode(7, 1));
    let mut both = kv::Command::Store { key, len: 1, options, data }.encode(7, 1);
    both.cdw10[1] = 0x701.into();
    let io = io.chain([both]);
    io.chain(admin.iter().map(|command| command.encode(7))).map(|sqe| sqe.as_bytes().to_vec()).collect()
}

/// 4096 bytes that a controller gave for an Identify.
pub(crate) fn identify(data: &[u8]) {
    let page = Input(data).array::<{ identify::SIZE }>();
    let controller = Controller::read_from_bytes(&page).unwrap();
    assert!(controller.max_transfer().is_none_or(|max| max.is_power_of_two() && max >= 8192));
    for field in [&controller.sn[..], &controller.mn, &controller.fr, &controller.subnqn] {
        let text: String = identify::ascii(field).collect();
        assert!(text.len() <= field.len() && text.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
        assert!(!text.ends_with(' '));
    }
    let namespace = KvNamespace::read_from_bytes(&page).unwrap();
    if let Some((index, format)) = namespace.format() {
        assert!(index < 16 && index <= namespace.nkvf && format == namespace.kvf[usize::from(index)]);
    }
    let ids = NamespaceList::read_from_bytes(&page).unwrap();
    assert!(ids.iter().all(|nsid| nsid != 0) && ids.iter().count() <= 1024);
    let sets = CommandSets::read_from_bytes(&page).unwrap();
    let has = |n: u16| sets.vector[usize::from(n)].get() & 1 << csi::KV != 0;
    match sets.find_kv() {
        Some(found) => assert!(has(found) && (0..=found).all(|n| sets.vector[usize::from(n)] != 0)),
        None => assert!((0..512).take_while(|n| sets.vector[usize::from(*n)] != 0).all(|n| !has(n))),
    }
    descriptors(&page);
}

/// A list of descriptors ends, and what it holds can be written and read again.
fn descriptors(page: &[u8; identify::SIZE]) {
    let found: Vec<_> = identify::descriptors(page).collect();
    assert!(found.iter().map(|(_, value)| 4 + value.len()).sum::<usize>() <= page.len());
    let mut again = [0xff; identify::SIZE];
    assert!(identify::write_descriptors(&mut again, &found));
    assert!(identify::descriptors(&again).eq(found.iter().copied()));
}

pub(crate) fn identify_seeds() -> Vec<Vec<u8>> {
    let mut rig = crate::rig::Rig::new();
    let asked = [(1, 0, 0), (5, 1, 1), (3, 0, 1), (0x1c, 0, 0), (2, 0, 0), (8, 0, 1), (6, 1, 0)];
    asked.into_iter().map(|(cns, csi, nsid)| rig.identify(cns, csi, nsid)).collect()
}

/// A list that was built of keys has them all.
fn built(data: &[u8]) {
    let parts = data.chunks(1 + Key::MAX).filter(|part| part.len() > 1);
    let keys =
        parts.map(|part| Key::new(&part[1..part.len().min(2 + usize::from(part[0]) % Key::MAX)]).unwrap());
    let keys: Vec<Key> = keys.collect();
    let mut buffer = vec![0xaa; list::EMPTY_LEN + keys.len() * list::entry_len(Key::MAX)];
    let mut builder = list::Builder::new(&mut buffer).unwrap();
    assert!(keys.iter().all(|key| builder.push(key)));
    let len = builder.len();
    assert_eq!(Keys::new(&buffer[..len]).unwrap().collect::<Result<Vec<_>, _>>(), Ok(keys));
}

/// A list of keys as a controller gave it; and text that stands for a key.
pub(crate) fn list(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(key) = text.parse::<Key>() {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
    built(data);
    let Ok(keys) = Keys::new(data) else {
        assert!(data.len() < list::EMPTY_LEN);
        return;
    };
    let stated = keys.remaining();
    let found: Vec<Key> = keys.clone().map_while(Result::ok).collect();
    // No more than fit, and after an error nothing.
    assert!(keys.count() <= found.len() + 1 && found.len() * 4 <= data.len());
    let mut again = vec![0xaa; list::EMPTY_LEN + found.len() * list::entry_len(Key::MAX)];
    let mut builder = list::Builder::new(&mut again).unwrap();
    assert!(found.iter().all(|key| builder.push(key)));
    let len = builder.len();
    let back: Result<Vec<Key>, _> = Keys::new(&again[..len]).unwrap().collect();
    assert_eq!(back.as_ref(), Ok(&found));
    if found.len() == stated as usize {
        // The same bytes, but for padding and reserved ones.
        assert!(len <= data.len() + 3);
    }
}

pub(crate) fn list_seeds() -> Vec<Vec<u8>> {
    let mut buffer = [0; 256];
    let mut builder = list::Builder::new(&mut buffer).unwrap();
    for key in ["a", "weights.7", "0123456789abcdef", "0x00ff"] {
        assert!(builder.push(&key.parse().unwrap()));
    }
    let len = builder.len();
    vec![buffer[..len].to_vec(), b"\0\0\0\0".to_vec(), b"0x00fF".to_vec(), b"weights.7".to_vec()]
}
