// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that clients drive themselves.

use crate::{
    buffer::Buffer,
    controller::Place,
    interrupt::Armed,
    sys::{
        cmb::CmbMemory,
        dma::{Access, DmaDevice, DmaMemory},
        export::Export,
        pci::Peers,
    },
};
use kernel::{prelude::*, sync::Arc};
use nvme_kv::{
    admin::{CreateCq, CreateSq},
    prp,
    regs::Doorbells,
    Cqe, Sqe, PAGE_SIZE,
};

/// Where the entries of a queue are.
pub(crate) enum Ring {
    /// In pages of the module's own.
    Kernel(DmaMemory),
    /// In the controller memory buffer, in one block.
    Cmb(CmbMemory),
    /// In a buffer of the client.
    Buffer(InBuffer),
}

/// A queue in a buffer.
pub(crate) struct InBuffer {
    buffer: Arc<Buffer>,
    /// Names each page, where the pages do not follow one another.
    list: Option<DmaMemory>,
    base: u64,
    pages: usize,
}

impl InBuffer {
    /// A queue of so many bytes at `offset` of a buffer. Memory in pieces needs a controller that takes a list (CAP.CQR).
    pub(crate) fn new(
        dev: DmaDevice,
        buffer: &Arc<Buffer>,
        offset: u64,
        bytes: usize,
        lists: bool,
    ) -> Result<Self> {
        let (offset, pages) = (usize::try_from(offset)?, bytes.div_ceil(PAGE_SIZE));
        let first = offset / PAGE_SIZE;
        let end = first.checked_add(pages).filter(|_| offset % PAGE_SIZE == 0).ok_or(EINVAL)?;
        let addrs = buffer.addrs().get(first..end).ok_or(EINVAL)?;
        let base = *addrs.first().ok_or(EINVAL)?;
        let in_a_row = (0u64..).zip(addrs).all(|(n, addr)| *addr == base.wrapping_add(n * PAGE_SIZE as u64));
        let list = match (in_a_row, lists) {
            (true, _) => None,
            (false, true) => Some(Self::list(dev, addrs)?),
            (false, false) => return Err(EOPNOTSUPP),
        };
        let base = list.as_ref().map_or(Ok(base), |list| list.addr(0))?;
        Ok(Self { buffer: buffer.clone(), list, base, pages })
    }

    /// A list of all the pages. It is that of a transfer with one page before them, which a list does not name.
    fn list(dev: DmaDevice, addrs: &[u64]) -> Result<DmaMemory> {
        let mut all = KVVec::with_capacity(addrs.len() + 1, GFP_KERNEL)?;
        all.push(0, GFP_KERNEL)?;
        all.extend_from_slice(addrs, GFP_KERNEL)?;
        let list = DmaMemory::scattered(dev, prp::list_pages(all.len()), Access::Read)?;
        let mut written = Ok(());
        let write = |page, slot, addr: u64| {
            if let Err(e) = list.write(page * PAGE_SIZE + slot * 8, &addr.to_le_bytes()) {
                written = Err(e);
            }
        };
        prp::build(&all, 0, all.len() * PAGE_SIZE, list.addrs(), write).map_err(|_| EINVAL)?;
        written.map(|()| list)
    }
}

impl Ring {
    /// Base address, and whether the memory follows it or a list is there.
    fn base(&self) -> Result<(u64, bool)> {
        Ok(match self {
            Self::Kernel(memory) => (memory.addr(0)?, true),
            Self::Cmb(memory) => (*memory.addrs().first().ok_or(EINVAL)?, true),
            Self::Buffer(place) => (place.base, place.list.is_none()),
        })
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> usize {
        match self {
            Self::Kernel(memory) => memory.len(),
            Self::Cmb(memory) => memory.len(),
            Self::Buffer(place) => place.pages,
        }
    }

    /// Memory of the module's own.
    pub(crate) fn kernel(&self) -> Result<&DmaMemory> {
        match self {
            Self::Kernel(memory) => Ok(memory),
            _ => Err(ENXIO),
        }
    }

    /// The buffer that it is in.
    pub(crate) fn buffer(&self) -> Option<&Arc<Buffer>> {
        match self {
            Self::Buffer(place) => Some(&place.buffer),
            _ => None,
        }
    }
}

/// A submission and a completion queue of the same identifier.
pub(crate) struct QueuePair {
    pub(crate) qid: u16,
    pub(crate) entries: u32,
    // Before the memory: nothing is signalled for a queue that is gone.
    pub(crate) armed: Option<Armed>,
    // Before the memory: it goes when no other device reaches it.
    pub(crate) exports: [Option<Export>; 4],
    /// Only read by the device, if it is the module's own.
    pub(crate) sq: Ring,
    pub(crate) cq: Ring,
}

impl QueuePair {
    /// A queue pair in these places, or in memory of its own. The controller does not know it yet.
    pub(crate) fn new(dev: DmaDevice, qid: u16, entries: u32, sq: Option<Ring>, cq: Option<Ring>) -> Result<Self> {
        let sq = match sq {
            Some(ring) => ring,
            None => Ring::Kernel(DmaMemory::contiguous(dev, Self::sq_bytes(entries), Access::Read)?),
        };
        let cq = match cq {
            Some(ring) => ring,
            None => Ring::Kernel(DmaMemory::contiguous(dev, Self::cq_bytes(entries), Access::ReadWrite)?),
        };
        Ok(Self { qid, entries, armed: None, exports: [const { None }; 4], sq, cq })
    }

