// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fake GPU alone: whether it shares memory, takes it back and ends as a GPU driver does, so that tests of ours can
//! rely on it. Argument `no-peers`: devices do not reach each other's memory.

use crate::fakegpu::{self, Device, Export, FakeGpu, Layout};
use crate::fakegpu::{EXPORT_ANY_IMPORTER, EXPORT_AS_RAM, EXPORT_MOVABLE, EXPORT_REFUSE_PIN, EXPORT_SYSTEM};
use crate::fakegpu::{IMPORT_LATE, IMPORT_PIN, IMPORT_STATIC, IMPORT_STUBBORN};
use crate::fakegpu::{INVALIDATE_MOVE, INVALIDATE_REVOKE, STATE_PEER, STATE_REVOKED};
use crate::report::Report;
use crate::tests::abi::expect;
use crate::{fs, kernel, pci, raw};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Ten chunks of three pages and one page.
const LEN: u64 = 31 << 12;
const SHORT: Duration = Duration::from_millis(300);

pub fn run(report: &mut Report, arguments: &[&str]) {
    let peers = !arguments.contains(&"no-peers");
    report.case("fakegpu_loads", |_| fakegpu::load());
    report.case("buffer_holds_what_was_written", |_| contents());
    report.case("layout_is_in_disorder", |_| layout());
    report.case("import_is_the_same_memory", |_| import());
    report.case("system_memory_is_no_peer", |_| system_memory());
    report.case("importers_are_chosen", |_| choice());
    report.case("other_function_is_a_peer", move |report| other_function(report, peers));
    report.case("importer_lets_go", |_| lets_go(0));
    report.case("importer_lets_go_late", |_| lets_go(IMPORT_LATE));
    report.case("pinned_importer_lets_go", |_| lets_go(IMPORT_PIN));
    report.case("importer_that_keeps_it_is_an_error", |_| stubborn());
    report.case("moved_contents_are_the_same", |_| moved());
    report.case("buffer_outlives_its_number", |_| outlives());
    report.case("close_lets_go_of_all", |_| close());
    report.case("nothing_is_left", |_| nothing_is_left());
    report.case("unbind_takes_all_back", |_| unbind());
    report.case("unload_is_refused_while_in_use", |_| unload());
    report.case("reloaded_5_times", |_| (0..5).try_for_each(|_| fakegpu::load().and_then(|()| rmmod())));
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..LEN as usize).map(|at| raw::pattern(seed, at)).collect()
}

fn contents() -> Result<()> {
    let gpu = FakeGpu::open()?;
    for (chunk_pages, seed, flags) in
        [(1, 42, 0), (1, 1, 0), (3, 2, 0), (31, 3, 0), (64, 0, 0), (1, 0, EXPORT_SYSTEM)]
    {
        let buffer = gpu.export(&Layout { chunk_pages, seed, ..Layout::scattered(LEN).with(flags) })?;
        let neighbour = gpu.export(&Layout { chunk_pages, seed, ..Layout::scattered(LEN).with(flags) })?;
        ensure!(buffer.memory.read_all()?.iter().all(|byte| *byte == 0), "not zeroed");
        buffer.memory.write(0, &pattern(1))?;
        neighbour.memory.write(0, &pattern(2))?;
        ensure!(buffer.memory.read_all()? == pattern(1), "chunks of {chunk_pages}, seed {seed}");
        ensure!(neighbour.memory.read_all()? == pattern(2), "the neighbour");
        let mut some = [0; 5000];
        buffer.memory.read(4095, &mut some)?;
        ensure!(some[..] == pattern(1)[4095..9095], "from the middle");
        expect("behind the end", buffer.memory.read(LEN - 1, &mut [0; 2]), Errno::EINVAL)?;
    }
    expect("no bytes", gpu.export(&Layout::scattered(0)).map(drop), Errno::EINVAL)?;
    let all = u64::from(gpu.device()?.pages) << 12;
    expect("more than there is", gpu.export(&Layout::scattered(all + 4096)).map(drop), Errno::EINVAL)
}

