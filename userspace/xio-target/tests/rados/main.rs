// SPDX-License-Identifier: MIT OR Apache-2.0
//! The back end `rados` on a real cluster, which `./scripts/test rados` starts; its folder is in `XIO_CEPH`.

#[path = "../common/mod.rs"]
mod common;
mod trouble;

use common::client::plug_at;
use common::{key, pattern};
use nvme_kv::kv::{Command as Kv, Condition};
use nvme_kv::{Key, Status};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xio_target::store::{Answer, Answers, Later, RadosConfig, RadosStore, Reply, Request, Store};
use xio_target::NamespaceConfig;

const LIMIT: Duration = Duration::from_secs(60);

fn cluster() -> PathBuf {
    PathBuf::from(
        std::env::var_os("XIO_CEPH").expect("XIO_CEPH is the folder of a cluster: run the suite rados"),
    )
}

fn config(namespace: &str) -> RadosConfig {
    RadosConfig {
        namespace: namespace.into(),
        conf: Some(cluster().join("ceph.conf")),
        timeout: Duration::from_secs(3),
        ..RadosConfig::default()
    }
}

fn open(namespace: &str) -> RadosStore {
    RadosStore::open(&config(namespace), &NamespaceConfig::default()).unwrap()
}

fn ask_all(store: &dyn Store, requests: Vec<Request>) -> Vec<Answer> {
    let answers = Arc::new(Answers::default());
    let (mut all, mut some, count) = (BTreeMap::new(), Vec::new(), requests.len());
    for (id, request) in (0..).zip(requests) {
        all.extend(store.start(request, &Later::new(id, &answers)).map(|answer| (id, answer)));
    }
    let end = Instant::now() + LIMIT;
    while all.len() < count {
        assert!(Instant::now() < end, "no answer");
        answers.take(&mut some);
        all.extend(some.drain(..));
        std::thread::park_timeout(Duration::from_millis(5));
    }
    all.into_values().collect()
}

fn ask(store: &dyn Store, request: Request) -> Answer {
    ask_all(store, vec![request]).pop().unwrap()
}

fn put(store: &dyn Store, key: Key, value: &[u8], condition: Condition) -> Result<(), Status> {
    ask(store, Request::Put { key, value: value.to_vec(), condition }).map(drop)
}

fn get(store: &dyn Store, key: Key, offset: usize, len: usize) -> Result<(Vec<u8>, usize), Status> {
    match ask(store, Request::Get { key, offset, len })? {
        Reply::Value(value) => Ok((value.bytes().to_vec(), value.len())),
        other => panic!("{other:?}"),
    }
}

fn list(store: &dyn Store) -> Vec<Key> {
    match ask(store, Request::List { start: None, room: 1 << 20 }) {
        Ok(Reply::Keys(keys)) => keys,
        other => panic!("{other:?}"),
    }
}

