// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that the kernel submits, and memory of the client's own, on machines with and without IOMMU.

use crate::kernel::{self, NODE};
use crate::pci;
use crate::raw::{self, entry, CommandRing, Mapping, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::{abi::expect, bench, life};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nvme_kv::Status;
use std::time::{Duration, Instant};
use xio_uapi::{KvEntry, KvSubmit, BUFFER_READ_ONLY};
use xio_uapi::{KV_DELETE, KV_EXIST, KV_FLUSH, KV_LIST, KV_RETRIEVE, KV_STATUS_DNR, KV_STORE};

pub const CLIENTS: &[(&str, Client)] = &[
    ("mediated-operations", |_| operations()),
    ("mediated-sizes", |_| sizes()),
    ("mediated-errors", |_| errors()),
    ("mediated-many", many),
    ("mediated-greedy", |_| greedy()),
    ("mediated-slow", |_| slow()),
    ("mediated-stalled", |_| stalled()),
    ("mediated-uring", |_| uring()),
    ("mediated-uring-left", |_| uring_left()),
    ("mediated-forever", |_| forever()),
    ("mediated-hold", |_| hold()),
    ("mediated-direct", |_| direct()),
    ("mediated-bench", |_| benchmark()),
    ("memory-registered", |_| registered()),
    ("memory-read-only", |_| read_only()),
    ("memory-limit", |_| limit()),
    ("memory-gone", |_| gone()),
];

/// Arguments: `iommu` when the machine's IOMMU translates; `small` where it bears no mappings of 2 MiB.
pub fn run(report: &mut Report, arguments: &[&str]) {
    let (confined, small) = (arguments.contains(&"iommu"), arguments.contains(&"small"));
    report.case("module_loads", |_| kernel::load_rocm_xio("max_client_mb=256"));
    let mut clients = vec!["mediated-operations", "mediated-errors", "mediated-uring", "memory-limit"];
    if !small {
        clients.extend(["mediated-sizes", "memory-registered", "memory-read-only", "memory-gone"]);
    }
    for name in clients {
        report.case(&name.replace('-', "_"), |_| session::run(&[name]).map(drop));
    }
    report.case("sixteen_clients_at_once", |_| sixteen());
    if !small {
        report.case("greedy_client_starves_nobody", |_| starving());
        report.case("deadline_and_signal", |_| stall());
        report.case("ring_that_goes_with_calls_under_way", |_| left());
        report.case("killed_100_times", |_| killed());
        report.case("unbind_ends_calls", |_| unbind());
        report.case("figures", |report| figures(report, confined));
    }
    if confined {
        report.case("direct_excludes_others", |_| exclusive());
    }
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

fn figures(report: &mut Report, confined: bool) -> Result<()> {
    report.note(&session::run(&["mediated-bench"])?.text());
    // Without IOMMU, direct queues are root's.
    let direct = if confined { session::run } else { session::run_as_root };
    report.note(&direct(&["bench-direct"])?.text());
    Ok(())
}

/// The controller has small limits.
pub fn run_small(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    report.case("transfer_limit", |_| {
        let node = Node::open(NODE)?;
        let buffer = node.buffer_alloc(64 << 10)?;
        let mut long = [entry(KV_STORE, b"k", buffer.handle, 0, (32 << 10) + 4)];
        node.submit(&mut long, 10_000)?;
        ensure!(long[0].error == -(Errno::EMSGSIZE as i32), "above MDTS: {}", long[0].error);
        let mut fits = [entry(KV_STORE, b"k", buffer.handle, 0, 32 << 10)];
        succeed(&node, &mut fits)
    });
    report.case("queue_of_16_entries", |_| session::run(&["mediated-many", "1"]).map(drop));
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

/// Runs entries, all of which must succeed.
pub fn succeed(node: &Node, entries: &mut [KvEntry]) -> Result<()> {
    let done = node.submit(entries, 60_000).context("KV_SUBMIT")?;
    ensure!(done as usize == entries.len(), "{done} of {} entries were answered", entries.len());
    for (n, e) in entries.iter().enumerate() {
        ensure!(e.error == 0 && e.status == 0, "entry {n}: error {}, status {:#x}", e.error, e.status);
    }
    Ok(())
}

/// A buffer with its data mapped. (The table may not be mapped without IOMMU.)
fn buffer(node: &Node, len: u64) -> Result<(u32, Mapping)> {
    let made = node.buffer_alloc(len).context("BUFFER_ALLOC")?;
    Ok((made.handle, node.map(made.data_offset, made.len as usize)?))
}

fn operations() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, data) = buffer(&node, 64 << 10)?;
    data.fill(1);
    let names: Vec<[u8; 3]> = (0..200u8).map(|n| [b'm', n, 0]).collect();
    // 200 values of different sizes, at different places.
    let mut store: Vec<KvEntry> =
        names.iter().enumerate().map(|(n, k)| entry(KV_STORE, k, handle, n as u64 * 256, n as u32)).collect();
    succeed(&node, &mut store)?;
    data.fill(9);
    let mut retrieve: Vec<KvEntry> =
        names.iter().enumerate().map(|(n, k)| entry(KV_RETRIEVE, k, handle, n as u64 * 256, 256)).collect();
    succeed(&node, &mut retrieve)?;
    for (n, e) in retrieve.iter().enumerate() {
        ensure!(e.value_len as usize == n, "value {n} has {} bytes", e.value_len);
        let at = n * 256;
        ensure!((at..at + n).all(|i| data.read::<u8>(i) == raw::pattern(1, i)), "value {n} is wrong");
        ensure!((at + n..at + 256).all(|i| data.read::<u8>(i) == raw::pattern(9, i)), "beyond value {n}");
    }
    // Mixed results, conditions, a value that does not fit.
    let mut mixed = [
        entry(KV_EXIST, &names[5], 0, 0, 0),
        entry(KV_EXIST, b"missing", 0, 0, 0),
        entry(KV_STORE, &names[5], handle, 0, 4),
        entry(KV_STORE, b"missing", handle, 0, 4),
        entry(KV_RETRIEVE, &names[199], handle, 0, 100),
        entry(KV_DELETE, &names[7], 0, 0, 0),
        entry(KV_LIST, &names[190], handle, 60 << 10, 4096),
        entry(KV_FLUSH, b"", 0, 0, 0),
    ];
    mixed[2].options = xio_uapi::KV_STORE_IF_ABSENT as u8;
    mixed[3].options = xio_uapi::KV_STORE_IF_EXISTS as u8;
    ensure!(node.submit(&mut mixed, 60_000)? == 8, "not all were answered");
    let status = mixed.map(|e| Status::from_bits(e.status as u16));
    let expected = [
        Status::SUCCESS,
        Status::KEY_NOT_FOUND,
        Status::KEY_EXISTS,
        Status::KEY_NOT_FOUND,
        Status::SUCCESS,
        Status::SUCCESS,
        Status::SUCCESS,
        Status::SUCCESS,
    ];
    ensure!(status == expected, "{status:?}");
    ensure!(mixed[4].value_len == 199, "the true length is {}", mixed[4].value_len);
    let list: [u8; 4096] = data.read(60 << 10);
    let listed: Vec<_> = nvme_kv::list::Keys::new(&list)?.collect::<Result<_, _>>()?;
    // What sorts behind them is of other tests.
    let ours = listed.iter().map(|k| k.as_bytes()).take(10);
    ensure!(ours.eq(names[190..].iter().map(|n| &n[..])), "{listed:?}");
    let mut delete: Vec<KvEntry> =
        names.iter().filter(|n| n[1] != 7).map(|k| entry(KV_DELETE, k, 0, 0, 0)).collect();
    succeed(&node, &mut delete)
}

fn exchange(node: &Node, handle: u32, data: &Mapping, offset: usize, len: usize) -> Result<()> {
    data.fill(3);
    let key = b"exchange";
    succeed(node, &mut [entry(KV_STORE, key, handle, offset as u64, len as u32)])?;
    data.fill(8);
    let mut back = [entry(KV_RETRIEVE, key, handle, offset as u64, len as u32)];
    succeed(node, &mut back)?;
    ensure!(back[0].value_len as usize == len, "{} of {len} bytes", back[0].value_len);
    for at in 0..data.len {
        let seed = if (offset..offset + len).contains(&at) { 3 } else { 8 };
        ensure!(data.read::<u8>(at) == raw::pattern(seed, at), "byte {at} of {len} at {offset}");
    }
    Ok(())
}

fn sizes() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, data) = buffer(&node, 3 << 20)?;
    for (offset, len) in [(0, 1), (4092, 9000), (4096, 513 * 4096), (100, (3 << 20) - 100), (8, 0)] {
        exchange(&node, handle, &data, offset, len)?;
    }
    drop(data);
    node.buffer_free(handle)?;
    let (handle, data) = buffer(&node, 64 << 20)?;
    exchange(&node, handle, &data, 0, 64 << 20)
}

