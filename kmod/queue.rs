// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that clients drive themselves.

use crate::{
    interrupt::Armed,
    sys::dma::{Access, DmaDevice, DmaMemory},
};
use kernel::prelude::*;
use nvme_kv::{
    admin::{CreateCq, CreateSq},
    regs::Doorbells,
    Cqe, Sqe,
};

/// A submission and a completion queue of the same identifier.
pub(crate) struct QueuePair {
    pub(crate) qid: u16,
    pub(crate) entries: u32,
    // Before the memory: nothing is signalled for a queue that is gone.
    pub(crate) armed: Option<Armed>,
    /// Only read by the device.
    pub(crate) sq: DmaMemory,
    pub(crate) cq: DmaMemory,
}

impl QueuePair {
    /// Memory for a queue pair. The controller does not know it yet.
    pub(crate) fn new(dev: DmaDevice, qid: u16, entries: u32) -> Result<Self> {
        let bytes = |entry: usize| (entries as usize).checked_mul(entry).ok_or(EINVAL);
        Ok(Self {
            qid,
            entries,
            armed: None,
            sq: DmaMemory::contiguous(dev, bytes(Sqe::SIZE)?, Access::Read)?,
            cq: DmaMemory::contiguous(dev, bytes(Cqe::SIZE)?, Access::ReadWrite)?,
        })
    }

    /// Bytes of memory of a pair with so many entries.
    pub(crate) fn memory(entries: u32) -> u64 {
        let pages = |entry: usize| (entries as usize * entry).div_ceil(nvme_kv::PAGE_SIZE);
        ((pages(Sqe::SIZE) + pages(Cqe::SIZE)) * nvme_kv::PAGE_SIZE) as u64
    }

    /// The command that creates the completion queue. A queue that is polled has no interrupt.
    pub(crate) fn create_cq(&self, vector: Option<u16>) -> Result<CreateCq> {
        Ok(CreateCq {
            qid: self.qid,
            entries: self.entries,
            contiguous: true,
            base: self.cq.addr(0)?,
            vector,
        })
    }

    /// The command that creates the submission queue.
    pub(crate) fn create_sq(&self) -> Result<CreateSq> {
        let (qid, base) = (self.qid, self.sq.addr(0)?);
        Ok(CreateSq { qid, entries: self.entries, contiguous: true, base, priority: 0, cqid: qid })
    }

    /// Offsets in BAR 0 of the tail and the head doorbell.
    pub(crate) fn doorbells(&self, doorbells: Doorbells) -> (usize, usize) {
        (doorbells.sq_tail(self.qid), doorbells.cq_head(self.qid))
    }
}
