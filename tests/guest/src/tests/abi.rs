// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctl and mmap interface: each bad input has its documented errno, older and newer callers are served.

use crate::kernel::{self, NODE};
use crate::raw::{self, sized, Buffer, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nvme_kv::{kv::Command, DataPointer, Key, Status};
use xio_uapi::{
    BufferAlloc, BufferFree, GetInfo, GetNamespace, GetState, QueueCreate, QueueDestroy, Request,
};

pub const CLIENTS: &[(&str, Client)] = &[
    ("abi-info", |_| info()),
    ("abi-sizes", |_| sizes()),
    ("abi-fields", |_| fields()),
    ("abi-limits", |_| limits()),
    ("abi-handles", |_| handles()),
    ("abi-map", |_| map()),
    ("abi-table", |_| table()),
    ("abi-quota", |_| quota()),
    ("abi-fork", |_| fork()),
];

/// Runs as the ordinary user; the machine has a translating IOMMU.
pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_loads", |_| kernel::load_rocm_xio("max_client_mb=64 max_client_queues=64"));
    report.case("node_is_closed_to_others", |_| {
        let denied = crate::user::run_outside_render(&["sh", "-c", "exec 3<>/dev/rocm-xio0"])?;
        ensure!(denied.code != 0, "a user outside group render could open the node");
        Ok(())
    });
    for (name, _) in CLIENTS {
        report.case(&name.replace('-', "_"), |_| session::run(&[name]).map(drop));
    }
    report.case("nothing_is_left", |_| super::life::nothing_is_left());
}

/// Expects an errno.
pub fn expect<T>(what: &str, result: Result<T, Errno>, errno: Errno) -> Result<()> {
    match result {
        Err(e) if e == errno => Ok(()),
        Err(e) => anyhow::bail!("{what}: {e} instead of {errno}"),
        Ok(_) => anyhow::bail!("{what}: success instead of {errno}"),
    }
}

fn info() -> Result<()> {
    let node = Node::open(NODE)?;
    let info = node.info()?;
    ensure!(info.abi_version == xio_uapi::ABI_VERSION, "version {}", info.abi_version);
    ensure!(info.features & xio_uapi::FEATURE_DIRECT_QUEUE != 0, "features {:#x}", info.features);
    let confined = [xio_uapi::IOMMU_TRANSLATED, xio_uapi::IOMMU_TRANSLATED_LAZY].contains(&info.iommu);
    ensure!(
        confined && info.direct == xio_uapi::DIRECT_CONFINED,
        "iommu {} direct {}",
        info.iommu,
        info.direct
    );
    let both = xio_uapi::QUEUE_KIND_DIRECT | xio_uapi::QUEUE_KIND_MEDIATED;
    ensure!(info.queue_kinds == both, "queue kinds {:#x}", info.queue_kinds);
    ensure!(info.max_queues > 0 && info.max_queue_entries >= 2, "no queues");
    ensure!(info.max_client_memory == 64 << 20, "max_client_memory {}", info.max_client_memory);
    let function = crate::pci::nvme_functions()?.into_iter().next().context("no function")?;
    let stated = format!(
        "{:04x}:{:02x}:{:02x}.{:x}",
        info.pci_domain, info.pci_bus, info.pci_device, info.pci_function
    );
    ensure!(stated == function, "{stated} instead of {function}");
    let numa: i32 = crate::fs::read(crate::pci::path(&function).join("numa_node"))?.parse()?;
    ensure!(info.numa_node == numa, "NUMA node {} instead of {numa}", info.numa_node);

    let mut first = sized::<GetNamespace>();
    node.request(&mut first)?;
    ensure!(first.nsid == 1 && first.max_key == 16 && first.max_value > 0, "namespace {first:?}");
    let mut same = GetNamespace { nsid: 1, ..sized() };
    node.request(&mut same)?;
    ensure!(same.capacity == first.capacity, "{same:?}");
    expect("index beyond the last", node.request(&mut GetNamespace { index: 99, ..sized() }), Errno::ENOENT)?;
    expect("unknown namespace", node.request(&mut GetNamespace { nsid: 99, ..sized() }), Errno::ENOENT)?;
    expect(
        "broadcast namespace",
        node.request(&mut GetNamespace { nsid: u32::MAX, ..sized() }),
        Errno::ENOENT,
    )
}

/// The number of a request with another size.
fn resized(cmd: u32, size: usize) -> u32 {
    cmd & !(0x3fff << 16) | (size as u32) << 16
}

