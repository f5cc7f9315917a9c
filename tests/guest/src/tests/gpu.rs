// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels, as threads of a process of the ordinary user, over the device node.

use crate::kernel;
use crate::report::Report;
use crate::session::{self, Client};
use crate::tests::{life, share};
use crate::user;
use anyhow::{ensure, Context, Result};
use std::time::Duration;
use xio::gpu::{Builtin, Doorbell, Gpu, GpuKv, GpuOptions, GpuQueueOptions, Task};
use xio::{Controller, Key, Status};

pub const CLIENTS: &[(&str, Client)] = &[
    ("gpu-operations", |_| operations()),
    ("gpu-batches", |_| batches()),
    ("gpu-threads", |_| threads()),
    ("gpu-wraps", |_| wraps()),
    ("gpu-sizes", |_| sizes()),
    ("gpu-proxy", |_| proxy()),
    ("gpu-device-memory", |_| device_memory()),
    ("gpu-no-udmabuf", |_| no_udmabuf()),
    ("gpu-doorbell-dmabuf", |_| doorbell_dmabuf()),
];

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    report.case("devices_are_listed_and_how_they_reach_the_doorbell", |report| {
        let listed = user::run(&["xio", "gpu"])?.expect_success()?;
        report.note(&listed.text());
        ensure!(listed.text().contains("register, mapped by the runtime"), "{}", listed.text());
        Ok(())
    });
    for name in ["gpu-operations", "gpu-batches", "gpu-threads", "gpu-wraps", "gpu-sizes", "gpu-proxy"] {
        report.case(&name.replace('-', "_"), |_| {
            session::run_within(&[name], Duration::from_secs(200)).map(drop)
        });
    }
    report.case("doorbell_dmabuf", |_| session::run(&["gpu-doorbell-dmabuf"]).map(drop));
    report.case("no_udmabuf", |_| session::run(&["gpu-no-udmabuf"]).map(drop));
    report.case("device_memory", |_| {
        share::allow_udmabuf()?;
        session::run_within(&["gpu-device-memory"], Duration::from_secs(200)).map(drop)
    });
    report.case("manifests_go_through_kernels", |_| manifests("coherent"));
    report.case("manifests_go_through_the_memory_of_the_device", |_| manifests("dmabuf"));
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

fn key(n: usize) -> Result<Key> {
    Ok(Key::new(&(n as u32).to_be_bytes())?)
}

fn open(queue: GpuQueueOptions, batch: u32, threads: u32) -> Result<GpuKv> {
    let controller = Controller::open(kernel::NODE)?;
    let queue = GpuQueueOptions { timeout: Duration::from_secs(60), ..queue };
    Ok(GpuKv::open(&Gpu::host()?, &controller, None, GpuOptions { queue, queues: 1, batch, threads })?)
}

fn entries(entries: u32) -> GpuQueueOptions {
    GpuQueueOptions { entries, ..GpuQueueOptions::default() }
}

fn operations() -> Result<()> {
    let mut kv = open(entries(64), 8, 2)?;
    let buffer = kv.buffer(16384)?;
    buffer.buffer().write(0, b"from device code")?;
    let name: Key = "gpu".parse()?;
    let (ok, missing) = (Some(Status::SUCCESS), Some(Status::KEY_NOT_FOUND));
    for (kernel, task, expected) in [
        (Builtin::Retrieve, Task::retrieve(name, 4096, 4096), missing),
        (Builtin::Exist, Task::exist(name), missing),
        (Builtin::Store, Task::store(name, 0, 16), ok),
        (Builtin::Exist, Task::exist(name), ok),
        (Builtin::Retrieve, Task::retrieve(name, 4096, 4096), ok),
        (Builtin::List, Task::list(name, 8192, 4096), ok),
        (Builtin::Delete, Task::delete(name), ok),
        (Builtin::Delete, Task::delete(name), missing),
    ] {
        let outcome = kv.run_as(kernel, &buffer, &[task])?.0[0];
        ensure!(outcome.status() == expected, "{kernel:?}: {outcome:?}");
    }
    let (mut back, mut list) = ([0; 16], [0; 4096]);
    buffer.buffer().read(4096, &mut back)?;
    buffer.buffer().read(8192, &mut list)?;
    ensure!(back == *b"from device code", "the value came back changed");
    let keys = xio::Keys::new(&list)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(keys == [name], "{keys:?}");
    Ok(())
}

