// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cluster in trouble, users without rights, connections that are not wanted any more.

use super::common::{key, pattern};
use super::*;

fn osd() -> nix::unistd::Pid {
    let pid = std::fs::read_to_string(cluster().join("osd.0.pid")).unwrap();
    nix::unistd::Pid::from_raw(pid.trim().parse().unwrap())
}

fn signal(signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(osd(), signal).unwrap();
}

/// What a pair is, as soon as the cluster says: reads wait for a placement group's lease after its OSD came back.
fn value(store: &RadosStore, key: Key) -> Vec<u8> {
    let mut value = Vec::new();
    until_ok(|| get(store, key, 0, 1000).map(|(bytes, _)| value = bytes));
    value
}

/// From which part of the medium on the cluster is nearly full, too full for copies, and full.
fn ratios(all: [&str; 3]) {
    let order = if all[2] == "0.95" { [2, 1, 0] } else { [0, 1, 2] };
    for n in order {
        let name = ["set-nearfull-ratio", "set-backfillfull-ratio", "set-full-ratio"][n];
        assert!(tool(&["ceph", "osd", name, all[n]]).is_some());
    }
}

#[test]
#[ignore = "needs a cluster: run the suite rados"]
fn trouble_becomes_a_status_in_bounded_time_and_passes() {
    use nix::sys::signal::Signal;
    let store = open("trouble");
    let k = key("key");
    put(&store, k, b"before", Condition::Always).unwrap();
    let bounded = |what: &str, expected: Status| {
        let start = Instant::now();
        assert_eq!(put(&store, k, b"in trouble", Condition::Always), Err(expected), "{what}");
        assert!(start.elapsed() < Duration::from_secs(15), "{what}: {:?}", start.elapsed());
    };
    // Slow: the OSD stands still.
    signal(Signal::SIGSTOP);
    bounded("slow", Status::NAMESPACE_NOT_READY);
    assert_eq!(get(&store, k, 0, 9), Err(Status::NAMESPACE_NOT_READY));
    assert!(!store.is_ready());
    signal(Signal::SIGCONT);
    until_ok(|| get(&store, k, 0, 9).map(drop));
    until_ok(|| put(&store, k, b"after", Condition::Always));
    assert!(store.is_ready());
    // Full: what there is is much more than a thousandth of the medium.
    until_ok(|| put(&store, key("another"), &pattern(48 << 20, 1), Condition::Always));
    ratios(["0.0002", "0.0005", "0.001"]);
    // A new pair each time, since one of the same size needs no space.
    let mut n = 0;
    until_ok(|| {
        n += 1;
        match put(&store, key(&format!("more {n}")), &[1; 1000], Condition::Always) {
            Err(Status::CAPACITY_EXCEEDED) => Ok(()),
            Ok(()) => Err(Status::SUCCESS),
            Err(other) => Err(other),
        }
    });
    assert_eq!(value(&store, k), b"after");
    ratios(["0.85", "0.9", "0.95"]);
    until_ok(|| put(&store, key("another"), b"value", Condition::Always));
    for n in 1..=n {
        until_ok(|| match ask(&store, Request::Delete { key: key(&format!("more {n}")) }) {
            Ok(_) | Err(Status::KEY_NOT_FOUND) => Ok(()),
            Err(other) => Err(other),
        });
    }
    // Stopped by hand.
    assert!(tool(&["ceph", "osd", "set", "pause"]).is_some());
    std::thread::sleep(Duration::from_millis(500));
    bounded("paused", Status::NAMESPACE_NOT_READY);
    assert!(tool(&["ceph", "osd", "unset", "pause"]).is_some());
    until_ok(|| put(&store, k, b"after", Condition::Always));
    // Down. Not while the cluster thinks that it is full: an OSD that comes back then waits for the next map, whenever that comes.
    until_ok(|| match tool(&["ceph", "health", "detail"]) {
        Some(health) if !health.contains("full") => Ok(()),
        _ => Err(Status::CAPACITY_EXCEEDED),
    });
    let pid = osd();
    signal(Signal::SIGTERM);
    let end = Instant::now() + LIMIT;
    while nix::sys::signal::kill(pid, None).is_ok() {
        assert!(Instant::now() < end, "the OSD does not stop");
        std::thread::sleep(Duration::from_millis(50));
    }
    bounded("down", Status::NAMESPACE_NOT_READY);
    let root = ["-i", "0", "--setuser", "root", "--setgroup", "root"];
    assert!(tool(&[&["ceph-osd"][..], &root].concat()).is_some());
    until_ok(|| put(&store, k, b"at last", Condition::Always));
    assert_eq!(value(&store, k), b"at last");
    assert_eq!((list(&store), store.pairs()), (vec![key("another"), k], 2));
    assert_eq!(store.usage(), 3 + 7 + 7 + 5);
}

/// Takes at most as long as the store's time limit and a bit.
fn bounded<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(start.elapsed() < Duration::from_secs(15), "{what}: {:?}", start.elapsed());
    result
}

