// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values through the library and the command, as the ordinary user over the device node. Clients with the arguments
//! `PATH MEMORY` work over that path and in that memory, else as the library chooses.

use crate::kernel;
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::{kv_command, life};
use crate::user;
use anyhow::{ensure, Context, Result};
use std::time::{Duration, Instant};
use xio::{Completion, Condition, Controller, Error, Kv, KvOptions, MemoryKind, Operation, QueueOptions};
use xio::{Key, Path, RetrieveOptions, Status, StoreOptions};

pub const CLIENTS: &[(&str, Client)] = &[
    ("kv-sizes", sizes),
    ("kv-keys", keys),
    ("kv-conditions", conditions),
    ("kv-list", list),
    ("kv-deep", |_| deep()),
    ("kv-event", |_| event()),
    ("kv-usage", usage),
    ("kv-turn", turn),
    ("kv-limits", limits),
    ("kv-own", own),
];

/// The first controller has default limits.
pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    for name in ["kv-sizes", "kv-keys", "kv-conditions", "kv-list", "kv-deep", "kv-event", "kv-usage"] {
        report.case(&name.replace('-', "_"), |_| {
            session::run_within(&[name], Duration::from_secs(200)).map(drop)
        });
    }
    report.case("eight_processes_in_turn", |_| in_turn());
    report.case("options_of_the_command", |_| kv_command::options());
    report.case("one_process_at_a_time", |_| one_at_a_time());
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

/// The controller has small limits: 16 entries, 32 KiB transfers, three namespaces of 1 MiB, values to 64 KiB.
pub fn run_small(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    report.case("kv_limits", |_| session::run(&["kv-limits"]).map(drop));
    report.case("kv_limits_mediated", |_| session::run(&["kv-limits", "mediated", "pinned"]).map(drop));
    report.case("a_full_namespace_ends_the_command_with_5", |_| kv_command::full());
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

/// Two controllers at once.
pub fn run_two(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| {
        kernel::load_rocm_xio("")?;
        crate::fs::wait_for_file("/dev/rocm-xio1", kernel::NODE_LIMIT)?;
        kernel::give_nodes_to_render()
    });
    report.case("both_are_listed", |_| {
        let listed = user::run(&["xio", "list", "-o", "json"])?.expect_success()?.text();
        ensure!(listed.contains("/dev/rocm-xio0") && listed.contains("/dev/rocm-xio1"), "{listed}");
        Ok(())
    });
    report.case("both_work_at_the_same_time", |_| {
        let first = Session::spawn(&["kv-own", "/dev/rocm-xio0", "1"])?;
        let second = Session::spawn(&["kv-own", "/dev/rocm-xio1", "2"])?;
        first.wait_ready()?;
        second.wait_ready()?;
        first.finish()?;
        second.finish()
    });
    report.case("each_has_its_own_values", |_| {
        for (device, seed) in [("/dev/rocm-xio0", 1u8), ("/dev/rocm-xio1", 2)] {
            let got = user::run(&["xio", "--device", device, "kv", "retrieve", "own"])?.expect_success()?;
            ensure!(got.stdout == [seed; 100], "{device} has another's value");
        }
        Ok(())
    });
}

/// Opens the first namespace over the path and in the memory that the arguments name.
pub fn open(way: &[&str]) -> Result<Kv> {
    open_at(kernel::NODE, None, way)
}

/// Opens a namespace; waits while the owner before is still being taken down.
fn open_at(node: &str, nsid: Option<u32>, way: &[&str]) -> Result<Kv> {
    let controller = Controller::open(node)?;
    let options = options(&controller, way)?;
    let end = Instant::now() + kernel::NODE_LIMIT;
    let kv = loop {
        match Kv::with_options(&controller, nsid, options.clone()) {
            Err(Error::Busy) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            other => break other.context("opening a namespace")?,
        }
    };
    ensure!([kv.path(), Path::Auto].contains(&options.path), "{way:?}, and the path is {}", kv.path());
    Ok(kv)
}

