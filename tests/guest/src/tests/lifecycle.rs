// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that comes and goes under load, and processes that end at any point, with every kind of resource alive.
#![allow(unsafe_code)] // fork, exec

use crate::fakegpu::{self, FakeGpu, Layout};
use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::random::Random;
use crate::raw::{self, entry, sized, Mapping, Node};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::life::{self, counters};
use crate::tests::share::{allow_udmabuf, nothing_is_left};
use crate::{fs, host, pci};
use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use xio_uapi::{BufferAlloc, QueueCreate, KV_RETRIEVE, KV_STORE, NO_EVENTFD};

pub const CLIENTS: &[(&str, Client)] = &[
    ("lifecycle-herd", herd),
    ("lifecycle-load", load),
    ("lifecycle-fork", |_| forked()),
    ("lifecycle-inherited", inherited),
    ("lifecycle-hold", |_| hold()),
];

/// Says to the clients of `lifecycle-load` that it is enough.
const ENOUGH: &str = "/tmp/enough";
const KILLS: usize = 2000;
const HERDS: usize = 4;

/// Argument: `short` for a fraction of the rounds.
pub fn run(report: &mut Report, arguments: &[&str]) {
    let part = if arguments.contains(&"short") { 10 } else { 1 };
    report.case("modules_load", |_| {
        fakegpu::load()?;
        kernel::load_rocm_xio("")?;
        allow_udmabuf()
    });
    report.case("killed_at_any_point", |report| killed(report, KILLS / part));
    report.case("forked_passed_on_and_inherited", |_| {
        session::run(&["lifecycle-fork"])?;
        nothing_is_left()
    });
    report.case("reset_under_load", |report| under_load(report, 20 / part, reset));
    report.case("unbound_under_load", |report| under_load(report, 20 / part, rebind));
    report.case("removed_under_load", |report| under_load(report, 10 / part, remove));
    report.case("unplugged_under_load", |report| under_load(report, 5.max(10 / part) / 2, unplug));
    report.case("bus_error_under_load", |report| under_load(report, 5.max(10 / part) / 5, bus_error));
    report.case("told_of_each", told);
    report.case("traced", traced);
    report.case("reloaded", move |_| {
        for n in 0..100 / part {
            kernel::rmmod("rocm_xio").with_context(|| format!("rmmod {n}"))?;
            kernel::load_rocm_xio("")?;
        }
        nothing_is_left()
    });
}

fn function() -> Result<String> {
    pci::nvme_functions()?.into_iter().next().context("no controller")
}

fn killed(report: &mut Report, kills: usize) -> Result<()> {
    // The kernel's queue stays once it was used.
    session::run(&["faults-work"])?;
    let before = counters("rocm-xio0")?["live_pages"];
    let start = Instant::now();
    let each = (kills / HERDS).to_string();
    let herds: Vec<Session> = (1..=HERDS)
        .map(|seed| Session::spawn(&["lifecycle-herd", &seed.to_string(), &each]))
        .collect::<Result<_>>()?;
    let mut done = Vec::new();
    for herd in herds {
        // One line a hundred kills, so that a herd that stands still is seen.
        loop {
            let line = herd.line()?;
            if let Some(line) = line.strip_prefix("herd ") {
                done.push(line.to_owned());
                break;
            }
        }
        herd.end()?;
    }
    done.iter().for_each(|line| report.note(line));
    nothing_is_left()?;
    let after = counters("rocm-xio0")?;
    report.note(&format!("{} kills in {:?}, {after:?}", each.parse::<usize>()? * HERDS, start.elapsed()));
    ensure!(after["live_pages"] == before, "{before} pages before, {} after", after["live_pages"]);
    session::run(&["faults-work"]).map(drop)
}

