// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller that misbehaves: what a client sees of each fault, what is lost, and that the next client is served.

use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::raw::{self, entry, Mapping, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::life::{counters, nothing_is_left};
use crate::tests::{abi::expect, mediated};
use crate::{fs, host, pci};
use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use xio_uapi::{KvEntry, KV_RETRIEVE, KV_STORE};

pub const CLIENTS: &[(&str, Client)] = &[
    ("faults-meet", meet),
    ("faults-uring", |_| lost_call()),
    ("faults-watch", watch),
    ("faults-create", |_| create()),
    ("faults-work", |_| work()),
];

/// Seconds after which the module takes a command for lost.
const PARAMETERS: &str = "command_timeout_s=2";
const LEN: usize = 4096;
/// Nothing takes longer: a command's time, an abort's, a deletion's and a reset's.
const BOUND: Duration = Duration::from_secs(40);

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio(PARAMETERS));
    for fault in COMMANDS {
        report.case(&format!("command_{}", fault.name), |report| command(report, fault));
    }
    for fault in REQUESTS {
        report.case(&format!("request_{}", fault.name), |report| request(report, fault));
    }
    report.case("call_of_io_uring_that_is_lost", uring);
    report.case("who_waits_can_be_killed", killable);
    report.case("nothing_is_left", |_| nothing_is_left());
    report.case("start_of_a_bad_controller", starts);
    report.case("controller_that_vanishes", vanishes);
}

/// A fault of I/O commands, met by a batch of Retrieves through the kernel.
struct CommandFault {
    name: &'static str,
    rules: &'static str,
    /// Values to retrieve in one call.
    count: usize,
    /// What each of them may come to: 0, or an errno, or a status in bits 27:16.
    may: &'static [i32],
    /// Resets that it takes.
    resets: u64,
}

const fn command_fault(
    name: &'static str,
    rules: &'static str,
    count: usize,
    may: &'static [i32],
    resets: u64,
) -> CommandFault {
    CommandFault { name, rules, count, may, resets }
}

const LOST: i32 = Errno::ETIMEDOUT as i32;
const RESET: i32 = Errno::ENODEV as i32;

const COMMANDS: &[CommandFault] = &[
    command_fault("delayed", "delay 300ms op=retrieve count=3", 8, &[0], 0),
    command_fault("slow", "slow 64K/s op=retrieve count=2", 2, &[0], 0),
    command_fault("reordered", "reorder behind=3 op=retrieve every=2", 32, &[0], 0),
    command_fault("completed_twice", "duplicate times=3 op=retrieve every=3", 32, &[0], 0),
    command_fault("wrong_head", "sqhead random op=retrieve count=3", 32, &[0], 0),
    command_fault("failed", "error internal-error op=retrieve count=1", 4, &[0, 0x006 << 16], 0),
    command_fault("lost", "drop op=retrieve count=1", 8, &[0, LOST], 0),
    command_fault("all_lost", "drop op=retrieve", 32, &[LOST], 0),
    command_fault("wrong_identifier", "cid 65000 op=retrieve count=1", 8, &[0, LOST], 0),
    command_fault("wrong_queue", "sqid random op=retrieve count=1", 8, &[0, LOST], 0),
    command_fault("wrong_phase", "phase op=retrieve count=1", 8, &[0, LOST], 0),
    command_fault("torn", "torn 20ms op=retrieve count=1", 1, &[0, LOST], 0),
    command_fault("lost_and_abort_too", "drop op=retrieve count=1; drop op=abort", 4, &[0, RESET], 1),
    command_fault("lost_and_deletion_too", "drop op=retrieve count=1; drop op=delete-sq", 4, &[0, RESET], 1),
    command_fault("fatal", "fatal op=retrieve after=2 count=1", 8, &[0, RESET], 1),
];

/// A key for each of the values of a test.
fn key(n: usize) -> [u8; 4] {
    [b'f', b'a', n as u8, 1]
}

/// Values to be retrieved.
fn stored(node: &Node, count: usize) -> Result<()> {
    let (handle, data) = buffer(node, count)?;
    for n in 0..count {
        (0..LEN).for_each(|i| data.write(n * LEN + i, raw::pattern(n as u8, i)));
    }
    mediated::succeed(node, &mut entries(KV_STORE, handle, count))?;
    node.buffer_free(handle).context("BUFFER_FREE")
}

