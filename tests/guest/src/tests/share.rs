// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that others have: a GPU's video memory, and the system's as a dma-buf, imported as buffers; and its being taken
//! back. Arguments: `iommu` when the machine's IOMMU translates, `as-ram` where QEMU's does so for RAM alone, `small` where its
//! IOMMU bears no mappings of 2 MiB.

use crate::fakegpu::{self, Export, FakeGpu, Layout};
use crate::fakegpu::{EXPORT_AS_RAM, EXPORT_MOVABLE, EXPORT_REFUSE_PIN, EXPORT_SYSTEM};
use crate::fakegpu::{INVALIDATE_MOVE, INVALIDATE_REVOKE};
use crate::kernel::{self, NODE};
use crate::pci;
use crate::raw::{self, entry, Mapping, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client};
use crate::tests::{abi::expect, kv_ways, life, mediated::succeed};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nvme_kv::kv::{Command, RetrieveOptions, StoreOptions};
use nvme_kv::Status;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xio_uapi::{BufferImport, KvEntry, KV_DELETE, KV_EXIST, KV_LIST, KV_RETRIEVE, KV_STORE};
use xio_uapi::{BUFFER_READ_ONLY, BUFFER_REQUIRE_P2P, MEMORY_PEER, MEMORY_SYSTEM};

pub const CLIENTS: &[(&str, Client)] = &[
    ("share-sizes", sizes),
    ("share-operations", operations),
    ("share-direct", direct),
    ("share-system", |_| system()),
    ("share-errors", errors),
    ("share-largest", |_| largest()),
    ("share-taken-back", taken_back),
    ("share-direct-taken-back", direct_taken_back),
    ("share-storm", storm),
];

pub fn run(report: &mut Report, arguments: &[&str]) {
    let confined = arguments.contains(&"iommu");
    let flags = if arguments.contains(&"as-ram") { EXPORT_AS_RAM } else { 0 }.to_string();
    report.case("modules_load", |_| {
        fakegpu::load()?;
        kernel::load_rocm_xio("")?;
        allow_udmabuf()
    });
    let mut clients =
        vec!["share-operations", "share-system", "share-errors", "share-taken-back", "share-storm"];
    if confined {
        clients.push("share-direct-taken-back");
    }
    let small = arguments.contains(&"small");
    if !small {
        clients.extend(["share-sizes", "share-largest"]);
        clients.extend(confined.then_some("share-direct"));
    }
    for name in clients {
        report.case(&name.replace('-', "_"), |_| {
            session::run_within(&[name, &flags], Duration::from_secs(200)).map(drop)
        });
    }
    let sizes = (!small).then_some("kv-sizes");
    let clients: Vec<_> = sizes.into_iter().chain(["kv-keys", "kv-conditions", "kv-list"]).collect();
    kv_ways::way(report, "auto", "dmabuf", &clients);
    if !small {
        report.case("command_uses_it", |_| command());
    }
    report.case("closed_while_imported", |_| {
        session::run(&["share-operations", &flags]).and_then(|_| nothing_is_left())
    });
    report.case("unbind_while_imported", |_| unbind(&flags));
    report.case("nothing_is_left", |_| nothing_is_left());
}

fn command() -> Result<()> {
    let said = crate::user::run(&["xio", "-v", "--memory", "dmabuf", "kv", "selftest"])?;
    let said = said.expect_success()?.stderr;
    ensure!(said.contains("memory: dmabuf"), "{said}");
    Ok(())
}

/// Lets everybody make dma-bufs of the system's memory.
pub fn allow_udmabuf() -> Result<()> {
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions("/dev/udmabuf", everybody).context("/dev/udmabuf")
}

/// Neither here nor there.
pub fn nothing_is_left() -> Result<()> {
    life::nothing_is_left()?;
    // The last reference to a dma-buf goes a moment after it was given up.
    let gpu = FakeGpu::open()?;
    crate::fs::wait_for("the GPU's memory to be free", kernel::NODE_LIMIT, || {
        let device = gpu.device()?;
        Ok((device.pages_used, device.exports, device.imports) == (0, 0, 0))
    })
}

/// The kind of memory that a client exports.
fn layout(arguments: &[&str], len: u64) -> Result<Layout> {
    let flags: u32 = arguments.first().context("no flags")?.parse()?;
    Ok(Layout::scattered(len).with(flags))
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| raw::pattern(seed, at)).collect()
}