fn options(controller: &Controller, way: &[&str]) -> Result<KvOptions> {
    let (path, memory) = match way {
        [] => Default::default(),
        [path, memory] => {
            use MemoryKind::{Cmb, Coherent, Dmabuf, Pinned};
            let paths = [Path::Auto, Path::Direct, Path::Mediated];
            let path = paths.into_iter().find(|p| p.to_string() == *path).context("no such path")?;
            let memories = [Coherent, Pinned, Cmb, Dmabuf];
            let memory = memories.into_iter().find(|m| m.to_string() == *memory);
            (path, memory.context("no such memory")?)
        }
        _ => anyhow::bail!("arguments: PATH MEMORY"),
    };
    let entries = controller.info()?.max_queue_entries().min(4);
    Ok(KvOptions { path, memory, queue: QueueOptions { entries, ..Default::default() } })
}

pub fn value(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn sizes(way: &[&str]) -> Result<()> {
    let mut kv = open(way)?;
    for len in [0, 1, 4095, 4096, 4097, (1 << 20) + 3, 64 << 20] {
        let (key, value) = (format!("size-{len}").parse()?, value(len as u32, len));
        kv.store(&key, &value, StoreOptions::default()).with_context(|| format!("Store of {len} bytes"))?;
        let back = kv.retrieve(&key).with_context(|| format!("Retrieve of {len} bytes"))?;
        ensure!(back == value, "{len} bytes came back as other {} bytes", back.len());
        // A shorter value in its place.
        kv.store(&key, b"short", StoreOptions::default())?;
        ensure!(kv.retrieve(&key)? == b"short", "after a shorter value");
        kv.delete(&key)?;
    }
    Ok(())
}

fn keys(way: &[&str]) -> Result<()> {
    let mut kv = open(way)?;
    let keys: Vec<Key> = [
        &[0][..],
        &[0, 0],
        &[0; 16],
        &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8],
        &[255; 16],
        &[255; 15],
        b"a",
        b"a\0",
        b"0123456789abcdef",
    ]
    .iter()
    .map(|k| Key::new(k))
    .collect::<Result<_, _>>()?;
    for (n, key) in keys.iter().enumerate() {
        kv.store(key, &value(n as u32, 50), StoreOptions::default())?;
    }
    for (n, key) in keys.iter().enumerate() {
        ensure!(kv.retrieve(key)? == value(n as u32, 50), "the value of {key} is another's");
    }
    for key in &keys {
        kv.delete(key)?;
        ensure!(!kv.exist(key)?, "{key} is still there");
    }
    Ok(())
}

fn conditions(way: &[&str]) -> Result<()> {
    let mut kv = open(way)?;
    let key: Key = "condition".parse()?;
    let if_absent = StoreOptions { condition: Condition::IfAbsent, ..Default::default() };
    let if_exists = StoreOptions { condition: Condition::IfExists, no_compress: true };
    ensure!(
        matches!(kv.store(&key, b"0", if_exists), Err(Error::NotFound { .. })),
        "if-exists without the key"
    );
    ensure!(!kv.exist(&key)?, "a store that was refused made the key");
    kv.store(&key, b"1", if_absent)?;
    ensure!(matches!(kv.store(&key, b"2", if_absent), Err(Error::Exists { .. })), "if-absent with the key");
    ensure!(kv.retrieve(&key)? == b"1", "a store that was refused changed the value");
    kv.store(&key, b"3", if_exists)?;
    ensure!(kv.retrieve_with(&key, RetrieveOptions { raw: true })? == b"3", "the raw value");
    kv.delete(&key)?;
    ensure!(matches!(kv.delete(&key), Err(Error::NotFound { .. })), "deleted twice");
    ensure!(matches!(kv.retrieve(&key), Err(Error::NotFound { .. })), "retrieved after delete");
    let long = vec![0; kv.namespace().max_value().0 as usize + 1];
    let refused = kv.store(&key, &long, StoreOptions::default());
    ensure!(matches!(refused, Err(Error::ValueTooLarge { .. })), "a value above the limit: {refused:?}");
    Ok(())
}

