// SPDX-License-Identifier: MIT OR Apache-2.0
use super::super::Answers;
use super::database::CHUNK;
use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("xio-embedded-{}-{n}", std::process::id())))
    }

    fn open(&self, config: &NamespaceConfig) -> EmbeddedStore {
        EmbeddedStore::open(&self.0, config).unwrap()
    }

    fn disk_usage(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let files = std::fs::read_dir(&self.0).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

/// Asks for all of them at once and waits for the answers, in the order of the requests.
fn ask_all(store: &EmbeddedStore, requests: Vec<Request>) -> Vec<Answer> {
    let answers = Arc::new(Answers::default());
    let mut all = BTreeMap::new();
    let count = requests.len();
    for (id, request) in (0..).zip(requests) {
        all.extend(store.start(request, &Later::new(id, &answers)).map(|answer| (id, answer)));
    }
    let mut some = Vec::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while all.len() < count {
        assert!(std::time::Instant::now() < end, "no answer");
        answers.take(&mut some);
        all.extend(some.drain(..));
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    all.into_values().collect()
}

fn ask(store: &EmbeddedStore, request: Request) -> Answer {
    ask_all(store, vec![request]).pop().unwrap()
}

fn put(key: Key, value: Vec<u8>) -> Request {
    Request::Put { key, value, condition: Condition::Always }
}

fn get(store: &EmbeddedStore, key: Key, offset: usize, len: usize) -> Result<(Vec<u8>, usize), Status> {
    match ask(store, Request::Get { key, offset, len })? {
        Reply::Value(value) => Ok((value.bytes().to_vec(), value.len())),
        other => panic!("{other:?}"),
    }
}

fn list(store: &EmbeddedStore, start: Option<Key>, room: usize) -> Vec<Key> {
    match ask(store, Request::List { start, room }) {
        Ok(Reply::Keys(keys)) => keys,
        other => panic!("{other:?}"),
    }
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|n| (n ^ n >> 7 ^ seed).to_le_bytes()[0]).collect()
}

#[test]
fn values_of_all_sizes_are_there_after_opening_again() {
    let (folder, config) = (Folder::new(), NamespaceConfig::default());
    let sizes = [0, 1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 64 << 20];
    let store = folder.open(&config);
    for (n, size) in sizes.into_iter().enumerate() {
        ask(&store, put(key(&format!("key {n}")), pattern(size, n as u32))).unwrap();
    }
    let used = store.usage();
    assert_eq!(used, sizes.iter().sum::<usize>() as u64 + 8 * 5);
    assert!(EmbeddedStore::open(&folder.0, &config).is_err(), "opened twice");
    drop(store);
    let store = folder.open(&config);
    assert_eq!((store.usage(), store.pairs()), (used, 8));
    for (n, size) in sizes.into_iter().enumerate() {
        let (key, value) = (key(&format!("key {n}")), pattern(size, n as u32));
        assert!(get(&store, key, 0, usize::MAX) == Ok((value.clone(), size)), "{n}");
        let (from, to) = (size / 3, (size / 3 + 5000).min(size));
        assert!(get(&store, key, from, 5000) == Ok((value[from..to].to_vec(), size)), "{n}");
    }
    // Shorter and longer than before.
    for (n, size) in sizes.into_iter().rev().take(7).enumerate() {
        ask(&store, put(key(&format!("key {n}")), pattern(size, 9))).unwrap();
        assert!(get(&store, key(&format!("key {n}")), 0, size) == Ok((pattern(size, 9), size)), "{n}");
    }
    assert_eq!(get(&store, key("none"), 0, 1), Err(Status::KEY_NOT_FOUND));
}

#[test]
fn conditions_and_limits_hold_within_one_transaction() {
    let folder = Folder::new();
    let config = NamespaceConfig { capacity: 100, max_keys: 2, ..NamespaceConfig::default() };
    let store = folder.open(&config);
    let put_if = |k, len, condition| Request::Put { key: key(k), value: vec![1; len], condition };
    let answers = ask_all(
        &store,
        vec![
            put_if("a", 10, Condition::IfExists),
            put_if("a", 10, Condition::IfAbsent),
            put_if("a", 20, Condition::IfAbsent),
            put_if("a", 30, Condition::IfExists),
            put_if("b", 69, Condition::Always),
            put_if("b", 68, Condition::Always),
            put_if("c", 0, Condition::Always),
            Request::Delete { key: key("a") },
            Request::Delete { key: key("a") },
            put_if("c", 0, Condition::Always),
        ],
    );
    let statuses: Vec<_> = answers.into_iter().map(|answer| answer.err()).collect();
    let (absent, exists, full) = (Status::KEY_NOT_FOUND, Status::KEY_EXISTS, Status::CAPACITY_EXCEEDED);
    let expected =
        [Some(absent), None, Some(exists), None, Some(full), None, Some(full), None, Some(absent), None];
    assert_eq!(statuses, expected);
    assert_eq!((store.usage(), store.pairs()), (70, 2));
    assert_eq!(store.admit(&key("x"), 100, Condition::Always), Err(full));
    assert!(ask(&store, Request::Flush).is_ok() && ask(&store, Request::Exist { key: key("b") }).is_ok());
    assert!(matches!(ask(&store, Request::Exist { key: key("a") }), Err(Status::KEY_NOT_FOUND)));
}

#[test]
fn lists_are_ordered_and_end_where_the_room_does() {
    let (folder, config) = (Folder::new(), NamespaceConfig::default());
    let store = folder.open(&config);
    let mut keys: Vec<Key> = (0..500u32).map(|n| key(&format!("{:x}", n * 7919))).collect();
    let answers = ask_all(&store, keys.iter().map(|key| put(*key, vec![])).collect());
    assert!(answers.iter().all(Result::is_ok));
    keys.sort_unstable();
    assert_eq!(list(&store, None, 1 << 20), keys);
    assert_eq!(list(&store, Some(keys[77]), 1 << 20), keys[77..]);
    assert_eq!(list(&store, Some(key("z")), 1 << 20), []);
    assert_eq!(list(&store, None, 4 + 8), keys[..1]);
}

#[test]
fn space_of_deleted_and_replaced_values_comes_back() {
    let (folder, config) = (Folder::new(), NamespaceConfig::default());
    let store = folder.open(&config);
    let round = |seed: u32| {
        for n in 0..6 {
            let len = (1 << 20) + (seed as usize * 7919 + n * 65537) % (1 << 20);
            ask(&store, put(key(&format!("{n}")), pattern(len, seed))).unwrap();
        }
    };
    round(0);
    let live = store.usage();
    for seed in 1..12 {
        round(seed);
        if seed % 3 == 0 {
            for n in 0..6 {
                ask(&store, Request::Delete { key: key(&format!("{n}")) }).unwrap();
            }
            assert_eq!(store.usage(), 0);
        }
    }
    // Twelve times as much was written.
    assert!(folder.disk_usage() < live * 4, "{} for {live}", folder.disk_usage());
}