/// Video memory, imported whole.
fn video<'a>(node: &Node, gpu: &'a FakeGpu, layout: &Layout) -> Result<(Export<'a>, BufferImport)> {
    let buffer = gpu.export(layout).context("the GPU's export")?;
    let imported = node.import(&buffer.fd, 0, layout.len, BUFFER_REQUIRE_P2P).context("BUFFER_IMPORT")?;
    ensure!(imported.memory == MEMORY_PEER, "memory {}", imported.memory);
    Ok((buffer, imported))
}

/// Values of many sizes at many places go from video memory to the controller and into other video memory.
fn sizes(arguments: &[&str]) -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    for chunk_pages in [1, 3, 700] {
        let all = 2100 << 12;
        let layout = Layout { chunk_pages, ..layout(arguments, all)? };
        let (from, source) = video(&node, &gpu, &layout)?;
        let (to, target) = video(&node, &gpu, &layout)?;
        let bytes = pattern(1, all as usize);
        from.memory.write(0, &bytes)?;
        for (offset, len) in
            [(0, 1), (4, 4096), (4092, 9000), (4096, 513 << 12), (100, (all as u32) - 100), (8, 0)]
        {
            to.memory.write(0, &pattern(9, all as usize))?;
            succeed(&node, &mut [entry(KV_STORE, b"sizes", source.handle, offset, len)])?;
            let mut back = [entry(KV_RETRIEVE, b"sizes", target.handle, offset, len)];
            succeed(&node, &mut back)?;
            ensure!(back[0].value_len == len, "{} of {len} bytes", back[0].value_len);
            let mut expected = pattern(9, all as usize);
            let range = offset as usize..offset as usize + len as usize;
            expected[range.clone()].copy_from_slice(&bytes[range]);
            let seen = to.memory.read_all()?;
            let wrong = seen.iter().zip(&expected).position(|(a, b)| a != b);
            ensure!(wrong.is_none(), "byte {wrong:?} of {len} at {offset} in chunks of {chunk_pages}");
        }
        node.buffer_free(source.handle)?;
        node.buffer_free(target.handle)?;
    }
    Ok(())
}

/// The other operations; and a part of a dma-buf.
fn operations(arguments: &[&str]) -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let buffer = gpu.export(&layout(arguments, 20 << 12)?)?;
    let part = node.import(&buffer.fd, 7 << 12, 2 << 12, 0)?;
    // The last one's descriptor may be closed at once.
    let closed = node.import(&buffer.fd.try_clone()?, 9 << 12, 1 << 12, 0)?;
    buffer.memory.write(0, &pattern(2, 20 << 12))?;
    let mut store = [
        entry(KV_STORE, b"part", part.handle, 100, 8000),
        entry(KV_STORE, b"closed", closed.handle, 0, 4096),
    ];
    succeed(&node, &mut store)?;
    let mut list = [
        entry(KV_EXIST, b"part", 0, 0, 0),
        entry(KV_LIST, b"part", part.handle, 0, 4096),
        entry(KV_RETRIEVE, b"part", part.handle, 4096, 4096),
    ];
    succeed(&node, &mut list)?;
    ensure!(list[2].value_len == 8000, "the true length is {}", list[2].value_len);
    let seen = buffer.memory.read_all()?;
    let expected = pattern(2, 20 << 12);
    ensure!(seen[..7 << 12] == expected[..7 << 12], "before the part");
    ensure!(seen[9 << 12..] == expected[9 << 12..], "behind the part");
    ensure!(seen[8 << 12..9 << 12] == expected[(7 << 12) + 100..][..4096], "the value");
    let listed: Vec<_> = nvme_kv::list::Keys::new(&seen[7 << 12..8 << 12])?.collect::<Result<_, _>>()?;
    ensure!(listed.first().is_some_and(|key| key.as_bytes() == b"part"), "{listed:?}");
    succeed(&node, &mut [entry(KV_DELETE, b"part", 0, 0, 0), entry(KV_DELETE, b"closed", 0, 0, 0)])?;
    let stats = buffer.memory.stats()?;
    ensure!((stats.attachments, stats.mapped, stats.pinned) == (2, 2, 2), "{stats:?}");
    node.buffer_free(part.handle)?;
    let stats = buffer.memory.stats()?;
    ensure!(
        (stats.attachments, stats.mapped, stats.pinned) == (1, 1, 1),
        "unmapped when it is freed: {stats:?}"
    );
    Ok(())
}