fn layout() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let all = gpu.export(&Layout { chunk_pages: 1, ..Layout::scattered(32 << 20) })?;
    let (chunks, segments) = (all.memory.stats()?.segments, gpu.import(&all.fd, 0)?.stats()?);
    ensure!(chunks == 8192 && segments.segments > 8000, "{chunks} chunks, {segments:?}");
    ensure!(segments.mmio_segments == segments.segments, "{segments:?}");
    drop(all);
    // Neighbours join.
    let straight = gpu.export(&Layout { seed: 0, ..Layout::scattered(LEN) })?;
    let (chunks, segments) =
        (straight.memory.stats()?.segments, gpu.import(&straight.fd, 0)?.stats()?.segments);
    ensure!(chunks == 11 && segments < 11, "{chunks} chunks in {segments} pieces in ascending order");
    Ok(())
}

fn import() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN))?;
    buffer.memory.write(0, &pattern(3))?;
    let import = gpu.import(&buffer.fd, 0)?;
    ensure!(import.len == LEN && import.read_all()? == pattern(3), "read through the import");
    import.write(0, &pattern(4))?;
    ensure!(buffer.memory.read_all()? == pattern(4), "written through the import");
    import.write_u32(12_288, 0x1234_5678)?;
    ensure!(buffer.memory.read_u32(12_288)? == 0x1234_5678, "a dword");
    ensure!(import.read_u32(12_288)? == 0x1234_5678, "a dword read");
    expect("behind the end", import.write(LEN - 1, &[0; 2]), Errno::EINVAL)?;
    let stats = buffer.memory.stats()?;
    ensure!(stats.attachments == 1 && stats.mapped == 1 && stats.pinned == 0, "{stats:?}");
    ensure!(stats.state == STATE_PEER && import.stats()?.state == STATE_PEER, "{stats:?}");
    drop(import);
    let stats = buffer.memory.stats()?;
    ensure!(stats.attachments == 0 && stats.mapped == 0, "{stats:?}");
    expect("no dma-buf", gpu.import(&std::io::stdin(), 0).map(drop), Errno::EINVAL)
}

fn system_memory() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN).with(EXPORT_SYSTEM))?;
    buffer.memory.write(0, &pattern(5))?;
    let import = gpu.import(&buffer.fd, 0)?;
    let stats = import.stats()?;
    ensure!(stats.state == 0 && stats.mmio_segments == 0 && stats.segments > 0, "{stats:?}");
    ensure!(import.read_all()? == pattern(5), "read through the import");
    import.write(0, &pattern(6))?;
    ensure!(buffer.memory.read_all()? == pattern(6), "written through the import");
    Ok(())
}

fn choice() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN))?;
    let refused = |fd: &OwnedFd, flags| expect("import", gpu.import(fd, flags).map(drop), Errno::EOPNOTSUPP);
    refused(&buffer.fd, IMPORT_STATIC).context("without peer-to-peer")?;
    let buffer = gpu.export(&Layout::scattered(LEN).with(EXPORT_SYSTEM))?;
    refused(&buffer.fd, IMPORT_STATIC).context("that can not be told")?;
    let buffer = gpu.export(&Layout::scattered(LEN).with(EXPORT_SYSTEM | EXPORT_ANY_IMPORTER))?;
    let import = gpu.import(&buffer.fd, IMPORT_STATIC)?;
    ensure!(buffer.memory.stats()?.pinned == 1, "a static importer pins");
    ensure!(import.read_all()?.iter().all(|byte| *byte == 0), "read through the import");
    let buffer = gpu.export(&Layout::scattered(LEN).with(EXPORT_REFUSE_PIN))?;
    refused(&buffer.fd, IMPORT_PIN).context("a pin")?;
    gpu.import(&buffer.fd, 0)?;
    let stats = buffer.memory.stats()?;
    ensure!(stats.attachments == 0 && stats.pinned == 0, "{stats:?}");
    Ok(())
}

