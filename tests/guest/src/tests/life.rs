// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lifetimes: whatever ends first, memory that the device reaches is never somebody else's, and nothing is left.

use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::raw::{self, Buffer, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::abi::expect;
use crate::{fs, pci};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nvme_kv::{kv::Command, Key, Status};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

pub const CLIENTS: &[(&str, Client)] = &[
    ("life-busy", |_| busy()),
    ("life-work", |_| work()),
    ("life-hold", hold),
    ("life-open", |_| open()),
    ("life-race", |_| race()),
    ("life-pin", |_| pin()),
    ("life-stale", |_| stale()),
    ("life-type-changes", |_| type_changes()),
    ("life-stray", |_| stray()),
];

/// Arguments: `lazy` sets the IOMMU group to DMA-FQ first; `root` runs what needs the direct path as root, for
/// machines without IOMMU; `no-suspend` spares a machine whose IOMMU does not come through that, `no-sleep` one where it only
/// does as long as the machine stays awake; `short` leaves out
/// what does not depend on the machine.
pub fn run(report: &mut Report, arguments: &[&str]) {
    let root = arguments.contains(&"root");
    if arguments.contains(&"lazy") {
        report.case("group_flushes_lazily", |_| make_lazy());
    }
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    report.case("client_works", move |_| client(root, &["life-work"]));
    if !root {
        report.case("freed_buffer_is_out_of_reach", |_| client(false, &["life-stale"]));
        report.case("stray_admin_doorbell_does_no_harm", |_| stray_doorbell());
    }
    if !root {
        report.case("reset_before_another_user", |_| another_user());
    }
    report.case("unbind_while_mapped", move |_| unbind_while_mapped(root));
    report.case("unbind_while_pinned", move |_| unbind_while_pinned(root));
    report.case("reset_while_mapped", move |_| reset_while_mapped(root));
    if !arguments.contains(&"no-suspend") {
        report.case("suspended_while_mapped", move |_| suspended_while_mapped(root, suspend_devices));
    }
    if !arguments.contains(&"no-suspend") && !arguments.contains(&"no-sleep") {
        report.case("suspended_to_memory", move |_| suspended_while_mapped(root, suspend_to_memory));
    }
    if arguments.contains(&"short") {
        return;
    }
    report.case("removal_while_mapped", move |_| removal_while_mapped(root));
    report.case("unbind_races_with_mmap", move |_| unbind_races_with_mmap(root));
    report.case("killed_200_times", move |report| killed(report, root));
    if !root {
        report.case("group_type_changes_under_a_client", |_| {
            let client = Session::start(&["life-type-changes"])?;
            make_lazy()?;
            client.finish()
        });
    }
    report.case("unload_is_refused_while_open", move |_| unload_while_open(root));
    report.case("unload_is_refused_while_debugfs_is_open", move |_| unload_while_debugfs_open(root));
    report.case("reloaded_20_times", move |_| reload(root));
    report.case("unload_leaves_the_device_quiet", |_| {
        kernel::rmmod("rocm_xio").context("rmmod")?;
        is_quiet(&function()?)
    });
}

fn function() -> Result<String> {
    pci::nvme_functions()?.into_iter().next().context("no controller")
}

fn client(root: bool, words: &[&str]) -> Result<()> {
    if root { session::run_as_root(words) } else { session::run(words) }.map(drop)
}

fn start(root: bool, words: &[&str]) -> Result<Session> {
    if root {
        Session::start_as_root(words)
    } else {
        Session::start(words)
    }
}

fn make_lazy() -> Result<()> {
    fs::write(pci::path(&function()?).join("iommu_group/type"), "DMA-FQ")?;
    let kind = pci::iommu_domain(&function()?)?;
    ensure!(kind.as_deref() == Some("DMA-FQ"), "the group is {kind:?}");
    Ok(())
}

/// The counters of a controller's debugfs folder.
pub fn counters(node: &str) -> Result<BTreeMap<String, u64>> {
    let text = fs::read(format!("/sys/kernel/debug/{node}/counters"))?;
    let pair = |line: &str| {
        let (name, number) = line.split_once(' ').context("a counter without a number")?;
        Ok((name.to_owned(), number.parse()?))
    };
    text.lines().map(pair).collect()
}

/// Waits until all that clients made is gone: files are released after their process was waited for.
pub fn nothing_is_left() -> Result<()> {
    let left = || -> Result<u64> {
        let counters = counters("rocm-xio0")?;
        let of = |name: &str| counters.get(name).copied().with_context(|| format!("no counter {name}"));
        const ZERO: [&str; 7] = ["clients", "owned", "queues", "buffers", "pages", "calls", "commands"];
        ZERO.iter().map(|name| of(name)).sum()
    };
    fs::wait_for("everything of the clients going", NODE_LIMIT, || Ok(left()? == 0))
}

fn stray_doorbell() -> Result<()> {
    let shared = Node::open(NODE)?.info()?.doorbell_pages == 0;
    client(false, &["life-stray"])?;
    let counters = counters("rocm-xio0")?;
    let expected = u64::from(shared);
    ensure!(counters["resets"] == expected && counters["stray_completions"] == expected, "{counters:?}");
    client(false, &["life-work"])
}

fn rebind(address: &str) -> Result<()> {
    pci::bind(address, "rocm_xio")?;
    fs::wait_for_file(NODE, NODE_LIMIT)?;
    kernel::give_nodes_to_render()
}

/// Not enabled, not bus-mastering.
pub fn is_quiet(address: &str) -> Result<()> {
    let enabled = fs::read(pci::path(address).join("enable"))?;
    ensure!(enabled == "0", "{address} is enabled {enabled} times");
    let config = std::fs::read(pci::path(address).join("config"))?;
    ensure!(config[4] & 4 == 0, "{address} can master the bus");
    Ok(())
}

fn unbind_while_mapped(root: bool) -> Result<()> {
    let address = function()?;
    let holder = start(root, &["life-hold", "unbind"])?;
    let start = Instant::now();
    pci::unbind(&address)?;
    ensure!(start.elapsed() < Duration::from_secs(20), "unbind took {:?}", start.elapsed());
    fs::wait_for_absence(NODE, NODE_LIMIT)?;
    is_quiet(&address)?;
    // Bound again while the old file is open: another client is served, the old one is not.
    rebind(&address)?;
    client(root, &["life-work"])?;
    holder.finish()?;
    client(root, &["life-work"])?;
    nothing_is_left()
}

fn reset_while_mapped(root: bool) -> Result<()> {
    let holder = start(root, &["life-hold", "reset"])?;
    fs::write(pci::path(&function()?).join("reset"), "1")?;
    holder.finish()?;
    client(root, &["life-work"])?;
    nothing_is_left()
}

/// The devices, without the machine itself going to sleep (pm_test).
fn suspend_devices() -> Result<()> {
    fs::write("/sys/module/suspend/parameters/pm_test_delay", "0")?;
    fs::write("/sys/power/pm_test", "devices")?;
    fs::write("/sys/power/state", "freeze")?;
    fs::write("/sys/power/pm_test", "none")
}

/// The machine, until its clock wakes it.
fn suspend_to_memory() -> Result<()> {
    fs::write("/sys/class/rtc/rtc0/wakealarm", "+2")?;
    fs::write("/sys/power/mem_sleep", "deep")?;
    fs::write("/sys/power/state", "mem")?;
    let woke = "Waking up from system sleep state S3";
    ensure!(kernel::messages()?.iter().any(|line| line.contains(woke)), "it did not sleep");
    Ok(())
}

/// Devices are suspended and resumed under a client, which goes on.
fn suspended_while_mapped(root: bool, suspend: fn() -> Result<()>) -> Result<()> {
    let holder = start(root, &["life-hold", "reset"])?;
    let before = counters("rocm-xio0")?["resets"];
    suspend()?;
    holder.finish()?;
    let after = counters("rocm-xio0")?["resets"];
    ensure!(after == before + 1, "{before} resets before, {after} after");
    client(root, &["life-work"])?;
    nothing_is_left()
}

fn removal_while_mapped(root: bool) -> Result<()> {
    let holder = start(root, &["life-hold", "unbind"])?;
    pci::remove(&function()?)?;
    holder.finish()?;
    pci::rescan()?;
    fs::wait_for_file(NODE, NODE_LIMIT)?;
    kernel::give_nodes_to_render()?;
    client(root, &["life-work"])?;
    nothing_is_left()
}

/// Pages that another holds do not keep the device from being unbound, and are given back in the end.
fn unbind_while_pinned(root: bool) -> Result<()> {
    let before = counters("rocm-xio0")?["live_pages"];
    let address = function()?;
    let holder = start(root, &["life-pin"])?;
    let start = Instant::now();
    pci::unbind(&address)?;
    ensure!(start.elapsed() < Duration::from_secs(20), "unbind took {:?}", start.elapsed());
    rebind(&address)?;
    holder.finish()?;
    nothing_is_left()?;
    let after = counters("rocm-xio0")?["live_pages"];
    ensure!(before == after, "{before} pages before, {after} after");
    Ok(())
}

fn unbind_races_with_mmap(root: bool) -> Result<()> {
    let address = function()?;
    for _ in 0..20 {
        let racer = start(root, &["life-race"])?;
        pci::unbind(&address)?;
        racer.end()?;
        rebind(&address)?;
    }
    client(root, &["life-work"])?;
    nothing_is_left()
}

fn killed(report: &mut Report, root: bool) -> Result<()> {
    let before = counters("rocm-xio0")?["live_pages"];
    let mut wait = 7u64;
    for _ in 0..200 {
        let mut victim =
            if root { Session::start_as_root(&["life-busy"])? } else { Session::start(&["life-busy"])? };
        wait = wait * 31 % 101;
        std::thread::sleep(Duration::from_micros(wait * 100));
        victim.kill()?;
    }
    nothing_is_left()?;
    client(root, &["life-work"])?;
    nothing_is_left()?;
    let counters = counters("rocm-xio0")?;
    ensure!(counters["live_pages"] == before, "{before} pages before, {} after", counters["live_pages"]);
    report.note(&format!("counters after 200 kills: {counters:?}"));
    Ok(())
}

fn unload_while_open(root: bool) -> Result<()> {
    let holder = start(root, &["life-open"])?;
    expect("rmmod with an open file", kernel::rmmod("rocm_xio"), Errno::EAGAIN)?;
    holder.finish()?;
    kernel::rmmod("rocm_xio").context("rmmod after closing")?;
    is_quiet(&function()?)?;
    kernel::load_rocm_xio("")?;
    client(root, &["life-work"])
}

fn unload_while_debugfs_open(root: bool) -> Result<()> {
    let file = std::fs::File::open("/sys/kernel/debug/rocm-xio0/counters")?;
    expect("rmmod with an open file", kernel::rmmod("rocm_xio"), Errno::EAGAIN)?;
    // Unbound and bound under it.
    let address = function()?;
    pci::unbind(&address)?;
    rebind(&address)?;
    drop(file);
    client(root, &["life-work"])
}

/// What one user's direct queues may have left behind in the controller is gone before another user has anything.
fn another_user() -> Result<()> {
    let resets = || -> Result<u64> { Ok(counters("rocm-xio0")?["resets"]) };
    let before = resets()?;
    client(false, &["life-work"])?;
    client(false, &["life-work"])?;
    ensure!(resets()? == before, "a reset between two clients of one user");
    client(true, &["life-work"])?;
    ensure!(resets()? == before + 1, "{} resets for another user", resets()? - before);
    client(false, &["life-work"])
}

fn reload(root: bool) -> Result<()> {
    for n in 0..20 {
        kernel::rmmod("rocm_xio").with_context(|| format!("rmmod {n}"))?;
        kernel::load_rocm_xio("")?;
    }
    client(root, &["life-work"])?;
    nothing_is_left()
}

/// Opens the node; waits while the owner before is still being taken down.
fn open_and_own() -> Result<(Node, Queue)> {
    let node = Node::open(NODE)?;
    let end = Instant::now() + NODE_LIMIT;
    loop {
        match node.queue_create(64, xio_uapi::NO_EVENTFD) {
            Ok(created) => return Queue::map(&node, created).map(|queue| (node, queue)),
            Err(Errno::EBUSY) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e).context("QUEUE_CREATE"),
        }
    }
}