/// The same by a direct queue, with the addresses that the table tells.
fn direct(arguments: &[&str]) -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let len = 600 << 12;
    let layout = Layout { chunk_pages: 1, ..layout(arguments, len as u64)? };
    let ((from, source), (to, target)) = (video(&node, &gpu, &layout)?, video(&node, &gpu, &layout)?);
    let (source, target) = (node.table(&source)?, node.table(&target)?);
    let mut queue = Queue::new(&node, 16)?;
    let key = nvme_kv::Key::new(b"direct")?;
    from.memory.write(0, &pattern(3, len))?;
    for (offset, size) in [(0, len), (4, 4096), (4092, 520 << 12), (8, 12)] {
        let (data, size32) = (source.point(offset, size)?, size as u32);
        let store = Command::Store { key, len: size32, options: StoreOptions::default(), data };
        let (status, _) = queue.run(store)?;
        ensure!(status == Status::SUCCESS, "Store of {size} at {offset}: {status}");
        to.memory.write(0, &vec![0; len])?;
        let data = target.point(offset, size)?;
        let retrieve = Command::Retrieve { key, len: size32, options: RetrieveOptions::default(), data };
        let (status, stored) = queue.run(retrieve)?;
        ensure!(status == Status::SUCCESS && stored == size32, "Retrieve of {size} at {offset}: {status}");
        let mut expected = vec![0; len];
        expected[offset..offset + size].copy_from_slice(&pattern(3, len)[offset..offset + size]);
        ensure!(to.memory.read_all()? == expected, "{size} bytes at {offset}");
    }
    Ok(())
}

/// Memory of the system: as a GPU driver gives it where peers can not reach video memory, and of /dev/udmabuf.
fn system() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let buffer = gpu.export(&Layout::scattered(1 << 20).with(EXPORT_SYSTEM))?;
    let asked = node.import(&buffer.fd, 0, 1 << 20, BUFFER_REQUIRE_P2P);
    expect("peer memory that is none", asked.map(drop), Errno::EREMOTEIO)?;
    ensure!(buffer.memory.stats()?.attachments == 0, "still attached");
    let imported = node.import(&buffer.fd, 0, 1 << 20, 0)?;
    ensure!(imported.memory == MEMORY_SYSTEM, "memory {}", imported.memory);
    buffer.memory.write(0, &pattern(4, 1 << 20))?;
    succeed(&node, &mut [entry(KV_STORE, b"system", imported.handle, 0, 1 << 20)])?;
    let ours = xio::system_dmabuf(1 << 20)?;
    let imported = node.import(&ours, 0, 1 << 20, 0)?;
    ensure!(imported.memory == MEMORY_SYSTEM, "memory {}", imported.memory);
    succeed(&node, &mut [entry(KV_RETRIEVE, b"system", imported.handle, 0, 1 << 20)])?;
    let seen = map(&ours, 1 << 20)?;
    ensure!(seen.wrong(4, 1 << 20) == 0, "{} bytes are wrong", seen.wrong(4, 1 << 20));
    Ok(())
}

fn map(dmabuf: &OwnedFd, len: usize) -> Result<Mapping> {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    Ok(raw::map_file(dmabuf, 0, len, rw, libc::MAP_SHARED)?)
}

fn errors(arguments: &[&str]) -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let buffer = gpu.export(&layout(arguments, 4 << 12)?)?;
    let import = |fd: &OwnedFd, offset, len| node.import(fd, offset, len, 0).map(drop);
    expect("no bytes", import(&buffer.fd, 0, 0), Errno::EINVAL)?;
    expect("part of a page", import(&buffer.fd, 0, 100), Errno::EINVAL)?;
    expect("from within a page", import(&buffer.fd, 100, 4096), Errno::EINVAL)?;
    expect("beyond the end", import(&buffer.fd, 3 << 12, 2 << 12), Errno::EINVAL)?;
    expect("an offset that wraps", import(&buffer.fd, !0 << 12, 1 << 12), Errno::EINVAL)?;
    expect("no dma-buf", node.import(&std::io::stdin(), 0, 4096, 0).map(drop), Errno::EINVAL)?;
    let mut closed = BufferImport { fd: 1000, len: 4096, ..raw::sized() };
    expect("no file", node.request(&mut closed), Errno::EBADF)?;
    let mut unknown = BufferImport { fd: 1000, len: 4096, flags: 4, ..raw::sized() };
    expect("an unknown flag", node.request(&mut unknown), Errno::EINVAL)?;
    let fixed = gpu.export(&layout(arguments, 4096)?.with(EXPORT_REFUSE_PIN))?;
    ensure!(import(&fixed.fd, 0, 4096).is_err(), "memory that can not be pinned was imported");
    ensure!(fixed.memory.stats()?.attachments == 0, "still attached");
    // Read-only memory: nothing comes into it.
    let imported = node.import(&buffer.fd, 0, 4 << 12, BUFFER_READ_ONLY)?;
    succeed(&node, &mut [entry(KV_STORE, b"fixed", imported.handle, 0, 4096)])?;
    let mut into = [entry(KV_RETRIEVE, b"fixed", imported.handle, 0, 4096)];
    node.submit(&mut into, 10_000)?;
    ensure!(into[0].error == -(Errno::EACCES as i32), "Retrieve into it: {}", into[0].error);
    expect(
        "its data can not be mapped",
        node.map(imported.table_offset - (1 << 32), 4096).map(drop),
        Errno::ENXIO,
    )
}