    /// Bytes of the submission queue of so many entries, of which there are at most 65,536.
    pub(crate) fn sq_bytes(entries: u32) -> usize {
        entries as usize * Sqe::SIZE
    }

    /// Bytes of the completion queue of so many entries.
    pub(crate) fn cq_bytes(entries: u32) -> usize {
        entries as usize * Cqe::SIZE
    }

    /// Most bytes of memory of a pair with so many entries.
    pub(crate) fn memory(entries: u32) -> u64 {
        let pages = Self::sq_bytes(entries).div_ceil(PAGE_SIZE) + Self::cq_bytes(entries).div_ceil(PAGE_SIZE);
        (pages * PAGE_SIZE) as u64
    }

    /// Whether a queue is in this buffer.
    pub(crate) fn is_in(&self, buffer: &Arc<Buffer>) -> bool {
        [&self.sq, &self.cq].into_iter().filter_map(|ring| ring.buffer()).any(|b| Arc::ptr_eq(b, buffer))
    }

    /// A part for drivers of other devices: exported now, or before.
    pub(crate) fn export(&mut self, part: u32, place: &Place, doorbells: Doorbells) -> Result<&Export> {
        let made = self.exports.get(part as usize).ok_or(EINVAL)?.is_some();
        if !made {
            let peers = place.peers.as_ref().ok_or(EOPNOTSUPP)?;
            let (tail, head) = self.doorbells(doorbells);
            let export = match part {
                xio_uapi::QUEUE_PART_SQ => Self::export_ring(&self.sq, peers),
                xio_uapi::QUEUE_PART_CQ => Self::export_ring(&self.cq, peers),
                xio_uapi::QUEUE_PART_SQ_DOORBELL => Self::export_doorbells(tail, place, peers),
                _ => Self::export_doorbells(head, place, peers),
            }?;
            if let Some(slot) = self.exports.get_mut(part as usize) {
                *slot = Some(export);
            }
        }
        self.exports.get(part as usize).and_then(Option::as_ref).ok_or(EINVAL)
    }

    fn export_ring(ring: &Ring, peers: &Peers) -> Result<Export> {
        // SAFETY: A queue drops its exports before its memory.
        unsafe {
            match ring {
                Ring::Kernel(memory) => Export::pages(memory.pages()),
                Ring::Cmb(memory) => Export::cmb(memory, peers),
                Ring::Buffer(_) => Err(ENXIO),
            }
        }
    }

    fn export_doorbells(at: usize, place: &Place, peers: &Peers) -> Result<Export> {
        let page = place.doorbells.page(at).ok_or(ENXIO)?;
        // SAFETY: Queues are gone before the device is unbound.
        unsafe { Export::doorbells(&page, peers) }
    }

    /// No other device reaches the queue any more.
    pub(crate) fn revoke(&mut self) {
        self.exports = [const { None }; 4];
    }

    /// The command that creates the completion queue. A queue that is polled has no interrupt.
    pub(crate) fn create_cq(&self, vector: Option<u16>) -> Result<CreateCq> {
        let (base, contiguous) = self.cq.base()?;
        Ok(CreateCq { qid: self.qid, entries: self.entries, contiguous, base, vector })
    }

    /// The command that creates the submission queue.
    pub(crate) fn create_sq(&self) -> Result<CreateSq> {
        let (qid, (base, contiguous)) = (self.qid, self.sq.base()?);
        Ok(CreateSq { qid, entries: self.entries, contiguous, base, priority: 0, cqid: qid })
    }

    /// Offsets in BAR 0 of the tail and the head doorbell.
    pub(crate) fn doorbells(&self, doorbells: Doorbells) -> (usize, usize) {
        (doorbells.sq_tail(self.qid), doorbells.cq_head(self.qid))
    }

    /// What there is to see of it, for debugging.
    pub(crate) fn describe(&self, doorbells: Doorbells) -> Described<'_> {
        let (posted, phase, sq_head) = self.posted().unwrap_or_default();
        Described { queue: self, doorbell: self.doorbells(doorbells).0, posted, phase, sq_head }
    }

    /// Where the controller posts next, the phase tag of what it posted last, and the submission queue's head in that.
    fn posted(&self) -> Result<(usize, bool, u16)> {
        let (cq, entries) = (self.cq.kernel()?, self.entries as usize);
        let last = |at: usize| {
            let bytes = cq.read::<8>(at * Cqe::SIZE + 8)?;
            Ok::<_, Error>((bytes[6] & 1 == 1, u16::from_le_bytes([bytes[0], bytes[1]])))
        };
        let (phase, mut sq_head) = last(0)?;
        let mut next = 1;
        while next < entries {
            let (this, head) = last(next)?;
            if this != phase {
                break;
            }
            (next, sq_head) = (next + 1, head);
        }
        Ok((if next < entries { next } else { 0 }, phase, sq_head))
    }
}

/// A queue pair in words.
pub(crate) struct Described<'a> {
    queue: &'a QueuePair,
    doorbell: usize,
    posted: usize,
    phase: bool,
    sq_head: u16,
}

impl kernel::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        let Self { queue, doorbell, posted, phase, sq_head } = self;
        let place = |ring: &Ring| match ring {
            Ring::Kernel(_) => "coherent",
            Ring::Cmb(_) => "cmb",
            Ring::Buffer(_) => "buffer",
        };
        let (qid, entries, sq, cq) = (queue.qid, queue.entries, place(&queue.sq), place(&queue.cq));
        write!(f, "qid={qid} entries={entries} sq={sq} cq={cq} doorbell={doorbell:#x} ")?;
        write!(f, "sq_head={sq_head} posted={posted} phase={}", u8::from(*phase))
    }
}