fn sizes() -> Result<()> {
    let node = Node::open(NODE)?;
    let whole = node.info()?;
    let with = |size: usize, tail: u8| {
        let mut bytes = vec![0u8; size.max(4)];
        bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        if tail != 0 {
            bytes[size - 1] = tail;
        }
        node.ioctl(resized(xio_uapi::GET_INFO, size), &mut bytes).map(|()| bytes)
    };
    // An older caller, who does not know the end of the structure.
    let old = with(GetInfo::MIN_SIZE, 0)?;
    ensure!(old[8..] == zerocopy::IntoBytes::as_bytes(&whole)[8..GetInfo::MIN_SIZE], "an older caller");
    // A newer caller, whose additional fields this module does not know.
    let new = with(size_of::<GetInfo>() + 200, 0)?;
    ensure!(new[8..size_of::<GetInfo>()] == zerocopy::IntoBytes::as_bytes(&whole)[8..], "a newer caller");
    ensure!(new[size_of::<GetInfo>()..].iter().all(|b| *b == 0), "unknown fields come back as zero");
    expect("unknown field set", with(size_of::<GetInfo>() + 8, 1), Errno::E2BIG)?;
    expect("too small", with(GetInfo::MIN_SIZE - 4, 0), Errno::EINVAL)?;
    expect("no size at all", with(0, 0), Errno::EINVAL)?;
    let mut wrong = sized::<GetInfo>();
    wrong.size -= 4;
    expect("size differs from the number's", node.request(&mut wrong), Errno::EINVAL)?;
    let mut bytes = [0u8; 64];
    expect("unknown request", node.ioctl(xio_uapi::iowr(0x77, 64), &mut bytes), Errno::ENOTTY)?;
    let foreign = xio_uapi::GET_INFO & !0xff00 | 0x4e00;
    expect("another's request", node.ioctl(foreign, &mut bytes), Errno::ENOTTY)?;
    let read_only = xio_uapi::GET_INFO & !(1 << 30);
    expect("wrong direction", node.ioctl(read_only, &mut bytes), Errno::ENOTTY)?;
    // No memory there: EFAULT, and what was made is undone.
    expect("no memory", raw::ioctl_at(&node, xio_uapi::GET_INFO, 8), Errno::EFAULT)?;
    raw::read_only_argument(&node)
}

fn fields() -> Result<()> {
    let node = Node::open(NODE)?;
    expect("flags", node.request(&mut GetInfo { flags: 1, ..sized() }), Errno::EINVAL)?;
    expect("flags", node.request(&mut GetNamespace { flags: 1 << 31, ..sized() }), Errno::EINVAL)?;
    expect(
        "flags",
        node.request(&mut QueueCreate { flags: 8, entries: 8, eventfd: -1, ..sized() }),
        Errno::EINVAL,
    )?;
    expect("flags", node.request(&mut BufferAlloc { flags: 1, len: 4096, ..sized() }), Errno::EINVAL)?;
    expect("flags", node.request(&mut GetState { flags: 2, ..sized() }), Errno::EINVAL)?;
    expect("no eventfd", node.request(&mut GetState { flags: 1, eventfd: 999, ..sized() }), Errno::EBADF)?;
    let mut state = GetState { eventfd: 999, ..sized() };
    node.request(&mut state).context("without the flag the eventfd is not looked at")?;
    ensure!(state.state == xio_uapi::STATE_LIVE, "state {}", state.state);
    state.reserved[5] = 1;
    expect("reserved", node.request(&mut state), Errno::EINVAL)?;
    let mut queue = QueueCreate { entries: 8, eventfd: -1, ..sized() };
    queue.reserved[1] = 1;
    expect("reserved", node.request(&mut queue), Errno::EINVAL)?;
    let mut buffer = BufferAlloc { len: 4096, ..sized() };
    buffer.reserved[0] = 1;
    expect("reserved", node.request(&mut buffer), Errno::EINVAL)?;
    let mut destroy = QueueDestroy { handle: 1, ..sized() };
    destroy.reserved[4] = 1;
    expect("reserved", node.request(&mut destroy), Errno::EINVAL)?;
    let mut free = BufferFree { handle: 1, ..sized() };
    free.reserved[4] = 1;
    expect("reserved", node.request(&mut free), Errno::EINVAL)
}