/// Stores and retrieves, and looks at every byte.
fn work() -> Result<()> {
    let (node, mut queue) = open_and_own()?;
    let buffer = Buffer::new(&node, 64 << 10)?;
    exchange(&mut queue, &buffer)
}

fn exchange(queue: &mut Queue, buffer: &Buffer) -> Result<()> {
    let (key, len) = (Key::new(b"life")?, 50_000);
    buffer.data.fill(1);
    let data = buffer.point(0, len)?;
    let (status, _) =
        queue.run(Command::Store { key, len: len as u32, options: Default::default(), data })?;
    ensure!(status.is_success(), "Store: {status}");
    buffer.data.fill(2);
    let command = Command::Retrieve { key, len: len as u32, options: Default::default(), data };
    let (status, stored) = queue.run(command)?;
    ensure!(status.is_success() && stored as usize == len, "Retrieve: {status}, {stored} bytes");
    let wrong = buffer.data.wrong(1, len);
    ensure!(wrong == 0, "{wrong} bytes differ");
    Ok(())
}

/// Keeps the queue full until it is killed.
fn busy() -> Result<()> {
    let (node, mut queue) = open_and_own()?;
    let buffer = Buffer::new(&node, 1 << 20)?;
    let key = Key::new(b"busy")?;
    let data = buffer.point(0, 1 << 20)?;
    let store = Command::Store { key, len: 1 << 20, options: Default::default(), data };
    ensure!(queue.run(store)?.0.is_success(), "Store");
    println!("ready");
    let retrieve = Command::Retrieve { key, len: 1 << 20, options: Default::default(), data };
    loop {
        while queue.submit(retrieve).is_ok() {}
        while let Some(cqe) = queue.reap()? {
            ensure!(cqe.status().is_success(), "Retrieve: {}", cqe.status());
        }
    }
}

