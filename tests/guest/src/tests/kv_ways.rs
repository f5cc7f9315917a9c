// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients of `kv` over each path and in each memory, and who gets which path.

use crate::raw;
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::{kv, life};
use crate::{kernel, user};
use anyhow::{ensure, Context, Result};
use std::time::Duration;
use xio::{Controller, Error, Key, Memory, Operation, RetrieveOptions, Status, StoreOptions};

pub const CLIENTS: &[(&str, Client)] = &[
    ("ways-share", share),
    ("ways-hold", |way| kv::open(way).and_then(|_kv| session::ready())),
    ("ways-batch", |_| batch()),
    ("ways-ring", |_| ring()),
    ("ways-interrupted", |_| interrupted()),
    ("ways-memlock", |_| memory_lock()),
    ("ways-read-only", |_| read_only()),
];

/// Arguments: `PATH/MEMORY` for each way, and `iommu` when the machine's IOMMU translates.
pub fn run(report: &mut Report, arguments: &[&str]) {
    let confined = arguments.contains(&"iommu");
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    for (path, memory) in arguments.iter().filter_map(|way| way.split_once('/')) {
        way(report, path, memory, &["kv-sizes", "kv-keys", "kv-conditions", "kv-list", "kv-usage"]);
    }
    for name in ["ways-batch", "ways-ring", "ways-interrupted", "ways-memlock", "ways-read-only"] {
        report.case(&name.replace('-', "_"), |_| session::run(&[name]).map(drop));
    }
    report.case("eight_processes_at_once", |_| eight());
    if confined {
        report.case("auto_falls_back_beside_others", |_| falls_back());
        report.case("direct_shuts_out_and_says_so", |_| shuts_out());
    } else {
        report.case("memory_of_the_command", |_| {
            let pinned = ["xio", "-v", "--memory", "pinned", "kv", "selftest"];
            let said = user::run(&pinned)?.expect_success()?.stderr;
            ensure!(said.contains("path: mediated, memory: pinned"), "{said}");
            Ok(())
        });
    }
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

/// Clients over one path and in one kind of memory.
pub fn way(report: &mut Report, path: &str, memory: &str, clients: &[&str]) {
    for name in clients {
        report.case(&format!("{}_{path}_{memory}", name.replace('-', "_")), |_| {
            session::run_within(&[*name, path, memory], Duration::from_secs(200)).map(drop)
        });
    }
}

/// Processes on the kernel's queue at the same time, in both kinds of memory.
fn eight() -> Result<()> {
    let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    let start =
        |(n, name): (usize, &String)| Session::spawn(&["ways-share", name, ["coherent", "pinned"][n % 2]]);
    let clients: Vec<Session> = names.iter().enumerate().map(start).collect::<Result<_>>()?;
    clients.into_iter().try_for_each(Session::end)
}

/// Values of its own, beside other processes.
fn share(arguments: &[&str]) -> Result<()> {
    let [seed, memory] = arguments else { anyhow::bail!("arguments: SEED MEMORY") };
    let seed: u32 = seed.parse()?;
    let mut kv = kv::open(&["mediated", memory])?;
    for round in 0..50 {
        let key = format!("share{seed}.{}", round % 5).parse()?;
        let value = kv::value(seed << 16 | round, 10_000 + round as usize * 3);
        kv.store(&key, &value, StoreOptions::default())?;
        ensure!(kv.retrieve(&key)? == value, "round {round}");
    }
    Ok(())
}

/// Who has memory keeps direct queues from others, and not the kernel's.
fn falls_back() -> Result<()> {
    let holder = Session::start(&["ways-hold", "mediated", "coherent"])?;
    let beside = user::run(&["xio", "-v", "kv", "exist", "missing"])?.expect_code(3)?;
    ensure!(beside.stderr.contains("path: mediated"), "{}", beside.stderr);
    let refused = user::run(&["xio", "--path", "direct", "--wait", "0", "kv", "exist", "missing"])?;
    ensure!(refused.expect_code(8)?.stderr.contains("another process"), "direct beside another's memory");
    holder.finish()?;
    let alone = user::run(&["xio", "-v", "kv", "exist", "missing"])?.expect_code(3)?;
    ensure!(alone.stderr.contains("path: direct"), "{}", alone.stderr);
    Ok(())
}

fn shuts_out() -> Result<()> {
    let holder = Session::start(&["ways-hold", "direct", "coherent"])?;
    for path in ["auto", "direct", "mediated"] {
        let refused = user::run(&["xio", "--path", path, "--wait", "0", "kv", "exist", "missing"])?;
        let said = refused.expect_code(8)?.stderr;
        ensure!(said.contains("another process") && said.contains("mediated path"), "{path}: {said}");
    }
    holder.finish()
}

/// 300 operations in two calls.
fn batch() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let (from, into) = (controller.alloc(300 * 64)?, controller.register(Memory::new(300 * 64)?)?);
    let key = |n: usize| Key::new(&[b'b', n as u8, (n >> 8) as u8]);
    let place = |n: usize| n * 64..n * 64 + 1 + n % 64;
    let (mut stores, mut retrieves, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..300 {
        from.write(n * 64, &kv::value(n as u32, 64))?;
        stores.push(Operation::store(key(n)?, from.slice(place(n))?));
        retrieves.push(Operation::retrieve(key(n)?, into.slice(n * 64..(n + 1) * 64)?));
        deletes.push(Operation::Delete { key: key(n)? });
    }
    let mut queue = controller.mediated_queue()?;
    for (n, done) in queue.execute_batch(&namespace, &stores).into_iter().enumerate() {
        ensure!(done?.status.is_success(), "Store {n}");
    }
    for (n, done) in queue.execute_batch(&namespace, &retrieves).into_iter().enumerate() {
        let (done, len) = (done?, 1 + n % 64);
        let mut back = vec![0; len];
        into.read(n * 64, &mut back)?;
        ensure!(done.status.is_success() && done.value_len as usize == len, "Retrieve {n}: {done:?}");
        ensure!(back == kv::value(n as u32, 64)[..len], "value {n} is wrong");
    }
    let missing = [Operation::Exist { key: "missing".parse()? }];
    deletes.extend(missing);
    let deleted = queue.execute_batch(&namespace, &deletes);
    ensure!(deleted.last().is_some_and(|d| d.as_ref().is_ok_and(|d| d.status == Status::KEY_NOT_FOUND)));
    for done in deleted.into_iter().take(300) {
        ensure!(done?.status.is_success(), "Delete");
    }
    Ok(())
}

/// Many commands in flight over io_uring, each value checked; then a ring that goes with commands under way.
fn ring() -> Result<()> {
    const DEPTH: usize = 600;
    const TOTAL: usize = 6000;
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let mut ring = controller.mediated_ring(DEPTH)?;
    let buffer = controller.register(Memory::new(DEPTH * 64)?)?;
    let mut places: Vec<usize> = (0..DEPTH).collect();
    let mut expected = std::collections::HashMap::new();
    // First all are stored, then all are retrieved.
    for store in [true, false] {
        let (mut submitted, mut done) = (0, 0);
        while done < TOTAL {
            while submitted < TOTAL && ring.free() > 0 {
                let place = places.pop().context("no place")?;
                let slice = buffer.slice(place * 64..(place + 1) * 64)?;
                let operation = if store {
                    buffer.write(place * 64, &kv::value(submitted as u32, 64))?;
                    Operation::store(ring_key(submitted)?, slice)
                } else {
                    buffer.write(place * 64, &[0; 64])?;
                    Operation::retrieve(ring_key(submitted)?, slice)
                };
                expected.insert(ring.submit(&namespace, operation)?, (submitted, place));
                submitted += 1;
            }
            ensure!(ring.wait_any(Duration::from_secs(30))?, "nothing comes after {done}");
            while let Some((token, result)) = ring.poll()? {
                let (n, place) = expected.remove(&token).context("an answer to nothing")?;
                ensure!(result?.status.is_success(), "command {n}");
                let mut back = [0; 64];
                buffer.read(place * 64, &mut back)?;
                ensure!(back[..] == kv::value(n as u32, 64), "value {n} is wrong");
                places.push(place);
                done += 1;
            }
        }
    }
    for n in 0..DEPTH {
        ring.submit(&namespace, Operation::Delete { key: ring_key(n)? })?;
    }
    ring.ring()?;
    drop(ring);
    let mut kv = kv::open(&["mediated", "coherent"])?;
    ensure!(!kv.exist(&ring_key(DEPTH - 1)?)?, "dropping waits for what is under way");
    (DEPTH..TOTAL).try_for_each(|n| Ok(kv.delete(&ring_key(n)?)?))
}

fn ring_key(n: usize) -> Result<Key> {
    Ok(Key::new(&[b'r', n as u8, (n >> 8) as u8])?)
}

/// A signal ends a call; what was asked for may be done or not, and the next call works.
fn interrupted() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let buffer = controller.alloc(32 << 20)?;
    let key = "interrupted".parse()?;
    let mut queue = controller.mediated_queue()?;
    queue.store(&namespace, &key, &buffer.slice(..)?, StoreOptions::default())?;
    let all = vec![Operation::retrieve(key, buffer.slice(..)?); 200];
    raw::alarm_after(100)?;
    let results = queue.execute_batch(&namespace, &all);
    let ended =
        |r: &Result<_, Error>| matches!(r, Ok(_) | Err(Error::Interrupted { .. } | Error::NotStarted { .. }));
    ensure!(results.iter().all(ended), "{results:?}");
    ensure!(results.iter().any(|r| matches!(r, Err(Error::Interrupted { .. }))), "nothing was interrupted");
    queue.set_timeout(Duration::from_millis(20));
    let results = queue.execute_batch(&namespace, &all);
    let late =
        |r: &Result<_, Error>| matches!(r, Ok(_) | Err(Error::Timeout { .. } | Error::NotStarted { .. }));
    ensure!(results.iter().all(late) && results.iter().any(Result::is_err), "{results:?}");
    queue.set_timeout(Duration::from_secs(50));
    drop(all);
    let into = controller.alloc(4096)?;
    queue.delete_key(&namespace, &key)?;
    let gone = queue.retrieve(&namespace, &key, &into.slice(..)?, RetrieveOptions::default());
    ensure!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    Ok(())
}

