// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues that another device drives: exported to the fake GPU, and made in its memory. Direct queues need an IOMMU that
//! translates.

use crate::fakegpu::{self, FakeGpu, Layout, Memory};
use crate::fakegpu::{IMPORT_LATE, IMPORT_PIN, IMPORT_STATIC, INVALIDATE_REVOKE};
use crate::kernel::{self, NODE};
use crate::memory::{GpuQueue, Seen, Table};
use crate::raw::{self, sized, Node};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::{abi::expect, life, share};
use crate::{fs, pci};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nvme_kv::kv::{Command, RetrieveOptions, StoreOptions};
use nvme_kv::{Key, Status};
use std::time::{Duration, Instant};
use xio_uapi::{BufferImport, QueueCreate, BUFFER_READ_ONLY, MEMORY_PEER, NO_EVENTFD};
use xio_uapi::{QUEUE_CQ_BUFFER, QUEUE_PART_CQ, QUEUE_PART_SQ, QUEUE_PART_SQ_DOORBELL, QUEUE_SQ_BUFFER};

pub const CLIENTS: &[(&str, Client)] = &[
    ("peer-drives", |_| drives()),
    ("peer-errors", |_| errors()),
    ("peer-revoked", |_| revoked()),
    ("peer-hold", |_| hold()),
    ("peer-queue-in-video-memory", |_| in_video_memory()),
    ("peer-contiguous-only", |_| contiguous_only()),
];

/// Argument `contiguous`: the controller takes no queue in pieces.
pub fn run(report: &mut Report, arguments: &[&str]) {
    report.case("modules_load", |_| fakegpu::load().and_then(|()| kernel::load_rocm_xio("")));
    let mut clients = vec!["peer-drives", "peer-errors", "peer-revoked"];
    clients.push(if arguments.contains(&"contiguous") {
        "peer-contiguous-only"
    } else {
        "peer-queue-in-video-memory"
    });
    for name in clients {
        report.case(&name.replace('-', "_"), |_| session::run(&[name]).map(drop));
    }
    report.case("killed_while_exported", |_| {
        (0..10).try_for_each(|_| Session::start(&["peer-hold"])?.kill())?;
        share::nothing_is_left()
    });
    report.case("unbind_while_exported", |_| unbind());
    report.case("reset_while_exported", |_| reset());
    report.case("nothing_is_left", |_| share::nothing_is_left());
}

/// A value from video memory to the controller and back into it, by a queue that the GPU drives.
fn round(queue: &mut GpuQueue<'_>, memory: &Memory<'_>, table: &Table, seed: u8) -> Result<()> {
    let (key, len) = (Key::new(&[b'p', seed])?, 9000);
    let value: Vec<u8> = (0..len).map(|at| raw::pattern(seed, at)).collect();
    memory.write(100, &value)?;
    let (data, len32) = (table.point(100, len)?, len as u32);
    let (status, _) =
        queue.run(Command::Store { key, len: len32, options: StoreOptions::default(), data })?;
    ensure!(status == Status::SUCCESS, "Store: {status}");
    memory.write(0, &vec![0; 10 << 12])?;
    let data = table.point(4096, len)?;
    let retrieve = Command::Retrieve { key, len: len32, options: RetrieveOptions::default(), data };
    let (status, stored) = queue.run(retrieve)?;
    ensure!(status == Status::SUCCESS && stored == len32, "Retrieve: {status}, {stored} bytes");
    let mut seen = vec![0; len];
    memory.read(4096, &mut seen)?;
    ensure!(seen == value, "the value is wrong");
    Ok(())
}

/// Video memory of the GPU, imported, and its addresses.
fn video<'a>(node: &Node, gpu: &'a FakeGpu) -> Result<(fakegpu::Export<'a>, BufferImport, Table)> {
    let buffer = gpu.export(&Layout::scattered(64 << 12))?;
    let imported = node.import(&buffer.fd, 0, 64 << 12, 0)?;
    ensure!(imported.memory == MEMORY_PEER, "memory {}", imported.memory);
    let table = node.table(&imported)?;
    Ok((buffer, imported, table))
}

