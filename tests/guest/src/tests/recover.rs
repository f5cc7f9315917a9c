// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that use the library while their controller is reset, or taken away: none ends by a signal, each is told, and after a
//! reset it goes on with the controller that it has open.

use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::{kv, life};
use crate::{command, fs, kernel, pci, user};
use anyhow::{bail, ensure, Context, Result};
use std::time::{Duration, Instant};
use xio::gpu::{Gpu, GpuKv, GpuOptions, GpuQueueOptions, Task};
use xio::{
    Buffer, Controller, ControllerState, Error, Events, Key, Memory, Namespace, Queue, QueueOptions,
    ResetCause, RetrieveOptions, StoreOptions,
};

pub const CLIENTS: &[(&str, Client)] = &[
    ("recover-direct", direct),
    ("recover-kv", through_kv),
    ("recover-gpu", |_| gpu()),
    ("recover-without-handler", |_| without_handler()),
    ("recover-hold", |_| hold()),
    ("recover-memory-first", |_| memory_first()),
];

/// How long anything may take here.
const LIMIT: Duration = Duration::from_secs(50);
const LEN: usize = 50_000;

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    report.case("a_busy_client_goes_on_after_a_reset", |_| reset(&["recover-direct", "reset"]));
    for (path, memory) in [("direct", "coherent"), ("mediated", "coherent"), ("mediated", "pinned")] {
        report.case(&format!("values_go_on_after_a_reset_{path}_{memory}"), |_| {
            reset(&["recover-kv", path, memory])
        });
    }
    report.case("kernels_on_the_host_end_with_a_reset", |_| reset(&["recover-gpu"]));
    report.case("a_busy_client_is_told_that_the_device_is_gone", |_| {
        let client = Session::start(&["recover-direct", "unbind"])?;
        let address = function()?;
        pci::unbind(&address)?;
        client.end()?;
        pci::bind(&address, "rocm_xio")?;
        fs::wait_for_file(kernel::NODE, kernel::NODE_LIMIT)?;
        kernel::give_nodes_to_render()
    });
    report.case("without_the_handler_the_signal_ends_it", |_| {
        let client = Session::start(&["recover-without-handler"])?;
        fs::write(pci::path(&function()?).join("reset"), "1")?;
        let ended = client.finish().err().context("it did not end by the signal")?;
        ensure!(format!("{ended:#}").contains("ended with 135"), "{ended:#}");
        Ok(())
    });
    report.case("the_reset_for_another_user_takes_nothing_of_that_user", |_| {
        for _ in 0..2 {
            session::run(&["recover-memory-first"])?;
            life::nothing_is_left()?;
            session::run_as_root(&["recover-memory-first"])?;
            life::nothing_is_left()?;
        }
        Ok(())
    });
    report.case("top_shows_who_has_what", |_| top());
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

fn function() -> Result<String> {
    pci::nvme_functions()?.into_iter().next().context("no controller")
}

/// Resets the controller under a client, which must come to a good end.
fn reset(client: &[&str]) -> Result<()> {
    let client = Session::start(client)?;
    fs::write(pci::path(&function()?).join("reset"), "1")?;
    client.end()
}

/// `xio top` beside a client that has a queue and a buffer.
fn top() -> Result<()> {
    let holder = Session::start(&["recover-hold"])?;
    let once = command::run(&["xio", "top", "--once"])?.expect_success()?.text();
    let cells = |start: &str| -> Vec<String> {
        let rows = once.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        rows.into_iter().find(|row| row.first().is_some_and(|cell| cell == start)).unwrap_or_default()
    };
    let (queue, buffer) = (cells("1"), cells("coherent"));
    ensure!(
        once.contains(&function()?) && once.contains("clients 1") && once.contains("last reset:"),
        "{once}"
    );
    ensure!(queue.len() == 12 && queue[2] == user::UID.to_string() && queue[4] == "64", "{once}");
    ensure!(queue[5..8] == ["coherent", "coherent", "0x1008"] && queue[8..11] == ["3", "3", "1"], "{once}");
    ensure!(buffer[3..5] == ["1", "13"], "{once}");
    let json = command::run(&["xio", "top", "-o", "json", "--once", "0"])?.expect_success()?.text();
    ensure!(json.contains("\"posted\": 3") && json.contains("\"memory\": \"coherent\""), "{json}");
    // Not a terminal: looks follow each other, without escape codes.
    let live = command::run(&["timeout", "3", "xio", "top", "--interval", "0.2"])?.text();
    ensure!(
        live.matches("rocm-xio0 ").count() > 1 && live.contains("idle") && !live.contains('\x1b'),
        "{live}"
    );
    holder.finish()?;
    let denied = user::run(&["xio", "top", "--once"])?.expect_code(7)?.stderr;
    ensure!(denied.contains("sudo xio top"), "{denied}");
    command::run(&["xio", "top", "--once", "7"])?.expect_code(8).map(drop)
}