fn errors() -> Result<()> {
    let (node, other) = (Node::open(NODE)?, Node::open(NODE)?);
    let (handle, _data) = buffer(&node, 8192)?;
    let (foreign, _) = buffer(&other, 4096)?;
    let good = entry(KV_STORE, b"key", handle, 0, 16);
    let check = |what: &str, change: fn(&mut KvEntry, u32), errno: Errno| -> Result<()> {
        let mut entries = [good, good, good];
        change(&mut entries[1], foreign);
        node.submit(&mut entries, 10_000)?;
        ensure!(entries[0].error == 0 && entries[2].error == 0, "{what}: the others failed too");
        ensure!(entries[1].error == -(errno as i32), "{what}: {} instead of {errno}", entries[1].error);
        Ok(())
    };
    check("op", |e, _| e.op = 0x83, Errno::EINVAL)?;
    check("key of no bytes", |e, _| e.key_len = 0, Errno::EINVAL)?;
    check("Flush with a key", |e, _| e.op = xio_uapi::KV_FLUSH as u8, Errno::EINVAL)?;
    check("key of 17 bytes", |e, _| e.key_len = 17, Errno::EINVAL)?;
    check("namespace 0", |e, _| e.nsid = 0, Errno::EINVAL)?;
    check("all namespaces", |e, _| e.nsid = u32::MAX, Errno::EINVAL)?;
    check("both conditions", |e, _| e.options = 3, Errno::EINVAL)?;
    check("unknown option", |e, _| e.options = 0x80, Errno::EINVAL)?;
    check("reserved", |e, _| e.reserved0 = 1, Errno::EINVAL)?;
    check("reserved", |e, _| e.reserved = 1, Errno::EINVAL)?;
    check("no such buffer", |e, _| e.buffer = 12345, Errno::ENOENT)?;
    check("another client's buffer", |e, f| e.buffer = f, Errno::ENOENT)?;
    check("offset not a multiple of 4", |e, _| e.offset = 2, Errno::EINVAL)?;
    check("beyond the buffer", |e, _| e.offset = 8192, Errno::EINVAL)?;
    check("offset that wraps", |e, _| e.offset = u64::MAX - 3, Errno::EINVAL)?;
    check("longer than the buffer", |e, _| e.len = 8193, Errno::EINVAL)?;

    let mut none: [KvEntry; 0] = [];
    expect("no entry", node.submit(&mut none, 1000), Errno::EINVAL)?;
    expect("257 entries", node.submit(&mut [good; 257], 1000), Errno::EINVAL)?;
    expect("no time", node.submit(&mut [good], 0), Errno::EINVAL)?;
    let mut nowhere = KvSubmit { entries: 8, count: 1, timeout_ms: 1000, ..raw::sized() };
    expect("entries where nothing is", node.request(&mut nowhere), Errno::EFAULT)?;
    // A namespace that is not there is the controller's to refuse.
    let mut unknown = [KvEntry { nsid: 77, ..good }];
    node.submit(&mut unknown, 10_000)?;
    ensure!(unknown[0].status & KV_STATUS_DNR != 0, "DNR was not passed on: {:#x}", unknown[0].status);
    let status = Status::from_bits((unknown[0].status & !KV_STATUS_DNR) as u16);
    ensure!(unknown[0].error == 0 && status == Status::INVALID_NAMESPACE, "namespace 77: {status}");
    Ok(())
}