/// A program of the cluster: its output, if it succeeds.
fn tool(words: &[&str]) -> Option<String> {
    let conf = cluster().join("ceph.conf");
    let out =
        Command::new(words[0]).arg("-c").arg(conf).args(&words[1..]).stdin(Stdio::null()).output().unwrap();
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

fn rados(namespace: &str, words: &[&str]) -> Option<String> {
    tool(&[&["rados", "-p", "xio", "-N", namespace], words].concat())
}

/// Repeats until it succeeds; the cluster takes a while to be well again.
fn until_ok(mut attempt: impl FnMut() -> Result<(), Status>) {
    let end = Instant::now() + LIMIT;
    while let Err(status) = attempt() {
        assert!(Instant::now() < end, "still {status}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
#[ignore = "needs a cluster: run the suite rados"]
fn every_operation_and_what_rados_sees_of_it() {
    let store = open("all");
    let (hello, big) = (key("hello"), key("big"));
    assert_eq!(put(&store, hello, b"world", Condition::IfExists), Err(Status::KEY_NOT_FOUND));
    assert_eq!(put(&store, hello, b"world", Condition::IfAbsent), Ok(()));
    assert_eq!(put(&store, hello, b"again", Condition::IfAbsent), Err(Status::KEY_EXISTS));
    assert!(rados("all", &["stat", "68656c6c6f"]).unwrap().ends_with("size 5\n"));
    assert_eq!(put(&store, hello, b"longer", Condition::IfExists), Ok(()));
    assert_eq!(get(&store, hello, 0, 100), Ok((b"longer".to_vec(), 6)));
    assert_eq!(get(&store, hello, 2, 3), Ok((b"nge".to_vec(), 6)));
    assert_eq!(get(&store, hello, 9, 3), Ok((vec![], 6)));
    // The largest value, and an empty one.
    let value = pattern(64 << 20, 1);
    assert_eq!(put(&store, big, &value, Condition::Always), Ok(()));
    assert!(get(&store, big, 0, 64 << 20) == Ok((value.clone(), 64 << 20)));
    assert!(get(&store, big, 1 << 20, 4096) == Ok((value[1 << 20..][..4096].to_vec(), 64 << 20)));
    assert_eq!(put(&store, key("empty"), b"", Condition::Always), Ok(()));
    assert_eq!(get(&store, key("empty"), 0, 9), Ok((vec![], 0)));
    assert_eq!((store.pairs(), store.usage()), (3, 5 + 6 + 3 + (64 << 20) + 5));
    assert_eq!(list(&store), [big, key("empty"), hello]);
    for gone in [big, key("empty")] {
        assert!(ask(&store, Request::Delete { key: gone }).is_ok());
        assert_eq!(get(&store, gone, 0, 1), Err(Status::KEY_NOT_FOUND));
        assert!(matches!(ask(&store, Request::Exist { key: gone }), Err(Status::KEY_NOT_FOUND)));
        assert!(matches!(ask(&store, Request::Delete { key: gone }), Err(Status::KEY_NOT_FOUND)));
    }
    assert!(rados("all", &["stat", "626967"]).is_none());
    // Changes of one key are done in their order, those of others at the same time.
    let many = (0..600u32).map(|n| {
        let key = key(&format!("{}", n % 30));
        let value = n.to_le_bytes().repeat(1 + n as usize % 3);
        Request::Put { key, value, condition: Condition::Always }
    });
    assert!(ask_all(&store, many.collect()).iter().all(Result::is_ok));
    for n in 570..600u32 {
        let value = n.to_le_bytes().repeat(1 + n as usize % 3);
        assert_eq!(get(&store, key(&format!("{}", n % 30)), 0, 99), Ok((value.clone(), value.len())));
    }
    let (used, keys) = (store.usage(), list(&store));
    assert_eq!(keys.len(), 31);
    // Another program is kept out, and the next one finds all of it.
    assert!(RadosStore::open(&config("all"), &NamespaceConfig::default()).is_err());
    drop(store);
    let store = open("all");
    assert_eq!((store.usage(), list(&store)), (used, keys));
    // What others do to objects shows.
    assert!(rados("all", &["rm", "68656c6c6f"]).is_some());
    assert_eq!(get(&store, hello, 0, 9), Err(Status::KEY_NOT_FOUND));
    assert!(matches!(ask(&store, Request::Delete { key: hello }), Err(Status::KEY_NOT_FOUND)));
    assert_eq!(list(&store).len(), 30);
    assert!(ask(&store, Request::Flush).is_ok());
}

/// A program that is killed at the end, however that comes.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        assert!(killed.is_ok() || std::thread::panicking(), "{killed:?}");
    }
}

#[test]
#[ignore = "needs a cluster: run the suite rados"]
fn the_index_is_right_after_a_crash_at_any_point() {
    // A Store that was killed before, and one that was killed after its object was written; a Delete likewise.
    let uncertain = "u\x05\x01\x01\x01\x01\x01\x01\x01";
    std::fs::write(cluster().join("value"), "12345678").unwrap();
    let value = cluster().join("value");
    for (name, written) in [("6161", false), ("6262", true)] {
        assert!(rados("crash", &["setomapval", "index-6", name, uncertain]).is_some());
        if written {
            assert!(rados("crash", &["put", name, value.to_str().unwrap()]).is_some());
        }
    }
    let store = open("crash");
    assert_eq!((list(&store), store.usage(), store.pairs()), (vec![key("bb")], 10, 1));
    drop(store);
    assert_eq!(rados("crash", &["listomapkeys", "index-6"]).as_deref(), Some("6262\n"));
    // A program that is really killed.
    let socket = cluster().join("kill");
    let child = Command::new(env!("CARGO_BIN_EXE_xio-target"))
        .args(["serve", "--rados", "xio/crash", "--ceph-conf"])
        .arg(cluster().join("ceph.conf"))
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .spawn();
    let child = Killed(child.unwrap());
    let mut d = plug_at(&socket, LIMIT);
    let mut done = Vec::new();
    let (mut n, buffer, until) = (0u16, d.buffer(4096), Instant::now() + Duration::from_millis(600));
    let mut sent = BTreeMap::new();
    while Instant::now() < until {
        let (key, data) = (key(&format!("k{n}")), buffer.data);
        let store = Kv::Store { key, len: 1 + u32::from(n) % 4096, options: Default::default(), data };
        if let Some(cid) = d.push(1, store.encode(0, 1)) {
            sent.insert(cid, key);
            n += 1;
            d.ring(1);
        }
        while let Some(cqe) = d.pop(1) {
            assert_eq!(cqe.status(), Status::SUCCESS);
            done.push(sent[&cqe.cid.get()]);
            d.ring_head(1);
        }
    }
    drop(child);
    assert!(done.len() > 5, "{} were completed", done.len());
    // When its lock has expired.
    let store = open("crash");
    let keys = list(&store);
    let ours = |name: &&str| !name.starts_with("index");
    let names = rados("crash", &["ls"]).unwrap();
    assert_eq!(names.lines().filter(ours).count(), keys.len());
    assert!(done.iter().all(|key| keys.contains(key)));
    for key in &keys {
        let (value, len) = get(&store, *key, 0, 8192).unwrap();
        assert_eq!(value.len(), len);
    }
}