/// Maps everything and looks at it again after the test did something.
fn hold(arguments: &[&str]) -> Result<()> {
    raw::catch_bus_errors()?;
    let (node, mut queue) = open_and_own()?;
    let buffer = Buffer::new(&node, 64 << 10)?;
    exchange(&mut queue, &buffer)?;
    let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?;
    node.queue_create(8, event.as_fd().as_raw_fd()).context("a queue with an eventfd")?;
    let handles = (queue.created.handle, buffer.allocated.handle);
    let all = [&queue.sq, &queue.cq, &queue.tail, &queue.head, &buffer.data, &buffer.table];
    ensure!(!all.iter().any(|m| m.is_revoked()), "revoked before anything happened");
    session::ready()?;
    for (n, mapping) in all.iter().enumerate() {
        ensure!(mapping.is_revoked(), "mapping {n} is still there");
    }
    ensure!(event.read().is_ok(), "whoever sleeps on the eventfd was not woken");
    if arguments == ["unbind"] {
        expect("GET_INFO", node.info(), Errno::ENODEV)?;
        expect("QUEUE_CREATE", node.queue_create(8, -1), Errno::ENODEV)?;
        expect("QUEUE_DESTROY", node.queue_destroy(handles.0), Errno::ENODEV)?;
        expect("BUFFER_FREE", node.buffer_free(handles.1), Errno::ENODEV)?;
        return expect("mmap", node.map(queue.created.sq_offset, 4096), Errno::ENODEV);
    }
    // After a reset the objects are gone, and the client can make new ones.
    expect("QUEUE_DESTROY", node.queue_destroy(handles.0), Errno::ENOENT)?;
    expect("BUFFER_FREE", node.buffer_free(handles.1), Errno::ENOENT)?;
    expect("mmap", node.map(queue.created.sq_offset, 4096), Errno::ENXIO)?;
    drop((queue, buffer));
    let (mut queue, buffer) = (Queue::new(&node, 8)?, Buffer::new(&node, 64 << 10)?);
    exchange(&mut queue, &buffer)
}