/// Batches of one to as many as the queue takes, and more.
fn batches() -> Result<()> {
    for batch in (1..=15).chain([16, 31, 40]) {
        let mut kv = open(entries(16), batch, 2)?;
        let buffer = kv.buffer(8192)?;
        for n in 0..32 {
            buffer.buffer().write(n * 64, &[n as u8 + 1; 64])?;
        }
        let tasks = |make: fn(Key, usize, u32) -> Task, at: usize| {
            (0..32).map(|n| Ok(make(key(n)?, at + n * 64, 64))).collect::<Result<Vec<_>>>()
        };
        ensure!(kv.run(&buffer, &tasks(Task::store, 0)?)?.iter().all(|o| o.code == 0), "batch {batch}");
        ensure!(kv.run(&buffer, &tasks(Task::retrieve, 4096)?)?.iter().all(|o| o.code == 0), "batch {batch}");
        for n in 0..32 {
            let mut back = [0; 64];
            buffer.buffer().read(4096 + n * 64, &mut back)?;
            ensure!(back == [n as u8 + 1; 64], "batch {batch}, value {n}");
        }
    }
    Ok(())
}

/// 64 threads on a queue that takes 15 commands.
fn threads() -> Result<()> {
    let mut kv = open(entries(16), 16, 8)?;
    let buffer = kv.buffer(4096)?;
    let tasks = (0..512).map(|n| Ok(Task::exist(key(n + 100_000)?))).collect::<Result<Vec<_>>>()?;
    let outcomes = kv.run_as(Builtin::Exist, &buffer, &tasks)?.0;
    ensure!(outcomes.iter().all(|o| o.status() == Some(Status::KEY_NOT_FOUND)), "{outcomes:?}");
    let counters = kv.queues()[0].counters()?;
    ensure!(counters.submitted == 512 && counters.completed == 512, "{counters:?}");
    Ok(())
}

/// Counters beyond 32 and beyond 64 bits.
fn wraps() -> Result<()> {
    for first_ticket in [(1 << 32) - 32, u64::MAX - 31] {
        let mut kv = open(GpuQueueOptions { first_ticket, ..entries(16) }, 15, 2)?;
        let buffer = kv.buffer(4096)?;
        let tasks = (0..150).map(|n| Ok(Task::exist(key(n + 100_000)?))).collect::<Result<Vec<_>>>()?;
        ensure!(kv.run(&buffer, &tasks)?.iter().all(|o| o.code == 0x87), "from {first_ticket:#x}");
    }
    Ok(())
}

/// Values of several sizes, made, verified and summed up by kernels.
fn sizes() -> Result<()> {
    const SIZES: [u32; 6] = [1, 4095, 4097, 12_289, 300_000, 3 << 20];
    let mut kv = open(entries(32), 4, 2)?;
    let buffer = kv.buffer(4 << 20)?;
    let mut at = 0;
    let places = SIZES.map(|len| {
        let offset = at;
        at += (len as usize).next_multiple_of(64);
        (offset, len)
    });
    let tasks = |make: fn(Key, usize, u32) -> Task| {
        places
            .iter()
            .enumerate()
            .map(|(n, (at, len))| Ok(make(key(n)?, *at, *len)))
            .collect::<Result<Vec<_>>>()
    };
    let (store, retrieve) = (tasks(Task::store)?, tasks(Task::retrieve)?);
    kv.run_as(Builtin::Fill, &buffer, &store)?;
    ensure!(kv.run(&buffer, &store)?.iter().all(|o| o.code == 0), "storing");
    buffer.buffer().write(0, &vec![0; 4 << 20])?;
    ensure!(kv.run(&buffer, &retrieve)?.iter().all(|o| o.code == 0), "retrieving");
    let wrong = kv.run_as(Builtin::Verify, &buffer, &retrieve)?.1;
    ensure!(wrong.iter().all(|n| *n == 0), "bytes that differ: {wrong:?}");
    let first = kv.run_as(Builtin::Checksum, &buffer, &retrieve)?.1;
    ensure!(first == kv.run_as(Builtin::Checksum, &buffer, &retrieve)?.1, "checksums differ");
    Ok(())
}

/// A thread carries doorbell values on, as for a GPU that does not reach the register.
fn proxy() -> Result<()> {
    let mut kv = open(GpuQueueOptions { doorbell: Some(Doorbell::Proxy), ..entries(16) }, 8, 2)?;
    ensure!(kv.queues()[0].doorbell() == Doorbell::Proxy, "another way was taken");
    let buffer = kv.buffer(4096)?;
    let tasks = (0..100).map(|n| Ok(Task::exist(key(n + 100_000)?))).collect::<Result<Vec<_>>>()?;
    ensure!(kv.run(&buffer, &tasks)?.iter().all(|o| o.code == 0x87), "through the proxy");
    Ok(())
}