/// Starts children that use everything, and kills each after a random time.
fn herd(arguments: &[&str]) -> Result<()> {
    let [seed, kills] = arguments else { bail!("two arguments") };
    let mut random = Random::new(seed.parse()?);
    let kills: usize = kills.parse()?;
    let mut early = 0;
    for n in 0..kills {
        let child_seed = random.below(u64::MAX - 1) + 1;
        // SAFETY: This process has one thread.
        match unsafe { fork() }.context("fork")? {
            ForkResult::Child => {
                let result = use_everything(&mut Random::new(child_seed));
                // SAFETY: Ends the child, without what the parent has to be done at its end.
                unsafe { libc::_exit(i32::from(result.inspect_err(|e| eprintln!("{e:#}")).is_err()) * 9) };
            }
            ForkResult::Parent { child } => {
                std::thread::sleep(Duration::from_micros(random.below(40_000)));
                early += usize::from(put_down(child)?);
            }
        }
        if n % 100 == 99 {
            println!("{n}");
        }
    }
    println!("herd {seed}: {kills} kills, {early} of them after the end");
    Ok(())
}

/// Kills a child; whether it had ended before. It must not have failed.
fn put_down(child: Pid) -> Result<bool> {
    kill(child, Signal::SIGKILL).context("kill")?;
    match waitpid(child, None).context("waitpid")? {
        WaitStatus::Signaled(_, Signal::SIGKILL, _) => Ok(false),
        WaitStatus::Exited(_, 0) => Ok(true),
        other => bail!("a child ended with {other:?}"),
    }
}

/// Errors of others' making: their direct queues, their memory, a limit, a device that is not there.
fn may_happen(error: Errno) -> Result<()> {
    match error {
        Errno::EBUSY | Errno::EDQUOT | Errno::ENOSPC | Errno::ENOMEM | Errno::EAGAIN | Errno::ENODEV => {
            Ok(())
        }
        other => Err(other).context("an errno that has no reason"),
    }
}

/// Makes one resource after the other, in any order, and uses them; they all stay until the end.
fn use_everything(random: &mut Random) -> Result<()> {
    let node = Node::open(NODE)?;
    let gpu = FakeGpu::open()?;
    let (mut maps, mut exports, mut imports, mut fds) =
        (Vec::<Mapping>::new(), Vec::new(), Vec::new(), Vec::<OwnedFd>::new());
    let mut queue: Option<QueueCreate> = None;
    let own = raw::anonymous(64 << 10, libc::PROT_READ | libc::PROT_WRITE)?;
    let ring = raw::CommandRing::new()?;
    // The kernel writes to it as long as the ring is there.
    let mut call: Box<xio_uapi::KvSubmit> = Box::new(sized());
    let mut called = Box::new([entry(KV_RETRIEVE, b"herd", 0, 0, 4096); 4]);
    for _ in 0..24 {
        let flags = random.one(&[0, xio_uapi::BUFFER_CMB]);
        let mut buffer = None;
        match random.below(9) {
            0 | 1 => {
                let mut request = BufferAlloc { len: 4096 << random.below(6), flags, ..sized() };
                match node.request(&mut request) {
                    Ok(()) => {
                        maps.extend(node.map(request.data_offset, request.len as usize).ok());
                        buffer = Some(request.handle);
                    }
                    Err(e) => may_happen(e)?,
                }
            }
            2 => match node.register(own.ptr.as_ptr() as usize, own.len, 0) {
                Ok(made) => buffer = Some(made.handle),
                Err(e) => may_happen(e)?,
            },
            3 => match gpu.export(&Layout::scattered(32 << 10)) {
                Ok(export) => {
                    match node.import(&export.fd, 0, 32 << 10, 0) {
                        Ok(made) => buffer = Some(made.handle),
                        Err(e) => may_happen(e)?,
                    }
                    exports.push(export);
                }
                Err(e) => may_happen(e)?,
            },
            4 => {
                let system = xio::system_dmabuf(64 << 10)?;
                match node.import(&system, 0, 64 << 10, 0) {
                    Ok(made) => buffer = Some(made.handle),
                    Err(e) => may_happen(e)?,
                }
            }
            5 => {
                let flags = random.one(&[0, xio_uapi::QUEUE_SQ_CMB]);
                let mut request = QueueCreate { entries: 16, flags, eventfd: NO_EVENTFD, ..sized() };
                match node.request(&mut request) {
                    Ok(()) => {
                        let (sq, bell) = (request.sq_offset, request.sq_doorbell_offset);
                        maps.extend(
                            [(sq, request.sq_len), (bell, 4096)]
                                .map(|(at, len)| node.map(at, len as usize).ok())
                                .into_iter()
                                .flatten(),
                        );
                        queue = Some(request);
                    }
                    Err(e) => may_happen(e)?,
                }
            }
            6 => {
                if let Some(queue) = &queue {
                    let (fd, _) =
                        node.export(queue.handle, random.below(4) as u32).context("QUEUE_EXPORT")?;
                    imports.extend(gpu.import(&fd, 0).ok());
                    fds.push(fd);
                }
            }
            7 => {
                // Once: what a call that is under way refers to must not change.
                if call.count == 0 {
                    (call.entries, call.count, call.timeout_ms) = (called.as_mut_ptr() as u64, 4, 1000);
                    ring.issue(&node, &mut call, 1)?;
                }
            }
            _ => maps.iter().for_each(|map| map.write(0, random.below(1 << 32) as u32)),
        }
        if let Some(handle) = buffer {
            let mut entries = [KV_STORE, KV_RETRIEVE].map(|op| entry(op, b"herd", handle, 0, 4096));
            if let Err(e) = node.submit(&mut entries, 10_000) {
                may_happen(e)?;
            }
        }
    }
    Ok(())
}