/// Commands written, doorbells rung and completions read by the GPU alone; more of them than entries.
fn drives() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let (buffer, _imported, table) = video(&node, &gpu)?;
    for import in [0, IMPORT_PIN] {
        let mut queue = GpuQueue::new(&node, &gpu, 8, 0, import)?;
        let states = queue.parts.each_ref().map(|part| part.0.stats());
        for (part, stats) in states.into_iter().enumerate() {
            let stats = stats?;
            // Queues are in RAM, doorbells on the device.
            ensure!((stats.mmio_segments > 0) == (part >= 2), "part {part}: {stats:?}");
        }
        (0..12).try_for_each(|seed| round(&mut queue, &buffer.memory, &table, seed))?;
        node.queue_destroy(queue.created.handle)?;
    }
    Ok(())
}

fn errors() -> Result<()> {
    let (node, other, gpu) = (Node::open(NODE)?, Node::open(NODE)?, FakeGpu::open()?);
    let queue = node.queue_create(8, NO_EVENTFD)?.handle;
    let part = |node: &Node, handle, part| node.export(handle, part).map(drop);
    expect("no such queue", part(&node, queue + 1, QUEUE_PART_SQ), Errno::ENOENT)?;
    expect("another client's queue", part(&other, queue, QUEUE_PART_SQ), Errno::ENOENT)?;
    expect("no such part", part(&node, queue, 4), Errno::EINVAL)?;
    let (fd, told) = node.export(queue, QUEUE_PART_CQ)?;
    ensure!(told.len == 4096, "{} bytes", told.len);
    // Importers that reach no peer, or can not let go.
    expect("an importer of the old kind", gpu.import(&fd, IMPORT_STATIC).map(drop), Errno::EOPNOTSUPP)?;
    // Not our own: it would wait for itself.
    expect("importing it ourselves", node.import(&fd, 0, 4096, 0).map(drop), Errno::EINVAL)?;
    let buffer = node.buffer_alloc(4096)?.handle;
    expect("a buffer", part(&node, buffer, QUEUE_PART_SQ), Errno::ENOENT)?;
    // The same dma-buf again.
    let again = node.export(queue, QUEUE_PART_CQ)?.0;
    ensure!(inode(&fd)? == inode(&again)?, "another dma-buf of the same queue");
    Ok(())
}

fn inode(fd: &std::os::fd::OwnedFd) -> Result<u64> {
    let file = std::fs::File::from(fd.try_clone()?);
    Ok(std::os::unix::fs::MetadataExt::ino(&file.metadata()?))
}

/// When the queue goes, so does every mapping of it; late importers are waited for.
fn revoked() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    for import in [0, IMPORT_PIN, IMPORT_LATE] {
        let queue = GpuQueue::new(&node, &gpu, 8, 0, import)?;
        let (fd, _) = node.export(queue.created.handle, QUEUE_PART_SQ_DOORBELL)?;
        let start = Instant::now();
        node.queue_destroy(queue.created.handle)?;
        // The fake GPU takes 200 ms.
        let waited = start.elapsed() >= Duration::from_millis(150);
        ensure!(import != IMPORT_LATE || waited, "not waited for: {:?}", start.elapsed());
        for part in &queue.parts {
            expect("access", part.0.read_u32(part.1).map(drop), Errno::ENODEV)?;
        }
        expect("importing it now", gpu.import(&fd, 0).map(drop), Errno::ENODEV)?;
    }
    Ok(())
}

fn hold() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let (buffer, _imported, table) = video(&node, &gpu)?;
    let mut queue = GpuQueue::new(&node, &gpu, 8, 0, IMPORT_LATE)?;
    round(&mut queue, &buffer.memory, &table, 1)?;
    session::ready()
}