/// 500 batches of full length, each value checked.
fn many(arguments: &[&str]) -> Result<()> {
    let seed: u8 = arguments.first().context("no seed")?.parse()?;
    let node = Node::open(NODE)?;
    let (handle, data) = buffer(&node, 64 << 10)?;
    for round in 0..100u32 {
        let key = |n: u32| [seed, n as u8, 1, 2, 3];
        for n in 0..256u32 {
            data.write(n as usize * 256, [u32::from(seed), round, n]);
        }
        let at = |n: u32| u64::from(n) * 256;
        let mut store: Vec<_> = (0..256).map(|n| entry(KV_STORE, &key(n), handle, at(n), 12)).collect();
        succeed(&node, &mut store)?;
        (0..256).for_each(|n| data.write(n * 256, [0u32; 3]));
        let mut retrieve: Vec<_> = (0..256).map(|n| entry(KV_RETRIEVE, &key(n), handle, at(n), 12)).collect();
        succeed(&node, &mut retrieve)?;
        for n in 0..256u32 {
            let value: [u32; 3] = data.read(n as usize * 256);
            ensure!(value == [u32::from(seed), round, n], "value {n} of round {round}: {value:?}");
        }
    }
    Ok(())
}

fn sixteen() -> Result<()> {
    let names: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    let clients: Vec<Session> =
        names.iter().map(|n| Session::spawn(&["mediated-many", n])).collect::<Result<_>>()?;
    clients.into_iter().try_for_each(Session::end)
}