/// Opens a queue; waits while the owner before is still being taken down.
fn queue(controller: &Controller) -> Result<Queue> {
    let end = Instant::now() + LIMIT;
    loop {
        match controller.queue(QueueOptions { timeout: LIMIT, ..QueueOptions::default() }) {
            Err(Error::Busy) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            queue => return Ok(queue?),
        }
    }
}

fn exchange(queue: &mut Queue, ns: &Namespace, buffer: &Buffer, n: u32) -> Result<(), Error> {
    let key = Key::new(&n.to_le_bytes()).map_err(|e| Error::Protocol(e.to_string()))?;
    let slice = buffer.slice(..LEN)?;
    buffer.write(0, &kv::value(n, LEN))?;
    queue.store(ns, &key, &slice, StoreOptions::default())?;
    buffer.write(0, &[0; LEN])?;
    queue.retrieve(ns, &key, &slice, RetrieveOptions::default())?;
    if slice.to_vec()? != kv::value(n, LEN) {
        return Err(Error::Protocol(format!("value {n} is wrong")));
    }
    queue.delete_key(ns, &key)
}

/// Works until the first error.
fn until_it_fails(queue: &mut Queue, ns: &Namespace, buffer: &Buffer) -> Result<Error> {
    let end = Instant::now() + LIMIT;
    for n in 0.. {
        if let Err(error) = exchange(queue, ns, buffer, n) {
            return Ok(error);
        }
        ensure!(Instant::now() < end, "nothing happened in {n} rounds");
    }
    bail!("more rounds than there are numbers")
}

/// The first state in which the controller is live after a reset.
fn live_again(events: &Events) -> Result<ControllerState, Error> {
    loop {
        match events.wait(LIMIT)? {
            Some(state) if state.is_live() && state.resets > 0 => return Ok(state),
            Some(_) => {}
            None => return Err(Error::Protocol("no event".into())),
        }
    }
}

/// Works on a queue while the test does what the argument says.
fn direct(arguments: &[&str]) -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let (mut queue, ns) = (queue(&controller)?, controller.first_namespace()?);
    let (mut buffer, own) = (controller.alloc(LEN)?, controller.register(Memory::new(LEN)?)?);
    let state = controller.state()?;
    ensure!(state.is_live(), "{state}");
    let events = controller.events()?;
    let (error, event) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| live_again(&events));
        println!("ready");
        let error = until_it_fails(&mut queue, &ns, &buffer);
        (error, waiting.join())
    });
    let (error, event) = (error?, event.ok().context("the thread panicked")?);
    if arguments == ["unbind"] {
        ensure!(matches!(error, Error::Gone), "{error:?}");
        ensure!(matches!(event, Err(Error::Gone)), "{event:?}");
        ensure!(matches!(controller.state(), Err(Error::Gone)) && matches!(queue.poll(), Err(Error::Gone)));
        ensure!(matches!(buffer.read(0, &mut [0]), Err(Error::Gone)), "a read of a buffer that is gone");
        return Ok(());
    }
    let event = event?;
    ensure!(matches!(error, Error::Revoked { .. }), "{error:?}");
    ensure!(event.resets == state.resets + 1, "{state}, then {event}");
    ensure!(event.last_reset == Some(ResetCause::System), "{event}");
    ensure!(matches!(buffer.read(0, &mut [0]), Err(Error::Revoked { .. })), "a read of a revoked buffer");
    ensure!(buffer.get_mut().is_none() && buffer.intact().is_err() && own.intact().is_ok());
    let mut fresh = self::queue(&controller)?;
    let stale = exchange(&mut fresh, &ns, &own, 1);
    ensure!(matches!(stale, Err(Error::BufferGone)), "{stale:?}");
    drop(queue);
    exchange(&mut fresh, &ns, &controller.alloc(LEN)?, 2)?;
    exchange(&mut fresh, &ns, &controller.register(Memory::new(LEN)?)?, 3)?;
    Ok(())
}