fn buffer(node: &Node, count: usize) -> Result<(u32, Mapping)> {
    let made = node.buffer_alloc((count * LEN) as u64).context("BUFFER_ALLOC")?;
    Ok((made.handle, node.map(made.data_offset, made.len as usize)?))
}

fn entries(op: u32, handle: u32, count: usize) -> Vec<KvEntry> {
    (0..count).map(|n| entry(op, &key(n), handle, (n * LEN) as u64, LEN as u32)).collect()
}

/// What an entry came to: 0, an errno, or a status in bits 27:16.
fn outcome(entry: &KvEntry) -> i32 {
    if entry.error != 0 {
        -entry.error
    } else {
        (entry.status as i32 & 0x7ff) << 16
    }
}

/// Retrieves values in one call, and compares those that came. How many entries came to what.
fn retrieve(node: &Node, count: usize) -> Result<BTreeMap<i32, usize>> {
    let (handle, data) = buffer(node, count)?;
    let mut all = entries(KV_RETRIEVE, handle, count);
    node.submit(&mut all, BOUND.as_millis() as u32).context("KV_SUBMIT")?;
    let mut outcomes = BTreeMap::new();
    all.iter().for_each(|entry| *outcomes.entry(outcome(entry)).or_default() += 1);
    // A reset takes the buffer, and what came into it.
    let gone = data.is_revoked();
    for (n, entry) in all.iter().enumerate().filter(|(_, entry)| outcome(entry) == 0) {
        ensure!(entry.value_len as usize == LEN, "value {n} has {} bytes", entry.value_len);
        let right = |i: usize| data.read::<u8>(n * LEN + i) == raw::pattern(n as u8, i);
        ensure!(gone || (0..LEN).all(right), "value {n} is wrong");
    }
    match node.buffer_free(handle) {
        Ok(()) | Err(Errno::ENOENT) => Ok(outcomes),
        Err(e) => Err(e).context("BUFFER_FREE"),
    }
}

/// Retrieves values while the controller misbehaves, and says what came of it; then again.
fn meet(arguments: &[&str]) -> Result<()> {
    let [count] = arguments else { bail!("one argument") };
    let count = count.parse()?;
    raw::catch_bus_errors()?;
    let node = Node::open(NODE)?;
    stored(&node, count)?;
    session::ready()?;
    let outcomes = retrieve(&node, count)?;
    println!("{}", outcomes.iter().map(|(o, n)| format!("{o}:{n}")).collect::<Vec<_>>().join(" "));
    session::ready()?;
    // The same file goes on, and the pairs are there.
    let outcomes = retrieve(&node, count)?;
    ensure!(outcomes.keys().all(|o| *o == 0), "afterwards {outcomes:?}");
    Ok(())
}

fn command(report: &mut Report, fault: &CommandFault) -> Result<()> {
    let mut client = Session::start(&["faults-meet", &fault.count.to_string()])?;
    let before = counters("rocm-xio0")?;
    host::faults(report, 0, fault.rules)?;
    let start = Instant::now();
    client.go_on()?;
    let outcomes = client.line();
    let took = start.elapsed();
    host::no_faults(report, 0)?;
    let outcomes = outcomes?;
    let after = counters("rocm-xio0")?;
    let [resets, stray] = ["resets", "stray_completions"].map(|name| after[name] - before[name]);
    let ms = took.as_millis();
    report.note(&format!(
        "{}: {outcomes} (outcome:entries), {ms} ms, {resets} resets, {stray} stray",
        fault.rules
    ));
    ensure!(took < BOUND, "it took {took:?}");
    let seen: Vec<i32> = outcomes
        .split(' ')
        .map(|part| part.split(':').next().and_then(|o| o.parse().ok()).context("an outcome"))
        .collect::<Result<_>>()?;
    ensure!(seen.iter().all(|o| fault.may.contains(o)), "outcomes {seen:?}");
    let met = fault.may.iter().all(|o| *o == 0 || seen.contains(o));
    ensure!(met || fault.name == "torn", "the fault was not met: {seen:?}");
    ensure!(resets == fault.resets, "{resets} resets");
    client.wait_ready()?;
    client.finish()?;
    session::run(&["faults-work"])?;
    nothing_is_left()
}

