// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair without a controller behind it: the caller is the controller. For tests that answer commands in their own
//! way, late, out of order, wrongly or not at all, and for measuring what the queue itself costs.

use crate::backend::{Backend, BufferParts, QueueParts, Select};
use crate::error::{Error, Result};
use crate::mapping::{Doorbell, Region};
use crate::queue::RawQueue;
use crate::state::ControllerState;
use nvme_kv::{Cqe, Sqe, PAGE_SIZE};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use xio_uapi::{GetInfo, GetNamespace};
use zerocopy::IntoBytes;

/// Queue identifier of the pair.
const QID: u16 = 1;

/// The controller's side of a queue pair.
#[derive(Debug)]
pub struct Bare {
    sq: Arc<Region>,
    cq: Arc<Region>,
    doorbells: Arc<Region>,
    entries: u32,
    /// Next entry to fetch.
    head: u32,
    /// Completions posted since the beginning.
    posted: u64,
}

/// Makes a queue pair of 2 to 65536 entries: the host's side and the controller's.
///
/// # Errors
/// [`Error::QueueEntries`], or when there is no memory.
pub fn bare(entries: u32) -> Result<(RawQueue, Bare)> {
    if !(2..=65536).contains(&entries) {
        return Err(Error::QueueEntries { entries, limit: 65536 });
    }
    let memory = |entry: usize| {
        Region::anonymous((entries as usize * entry).next_multiple_of(PAGE_SIZE)).map(Arc::new)
    };
    let (sq, cq, doorbells) = (memory(Sqe::SIZE)?, memory(Cqe::SIZE)?, memory(1)?);
    let doorbell =
        |at| Doorbell::new(doorbells.clone(), at).ok_or_else(|| Error::Protocol("no doorbell".into()));
    // Each doorbell has a cache line of its own.
    let (sq_doorbell, cq_doorbell) = (doorbell(0)?, doorbell(128)?);
    let parts =
        QueueParts { handle: 1, qid: QID, entries, sq: sq.clone(), cq: cq.clone(), sq_doorbell, cq_doorbell };
    let raw = RawQueue::new(Arc::new(Nobody), parts, 0);
    Ok((raw, Bare { sq, cq, doorbells, entries, head: 0, posted: 0 }))
}

impl Bare {
    /// Commands that were submitted and not fetched.
    pub fn submitted(&self) -> u32 {
        let tail = self.doorbells.load_acquire(0);
        (tail + self.entries - self.head) % self.entries
    }

    /// Fetches the next command.
    pub fn fetch(&mut self) -> Option<Sqe> {
        if self.submitted() == 0 {
            return None;
        }
        let mut bytes = [0; Sqe::SIZE];
        self.sq.read(self.head as usize * Sqe::SIZE, &mut bytes);
        self.head = (self.head + 1) % self.entries;
        Some(zerocopy::transmute!(bytes))
    }

    /// The head of the submission queue, as completions tell it.
    pub const fn head(&self) -> u16 {
        self.head as u16
    }

    /// Identifier of the queue, as completions tell it.
    pub const fn qid(&self) -> u16 {
        QID
    }

    /// Posts a completion as it is, but for its phase; false while the queue is full.
    pub fn post(&mut self, cqe: Cqe) -> bool {
        let at = (self.posted % u64::from(self.entries)) as u32;
        let taken = self.doorbells.load_acquire(128);
        if (at + 1) % self.entries == taken {
            return false;
        }
        let phase = self.posted / u64::from(self.entries) % 2 == 0;
        let cqe = cqe.with_phase(phase);
        let (bytes, start) = (cqe.as_bytes(), at as usize * Cqe::SIZE);
        let (rest, _) = bytes.split_at(Cqe::SIZE - 4);
        let last = u32::from(cqe.status.get()) << 16 | u32::from(cqe.cid.get());
        self.cq.write(start, rest);
        self.cq.store_release(start + rest.len(), last);
        self.posted += 1;
        true
    }

    /// Answers all commands that are there with success and nothing else; how many.
    pub fn echo(&mut self) -> u32 {
        let mut count = self.submitted();
        let (before, all) = (count, self.entries);
        while count > 0 {
            let cid = self.sq.load_acquire(self.head as usize * Sqe::SIZE) >> 16;
            let head = (self.head + 1) % all;
            let cqe = Cqe::new(QID, head as u16, cid as u16, nvme_kv::Status::SUCCESS, 0);
            if !self.post(cqe) {
                break;
            }
            self.head = head;
            count -= 1;
        }
        before - count
    }
}

/// Behind the host's side: nobody, so that deleting the queue is done at once.
#[derive(Debug)]
struct Nobody;

impl Backend for Nobody {
    fn info(&self) -> Result<GetInfo> {
        Err(Error::Gone)
    }

    fn state(&self) -> Result<ControllerState> {
        Err(Error::NoState)
    }

    fn set_state_event(&self, _event: Option<BorrowedFd<'_>>) -> Result<()> {
        Err(Error::NoState)
    }

    fn namespace(&self, _which: Select) -> Result<Option<GetNamespace>> {
        Err(Error::Gone)
    }

    fn create_queue(&self, _entries: u32, _event: Option<BorrowedFd<'_>>, _cmb: bool) -> Result<QueueParts> {
        Err(Error::Gone)
    }

    fn destroy_queue(&self, _handle: u32) -> Result<()> {
        Ok(())
    }

    fn alloc_buffer(&self, _len: u64, _cmb: bool) -> Result<BufferParts> {
        Err(Error::Gone)
    }

    fn free_buffer(&self, _handle: u32) -> Result<()> {
        Err(Error::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_state_is_not_told_errors_say_what_they_can() {
        assert_eq!(Nobody.epoch().unwrap(), 0);
        assert!(matches!(Nobody.lost("x"), Error::Revoked { what: "x", state: None }));
        assert!(matches!(Nobody.not_live("x"), Error::Gone));
        assert!(matches!(Nobody.timeout("x", std::time::Duration::ZERO), Error::Timeout { state: None, .. }));
    }
}