/// Fills the queue from eight threads, until killed.
fn greedy() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 1 << 20)?;
    let mut store = [entry(KV_STORE, b"greedy", handle, 0, 256 << 10)];
    succeed(&node, &mut store)?;
    println!("ready");
    std::thread::scope(|scope| {
        for n in 0..8u64 {
            let node = &node;
            scope.spawn(move || loop {
                let mut all = [entry(KV_RETRIEVE, b"greedy", handle, n << 17, 128 << 10); 256];
                if let Err(e) = node.submit(&mut all, 60_000) {
                    eprintln!("a greedy call: {e}");
                    std::process::exit(1);
                }
            });
        }
    });
    Ok(())
}

/// Beside a client that keeps the queue full, another one's commands are served within their deadline.
fn starving() -> Result<()> {
    let mut greedy = Session::start(&["mediated-greedy"])?;
    let node = Node::open(NODE)?;
    for _ in 0..50 {
        succeed(&node, &mut [entry(KV_EXIST, b"greedy", 0, 0, 0)])?;
    }
    greedy.kill()
}

/// Keeps the queue full of commands that each take long, until killed.
fn slow() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 64 << 20)?;
    succeed(&node, &mut [entry(KV_STORE, b"slow", handle, 0, 64 << 20)])?;
    let mut one = [entry(KV_RETRIEVE, b"slow", handle, 0, 64 << 20); 128];
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (node, mut all) = (&node, one);
            scope.spawn(move || while node.submit(&mut all, 600_000).is_ok() {});
        }
        std::thread::sleep(Duration::from_millis(200));
        println!("ready");
        while node.submit(&mut one, 600_000).is_ok() {}
    });
    anyhow::bail!("a slow call failed")
}

/// Calls that end before their commands do.
fn stall() -> Result<()> {
    let mut slow = Session::start(&["mediated-slow"])?;
    let client = Session::start(&["mediated-stalled"])?;
    slow.kill()?;
    client.finish()?;
    life::nothing_is_left()
}

fn stalled() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 8192)?;
    let start = Instant::now();
    let mut late = [entry(KV_RETRIEVE, b"exchange", handle, 0, 4096); 3];
    late[1].op = 0x55;
    expect("a call out of time", node.submit(&mut late, 100), Errno::ETIMEDOUT)?;
    ensure!((Duration::from_millis(100)..Duration::from_secs(20)).contains(&start.elapsed()), "the deadline");
    let errors = late.map(|e| -e.error);
    let (late, bad) = (Errno::ETIMEDOUT as i32, Errno::EINVAL as i32);
    ensure!(errors == [late, bad, late], "{errors:?}");
    raw::alarm_after(50)?;
    let mut interrupted = [entry(KV_EXIST, b"exchange", 0, 0, 0)];
    expect("a call that is interrupted", node.submit(&mut interrupted, 60_000), Errno::EINTR)?;
    ensure!(interrupted[0].error == -(Errno::EINTR as i32), "{}", interrupted[0].error);
    // The buffer goes while the controller may still write to it; that memory waits for the answer.
    node.buffer_free(handle)?;
    session::ready()?;
    let (handle, data) = buffer(&node, 8192)?;
    exchange(&node, handle, &data, 0, 8000)
}