fn list(way: &[&str]) -> Result<()> {
    let mut kv = open(way)?;
    let key = |n: usize| Key::new(format!("list{n:05}").as_bytes());
    for n in 0..5000 {
        kv.store(&key(n)?, &[], StoreOptions::default())?;
    }
    let listed = |kv: &mut Kv, start: Option<Key>| -> Result<Vec<Key>> {
        let mut all = Vec::new();
        for page in kv.list(start) {
            all.extend(page?);
        }
        Ok(all)
    };
    let all = listed(&mut kv, None)?;
    let expected: Vec<Key> = (0..5000).map(key).collect::<Result<_, _>>()?;
    ensure!(all.iter().filter(|k| k.as_bytes().starts_with(b"list")).eq(&expected), "{} keys", all.len());
    let tail = listed(&mut kv, Some(key(4990)?))?;
    ensure!(tail.starts_with(&expected[4990..]), "from a start key: {tail:?}");
    let between = listed(&mut kv, Some("list00099x".parse()?))?;
    ensure!(between.first() == expected.get(100), "from a key that is not there: {:?}", between.first());
    expected.iter().try_for_each(|k| kv.delete(k))?;
    Ok(())
}

/// 100,000 commands through a queue of 1024 entries, as many in flight as it takes, each answer checked.
fn deep() -> Result<()> {
    const OPERATIONS: usize = 100_000;
    const LEN: usize = 64;
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let mut queue = controller.queue(QueueOptions { entries: 1024, ..Default::default() })?;
    let buffer = controller.alloc(2 * 1023 * LEN)?;
    let mut waiting: std::collections::HashMap<xio::Token, (usize, usize, bool)> = Default::default();
    let mut free: Vec<usize> = (0..1023).collect();
    let key = |n: usize| Key::new(&(n as u32 % 2000).to_le_bytes());
    let (mut submitted, mut done, mut last) = (0, 0, vec![None; 2000]);
    let mut busy = vec![false; 2000];
    while done < OPERATIONS {
        while submitted < OPERATIONS && !busy[submitted % 2000] {
            let Some(slot) = free.pop() else { break };
            // Each key is stored in even passes over the keys, and retrieved in odd ones.
            let store = submitted / 2000 % 2 == 0;
            let slice = buffer.slice(slot * LEN..(slot + 1) * LEN)?;
            let operation = if store {
                buffer.write(slot * LEN, &value(submitted as u32, LEN))?;
                Operation::store(key(submitted)?, slice)
            } else {
                Operation::retrieve(key(submitted)?, slice)
            };
            waiting.insert(queue.submit(&namespace, operation)?, (submitted, slot, store));
            busy[submitted % 2000] = true;
            submitted += 1;
        }
        queue.ring();
        while let Some(Completion { token, status, value_len, .. }) = queue.poll()? {
            let (n, slot, store) = waiting.remove(&token).context("an answer to nothing")?;
            ensure!(status == Status::SUCCESS, "operation {n}: {status}");
            if store {
                last[n % 2000] = Some(n as u32);
            } else {
                let mut back = [0; LEN];
                buffer.read(slot * LEN, &mut back)?;
                let seed = last[n % 2000].context("retrieved before it was stored")?;
                ensure!(
                    value_len as usize == LEN && back[..] == value(seed, LEN),
                    "operation {n}: wrong bytes"
                );
            }
            busy[n % 2000] = false;
            free.push(slot);
            done += 1;
        }
    }
    ensure!(queue.in_flight() == 0, "{} are still in flight", queue.in_flight());
    Ok(())
}

/// A queue with an eventfd: the client sleeps, the interrupt wakes it.
fn event() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let mut queue = controller.queue(QueueOptions { event: true, ..Default::default() })?;
    for n in 0..50u8 {
        let token = queue.submit(&namespace, Operation::Exist { key: Key::new(&[n])? })?;
        ensure!(queue.wait_event(Duration::from_secs(30))?, "no event for command {n}");
        let completion = queue.poll()?.context("an event without a completion")?;
        ensure!(completion.token == token && completion.status == Status::KEY_NOT_FOUND, "{completion:?}");
    }
    ensure!(!queue.wait_event(Duration::from_millis(20))?, "an event for nothing");
    Ok(())
}

/// What a namespace says of its use is right, and deleting gives it back.
fn usage(way: &[&str]) -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let used = || Ok::<_, Error>(controller.first_namespace()?.used());
    let mut kv = open(way)?;
    let (before, key) = (used()?, "usage".parse()?);
    kv.store(&key, &[7; 100_000], StoreOptions::default())?;
    let with = used()?;
    ensure!((100_000..110_000).contains(&(with - before)), "{before} bytes in use, then {with}");
    kv.store(&key, &[7; 10], StoreOptions::default())?;
    ensure!(used()? < with, "a shorter value gave nothing back");
    kv.delete(&key)?;
    ensure!(used()? == before, "{before} bytes in use before, {} after", used()?);
    Ok(())
}

