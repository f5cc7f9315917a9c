// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bare requests for memory that others have: imports, exports, queues in buffers, the controller's memory.
#![allow(unsafe_code)] // descriptors that an ioctl makes

use crate::fakegpu::{FakeGpu, Memory};
use crate::raw::{sized, Node};
use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nvme_kv::{kv::Command, ring, Cqe, DataPointer, Sqe, Status};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use xio_uapi::{BufferImport, QueueCreate, QueueExport, NO_EVENTFD};
use xio_uapi::{QUEUE_PART_CQ, QUEUE_PART_CQ_DOORBELL, QUEUE_PART_SQ, QUEUE_PART_SQ_DOORBELL};

impl Node {
    /// BUFFER_IMPORT.
    pub fn import(&self, fd: &impl AsFd, offset: u64, len: u64, flags: u32) -> Result<BufferImport, Errno> {
        let fd = fd.as_fd().as_raw_fd();
        let mut request = BufferImport { fd, offset, len, flags, ..sized() };
        self.request(&mut request).map(|()| request)
    }

    /// QUEUE_EXPORT.
    pub fn export(&self, handle: u32, part: u32) -> Result<(OwnedFd, QueueExport), Errno> {
        let mut request = QueueExport { handle, part, ..sized() };
        self.request(&mut request)?;
        // SAFETY: The ioctl made the descriptor for us.
        Ok((unsafe { OwnedFd::from_raw_fd(request.fd) }, request))
    }

    /// The table of an imported buffer, where it may be known.
    pub fn table(&self, imported: &BufferImport) -> Result<Table, Errno> {
        let (offset, len) = (imported.table_offset, imported.table_len as usize);
        let mapped = self.map_with(offset, len, libc::PROT_READ, libc::MAP_SHARED)?;
        let pages = imported.len as usize / 4096;
        Ok(Table((0..pages).map(|n| zerocopy::transmute!(mapped.read::<[u64; 4]>(n * 32))).collect()))
    }
}

/// The addresses of a buffer.
pub struct Table(pub Vec<xio_uapi::Page>);

impl Table {
    /// PRP entries of a range.
    pub fn point(&self, offset: usize, len: usize) -> Result<DataPointer> {
        let lists = nvme_kv::prp::ReadyLists::new(self.0.len());
        Ok(lists.point(offset, len, |n| self.0[n].addr, |v, n| self.0[n].list[v])?)
    }
}

/// A part of a queue as the GPU sees it: memory, and where in it the part begins.
pub struct Seen<'a>(pub Memory<'a>, pub u64);

/// A queue that the fake GPU drives: it writes commands, rings and polls, and no processor's mapping is used.
pub struct GpuQueue<'a> {
    /// What the module answered.
    pub created: QueueCreate,
    /// Submission queue, completion queue, tail doorbell, head doorbell.
    pub parts: [Seen<'a>; 4],
    producer: ring::SqProducer,
    consumer: ring::CqConsumer,
}

impl<'a> GpuQueue<'a> {
    /// A queue of the module's own memory, or with the submission queue in the controller's.
    pub fn new(node: &Node, gpu: &'a FakeGpu, entries: u32, flags: u32, import: u32) -> Result<Self> {
        let mut created = QueueCreate { entries, flags, eventfd: NO_EVENTFD, ..sized() };
        node.request(&mut created).context("QUEUE_CREATE")?;
        let sq = Self::part(node, gpu, &created, QUEUE_PART_SQ, import)?;
        let cq = Self::part(node, gpu, &created, QUEUE_PART_CQ, import)?;
        Self::with_rings(node, gpu, created, [sq, cq], import)
    }

    /// A queue whose entries are there.
    pub fn with_rings(
        node: &Node,
        gpu: &'a FakeGpu,
        created: QueueCreate,
        [sq, cq]: [Seen<'a>; 2],
        import: u32,
    ) -> Result<Self> {
        let tail = Self::part(node, gpu, &created, QUEUE_PART_SQ_DOORBELL, import)?;
        let head = Self::part(node, gpu, &created, QUEUE_PART_CQ_DOORBELL, import)?;
        let stated = [created.sq_doorbell_in_page, created.cq_doorbell_in_page].map(u64::from);
        ensure!([tail.1, head.1] == stated, "doorbells at {stated:?}");
        Ok(Self {
            parts: [sq, cq, tail, head],
            producer: ring::SqProducer::new(created.entries).context("entries")?,
            consumer: ring::CqConsumer::new(created.entries).context("entries")?,
            created,
        })
    }

    fn part(
        node: &Node,
        gpu: &'a FakeGpu,
        created: &QueueCreate,
        part: u32,
        import: u32,
    ) -> Result<Seen<'a>> {
        let (fd, told) = node.export(created.handle, part).with_context(|| format!("QUEUE_EXPORT {part}"))?;
        let memory = gpu.import(&fd, import).with_context(|| format!("the GPU imports part {part}"))?;
        ensure!(memory.len == told.len, "{} of {} bytes", memory.len, told.len);
        Ok(Seen(memory, told.in_page.into()))
    }

    /// Runs a command: status and dword 0.
    pub fn run(&mut self, command: Command) -> Result<(Status, u32)> {
        let [sq, cq, tail, head] = &self.parts;
        let slot = self.producer.push().context("the queue is full")?;
        let sqe: [u8; 64] = zerocopy::transmute!(command.encode(slot as u16, 1));
        sq.0.write(sq.1 + u64::from(slot) * Sqe::SIZE as u64, &sqe)?;
        tail.0.write_u32(tail.1, self.producer.tail())?;
        let at = cq.1 + u64::from(self.consumer.head()) * Cqe::SIZE as u64;
        let end = Instant::now() + Duration::from_secs(30);
        while (cq.0.read_u32(at + 12)? >> 16 & 1 == 1) != self.consumer.phase() {
            if Instant::now() > end {
                bail!("{} did not complete within 30 s", command.name());
            }
            std::thread::yield_now();
        }
        let mut bytes = [0; Cqe::SIZE];
        cq.0.read(at, &mut bytes)?;
        let cqe: Cqe = zerocopy::transmute!(bytes);
        ensure!(u32::from(cqe.sqid.get()) == self.created.qid, "a completion for queue {}", cqe.sqid.get());
        ensure!(self.producer.update_head(cqe.sqhd.get()), "SQHD {} is impossible", cqe.sqhd.get());
        self.consumer.pop();
        head.0.write_u32(head.1, self.consumer.head())?;
        Ok((cqe.status(), cqe.dw0.get()))
    }
}