fn uring() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, data) = buffer(&node, 64 << 10)?;
    data.fill(5);
    let ring = CommandRing::new()?;
    let mut stores: Vec<Vec<KvEntry>> = (0..32u8)
        .map(|b| (0..8u8).map(|n| entry(KV_STORE, &[b, n, 9], handle, u64::from(n) * 512, 500)).collect())
        .collect();
    let mut requests: Vec<KvSubmit> = stores
        .iter_mut()
        .map(|e| KvSubmit { entries: e.as_mut_ptr() as u64, count: e.len() as u32, ..raw::sized() })
        .collect();
    for (n, request) in requests.iter_mut().enumerate() {
        ring.issue(&node, request, n as u64)?;
    }
    let mut seen = [false; 32];
    for _ in 0..32 {
        let (n, result) = ring.wait()?;
        ensure!(result == 0 && !std::mem::replace(&mut seen[n as usize], true), "call {n}: {result}");
        ensure!(requests[n as usize].done == 8, "call {n}: {} entries", requests[n as usize].done);
        ensure!(
            stores[n as usize].iter().all(|e| e.error == 0 && e.status == 0),
            "call {n}: {:?}",
            stores[n as usize]
        );
    }
    // Errors of the call itself come as its result.
    let mut bad = KvSubmit { count: 0, ..raw::sized() };
    ring.issue(&node, &mut bad, 77)?;
    ensure!(ring.wait()? == (77, -(Errno::EINVAL as i32)), "a call without entries");
    let mut retrieve = [entry(KV_RETRIEVE, &[3, 3, 9], handle, 8192, 600)];
    let mut request = KvSubmit { entries: retrieve.as_mut_ptr() as u64, count: 1, ..raw::sized() };
    ring.issue(&node, &mut request, 78)?;
    ensure!(ring.wait()? == (78, 0) && retrieve[0].value_len == 500, "{:?}", retrieve[0]);
    let right = (0..500).all(|i| data.read::<u8>(8192 + i) == raw::pattern(5, 3 * 512 + i));
    ensure!(right, "the value is wrong");
    Ok(())
}

/// A ring goes, with its process, while its calls are under way.
fn left() -> Result<()> {
    let mut slow = Session::start(&["mediated-slow"])?;
    Session::start(&["mediated-uring-left"])?.kill()?;
    slow.kill()?;
    session::run(&["mediated-uring"])?;
    life::nothing_is_left()
}

fn uring_left() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 64 << 10)?;
    let ring = CommandRing::new()?;
    let mut entries = [entry(KV_STORE, b"left", handle, 0, 64 << 10); 4];
    let mut request = KvSubmit { entries: entries.as_mut_ptr() as u64, count: 4, ..raw::sized() };
    for n in 0..8 {
        ring.issue(&node, &mut request, n)?;
    }
    session::ready()
}

fn forever() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 1 << 20)?;
    println!("ready");
    loop {
        let mut all = [entry(KV_STORE, b"forever", handle, 0, 512 << 10); 64];
        node.submit(&mut all, 60_000)?;
    }
}

fn killed() -> Result<()> {
    for n in 0..100 {
        let mut victim = Session::start(&["mediated-forever"])?;
        std::thread::sleep(Duration::from_micros(n * 37 % 3000));
        victim.kill()?;
    }
    session::run(&["mediated-operations"])?;
    life::nothing_is_left()
}