fn limits() -> Result<()> {
    let node = Node::open(NODE)?;
    let info = node.info()?;
    for entries in [0, 1, info.max_queue_entries + 1, u32::MAX] {
        expect(&format!("{entries} entries"), node.queue_create(entries, -1), Errno::EINVAL)?;
    }
    for len in [0, info.max_buffer + 1, u64::MAX] {
        expect(&format!("{len} bytes"), node.buffer_alloc(len), Errno::EINVAL)?;
    }
    let mut cmb = BufferAlloc { len: 4096, flags: xio_uapi::BUFFER_CMB, ..sized() };
    expect("memory that the controller has not", node.request(&mut cmb), Errno::EOPNOTSUPP)?;
    let flags = xio_uapi::QUEUE_SQ_CMB;
    let mut cmb = QueueCreate { entries: 8, flags, eventfd: xio_uapi::NO_EVENTFD, ..sized() };
    expect("a queue in it", node.request(&mut cmb), Errno::EOPNOTSUPP)?;
    expect("eventfd that is not open", node.queue_create(8, 999), Errno::EBADF)?;
    expect("eventfd below -1", node.queue_create(8, -2), Errno::EBADF)?;
    expect(
        "eventfd that is none",
        node.queue_create(8, std::os::fd::AsRawFd::as_raw_fd(&node.0)),
        Errno::EBADF,
    )?;
    let queues: Vec<_> = (0..info.max_queues).map(|_| node.queue_create(2, -1)).collect::<Result<_, _>>()?;
    expect("one queue too many", node.queue_create(2, -1), Errno::ENOSPC)?;
    let qids: std::collections::BTreeSet<_> = queues.iter().map(|q| q.qid).collect();
    ensure!(qids.len() == queues.len(), "two queues of one identifier");
    node.queue_destroy(queues[0].handle)?;
    let again = node.queue_create(2, -1)?;
    ensure!(again.qid == queues[0].qid, "a queue that was destroyed can be made again");
    // Objects are counted, too: creating them takes the kernel time.
    let many = (0..2000).find_map(|_| node.buffer_alloc(4096).err());
    ensure!(many == Some(Errno::EDQUOT), "2000 buffers: {many:?}");
    Queue::new(&Node::open(NODE)?, 2).err().context("another client got a queue")?;
    Ok(())
}

fn handles() -> Result<()> {
    let (node, other) = (Node::open(NODE)?, Node::open(NODE)?);
    let (queue, buffer) = (node.queue_create(8, -1)?, node.buffer_alloc(4096)?);
    for handle in [0, buffer.handle, queue.handle + 1000, u32::MAX] {
        expect(&format!("queue {handle}"), node.queue_destroy(handle), Errno::ENOENT)?;
    }
    for handle in [0, queue.handle, u32::MAX] {
        expect(&format!("buffer {handle}"), node.buffer_free(handle), Errno::ENOENT)?;
    }
    expect("another client's queue", other.queue_destroy(queue.handle), Errno::ENOENT)?;
    expect("another client's buffer", other.buffer_free(buffer.handle), Errno::ENOENT)?;
    expect("another client owns the path", other.queue_create(8, -1), Errno::EBUSY)?;
    expect("another client owns the path", other.buffer_alloc(4096), Errno::EBUSY)?;
    expect("another client's mapping", other.map(buffer.data_offset, 4096), Errno::ENXIO)?;
    node.queue_destroy(queue.handle)?;
    expect("twice", node.queue_destroy(queue.handle), Errno::ENOENT)?;
    node.buffer_free(buffer.handle)?;
    expect("twice", node.buffer_free(buffer.handle), Errno::ENOENT)?;
    // The path is free now.
    let taken = other.buffer_alloc(4096)?;
    ensure!(taken.handle != buffer.handle, "a handle was used again at once");
    Ok(())
}

fn map() -> Result<()> {
    const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
    let node = Node::open(NODE)?;
    let (queue, buffer) = (node.queue_create(64, -1)?, node.buffer_alloc(8192)?);
    for offset in [0, 4096, buffer.data_offset + (1 << 32) * 7, queue.sq_offset + (5 << 32), 1 << 62] {
        expect(&format!("offset {offset:#x}"), node.map(offset, 4096), Errno::ENXIO)?;
    }
    expect("beyond the buffer", node.map(buffer.data_offset, 12288), Errno::EINVAL)?;
    expect("beyond the buffer", node.map(buffer.data_offset + 8192, 4096), Errno::EINVAL)?;
    expect("beyond the queue", node.map(queue.sq_offset, 8192), Errno::EINVAL)?;
    expect("two pages of doorbells", node.map(queue.sq_doorbell_offset, 8192), Errno::EINVAL)?;
    expect("page after the doorbells", node.map(queue.sq_doorbell_offset + 4096, 4096), Errno::EINVAL)?;
    for offset in [buffer.data_offset, queue.sq_offset, queue.cq_offset, queue.sq_doorbell_offset] {
        expect("private", node.map_with(offset, 4096, RW, libc::MAP_PRIVATE), Errno::EINVAL)?;
        let exec = node.map_with(offset, 4096, RW | libc::PROT_EXEC, libc::MAP_SHARED);
        expect("executable", exec, Errno::EINVAL)?;
        let mapped = node.map(offset, 4096)?;
        expect(
            "made executable later",
            raw::protect(&mapped, libc::PROT_READ | libc::PROT_EXEC),
            Errno::EACCES,
        )?;
        expect("grown", raw::grow(&mapped, 8192), Errno::EFAULT)?;
    }
    expect("writable table", node.map(buffer.table_offset, 4096), Errno::EINVAL)?;
    let table = node.map_with(buffer.table_offset, 4096, libc::PROT_READ, libc::MAP_SHARED)?;
    expect("table made writable later", raw::protect(&table, RW), Errno::EACCES)?;
    // The second page alone, and a mapping with a hole in it.
    let (all, second) = (node.map(buffer.data_offset, 8192)?, node.map(buffer.data_offset + 4096, 4096)?);
    all.write(4096, 0x1234_5678u32);
    ensure!(second.read::<u32>(0) == 0x1234_5678, "the second page is another");
    all.unmap_part(0, 4096)?;
    ensure!(all.read::<u32>(4096) == 0x1234_5678, "the rest of a split mapping");
    for memory in [node.map(queue.sq_offset, 4096)?, node.map(queue.cq_offset, 4096)?, second] {
        raw::can_be_pinned(&memory).context("memory can be pinned")?;
    }
    let doorbell = node.map(queue.sq_doorbell_offset, 4096)?;
    expect("doorbells can not be pinned", raw::can_be_pinned(&doorbell), Errno::EFAULT)
}