/// Values by `Kv`, which goes on by itself over the mediated path.
fn through_kv(way: &[&str]) -> Result<()> {
    let mut kv = kv::open(way)?;
    let controller = kv.controller().clone();
    let (before, key, end) = (controller.state()?.resets, "recover".parse()?, Instant::now() + LIMIT);
    println!("ready");
    let error = loop {
        let value = kv::value(1, LEN);
        let stored = kv.store(&key, &value, StoreOptions::default());
        match stored.and_then(|()| kv.retrieve(&key)) {
            Ok(back) => ensure!(back == value, "another value came back"),
            Err(error) => break error,
        }
        ensure!(Instant::now() < end, "nothing happened");
    };
    let told = matches!(error, Error::Revoked { .. } | Error::BufferGone | Error::NotLive { .. });
    ensure!(told, "{error:?}");
    fs::wait_for("the reset being over", LIMIT, || {
        let state = controller.state()?;
        Ok(state.is_live() && state.resets > before)
    })?;
    if kv.path() == xio::Path::Direct {
        drop(kv);
        let options = QueueOptions { entries: 4, ..QueueOptions::default() };
        kv = xio::Kv::with_options(&controller, None, options)?;
    }
    // It may have had a new buffer between the error and the reset.
    let mut stored = kv.store(&key, &kv::value(2, LEN), StoreOptions::default());
    if matches!(stored, Err(Error::Revoked { .. } | Error::BufferGone)) {
        stored = kv.store(&key, &kv::value(2, LEN), StoreOptions::default());
    }
    stored?;
    ensure!(kv.retrieve(&key)? == kv::value(2, LEN), "another value came back after the reset");
    Ok(kv.delete(&key)?)
}

/// Kernels as threads of this process.
fn gpu() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    drop(queue(&controller)?);
    let gpu = Gpu::host()?;
    let queue = GpuQueueOptions { entries: 16, timeout: Duration::from_secs(2), ..Default::default() };
    let options = || GpuOptions { queue: queue.clone(), ..GpuOptions::default() };
    let mut kv = GpuKv::open(&gpu, &controller, None, options())?;
    let (buffer, key) = (kv.buffer(LEN)?, "recover-gpu".parse()?);
    let store = [Task::store(key, 0, 4096)];
    println!("ready");
    let end = Instant::now() + LIMIT;
    let error = loop {
        match kv.run(&buffer, &store) {
            Ok(outcomes) => ensure!(outcomes[0].code == 0, "{outcomes:?}"),
            Err(error) => break error,
        }
        ensure!(Instant::now() < end, "nothing happened");
    };
    ensure!(matches!(error, Error::Revoked { .. }), "{error:?}");
    fs::wait_for("the reset being over", LIMIT, || Ok(controller.state()?.is_live()))?;
    drop(kv);
    let mut kv = GpuKv::open(&gpu, &controller, None, options())?;
    let buffer = kv.buffer(LEN)?;
    let outcomes = kv.run(&buffer, &[Task::store(key, 0, 4096), Task::delete(key)])?;
    ensure!(outcomes[0].code == 0, "{outcomes:?}");
    Ok(())
}

/// A program that wants no handler.
fn without_handler() -> Result<()> {
    ensure!(xio::sigbus::opt_out(), "the handler is there already");
    let controller = Controller::open(kernel::NODE)?;
    let (mut queue, ns) = (queue(&controller)?, controller.first_namespace()?);
    exchange(&mut queue, &ns, &controller.alloc(LEN)?, 1)?;
    session::ready()?;
    let polled = queue.poll();
    bail!("it went on: {polled:?}")
}

/// Has a queue and a buffer.
fn hold() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let (mut queue, ns) = (queue(&controller)?, controller.first_namespace()?);
    let buffer = controller.alloc(LEN)?;
    exchange(&mut queue, &ns, &buffer, 1)?;
    session::ready()
}

/// Makes buffers before the queue that they are used in.
fn memory_first() -> Result<()> {
    let controller = Controller::open(kernel::NODE)?;
    let ns = controller.first_namespace()?;
    let (buffer, own) = (controller.alloc(LEN)?, controller.register(Memory::new(LEN)?)?);
    let mut queue = queue(&controller)?;
    exchange(&mut queue, &ns, &buffer, 1)?;
    Ok(exchange(&mut queue, &ns, &own, 2)?)
}