/// Calls end with ENODEV when the device is unbound, and other clients are served after it is bound again.
fn unbind() -> Result<()> {
    let address = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    for _ in 0..5 {
        let client = Session::start(&["mediated-hold"])?;
        pci::unbind(&address)?;
        client.end()?;
        pci::bind(&address, "rocm_xio")?;
        crate::fs::wait_for_file(NODE, kernel::NODE_LIMIT)?;
        kernel::give_nodes_to_render()?;
    }
    session::run(&["mediated-operations"]).map(drop)
}

fn hold() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 1 << 20)?;
    println!("ready");
    let end = Instant::now() + kernel::NODE_LIMIT;
    while Instant::now() < end {
        let mut all = [entry(KV_STORE, b"hold", handle, 0, 64 << 10); 256];
        match node.submit(&mut all, 60_000) {
            Ok(_) if all.iter().all(|e| [0, -(Errno::ENODEV as i32)].contains(&e.error)) => {}
            Ok(_) => anyhow::bail!("an entry has {:?}", all.iter().find(|e| e.error != 0)),
            Err(Errno::ENODEV) => return Ok(()),
            Err(e) => return Err(e).context("KV_SUBMIT"),
        }
    }
    anyhow::bail!("the device was not unbound")
}

/// Direct queues and other clients' memory exclude each other, whoever comes first.
fn exclusive() -> Result<()> {
    let direct = Session::start(&["mediated-direct"])?;
    let node = Node::open(NODE)?;
    expect("memory beside direct queues", node.buffer_alloc(4096), Errno::EBUSY)?;
    let mut one = [entry(KV_EXIST, b"key", 0, 0, 0)];
    expect("a call beside direct queues", node.submit(&mut one, 1000), Errno::EBUSY)?;
    direct.finish()?;
    let (handle, data) = buffer(&node, 8192)?;
    exchange(&node, handle, &data, 0, 8192)?;
    let other = Node::open(NODE)?;
    expect("direct queues beside memory", other.queue_create(8, -1), Errno::EBUSY)?;
    Queue::new(&node, 8).context("direct queues beside one's own memory")?;
    exchange(&node, handle, &data, 0, 100).context("a call beside one's own direct queue")
}

fn direct() -> Result<()> {
    let node = Node::open(NODE)?;
    let _queue = Queue::new(&node, 8)?;
    session::ready()
}

/// A client's own memory, at any address.
fn registered() -> Result<()> {
    let node = Node::open(NODE)?;
    let memory = raw::anonymous(5 << 20, libc::PROT_READ | libc::PROT_WRITE)?;
    let start = memory.ptr.as_ptr() as usize;
    for (at, len) in [(0, 5 << 20), (4, 4096), (1000, 3 << 20), (8188, 8), (4096 * 513, 4096)] {
        let made = node.register(start + at, len, 0).with_context(|| format!("{len} bytes at {at}"))?;
        ensure!(made.first as usize == (start + at) % 4096, "first is {}", made.first);
        memory.fill(3);
        let offset = u64::from(made.first);
        succeed(&node, &mut [entry(KV_STORE, b"registered", made.handle, offset, len as u32)])?;
        memory.fill(8);
        succeed(&node, &mut [entry(KV_RETRIEVE, b"registered", made.handle, offset, len as u32)])?;
        for i in 0..memory.len {
            let seed = if (at..at + len).contains(&i) { 3 } else { 8 };
            ensure!(memory.read::<u8>(i) == raw::pattern(seed, i), "byte {i} of {len} at {at}");
        }
        node.buffer_free(made.handle)?;
    }
    for (what, address, len) in
        [("no bytes", start, 0), ("not aligned", start + 2, 8), ("wraps", usize::MAX - 4095, 8192)]
    {
        expect(what, node.register(address, len, 0), Errno::EINVAL)?;
    }
    expect("no memory there", node.register(4096, 4096, 0), Errno::EFAULT)?;
    expect("partly no memory", node.register(start + (5 << 20) - 4096, 1 << 30, 0), Errno::EDQUOT)?;
    expect("unknown flag", node.register(start, 4096, 2), Errno::EINVAL)?;
    let doorbells = node.info()?.direct != xio_uapi::DIRECT_REFUSED;
    if doorbells {
        let queue = Queue::new(&node, 8)?;
        let page = queue.tail.ptr.as_ptr() as usize;
        expect("device registers", node.register(page, 4096, 0), Errno::EFAULT)?;
    }
    Ok(())
}