#[test]
#[ignore = "needs a cluster: run the suite rados"]
fn a_user_who_may_only_read_reads_and_writes_once_he_may() {
    let (a, b) = (key("a"), key("b"));
    let rights = |osd| {
        assert!(tool(&["ceph", "auth", "caps", "client.reader", "mon", "allow r", "osd", osd]).is_some())
    };
    let reader = RadosConfig { user: "client.reader".into(), ..config("rights") };
    let open_reader = || RadosStore::open(&reader, &NamespaceConfig::default());
    // Without an index there is nothing, and not even that may be written.
    rights("allow r pool=xio");
    let owner = open("rights");
    put(&owner, a, b"value", Condition::Always).unwrap();
    // Beside the owner, who goes on.
    let store = open_reader().unwrap();
    assert_eq!((get(&store, a, 0, 9), list(&store)), (Ok((b"value".to_vec(), 5)), vec![a]));
    assert_eq!((store.usage(), store.pairs(), store.is_ready()), (6, 1, true));
    bounded("read-only", || {
        for condition in [Condition::Always, Condition::IfExists] {
            assert_eq!(put(&store, a, b"other", condition), Err(Status::WRITE_PROTECTED));
            assert_eq!(put(&store, a, b"longer value", condition), Err(Status::WRITE_PROTECTED));
        }
        assert_eq!(put(&store, b, b"new", Condition::IfAbsent), Err(Status::WRITE_PROTECTED));
        assert!(matches!(ask(&store, Request::Delete { key: a }), Err(Status::WRITE_PROTECTED)));
    });
    assert_eq!((get(&store, a, 0, 9), store.usage()), (Ok((b"value".to_vec(), 5)), 6));
    put(&owner, a, b"changed", Condition::Always).unwrap();
    assert_eq!(get(&store, a, 0, 9), Ok((b"changed".to_vec(), 7)));
    drop(owner);
    // He gets the right, and with it what was written meanwhile.
    rights("allow rwx pool=xio");
    until_ok(|| put(&store, b, b"new", Condition::IfAbsent));
    assert_eq!((list(&store), store.usage(), store.pairs()), (vec![a, b], 8 + 4, 2));
    drop(store);
    // No rights at all is an error with a reason.
    rights("allow r pool=another");
    let refused = open_reader().err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
}

/// Who has the lock of a namespace: client and address.
fn holder(namespace: &str) -> (String, String) {
    let info = rados(namespace, &["lock", "info", "index-0", "xio-target"]).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let locker = &info["lockers"][0];
    let text = |name: &str| locker[name].as_str().unwrap().to_string();
    (text("name"), text("addr"))
}

#[test]
#[ignore = "needs a cluster: run the suite rados"]
fn a_blocklisted_connection_is_replaced_once_the_lock_is_free() {
    let store = open("blocklist");
    let (a, b) = (key("a"), key("b"));
    put(&store, a, b"value", Condition::Always).unwrap();
    let (_, address) = holder("blocklist");
    assert!(tool(&["ceph", "osd", "blocklist", "add", &address]).is_some());
    let refused = || match put(&store, a, b"other", Condition::Always) {
        Err(Status::NAMESPACE_NOT_READY) => Ok(()),
        Ok(()) => Err(Status::SUCCESS),
        Err(other) => Err(other),
    };
    bounded("blocklisted", || until_ok(refused));
    bounded("blocklisted", || assert_eq!(get(&store, a, 0, 9), Err(Status::NAMESPACE_NOT_READY)));
    assert!(!store.is_ready());
    // The address stays on the list; the store has got another one.
    until_ok(|| put(&store, a, b"after", Condition::Always));
    assert!(store.is_ready());
    assert_ne!(holder("blocklist").1, address);
    assert_eq!((value(&store, a), list(&store), store.usage()), (b"after".to_vec(), vec![a], 6));
    assert!(tool(&["ceph", "osd", "blocklist", "rm", &address]).is_some());
    // Somebody else takes the lock, and with it the right to write.
    let (client, _) = holder("blocklist");
    let info = rados("blocklist", &["lock", "info", "index-0", "xio-target"]).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let cookie = info["lockers"][0]["cookie"].as_str().unwrap();
    assert!(rados(
        "blocklist",
        &["lock", "break", "index-0", "xio-target", &client, "--lock-cookie", cookie]
    )
    .is_some());
    let other = open("blocklist");
    bounded("without the lock", || until_ok(refused));
    put(&other, b, b"of the other", Condition::Always).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(put(&store, a, b"both", Condition::Always), Err(Status::NAMESPACE_NOT_READY));
    drop(other);
    until_ok(|| put(&store, a, b"again", Condition::Always));
    assert_eq!((list(&store), store.usage(), store.pairs()), (vec![a, b], 6 + 13, 2));
    // Being closed without a session is quick, too.
    let (_, address) = holder("blocklist");
    assert!(tool(&["ceph", "osd", "blocklist", "add", &address]).is_some());
    bounded("blocklisted", || until_ok(refused));
    drop(store);
    assert!(tool(&["ceph", "osd", "blocklist", "rm", &address]).is_some());
}