/// A fault of admin commands, met by a client that makes and deletes a direct queue.
struct RequestFault {
    name: &'static str,
    rules: &'static str,
    /// Why the controller is reset; 0 when it is not.
    reset: u32,
}

const fn request_fault(name: &'static str, rules: &'static str, reset: u32) -> RequestFault {
    RequestFault { name, rules, reset }
}

const REQUESTS: &[RequestFault] = &[
    request_fault("refused", "error internal-error op=create-sq count=1", xio_uapi::RESET_NONE),
    request_fault("late", "delay 300ms op=create-sq count=1", xio_uapi::RESET_NONE),
    request_fault("lost_creation", "drop op=create-cq count=1", xio_uapi::RESET_TIMEOUT),
    request_fault("lost_deletion", "drop op=delete-sq count=1", xio_uapi::RESET_TIMEOUT),
    request_fault("refused_deletion", "error internal-error op=delete-sq count=1", xio_uapi::RESET_REFUSED),
    request_fault("wrong_identifier", "cid random op=create-sq count=1", xio_uapi::RESET_OUT_OF_STEP),
    request_fault("wrong_queue", "sqid 9 op=create-sq count=1", xio_uapi::RESET_OUT_OF_STEP),
    request_fault("answered_twice", "duplicate op=create-cq count=1", xio_uapi::RESET_OUT_OF_STEP),
    request_fault("wrong_phase", "phase op=create-cq count=1", xio_uapi::RESET_TIMEOUT),
    request_fault("fatal", "fatal op=create-sq count=1", xio_uapi::RESET_FATAL),
];

/// A bystander is told of a reset, whatever the client that met the fault sees; then both are served.
fn request(report: &mut Report, fault: &RequestFault) -> Result<()> {
    let before = counters("rocm-xio0")?["resets"];
    let watcher = Session::start(&["faults-watch", &fault.reset.to_string()])?;
    host::faults(report, 0, fault.rules)?;
    let start = Instant::now();
    let seen = session::run(&["faults-create"]);
    let took = start.elapsed();
    host::no_faults(report, 0)?;
    let seen = seen?.text();
    let resets = counters("rocm-xio0")?["resets"] - before;
    report.note(&format!("{}: {}, {} ms, {resets} resets", fault.rules, seen.trim(), took.as_millis()));
    ensure!(took < BOUND, "it took {took:?}");
    ensure!(resets == u64::from(fault.reset != xio_uapi::RESET_NONE), "{resets} resets");
    watcher.finish()?;
    session::run(&["faults-work"])?;
    nothing_is_left()
}

/// Makes and deletes queues until a whole round is right; says what went wrong until then.
fn create() -> Result<()> {
    let end = Instant::now() + BOUND;
    let mut seen = Vec::new();
    loop {
        let node = Node::open(NODE)?;
        let round = (|| {
            let created = node.queue_create(16, -1)?;
            node.buffer_alloc(4096)?;
            node.queue_destroy(created.handle)
        })();
        match round {
            Ok(()) => break,
            Err(e @ (Errno::EIO | Errno::ETIMEDOUT | Errno::ENODEV | Errno::ENOENT)) => seen.push(e),
            Err(Errno::EBUSY) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => bail!("an errno that is not documented: {e}"),
        }
        ensure!(Instant::now() < end, "not served: {seen:?}");
        ensure!(seen.len() < 4, "again and again: {seen:?}");
    }
    println!("the client saw {seen:?}");
    Ok(())
}

/// An idle client: is told of a reset for this reason, by poll and by eventfd, and is served again without opening anew.
fn watch(arguments: &[&str]) -> Result<()> {
    let [reset] = arguments else { bail!("one argument") };
    let reset: u32 = reset.parse()?;
    let node = Node::open(NODE)?;
    let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?;
    let before = node.state(event.as_fd().as_raw_fd())?;
    ensure!(before.state == xio_uapi::STATE_LIVE, "state {}", before.state);
    ensure!(node.poll(0)?.is_empty() && event.read().is_err(), "told of nothing");
    session::ready()?;
    let told = node.poll(if reset == 0 { 0 } else { 5000 })?;
    if reset == 0 {
        ensure!(told.is_empty(), "told of {told:?}");
    } else {
        ensure!(told.contains(PollFlags::POLLPRI) && !told.contains(PollFlags::POLLHUP), "told of {told:?}");
        ensure!(event.read()? > 0, "the eventfd was not signalled");
        let after = node.state(-1)?;
        ensure!(
            (after.state, after.resets, after.reset) == (xio_uapi::STATE_LIVE, before.resets + 1, reset),
            "{after:?}"
        );
        ensure!(node.poll(0)?.is_empty(), "told of it again");
    }
    stored(&node, 4)
}