/// Memory that may only be read can be stored from, and is never written.
fn read_only() -> Result<()> {
    let node = Node::open(NODE)?;
    let memory = raw::anonymous(16 << 10, libc::PROT_READ | libc::PROT_WRITE)?;
    memory.fill(6);
    raw::protect(&memory, libc::PROT_READ)?;
    let start = memory.ptr.as_ptr() as usize;
    expect("read-only memory, for writing", node.register(start, 16 << 10, 0), Errno::EFAULT)?;
    let made = node.register(start, 16 << 10, BUFFER_READ_ONLY)?;
    succeed(&node, &mut [entry(KV_STORE, b"read-only", made.handle, 0, 16 << 10)])?;
    for op in [KV_RETRIEVE, KV_LIST] {
        let mut into = [entry(op, b"read-only", made.handle, 0, 4096)];
        node.submit(&mut into, 10_000)?;
        ensure!(into[0].error == -(Errno::EACCES as i32), "operation {op:#x}: {}", into[0].error);
    }
    let (handle, data) = buffer(&node, 16 << 10)?;
    succeed(&node, &mut [entry(KV_RETRIEVE, b"read-only", handle, 0, 16 << 10)])?;
    ensure!(data.wrong(6, 16 << 10) == 0, "the value is wrong");
    Ok(())
}

fn limit() -> Result<()> {
    raw::limit_memlock(1 << 20)?;
    let node = Node::open(NODE)?;
    let memory = raw::anonymous(4 << 20, libc::PROT_READ | libc::PROT_WRITE)?;
    let start = memory.ptr.as_ptr() as usize;
    expect("above RLIMIT_MEMLOCK", node.register(start, 2 << 20, 0), Errno::ENOMEM)?;
    let first = node.register(start, 600 << 10, 0)?;
    expect("together above it", node.register(start + (2 << 20), 600 << 10, 0), Errno::ENOMEM)?;
    node.buffer_free(first.handle)?;
    node.register(start + (2 << 20), 600 << 10, 0).context("after freeing")?;
    Ok(())
}

/// The memory is unmapped and the process forks while it is registered: the pages stay what they are.
fn gone() -> Result<()> {
    let node = Node::open(NODE)?;
    let memory = raw::anonymous(1 << 20, libc::PROT_READ | libc::PROT_WRITE)?;
    memory.fill(4);
    let made = node.register(memory.ptr.as_ptr() as usize, 1 << 20, 0)?;
    let child = std::process::Command::new("/bin/true").spawn()?.wait()?;
    ensure!(child.success(), "the child failed");
    succeed(&node, &mut [entry(KV_STORE, b"gone", made.handle, 0, 1 << 20)])?;
    drop(memory);
    succeed(&node, &mut [entry(KV_RETRIEVE, b"gone", made.handle, 0, 1 << 20)])?;
    let (handle, data) = buffer(&node, 1 << 20)?;
    succeed(&node, &mut [entry(KV_RETRIEVE, b"gone", handle, 0, 1 << 20)])?;
    ensure!(data.wrong(4, 1 << 20) == 0, "the value is wrong");
    Ok(())
}

/// Retrieve of 4 KiB and 4 MiB over the kernel's queue.
fn benchmark() -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, _data) = buffer(&node, 4 << 20)?;
    for (name, key, len) in [("4 KiB", b"b4k", 4 << 10), ("4 MiB", b"b4m", 4 << 20)] {
        succeed(&node, &mut [entry(KV_STORE, key, handle, 0, len)])?;
        let mut one = [entry(KV_RETRIEVE, key, handle, 0, len)];
        println!("{}", bench::line(&format!("mediated, Retrieve of {name}"), || succeed(&node, &mut one))?);
    }
    let mut batch = [entry(KV_RETRIEVE, b"b4k", handle, 0, 4096); 64];
    println!("{}", bench::line("mediated, 64 Retrieves of 4 KiB in a call", || succeed(&node, &mut batch))?);
    Ok(())
}