/// Something happens to the device again and again while clients use it; then they are served.
fn under_load(report: &mut Report, rounds: usize, what: fn(&mut Report) -> Result<()>) -> Result<()> {
    // What came of the test before is no matter.
    let _ = std::fs::remove_file(ENOUGH);
    let clients: Vec<Session> =
        (0..3).map(|n| Session::spawn(&["lifecycle-load", &n.to_string()])).collect::<Result<_>>()?;
    clients.iter().try_for_each(Session::wait_ready)?;
    let result = (0..rounds.max(1)).try_for_each(|_| {
        std::thread::sleep(Duration::from_millis(100));
        what(report)
    });
    std::thread::sleep(Duration::from_millis(100));
    std::fs::write(ENOUGH, "")?;
    for client in clients {
        report.note(&client.line()?);
        client.end()?;
    }
    result?;
    session::run(&["faults-work"])?;
    nothing_is_left()
}

fn reset(_: &mut Report) -> Result<()> {
    fs::write(pci::path(&function()?).join("reset"), "1")
}

fn appears() -> Result<()> {
    fs::wait_for_file(NODE, NODE_LIMIT)?;
    kernel::give_nodes_to_render()
}

fn rebind(_: &mut Report) -> Result<()> {
    let address = function()?;
    pci::unbind(&address)?;
    life::is_quiet(&address)?;
    pci::bind(&address, "rocm_xio")?;
    appears()
}

fn remove(_: &mut Report) -> Result<()> {
    pci::remove(&function()?)?;
    pci::rescan()?;
    appears()
}