/// A queue in video memory: there the GPU has its own memory, and the controller fetches from it.
fn in_video_memory() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let (values, _imported, table) = video(&node, &gpu)?;
    // In a row, and page by page in disorder; at the beginning, and not.
    for (chunk_pages, entries, first) in [(64, 8, 0u64), (64, 200, 3), (1, 8, 0), (1, 200, 3)] {
        let rings = gpu.export(&Layout { chunk_pages, ..Layout::scattered(64 << 12) })?;
        let imported = node.import(&rings.fd, 0, 64 << 12, 0)?;
        let created = create(&node, imported.handle, entries, first << 12)?;
        ensure!(created.sq_offset == 0 && created.cq_offset == 0, "mapped through the buffer alone");
        let [sq, cq] = [first, first + 32]
            .map(|page| -> Result<Seen<'_>> { Ok(Seen(gpu.import(&rings.fd, 0)?, page << 12)) });
        let mut queue = GpuQueue::with_rings(&node, &gpu, created, [sq?, cq?], 0)?;
        (0..(entries as u8).saturating_add(4))
            .try_for_each(|n| round(&mut queue, &values.memory, &table, n))?;
        expect("freeing its memory", node.buffer_free(imported.handle), Errno::EBUSY)?;
        expect("exporting it", node.export(created.handle, QUEUE_PART_SQ).map(drop), Errno::ENXIO)?;
        if first == 0 {
            node.queue_destroy(created.handle)?;
            node.buffer_free(imported.handle)?;
        } else {
            // The memory is taken back: the queue goes first.
            rings.invalidate(INVALIDATE_REVOKE, 0)?;
            expect("the queue", node.queue_destroy(created.handle), Errno::ENOENT)?;
        }
    }
    in_buffer_errors(&node, &gpu)
}

/// A queue pair in a buffer: submission queue at `at`, completion queue 32 pages later.
fn create(node: &Node, buffer: u32, entries: u32, at: u64) -> Result<QueueCreate, Errno> {
    let mut created = QueueCreate {
        entries,
        flags: QUEUE_SQ_BUFFER | QUEUE_CQ_BUFFER,
        eventfd: NO_EVENTFD,
        sq_buffer: buffer,
        cq_buffer: buffer,
        sq_buffer_offset: at,
        cq_buffer_offset: at + (32 << 12),
        ..sized()
    };
    node.request(&mut created).map(|()| created)
}

fn in_buffer_errors(node: &Node, gpu: &FakeGpu) -> Result<()> {
    let memory = gpu.export(&Layout { chunk_pages: 64, ..Layout::scattered(64 << 12) })?;
    let buffer = node.import(&memory.fd, 0, 64 << 12, 0)?.handle;
    expect("within a page", create(node, buffer, 8, 100).map(drop), Errno::EINVAL)?;
    expect("beyond the end", create(node, buffer, 8, 63 << 12).map(drop), Errno::EINVAL)?;
    expect("an offset that wraps", create(node, buffer, 8, !0 << 12).map(drop), Errno::EINVAL)?;
    expect("no such buffer", create(node, buffer + 100, 8, 0).map(drop), Errno::ENOENT)?;
    let fixed = node.import(&memory.fd, 0, 64 << 12, BUFFER_READ_ONLY)?.handle;
    expect("completions in read-only memory", create(node, fixed, 8, 0).map(drop), Errno::EACCES)
}

/// A controller that takes no list: memory in pieces is refused, memory in a row is not.
fn contiguous_only() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let pieces = gpu.export(&Layout { chunk_pages: 1, ..Layout::scattered(64 << 12) })?;
    let buffer = node.import(&pieces.fd, 0, 64 << 12, 0)?.handle;
    expect("memory in pieces", create(&node, buffer, 200, 0).map(drop), Errno::EOPNOTSUPP)?;
    // A page is in one piece.
    create(&node, buffer, 8, 0)?;
    Ok(())
}

fn unbind() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let controller = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    let queue = GpuQueue::new(&node, &gpu, 8, 0, IMPORT_LATE)?;
    pci::unbind(&controller)?;
    for part in &queue.parts {
        expect("access", part.0.read_u32(part.1).map(drop), Errno::ENODEV)?;
    }
    pci::bind(&controller, "rocm_xio")?;
    fs::wait_for_file(NODE, kernel::NODE_LIMIT)?;
    drop((queue, node));
    session::run_as_root(&["peer-drives"]).map(drop)
}

fn reset() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let controller = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    let queue = GpuQueue::new(&node, &gpu, 8, 0, 0)?;
    fs::write(pci::path(&controller).join("reset"), "1")?;
    for part in &queue.parts {
        expect("access", part.0.read_u32(part.1).map(drop), Errno::ENODEV)?;
    }
    drop((queue, node));
    life::nothing_is_left()?;
    session::run_as_root(&["peer-drives"]).map(drop)
}