fn open() -> Result<()> {
    let _node = Node::open(NODE)?;
    session::ready()
}

/// Maps and touches without end while the device is unbound: whatever was mapped in that moment must be gone.
fn race() -> Result<()> {
    raw::catch_bus_errors()?;
    let (node, queue) = open_and_own()?;
    let buffer = node.buffer_alloc(4096)?;
    let offsets = [buffer.data_offset, queue.created.sq_offset, queue.created.sq_doorbell_offset];
    println!("ready");
    let end = Instant::now() + NODE_LIMIT;
    loop {
        let maps: Vec<_> = offsets.iter().map_while(|offset| node.map(*offset, 4096).ok()).collect();
        let revoked = maps.iter().filter(|m| m.is_revoked()).count();
        if node.info().err() == Some(Errno::ENODEV) {
            // `is_revoked` puts a page of ours in the place of one that is gone; so map anew what is left.
            for (n, map) in maps.iter().enumerate() {
                ensure!(raw::is_ours(map)? || map.is_revoked(), "mapping {n} survived");
            }
            expect("mmap", node.map(offsets[0], 4096), Errno::ENODEV)?;
            return Ok(());
        }
        ensure!(Instant::now() < end, "the device was not unbound; {revoked} mappings gone");
    }
}

/// Has io_uring pin queue and buffer memory, as a GPU runtime would.
fn pin() -> Result<()> {
    let (node, mut queue) = open_and_own()?;
    let buffer = Buffer::new(&node, 64 << 10)?;
    exchange(&mut queue, &buffer)?;
    let ring = raw::IoUring::new()?;
    ring.register(&[&queue.sq, &queue.cq, &buffer.data]).context("registering queue and buffer memory")?;
    exchange(&mut queue, &buffer).context("with pinned memory")?;
    let doorbell = ring.register_again(&[&queue.tail]);
    ensure!(doorbell.is_err(), "doorbells could be pinned as memory");
    session::ready()
}