/// The controller, whose driver is not there: only its addresses matter.
fn other_function(report: &mut Report, peers: bool) -> Result<()> {
    let controller = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    report.note(&format!("domain of the controller: {:?}", pci::iommu_domain(&controller)?));
    for flags in [0, EXPORT_AS_RAM] {
        other_function_with(&controller, peers, flags)?;
    }
    Ok(())
}

fn other_function_with(controller: &str, peers: bool, flags: u32) -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN).with(flags))?;
    buffer.memory.write(0, &pattern(7))?;
    let import = gpu.import_as(controller, &buffer.fd, 0);
    if !peers {
        let errno = import.map(drop).unwrap_err().downcast::<Errno>();
        ensure!(matches!(errno, Ok(Errno::EOPNOTSUPP)), "{errno:?}");
        return Ok(());
    }
    let import = import?;
    let stats = import.stats()?;
    ensure!(stats.state == STATE_PEER && stats.mmio_segments == stats.segments, "{stats:?}");
    ensure!(import.read_all()? == pattern(7), "the controller's addresses are not the memory's");
    buffer.invalidate(0, 0)?;
    expect("a read after that", import.read_all().map(drop), Errno::ENODEV)
}

fn lets_go(flags: u32) -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN))?;
    buffer.memory.write(0, &pattern(8))?;
    let import = gpu.import(&buffer.fd, flags)?;
    ensure!(buffer.memory.stats()?.pinned == u32::from(flags == IMPORT_PIN), "pins");
    buffer.invalidate(0, 0)?;
    expect("a read after that", import.read_all().map(drop), Errno::ENODEV)?;
    let stats = buffer.memory.stats()?;
    ensure!(stats.mapped == 0 && stats.attachments == 1 && stats.state == STATE_PEER, "{stats:?}");
    let stats = import.stats()?;
    ensure!(stats.state & STATE_REVOKED != 0 && stats.invalidations >= 1, "{stats:?}");
    ensure!(gpu.import(&buffer.fd, flags)?.read_all()? == pattern(8), "another import");
    buffer.invalidate(INVALIDATE_REVOKE, 0)?;
    expect("an import of what is revoked", gpu.import(&buffer.fd, flags).map(drop), Errno::ENODEV)?;
    ensure!(buffer.memory.read_all()? == pattern(8), "the GPU itself still has it");
    buffer.invalidate(0, 0)?;
    ensure!(gpu.import(&buffer.fd, flags)?.read_all()? == pattern(8), "an import of what is back");
    Ok(())
}

fn stubborn() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN).with(EXPORT_MOVABLE))?;
    let import = gpu.import(&buffer.fd, IMPORT_STUBBORN)?;
    let start = Instant::now();
    expect("invalidation", buffer.invalidate_within(INVALIDATE_MOVE, 9, SHORT), Errno::ETIMEDOUT)?;
    ensure!(start.elapsed() >= SHORT, "it waited for {:?}", start.elapsed());
    expect("a read after that", import.read_all().map(drop), Errno::ENODEV)?;
    let stats = buffer.memory.stats()?;
    ensure!(stats.mapped == 1 && stats.state & STATE_REVOKED != 0, "{stats:?}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| buffer.invalidate(INVALIDATE_MOVE, 9));
        std::thread::sleep(SHORT);
        drop(import);
        waiting.join().expect("a thread that does not panic")
    })?;
    gpu.import(&buffer.fd, 0).context("afterwards").map(drop)
}