/// The limit on pinned memory is named, and does not stop what stays below it.
fn memory_lock() -> Result<()> {
    raw::limit_memlock(1 << 20)?;
    let mut kv = kv::open(&["mediated", "pinned"])?;
    let key = "memlock".parse()?;
    let refused = kv.store(&key, &vec![1; 2 << 20], StoreOptions::default());
    ensure!(matches!(refused, Err(Error::MemoryLock { limit: 0x10_0000, .. })), "{refused:?}");
    let said = refused.err().context("stored")?.to_string();
    ensure!(said.contains("RLIMIT_MEMLOCK") && said.contains("ulimit -l"), "{said}");
    kv.store(&key, &kv::value(1, 700 << 10), StoreOptions::default())?;
    ensure!(kv.retrieve(&key)? == kv::value(1, 700 << 10), "the value is wrong");
    kv.delete(&key)?;
    Ok(())
}

/// Read-only memory is stored from; nothing is retrieved into it, and a fork does not change what is stored.
fn read_only() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let namespace = controller.first_namespace()?;
    let mut memory = Memory::new(1 << 20)?;
    memory.as_mut_slice().context("writable")?.copy_from_slice(&kv::value(7, 1 << 20));
    let buffer = controller.register(memory.into_read_only()?)?;
    let key = "read-only".parse()?;
    let mut queue = controller.mediated_queue()?;
    ensure!(std::process::Command::new("/bin/true").spawn()?.wait()?.success(), "the child failed");
    queue.store(&namespace, &key, &buffer.slice(..)?, StoreOptions::default())?;
    let refused = queue.retrieve(&namespace, &key, &buffer.slice(..)?, RetrieveOptions::default());
    ensure!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    let into = controller.register(Memory::new(1 << 20)?)?.slice(..)?;
    queue.retrieve(&namespace, &key, &into, RetrieveOptions::default())?;
    ensure!(into.to_vec()? == kv::value(7, 1 << 20), "the value is wrong");
    Ok(queue.delete_key(&namespace, &key)?)
}