fn in_turn() -> Result<()> {
    for n in 0..8 {
        session::run(&["kv-turn", &n.to_string()])?;
    }
    Ok(())
}

/// Finds what the processes before stored, and adds to it.
fn turn(arguments: &[&str]) -> Result<()> {
    let n: u32 = arguments.first().context("no number")?.parse()?;
    let mut kv = open(&[])?;
    for earlier in 0..n {
        let back = kv.retrieve(&format!("turn{earlier}").parse()?)?;
        ensure!(back == value(earlier, 10_000), "the value of process {earlier} changed");
    }
    kv.store(&format!("turn{n}").parse()?, &value(n, 10_000), StoreOptions::default())?;
    Ok(())
}

fn one_at_a_time() -> Result<()> {
    let holder = Session::start(&["kv-own", kernel::NODE, "3"])?;
    let busy = user::run(&["xio", "--wait", "0", "kv", "exist", "own"])?;
    ensure!(busy.stderr.contains("another process"), "{busy:?}");
    busy.expect_code(8)?;
    let info = user::run(&["xio", "info"])?.expect_success()?;
    ensure!(info.text().contains("rocm-xio0"), "{}", info.text());
    holder.finish()?;
    user::run(&["xio", "kv", "exist", "own"])?.expect_success().map(drop)
}

/// Stores a value of its own, over and over until told to end.
fn own(arguments: &[&str]) -> Result<()> {
    let [node, seed] = arguments else { anyhow::bail!("arguments: NODE SEED") };
    let (seed, key): (u8, Key) = (seed.parse()?, "own".parse()?);
    let mut kv = open_at(node, None, &[])?;
    for n in 0..500u32 {
        let value = value(n, n as usize * 10);
        kv.store(&key, &value, StoreOptions::default())?;
        ensure!(kv.retrieve(&key)? == value, "round {n}");
    }
    kv.store(&key, &[seed; 100], StoreOptions::default())?;
    session::ready()
}

fn limits(way: &[&str]) -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let info = controller.info()?;
    ensure!(info.max_queue_entries() == 16, "{} entries", info.max_queue_entries());
    ensure!(info.max_transfer() == Some(32 << 10), "{:?} bytes", info.max_transfer());
    let namespaces = controller.namespaces()?;
    ensure!(namespaces.iter().map(|n| n.nsid()).eq([1, 2, 3]), "{namespaces:?}");
    let mut kv = open_at(kernel::NODE, Some(2), way)?;
    let (limit, _) = kv.namespace().max_value();
    ensure!(limit == 32 << 10, "the transfer limits values to {limit}");
    let key = |n: u32| Key::new(&n.to_be_bytes());
    let long = kv.store(&key(0)?, &vec![0; (32 << 10) + 1], StoreOptions::default());
    ensure!(matches!(long, Err(Error::ValueTooLarge { limit: 32768, .. })), "{long:?}");
    // Fill the namespace of 1 MiB.
    let mut stored = 0;
    let full = loop {
        match kv.store(&key(stored)?, &value(stored, 32 << 10), StoreOptions::default()) {
            Ok(()) => stored += 1,
            Err(e) => break e,
        }
        ensure!(stored < 64, "there is no end to 1 MiB");
    };
    ensure!(matches!(full, Error::Capacity { .. }) && stored > 24, "{full} after {stored}");
    for n in 0..stored {
        ensure!(kv.retrieve(&key(n)?)? == value(n, 32 << 10), "value {n} after the namespace was full");
    }
    kv.delete(&key(0)?)?;
    kv.store(&key(stored)?, &value(stored, 32 << 10), StoreOptions::default())?;
    // Another namespace is another place.
    let keys = (1..=stored).map(key).collect::<Result<Vec<_>, _>>()?;
    let mut other = Kv::with_options(&kv.controller().clone(), Some(3), options(&controller, way)?)?;
    ensure!(!other.exist(&keys[0])?, "a key of namespace 2 is in namespace 3");
    drop(other);
    keys.iter().try_for_each(|key| kv.delete(key))?;
    drop(kv);
    let none = Kv::open(&controller, Some(9));
    ensure!(matches!(none, Err(Error::NoNamespace { nsid: 9 })), "namespace 9: {none:?}");
    Ok(())
}