/// The table and the ready-made lists lead to the right bytes, wherever a value starts and ends.
fn table() -> Result<()> {
    let node = Node::open(NODE)?;
    let mut queue = Queue::new(&node, 16)?;
    let buffer = Buffer::new(&node, 3 << 20)?;
    let key = Key::new(b"table")?;
    let pages = buffer.allocated.len as usize / 4096;
    ensure!((0..pages).all(|n| buffer.page(n).addr % 4096 == 0 && buffer.page(n).reserved == 0), "addresses");
    for (offset, len) in [
        (0, 1),
        (4, 4092),
        (8, 4096),
        (4092, 9000),
        (0, 512 * 4096),
        (4096, 513 * 4096),
        (2048, (511 * 4096) + 4096),
        (256 << 10, 2 << 20),
        (100, (3 << 20) - 100),
    ] {
        buffer.data.fill(3);
        let data = buffer.point(offset, len)?;
        let store = Command::Store { key, len: len as u32, options: Default::default(), data };
        ensure!(queue.run(store)?.0.is_success(), "Store of {len} at {offset}");
        buffer.data.fill(9);
        let retrieve = Command::Retrieve { key, len: len as u32, options: Default::default(), data };
        let (status, stored) = queue.run(retrieve)?;
        ensure!(status.is_success() && stored as usize == len, "Retrieve of {len} at {offset}: {status}");
        for at in 0..buffer.data.len {
            let seed = if (offset..offset + len).contains(&at) { 3 } else { 9 };
            ensure!(buffer.data.read::<u8>(at) == raw::pattern(seed, at), "byte {at} of {len} at {offset}");
        }
    }
    // An address that nothing is mapped at: an error completion, and the queue goes on.
    let beyond = DataPointer { prp1: buffer.page(pages - 1).addr + (1 << 30), prp2: 0 };
    let wild = Command::Retrieve { key, len: 4096, options: Default::default(), data: beyond };
    ensure!(queue.run(wild)?.0 == Status::DATA_TRANSFER_ERROR, "an address that is not mapped");
    // The ready-made lists are there for the device to read only.
    let list = DataPointer { prp1: buffer.page(1).list[0] & !4095, prp2: 0 };
    let overwrite = Command::Retrieve { key, len: 4096, options: Default::default(), data: list };
    ensure!(queue.run(overwrite)?.0 == Status::DATA_TRANSFER_ERROR, "a PRP list was overwritten");
    ensure!(queue.run(Command::Exist { key })?.0.is_success(), "after addresses that are refused");
    Ok(())
}

fn quota() -> Result<()> {
    let node = Node::open(NODE)?;
    let first = node.buffer_alloc(40 << 20)?;
    expect("above max_client_mb", node.buffer_alloc(40 << 20), Errno::EDQUOT)?;
    node.buffer_free(first.handle)?;
    node.buffer_alloc(40 << 20).context("after freeing")?;
    Ok(())
}

/// A child has no mapping of its parent's, and a file passed on is the same client.
fn fork() -> Result<()> {
    let node = Node::open(NODE)?;
    let buffer = Buffer::new(&node, 4096)?;
    ensure!(raw::child_dies_touching(&buffer.data)? == libc::SIGSEGV, "a child could use the mapping");
    let copy = Node(node.0.try_clone()?);
    copy.buffer_free(buffer.allocated.handle).context("through a duplicated descriptor")?;
    Ok(())
}
