// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller memory buffer: values and submission queues in it. Argument `iommu` when the machine's IOMMU translates.

use crate::fakegpu::{self, FakeGpu, Layout};
use crate::kernel::{self, NODE};
use crate::memory::GpuQueue;
use crate::raw::{self, entry, sized, Buffer, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::{abi::expect, kv_ways, life, mediated::succeed};
use crate::{fs, pci, user};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nvme_kv::kv::{Command, RetrieveOptions, StoreOptions};
use nvme_kv::{Key, Status};
use xio_uapi::{BufferAlloc, QueueCreate, BUFFER_CMB, CMB_DATA, CMB_SQ, FEATURE_CMB, NO_EVENTFD};
use xio_uapi::{KV_RETRIEVE, KV_STORE, QUEUE_SQ_BUFFER, QUEUE_SQ_CMB};

/// Of the cases' controllers.
const SIZE: u64 = 4 << 20;

pub const CLIENTS: &[(&str, Client)] = &[
    ("cmb-values", |_| values()),
    ("cmb-limits", |_| limits()),
    ("cmb-queue", |_| queue()),
    ("cmb-peer", |_| peer()),
    ("cmb-hold", |_| hold()),
];

pub fn run(report: &mut Report, arguments: &[&str]) {
    report.case("module_loads", |_| {
        if fakegpu::function().is_ok() {
            fakegpu::load()?;
        }
        kernel::load_rocm_xio("")
    });
    report.case("is_told_of", |_| told());
    let mut clients = vec!["cmb-values", "cmb-limits"];
    if arguments.contains(&"iommu") {
        clients.extend(["cmb-queue", "cmb-peer"]);
    }
    for name in clients {
        report.case(&name.replace('-', "_"), |_| session::run(&[name]).map(drop));
    }
    let direct = arguments.contains(&"iommu").then_some("direct");
    for path in direct.into_iter().chain(["mediated"]) {
        kv_ways::way(report, path, "cmb", &["kv-keys", "kv-conditions", "kv-list"]);
    }
    report.case("command_says_what_there_is", |_| command());
    report.case("killed_with_memory", |_| {
        (0..10).try_for_each(|_| Session::start(&["cmb-hold"])?.kill())?;
        life::nothing_is_left()
    });
    report.case("unbind_while_mapped", |_| unbind());
    report.case("reset_while_mapped", |_| reset());
    report.case("nothing_is_left", |_| life::nothing_is_left());
}

fn told() -> Result<()> {
    let info = Node::open(NODE)?.info()?;
    ensure!(info.features & FEATURE_CMB != 0, "features {:#x}", info.features);
    ensure!((info.cmb_size, info.cmb_free, info.cmb) == (SIZE, SIZE, CMB_SQ | CMB_DATA), "{info:?}");
    Ok(())
}

fn alloc(node: &Node, len: u64) -> Result<BufferAlloc, Errno> {
    let mut request = BufferAlloc { len, flags: BUFFER_CMB, ..sized() };
    node.request(&mut request).map(|()| request)
}

/// The controller reads and writes values in it; what a client leaves there, the next one does not see.
fn values() -> Result<()> {
    let node = Node::open(NODE)?;
    for round in 0..2u8 {
        let made = alloc(&node, 1 << 20)?;
        let data = node.map(made.data_offset, 1 << 20)?;
        ensure!((0..1 << 20).step_by(8).all(|at| data.read::<u64>(at) == 0), "round {round}: not zeroed");
        data.fill(round);
        for (offset, len) in [(0, 1), (4092, 9000), (100, (1 << 20) - 100)] {
            succeed(&node, &mut [entry(KV_STORE, b"cmb", made.handle, offset, len)])?;
            (0..1 << 20).step_by(8).for_each(|at| data.write(at, 0u64));
            succeed(&node, &mut [entry(KV_RETRIEVE, b"cmb", made.handle, offset, len)])?;
            let range = offset as usize..offset as usize + len as usize;
            let right = |at: usize| if range.contains(&at) { raw::pattern(round, at) } else { 0 };
            let wrong = (0..1 << 20).find(|at| data.read::<u8>(*at) != right(*at));
            ensure!(wrong.is_none(), "byte {wrong:?} of {len} at {offset}");
            data.fill(round);
        }
        drop(data);
        node.buffer_free(made.handle)?;
    }
    Ok(())
}

/// It is shared out to the last page, also when it is in pieces.
fn limits() -> Result<()> {
    let (node, other) = (Node::open(NODE)?, Node::open(NODE)?);
    expect("more than there is", alloc(&node, SIZE + 1).map(drop), Errno::ENOSPC)?;
    let pieces: Vec<_> = (0..16)
        .map(|n| alloc(if n % 2 == 0 { &node } else { &other }, SIZE / 16))
        .collect::<Result<_, _>>()?;
    ensure!(node.info()?.cmb_free == 0, "{} are free", node.info()?.cmb_free);
    expect("a page more", alloc(&node, 1).map(drop), Errno::ENOSPC)?;
    expect("another client's", node.map(pieces[1].data_offset, 4096).map(drop), Errno::ENXIO)?;
    // The other's are every second one.
    drop(other);
    let scattered = alloc(&node, SIZE / 2)?;
    let data = node.map(scattered.data_offset, (SIZE / 2) as usize)?;
    data.fill(3);
    succeed(&node, &mut [entry(KV_STORE, b"pieces", scattered.handle, 0, SIZE as u32 / 2)])?;
    data.fill(4);
    succeed(&node, &mut [entry(KV_RETRIEVE, b"pieces", scattered.handle, 0, SIZE as u32 / 2)])?;
    ensure!(data.wrong(3, data.len) == 0, "{} bytes are wrong", data.wrong(3, data.len));
    let mut queue = QueueCreate { entries: 64, flags: QUEUE_SQ_CMB, eventfd: NO_EVENTFD, ..sized() };
    let refused = node.request(&mut queue);
    ensure!(
        matches!(refused, Err(Errno::ENOSPC | Errno::EPERM)),
        "a queue where nothing is left: {refused:?}"
    );
    Ok(())
}

fn create(node: &Node) -> Result<QueueCreate> {
    let mut created = QueueCreate { entries: 64, flags: QUEUE_SQ_CMB, eventfd: NO_EVENTFD, ..sized() };
    node.request(&mut created).context("QUEUE_CREATE")?;
    Ok(created)
}

/// The controller fetches commands from its own memory; values go both ways.
fn queue() -> Result<()> {
    let node = Node::open(NODE)?;
    let mut both =
        QueueCreate { entries: 64, flags: QUEUE_SQ_CMB | QUEUE_SQ_BUFFER, eventfd: NO_EVENTFD, ..sized() };
    expect("two places at once", node.request(&mut both), Errno::EINVAL)?;
    let mut queue = Queue::map(&node, create(&node)?)?;
    ensure!(node.info()?.cmb_free == SIZE - 4096, "{} are free", node.info()?.cmb_free);
    let (buffer, key) = (Buffer::new(&node, 64 << 10)?, Key::new(b"cmb-queue")?);
    for n in 0..200u8 {
        buffer.data.fill(n);
        let data = buffer.point(0, 64 << 10)?;
        let (len, options) = (64 << 10, StoreOptions::default());
        let (status, _) = queue.run(Command::Store { key, len, options, data })?;
        ensure!(status == Status::SUCCESS, "Store {n}: {status}");
        buffer.data.fill(n.wrapping_add(1));
        let options = RetrieveOptions::default();
        let (status, stored) = queue.run(Command::Retrieve { key, len, options, data })?;
        ensure!(status == Status::SUCCESS && stored == len, "Retrieve {n}: {status}");
        ensure!(buffer.data.wrong(n, 64 << 10) == 0, "value {n} is wrong");
    }
    node.queue_destroy(queue.created.handle)?;
    ensure!(node.info()?.cmb_free == SIZE, "the queue's memory is not free again");
    Ok(())
}

/// A GPU writes commands straight into the controller's memory.
fn peer() -> Result<()> {
    let (node, gpu) = (Node::open(NODE)?, FakeGpu::open()?);
    let memory = gpu.export(&Layout::scattered(16 << 12))?;
    let imported = node.import(&memory.fd, 0, 16 << 12, 0)?;
    let table = node.table(&imported)?;
    let mut queue = GpuQueue::new(&node, &gpu, 64, QUEUE_SQ_CMB, 0)?;
    let stats = queue.parts[0].0.stats()?;
    ensure!(stats.mmio_segments == 1 && stats.segments == 1, "the submission queue: {stats:?}");
    memory.memory.write(0, b"by the GPU")?;
    let (key, data) = (Key::new(b"cmb-peer")?, table.point(0, 10)?);
    let store = Command::Store { key, len: 10, options: StoreOptions::default(), data };
    ensure!(queue.run(store)?.0 == Status::SUCCESS, "Store");
    let retrieve =
        Command::Retrieve { key, len: 10, options: RetrieveOptions::default(), data: table.point(8192, 10)? };
    ensure!(queue.run(retrieve)? == (Status::SUCCESS, 10), "Retrieve");
    let mut seen = [0; 10];
    memory.memory.read(8192, &mut seen)?;
    ensure!(&seen == b"by the GPU", "{seen:?}");
    Ok(())
}

fn hold() -> Result<()> {
    let node = Node::open(NODE)?;
    let made = alloc(&node, 1 << 20)?;
    let data = node.map(made.data_offset, 1 << 20)?;
    data.fill(1);
    if node.info()?.direct != xio_uapi::DIRECT_REFUSED {
        create(&node)?;
    }
    session::ready()
}

fn command() -> Result<()> {
    let info = user::run(&["xio", "info"])?.expect_success()?.text();
    ensure!(info.contains("4.0 MiB, of which 4.0 MiB are free"), "{info}");
    let said = user::run(&["xio", "-v", "--memory", "cmb", "kv", "selftest"])?.expect_success()?.stderr;
    ensure!(said.contains("memory: cmb"), "{said}");
    Ok(())
}

fn unbind() -> Result<()> {
    raw::catch_bus_errors()?;
    let controller = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    let node = Node::open(NODE)?;
    let made = alloc(&node, 1 << 20)?;
    let data = node.map(made.data_offset, 1 << 20)?;
    data.fill(2);
    pci::unbind(&controller)?;
    ensure!(data.is_revoked(), "still mapped");
    pci::bind(&controller, "rocm_xio")?;
    fs::wait_for_file(NODE, kernel::NODE_LIMIT)?;
    told()
}

/// After a reset the controller is told again where its buffer is.
fn reset() -> Result<()> {
    let controller = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    let node = Node::open(NODE)?;
    let made = alloc(&node, 1 << 20)?;
    let data = node.map(made.data_offset, 1 << 20)?;
    data.fill(2);
    fs::write(pci::path(&controller).join("reset"), "1")?;
    ensure!(data.is_revoked(), "still mapped");
    told()?;
    drop((data, node));
    kernel::give_nodes_to_render()?;
    session::run(&["cmb-values"]).map(drop)
}