/// Values in memory of the device, which is a file in memory here and a dma-buf for the module.
fn device_memory() -> Result<()> {
    const LENGTHS: [usize; 6] = [1, 4095, 4097, 12_289, 300_000, 3 << 20];
    let mut kv = open(entries(16), 4, 2)?;
    let buffer = kv.device_buffer(8 << 20)?;
    let memory = buffer.memory().context("no memory of the device")?;
    ensure!(buffer.data() == memory.address(), "the data is elsewhere");
    let value =
        |n: usize| (0..LENGTHS[n]).map(|at| (at * 7 + n) as u8 ^ (at >> 8) as u8).collect::<Vec<u8>>();
    let (mut at, mut places) = (1024, vec![]);
    for len in LENGTHS {
        places.push((at, len));
        at += len.next_multiple_of(4) + 4;
    }
    let tasks = |make: fn(Key, usize, u32) -> Task| {
        let task = |(n, (at, len)): (usize, &(usize, usize))| Ok(make(key(n)?, *at, *len as u32));
        places.iter().enumerate().map(task).collect::<Result<Vec<_>>>()
    };
    for (n, (at, _)) in places.iter().enumerate() {
        memory.write(*at, &value(n))?;
    }
    ensure!(kv.run(&buffer, &tasks(Task::store)?)?.iter().all(|o| o.code == 0), "storing");
    memory.write(0, &vec![0xee; 8 << 20])?;
    ensure!(kv.run(&buffer, &tasks(Task::retrieve)?)?.iter().all(|o| o.code == 0), "retrieving");
    let mut all = vec![0; 8 << 20];
    memory.read(0, &mut all)?;
    for (n, (at, len)) in places.iter().enumerate() {
        ensure!(all[*at..at + len] == value(n), "{len} bytes at {at} differ");
        all[*at..at + len].fill(0xee);
    }
    ensure!(all.iter().all(|byte| *byte == 0xee), "bytes beside the values changed");
    Ok(())
}

/// Who may not make dma-bufs of the system's memory learns it.
fn no_udmabuf() -> Result<()> {
    let kv = open(entries(16), 4, 2)?;
    let error = kv.device_buffer(4096).err().context("a dma-buf without permission")?.to_string();
    ensure!(error.contains("opening /dev/udmabuf") && error.contains("its group"), "{error}");
    Ok(())
}

/// The module exports the doorbells to drivers of devices, and to no processor: the host goes on to the next way.
fn doorbell_dmabuf() -> Result<()> {
    let only = open(GpuQueueOptions { doorbell: Some(Doorbell::Dmabuf), ..entries(16) }, 4, 2);
    let error = only.err().context("a processor mapped the doorbells' dma-buf")?.to_string();
    ensure!(error.contains("from a dma-buf of the module: mapping a dma-buf"), "{error}");
    let kv = open(entries(16), 4, 2)?;
    ensure!(kv.queues()[0].doorbell() == Doorbell::IoMemory, "{:?}", kv.queues()[0].doorbell());
    Ok(())
}

/// A manifest is stored and retrieved by kernels, values in this kind of memory.
fn manifests(memory: &str) -> Result<()> {
    let script = "cd /tmp && dd if=/dev/urandom of=shards bs=1024 count=300 2>/dev/null && \
        for n in 0 1 2 3; do \
            at=$((n * 70000)); dd if=shards of=part bs=1 skip=$at count=60001 2>/dev/null; \
            sum=$(sha256sum part | cut -d' ' -f1); \
            echo \"{\\\"key\\\":\\\"shard.$n\\\",\\\"file\\\":\\\"shards\\\",\\\"offset\\\":$at,\\\"length\\\":60001,\
                \\\"digest\\\":\\\"sha256:$sum\\\",\\\"meta\\\":{\\\"n\\\":$n}}\"; \
        done >manifest && \
        xio -v --memory $0 kv store --gpu=host --manifest manifest && \
        cp shards original && dd if=/dev/zero of=shards bs=1024 count=300 2>/dev/null && \
        xio --memory $0 kv retrieve --gpu=host --batch 2 --manifest manifest --results json && \
        xio kv exist --gpu=host --manifest manifest && \
        cmp -n 60001 shards original && xio kv delete --gpu=host --manifest manifest && \
        ! xio kv exist --gpu=host shard.0";
    let done = user::run_within(&["sh", "-c", script, memory], Duration::from_secs(100))?.expect_success()?;
    ensure!(done.text().contains("{\"n\":3}"), "meta is missing: {}", done.text());
    ensure!(done.stderr.contains(&format!("memory: {memory}")), "{}", done.stderr);
    Ok(())
}