/// Through QEMU, as a person would pull it out and put it in.
fn unplug(report: &mut Report) -> Result<()> {
    host::qmp(report, r#"{"execute":"device_del","arguments":{"id":"vfu0"}}"#)?;
    fs::wait_for("the controller going", Duration::from_secs(50), || Ok(pci::nvme_functions()?.is_empty()))?;
    let socket = r#"{"type":"unix","path":"@SOCKET0@"}"#;
    let device = format!(
        r#""driver":"vfio-user-pci","bus":"rp0","id":"vfu0","x-msg-timeout":60000,"socket":{socket}"#
    );
    // QEMU may still be taking the old one away.
    let end = Instant::now() + NODE_LIMIT;
    while let Err(e) = host::qmp(report, &format!(r#"{{"execute":"device_add","arguments":{{{device}}}}}"#)) {
        ensure!(Instant::now() < end, "plugging in: {e:#}");
        std::thread::sleep(Duration::from_millis(300));
    }
    fs::wait_for_file(NODE, Duration::from_secs(50))?;
    kernel::give_nodes_to_render()
}

/// An error of the link, for which the kernel resets it and what is behind it.
fn bus_error(report: &mut Report) -> Result<()> {
    let before = counters("rocm-xio0")?["resets"];
    let command = "pcie_aer_inject_error rp0 DLP";
    host::qmp(
        report,
        &format!(r#"{{"execute":"human-monitor-command","arguments":{{"command-line":"{command}"}}}}"#),
    )?;
    fs::wait_for("recovery", NODE_LIMIT, || Ok(counters("rocm-xio0")?["resets"] > before))
}

/// Stores and retrieves through the kernel, whatever becomes of the device, until it is enough. Data is right or there is none.
fn load(arguments: &[&str]) -> Result<()> {
    let [number] = arguments else { bail!("one argument") };
    raw::catch_bus_errors()?;
    let (mut served, mut lost) = (0u64, 0u64);
    println!("ready");
    let start = Instant::now();
    while !Path::new(ENOUGH).exists() {
        ensure!(start.elapsed() < Duration::from_secs(300), "it is never enough");
        // It may not be there at this moment, or belong to root for another.
        let Ok(node) = Node::open(NODE) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        while !Path::new(ENOUGH).exists() {
            match exchange(&node, number.as_bytes(), served) {
                Ok(true) => served += 1,
                // The device was reset: the same file goes on, as long as it is there.
                Ok(false) if node.state(-1).is_ok() => {
                    lost += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(false) => {
                    lost += 1;
                    break;
                }
                Err(e) => return Err(e),
            }
        }
    }
    ensure!(served > 0, "never served, {lost} times refused");
    println!("client {number}: {served} pairs stored and retrieved, {lost} calls lost or refused");
    Ok(())
}

/// Stores and retrieves one pair. `false` when the device was reset meanwhile.
fn exchange(node: &Node, name: &[u8], round: u64) -> Result<bool> {
    let Ok(before) = node.state(-1) else { return Ok(false) };
    let Ok(made) = node.buffer_alloc(8192) else { return Ok(false) };
    let Ok(data) = node.map(made.data_offset, 8192) else { return Ok(false) };
    let seed = round as u8;
    (0..4096).for_each(|i| data.write(i, raw::pattern(seed, i)));
    let mut entries =
        [entry(KV_STORE, name, made.handle, 0, 4096), entry(KV_RETRIEVE, name, made.handle, 4096, 4096)];
    for one in entries.chunks_mut(1) {
        if node.submit(one, 20_000).is_err() || one[0].error != 0 {
            return Ok(false);
        }
        ensure!(one[0].status == 0, "status {:#x}", one[0].status);
    }
    let wrong = (0..4096).filter(|i| data.read::<u8>(4096 + i) != raw::pattern(seed, *i)).count();
    drop(data);
    let freed = node.buffer_free(made.handle);
    if freed.is_err() || !node.state(-1).is_ok_and(|after| after.resets == before.resets) {
        return Ok(false);
    }
    ensure!(wrong == 0, "{wrong} bytes differ");
    Ok(true)
}

/// Waits for news, and says them.
fn hold() -> Result<()> {
    let node = Node::open(NODE)?;
    node.state(-1)?;
    session::ready()?;
    let told = node.poll(20_000)?;
    match node.state(-1) {
        Ok(state) => println!("{told:?} state {} reset {} resets {}", state.state, state.reset, state.resets),
        Err(e) => println!("{told:?} {e:?}"),
    }
    Ok(())
}

/// An idle client is told of whatever happens to the device.
fn told(report: &mut Report) -> Result<()> {
    type Happens = fn(&mut Report) -> Result<()>;
    let all: [(&str, Happens, bool); 4] = [
        ("reset", reset, false),
        ("unbind", rebind, true),
        ("remove", remove, true),
        ("bus error", bus_error, false),
    ];
    for (name, what, gone) in all {
        let mut client = Session::start(&["lifecycle-hold"])?;
        client.go_on()?;
        std::thread::sleep(Duration::from_millis(50));
        what(report)?;
        let line = client.line()?;
        client.end()?;
        report.note(&format!("{name}: {line}"));
        let right =
            if gone { line.contains("ENODEV") && line.contains("POLLHUP") } else { line.contains("POLLPRI") };
        ensure!(right, "{name}: {line}");
    }
    nothing_is_left()
}

fn traced(report: &mut Report) -> Result<()> {
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("tracefs"), "/sys/kernel/tracing", Some("tracefs"), flags, None::<&str>)?;
    fs::write("/sys/kernel/tracing/events/rocm_xio/enable", "1")?;
    session::run(&["faults-work"])?;
    reset(report)?;
    fs::write("/sys/kernel/tracing/events/rocm_xio/enable", "0")?;
    let trace = fs::read("/sys/kernel/tracing/trace")?;
    for wanted in [
        "rocm_xio_submit: ",
        "op=store",
        "rocm_xio_complete: ",
        "status=0x000",
        "rocm_xio_state: ",
        "reset=system",
    ] {
        ensure!(trace.contains(wanted), "no {wanted} in:\n{trace}");
    }
    trace.lines().filter(|line| !line.starts_with('#')).take(2).for_each(|line| report.note(line.trim()));
    Ok(())
}

/// One open file in several processes: it is one client, whose things last until the last has closed it.
fn forked() -> Result<()> {
    let node = Node::open(NODE)?;
    let made = node.buffer_alloc(8192)?;
    let data = node.map(made.data_offset, 8192)?;
    data.fill(1);
    // A child has the file, but none of the mappings.
    // SAFETY: This process has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let works = node.submit(&mut [entry(KV_STORE, b"child", made.handle, 0, 4096)], 10_000) == Ok(1);
            // SAFETY: Ends the child.
            unsafe { libc::_exit(i32::from(!works)) };
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None)?;
            ensure!(ended == WaitStatus::Exited(child, 0), "the child: {ended:?}");
        }
    }
    // SAFETY: As above.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let _: u8 = data.read(0);
            // SAFETY: Ends the child.
            unsafe { libc::_exit(0) };
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None)?;
            let segv = WaitStatus::Signaled(child, Signal::SIGSEGV, false);
            ensure!(
                ended == segv || ended == WaitStatus::Signaled(child, Signal::SIGSEGV, true),
                "{ended:?}"
            );
        }
    }
    ensure!(data.wrong(1, 8192) == 0, "the parent's mapping");
    // Passed to another program: it uses the same handles, maps by itself, and is the same client.
    // SAFETY: A descriptor of ours; the new one is not closed on exec.
    let passed = unsafe { OwnedFd::from_raw_fd(libc::dup(node.0.as_raw_fd())) };
    let words = [
        "/init",
        session::ROLE,
        "lifecycle-inherited",
        &passed.as_raw_fd().to_string(),
        &made.handle.to_string(),
        &made.data_offset.to_string(),
    ];
    let finished = std::process::Command::new(words[0]).args(&words[1..]).status()?;
    ensure!(finished.success(), "the program that inherited it: {finished}");
    // It has freed the buffer: the mapping is gone.
    raw::catch_bus_errors()?;
    ensure!(data.is_revoked(), "a buffer that another process freed is still mapped");
    Ok(())
}

fn inherited(arguments: &[&str]) -> Result<()> {
    let [fd, handle, offset] = arguments else { bail!("three arguments") };
    let (fd, handle, offset) = (fd.parse::<i32>()?, handle.parse()?, offset.parse()?);
    // SAFETY: It was inherited for this.
    let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    let node = Node(file.into());
    let data = node.map(offset, 8192)?;
    ensure!(data.wrong(1, 8192) == 0, "the data of another process");
    ensure!(node.submit(&mut [entry(KV_RETRIEVE, b"child", handle, 4096, 4096)], 10_000)? == 1, "Retrieve");
    Ok(node.buffer_free(handle)?)
}