/// Both ways, as the ordinary user.
fn work() -> Result<()> {
    let node = Node::open(NODE)?;
    stored(&node, 4)?;
    let end = Instant::now() + NODE_LIMIT;
    loop {
        match node.queue_create(16, -1) {
            Ok(created) => {
                let mut queue = Queue::map(&node, created)?;
                let exist = nvme_kv::kv::Command::Exist { key: nvme_kv::Key::new(&key(0)).context("a key")? };
                let (status, _) = queue.run(exist)?;
                ensure!(status.is_success(), "Exist: {status}");
                return Ok(());
            }
            // The one before is still being taken down.
            Err(Errno::EBUSY) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e).context("QUEUE_CREATE"),
        }
    }
}

/// Nobody waits in the kernel for a call of io_uring: it is ended all the same.
fn uring(report: &mut Report) -> Result<()> {
    host::faults(report, 0, "drop op=exist count=1")?;
    let ended = session::run(&["faults-uring"]);
    host::no_faults(report, 0)?;
    report.note(ended?.text().trim());
    session::run(&["faults-work"]).map(drop)
}

fn lost_call() -> Result<()> {
    let (node, ring) = (Node::open(NODE)?, raw::CommandRing::new()?);
    let mut all = [entry(xio_uapi::KV_EXIST, b"lost", 0, 0, 0)];
    let (entries, count, timeout_ms) = (all.as_mut_ptr() as u64, 1, 60_000);
    let mut request = xio_uapi::KvSubmit { entries, count, timeout_ms, ..raw::sized() };
    let start = Instant::now();
    ring.issue(&node, &mut request, 7)?;
    ensure!(ring.wait()? == (7, 0), "the call's result");
    ensure!(outcome(&all[0]) == LOST, "error {}, status {:#x}", all[0].error, all[0].status);
    println!("ended after {} ms", start.elapsed().as_millis());
    Ok(())
}

/// While the controller does not answer one client, others can be killed, whatever they wait for.
fn killable(report: &mut Report) -> Result<()> {
    fs::write("/sys/module/rocm_xio/parameters/command_timeout_s", "12")?;
    host::faults(report, 0, "drop op=create-cq count=1")?;
    let first = Session::spawn(&["faults-create"])?;
    std::thread::sleep(Duration::from_millis(500));
    let mut others =
        [&["faults-work"][..], &["faults-create"]].map(Session::spawn).map(|s| s.expect("a client"));
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    others.iter_mut().try_for_each(Session::kill)?;
    let took = start.elapsed();
    first.line().context("the client that met the fault")?;
    fs::write("/sys/module/rocm_xio/parameters/command_timeout_s", "2")?;
    host::no_faults(report, 0)?;
    // What they have is taken down later.
    ensure!(took < Duration::from_secs(6), "killed only after {took:?}");
    report.note(&format!("killed after {} ms", took.as_millis()));
    session::run(&["faults-work"]).map(drop)
}