fn moved() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let fixed = gpu.export(&Layout::scattered(LEN))?;
    expect("a move of what is fixed", fixed.invalidate(INVALIDATE_MOVE, 1), Errno::EINVAL)?;
    for flags in [EXPORT_MOVABLE, EXPORT_MOVABLE | EXPORT_SYSTEM] {
        let buffer = gpu.export(&Layout::scattered(LEN).with(flags))?;
        buffer.memory.write(0, &pattern(9))?;
        for seed in 1..4 {
            let import = gpu.import(&buffer.fd, 0)?;
            buffer.invalidate(INVALIDATE_MOVE, seed)?;
            expect("the old import", import.read_u32(0), Errno::ENODEV)?;
            ensure!(buffer.memory.read_all()? == pattern(9), "move {seed}");
            ensure!(gpu.import(&buffer.fd, 0)?.read_all()? == pattern(9), "import after move {seed}");
        }
    }
    Ok(())
}

fn outlives() -> Result<()> {
    let (gpu, other) = (FakeGpu::open()?, FakeGpu::open()?);
    let buffer = gpu.export(&Layout::scattered(LEN))?;
    buffer.memory.write(0, &pattern(10))?;
    let import = other.import(&buffer.fd, 0)?;
    drop(buffer);
    drop(gpu);
    ensure!(import.read_all()? == pattern(10), "memory that its maker gave up");
    ensure!(other.device()?.exports == 1, "{:?}", other.device()?);
    Ok(())
}

/// Without freeing anything first.
fn close() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let Export { memory, fd } = gpu.export(&Layout::scattered(LEN))?;
    for flags in [0, IMPORT_PIN, IMPORT_LATE, IMPORT_STUBBORN] {
        std::mem::forget(gpu.import(&fd, flags)?);
    }
    std::mem::forget(memory);
    let used = gpu.device()?;
    ensure!(used.exports == 1 && used.imports == 4, "{used:?}");
    drop(fd);
    drop(gpu);
    nothing_is_left()
}

/// A dma-buf ends with a delay.
fn nothing_is_left() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let empty = Device { pages: gpu.device()?.pages, ..Device::default() };
    fs::wait_for("everything going", fakegpu::LIMIT, || Ok(gpu.device()? == empty))
}

fn unbind() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let buffer = gpu.export(&Layout::scattered(LEN))?;
    let system = gpu.export(&Layout::scattered(LEN).with(EXPORT_SYSTEM))?;
    let imports = [
        gpu.import(&buffer.fd, 0)?,
        gpu.import(&buffer.fd, IMPORT_LATE)?,
        gpu.import(&buffer.fd, IMPORT_STUBBORN)?,
        gpu.import(&system.fd, 0)?,
    ];
    let address = fakegpu::function()?;
    pci::unbind(&address)?;
    fs::wait_for_absence(fakegpu::NODE, kernel::NODE_LIMIT)?;
    for import in &imports {
        expect("a read after unbind", import.read_u32(0), Errno::ENODEV)?;
    }
    expect("an export after unbind", gpu.export(&Layout::scattered(LEN)).map(drop), Errno::ENODEV)?;
    pci::bind(&address, "fakegpu")?;
    fs::wait_for_file(fakegpu::NODE, kernel::NODE_LIMIT)?;
    let again = FakeGpu::open()?;
    expect("an import of the old one", again.import(&buffer.fd, 0).map(drop), Errno::ENODEV)?;
    ensure!(again.device()?.exports == 0, "the old ones are not the new one's");
    again.export(&Layout::scattered(LEN))?.memory.write(0, &pattern(11))?;
    Ok(())
}

fn rmmod() -> Result<()> {
    fs::wait_for("the module being free", fakegpu::LIMIT, || {
        Ok(fs::read("/sys/module/fakegpu/refcnt")? == "0")
    })?;
    kernel::rmmod("fakegpu").context("rmmod fakegpu")
}

fn unload() -> Result<()> {
    let gpu = FakeGpu::open()?;
    expect("rmmod while open", kernel::rmmod("fakegpu"), Errno::EAGAIN)?;
    let fd = gpu.export(&Layout::scattered(LEN))?.fd;
    drop(gpu);
    expect("rmmod while exported", kernel::rmmod("fakegpu"), Errno::EAGAIN)?;
    drop(fd);
    rmmod()
}