/// As much as a command can move.
fn largest() -> Result<()> {
    let node = Node::open(NODE)?;
    let ours = xio::system_dmabuf(64 << 20)?;
    let imported = node.import(&ours, 0, 64 << 20, 0)?;
    let seen = map(&ours, 64 << 20)?;
    seen.fill(5);
    succeed(&node, &mut [entry(KV_STORE, b"largest", imported.handle, 0, 64 << 20)])?;
    seen.fill(6);
    succeed(&node, &mut [entry(KV_RETRIEVE, b"largest", imported.handle, 0, 64 << 20)])?;
    ensure!(seen.wrong(5, 64 << 20) == 0, "{} bytes are wrong", seen.wrong(5, 64 << 20));
    succeed(&node, &mut [entry(KV_DELETE, b"largest", 0, 0, 0)])
}

fn refused(node: &Node, handle: u32) -> Result<()> {
    let mut stale = [entry(KV_RETRIEVE, b"back", handle, 0, 4096)];
    node.submit(&mut stale, 10_000)?;
    ensure!(stale[0].error == -(Errno::ESTALE as i32), "a command with it: {}", stale[0].error);
    Ok(())
}

/// An exporter takes its memory back: it gets it, and the buffer is of no more use.
fn taken_back(arguments: &[&str]) -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let layout = layout(arguments, 16 << 12)?;
    for flags in [INVALIDATE_REVOKE, INVALIDATE_MOVE] {
        let layout = layout.with(layout.flags | EXPORT_MOVABLE);
        let (buffer, imported) = video(&node, &gpu, &layout)?;
        let other = node.import(&buffer.fd, 0, 4096, 0)?;
        succeed(&node, &mut [entry(KV_STORE, b"back", imported.handle, 0, 4096)])?;
        buffer.invalidate(flags, 7).context("the exporter gets it back")?;
        let stats = buffer.memory.stats()?;
        ensure!((stats.mapped, stats.pinned) == (0, 0), "{stats:?}");
        refused(&node, imported.handle)?;
        refused(&node, other.handle)?;
        expect("its table", node.table(&imported).map(drop), Errno::ENXIO).or_else(|_| {
            // Without an IOMMU nobody may see one.
            expect("its table", node.table(&imported).map(drop), Errno::EPERM)
        })?;
        node.buffer_free(imported.handle).context("freeing it")?;
        expect("freeing it again", node.buffer_free(imported.handle), Errno::ENOENT)?;
        let stats = buffer.memory.stats()?;
        ensure!(stats.attachments == 0, "still attached: {stats:?}");
        let again = node.import(&buffer.fd, 0, 4096, 0);
        if flags == INVALIDATE_REVOKE {
            expect("importing it again", again.map(drop), Errno::ESTALE)?;
        } else {
            succeed(&node, &mut [entry(KV_RETRIEVE, b"back", again?.handle, 0, 4096)])?;
        }
    }
    Ok(())
}

/// Direct queues of the client go with it, since nobody knows what their commands name.
fn direct_taken_back(arguments: &[&str]) -> Result<()> {
    raw::catch_bus_errors()?;
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let (buffer, imported) = video(&node, &gpu, &layout(arguments, 16 << 12)?)?;
    let queue = Queue::new(&node, 8)?;
    buffer.invalidate(INVALIDATE_REVOKE, 0)?;
    ensure!(queue.sq.is_revoked() && queue.tail.is_revoked(), "the queue's mappings are still there");
    expect("the queue", node.queue_destroy(queue.created.handle), Errno::ENOENT)?;
    node.buffer_free(imported.handle)?;
    // A new one can be had.
    Queue::new(&node, 8).map(drop)
}