/// Whatever a controller says of itself when it is bound: there is an end to that, nothing bad happens in the kernel, and
/// an honest one is served afterwards.
fn starts(report: &mut Report) -> Result<()> {
    let address = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    let mut rules: Vec<String> = Vec::new();
    for name in [
        "mqes", "to", "dstrd", "css", "mpsmin", "mpsmax", "mdts", "acl", "aerl", "elpe", "sqes", "cqes",
        "maxcmd", "nn", "sgls", "nsze", "nuse", "nkvf", "kvfc", "kvkml", "kvvml", "mnks",
    ] {
        rules.extend(["0", "max"].map(|value| format!("limit {name} {value}")));
    }
    for cns in ["0", "1", "2", "5", "6", "7", "8", "0x1c"] {
        for seed in 1..=4 {
            rules.push(format!("seed {seed}; identify 0 random:4096 cns={cns}"));
        }
        rules.extend(["zeros", "ones"].map(|what| format!("identify 0 {what}:4096 cns={cns}")));
    }
    for what in [
        "drop op=identify count=1",
        "error internal-error op=identify",
        "cid random op=identify count=1",
        "fatal op=identify count=1",
        "phase op=identify count=1",
        "dw0 op=set-features",
        "error 0x002 op=set-features",
        "never-ready",
        "stay-ready",
        "duplicate times=9 op=identify",
    ] {
        rules.push(what.to_owned());
    }
    let (mut bound, mut longest) = (0, Duration::ZERO);
    for rules in &rules {
        if pci::driver(&address)?.is_some() {
            pci::unbind(&address)?;
        }
        host::faults(report, 0, rules)?;
        let start = Instant::now();
        if pci::bind(&address, "rocm_xio").is_ok() {
            bound += 1;
            // It may be of no use, but says so.
            bad_client().with_context(|| rules.clone())?;
        }
        if pci::driver(&address)?.is_some() {
            pci::unbind(&address)?;
        }
        longest = longest.max(start.elapsed());
        ensure!(start.elapsed() < BOUND + BOUND, "{rules}: {:?}", start.elapsed());
        host::no_faults(report, 0)?;
    }
    report.note(&format!("{} bad starts, {bound} of them bound, {longest:?} at most", rules.len()));
    pci::bind(&address, "rocm_xio").context("binding an honest controller")?;
    fs::wait_for_file(NODE, NODE_LIMIT)?;
    kernel::give_nodes_to_render()?;
    session::run(&["faults-work"])?;
    nothing_is_left()
}

/// Asks for everything; any errno will do, as long as there is one.
fn bad_client() -> Result<()> {
    fs::wait_for_file(NODE, NODE_LIMIT)?;
    let node = Node::open(NODE)?;
    let info = node.info();
    for index in 0..3 {
        // Refused or not.
        let _ = node.request(&mut xio_uapi::GetNamespace { index, ..raw::sized() });
    }
    if let (Ok(_), Ok(made)) = (info, node.buffer_alloc(8192)) {
        let mut all = entries(KV_STORE, made.handle, 2);
        let _ = node.submit(&mut all, 3000);
        let mut all = entries(KV_RETRIEVE, made.handle, 2);
        let _ = node.submit(&mut all, 3000);
    }
    for entries in [0, 2, 16, 65_536] {
        if let Ok(created) = node.queue_create(entries, -1) {
            let mut queue = Queue::map(&node, created)?;
            let key = nvme_kv::Key::new(b"bad").context("a key")?;
            queue.submit(nvme_kv::kv::Command::Exist { key })?;
            std::thread::sleep(Duration::from_millis(5));
            // What comes may be anything.
            let _ = queue.reap();
        }
    }
    Ok(())
}

/// The controller is gone from one moment to the next.
fn vanishes(report: &mut Report) -> Result<()> {
    let node = Node::open(NODE)?;
    let (handle, data) = buffer(&node, 1)?;
    node.state(-1)?;
    host::faults(report, 0, "vanish now")?;
    let start = Instant::now();
    let told = node.poll(30_000)?;
    ensure!(!told.is_empty(), "nobody was told");
    let mut all = entries(KV_RETRIEVE, handle, 1);
    let submitted = node.submit(&mut all, 5000);
    report.note(&format!("told of {told:?} after {:?}", start.elapsed()));
    let state = node.state(-1)?;
    ensure!((state.state, state.reset) == (xio_uapi::STATE_FAILED, xio_uapi::RESET_ABSENT), "{state:?}");
    expect("KV_SUBMIT", submitted, Errno::ENODEV)?;
    expect("GET_INFO", node.info(), Errno::ENODEV)?;
    expect("BUFFER_ALLOC", node.buffer_alloc(4096), Errno::ENODEV)?;
    expect("mmap", node.map(0, 4096), Errno::ENXIO)?;
    raw::catch_bus_errors()?;
    ensure!(data.is_revoked(), "the buffer is still mapped");
    drop((data, node));
    let address = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    pci::unbind(&address)?;
    fs::wait_for_absence(NODE, NODE_LIMIT)
}