/// The device can not reach a buffer from the moment it is freed, however fast it is asked to.
fn stale() -> Result<()> {
    let (node, mut queue) = open_and_own()?;
    freed_memory(&node, &mut queue)
}

/// Root may have the IOMMU flush lazily while the device is in use. That changes nothing for the client.
fn type_changes() -> Result<()> {
    let (node, mut queue) = open_and_own()?;
    freed_memory(&node, &mut queue)?;
    session::ready()?;
    let info = node.info()?;
    ensure!(info.iommu == xio_uapi::IOMMU_TRANSLATED_LAZY, "IOMMU {}", info.iommu);
    ensure!(info.direct == xio_uapi::DIRECT_CONFINED, "direct {}", info.direct);
    freed_memory(&node, &mut queue)
}

/// The device does not reach a buffer that was freed.
fn freed_memory(node: &Node, queue: &mut Queue) -> Result<()> {
    let source = Buffer::new(node, 4096)?;
    let key = Key::new(b"stale")?;
    let data = source.point(0, 4096)?;
    let store = Command::Store { key, len: 4096, options: Default::default(), data };
    ensure!(queue.run(store)?.0.is_success(), "Store");
    for round in 0..100 {
        let victim = Buffer::new(node, 4096)?;
        let data = victim.point(0, 4096)?;
        let retrieve = Command::Retrieve { key, len: 4096, options: Default::default(), data };
        ensure!(queue.run(retrieve)?.0.is_success(), "Retrieve into a live buffer, round {round}");
        node.buffer_free(victim.allocated.handle)?;
        let (status, _) = queue.run(retrieve)?;
        ensure!(
            status == Status::DATA_TRANSFER_ERROR,
            "Retrieve into a freed buffer, round {round}: {status}"
        );
    }
    Ok(())
}

/// Rings the admin queue's doorbell, which below DSTRD 10 is on the page with the client's own. That puts the
/// admin queue out of step: the module resets the controller, and this client starts again.
fn stray() -> Result<()> {
    raw::catch_bus_errors()?;
    let (node, mut queue) = open_and_own()?;
    let buffer = Buffer::new(&node, 64 << 10)?;
    exchange(&mut queue, &buffer)?;
    if node.info()?.doorbell_pages != 0 {
        return Ok(());
    }
    let tail: u32 = queue.tail.read(0);
    queue.tail.write(0, (tail + 1) % 32);
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    expect("the next admin command", node.queue_create(8, -1), Errno::EIO)?;
    ensure!(start.elapsed() < Duration::from_secs(10), "the reset took {:?}", start.elapsed());
    ensure!(queue.sq.is_revoked() && buffer.data.is_revoked(), "mappings survived the reset");
    let (mut queue, buffer) = (Queue::new(&node, 8)?, Buffer::new(&node, 64 << 10)?);
    exchange(&mut queue, &buffer)
}