/// Memory is taken back and moved over and over while commands use it: each command is refused or right, and nothing comes
/// to where the memory was.
fn storm(arguments: &[&str]) -> Result<()> {
    let gpu = FakeGpu::open()?;
    let layout = layout(arguments, 64 << 12)?;
    let layout = layout.with(layout.flags | EXPORT_MOVABLE);
    let buffer = gpu.export(&layout)?;
    let all = gpu.export(&layout)?;
    let (done, good, stale) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    buffer.memory.write(0, &pattern(6, 64 << 12))?;
    let end = Instant::now() + crate::fs::longer(Duration::from_secs(5));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2u8)
            .map(|n| {
                let (buffer, done, good, stale) = (&buffer, &done, &good, &stale);
                scope.spawn(move || traffic(n, buffer, done, [good, stale]))
            })
            .collect();
        let mut seed = 1;
        let moved = loop {
            let moved = buffer.invalidate(INVALIDATE_MOVE, seed);
            seed += 1;
            // On a slow machine longer, and then at longer intervals, until there is something to say.
            let now = Instant::now();
            let enough = good.load(Ordering::Relaxed) > 20 && stale.load(Ordering::Relaxed) > 5;
            if moved.is_err()
                || now > end && (enough || now > end + crate::fs::longer(Duration::from_secs(50)))
            {
                break moved;
            }
            let pause = crate::fs::longer(Duration::from_millis(u64::from(seed % 7)));
            std::thread::sleep(if now > end { pause * 10 } else { pause });
        };
        done.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        moved.with_context(|| format!("invalidation {seed}"))
    })?;
    let (good, stale) = (good.into_inner(), stale.into_inner());
    ensure!(good > 20 && stale > 5, "{good} commands were right, {stale} refused");
    ensure!(all.memory.read_all()?.iter().all(|byte| *byte == 0), "a neighbour was written to");
    ensure!(buffer.memory.read_all()? == pattern(6, 64 << 12), "the contents changed");
    Ok(())
}

/// Stores from the buffer, and retrieves the same bytes into it, until told to stop.
fn traffic(n: u8, buffer: &Export<'_>, done: &AtomicBool, [good, stale]: [&AtomicU32; 2]) -> Result<()> {
    let node = Node::open(NODE)?;
    let key = [b's', n];
    while !done.load(Ordering::Relaxed) {
        let imported = match node.import(&buffer.fd, 0, 64 << 12, 0) {
            Err(Errno::ESTALE) => continue,
            imported => imported.context("BUFFER_IMPORT")?,
        };
        // The whole contents: what a store takes from where they are no more, a retrieve brings to where they are.
        let store: KvEntry = entry(KV_STORE, &key, imported.handle, 0, 64 << 12);
        let retrieve = KvEntry { op: KV_RETRIEVE as u8, ..store };
        let mut is_there = true;
        while is_there && !done.load(Ordering::Relaxed) {
            let mut both = [store];
            node.submit(&mut both, 30_000)?;
            if both[0].error == 0 {
                both[0] = retrieve;
                node.submit(&mut both, 30_000)?;
            }
            is_there = both[0].error != -(Errno::ESTALE as i32);
            let right = (both[0].error, both[0].status) == (0, 0);
            ensure!(right || !is_there, "error {}, status {:#x}", both[0].error, both[0].status);
            (if right { good } else { stale }).fetch_add(1, Ordering::Relaxed);
        }
        node.buffer_free(imported.handle).context("BUFFER_FREE")?;
    }
    Ok(())
}

/// The device goes while memory of the GPU is mapped for it, and the GPU while its memory is imported.
fn unbind(flags: &str) -> Result<()> {
    let gpu = FakeGpu::open()?;
    let layout = layout(&[flags], 1 << 20)?;
    let controller = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    let node = Node::open(NODE)?;
    let (buffer, _imported) = video(&node, &gpu, &layout)?;
    pci::unbind(&controller)?;
    let stats = buffer.memory.stats()?;
    ensure!((stats.mapped, stats.attachments) == (0, 0), "{stats:?}");
    pci::bind(&controller, "rocm_xio")?;
    crate::fs::wait_for_file(NODE, kernel::NODE_LIMIT)?;
    let node = Node::open(NODE)?;
    let imported = video(&node, &FakeGpu::open()?, &layout)?.1;
    // It lives on as long as it is imported.
    succeed(&node, &mut [entry(KV_STORE, b"lives", imported.handle, 0, 4096)])
}
