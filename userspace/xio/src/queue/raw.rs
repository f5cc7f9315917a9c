// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair without anything that drives it.

use crate::backend::{Backend, QueueParts};
use crate::buffer::Buffer;
use crate::dmabuf::{Exported, QueuePart};
use crate::error::{Error, Result};
use crate::mapping::{Doorbell, Region};
use nvme_kv::{Cqe, Sqe};
use std::sync::Arc;

/// A queue pair, mapped, for code that drives it itself (such as a GPU kernel). [`Queue`](crate::Queue) is one with
/// a driver. Deleted when dropped.
///
/// When the controller is reset or the module lets go of it, the mappings are revoked. To code of this process the completion
/// queue reads as zeros then, which is a completion when the phase tag that is waited for is 0, and what is written goes
/// nowhere: such code asks [`intact`](Self::intact) before it believes a completion. (See [`sigbus`](crate::sigbus).)
#[derive(Debug)]
pub struct RawQueue {
    parts: QueueParts,
    backend: Arc<dyn Backend>,
    deleted: bool,
    /// Resets of the controller before it was made.
    epoch: u32,
}

impl RawQueue {
    pub(crate) const fn new(backend: Arc<dyn Backend>, parts: QueueParts, epoch: u32) -> Self {
        Self { parts, backend, deleted: false, epoch }
    }

    /// Whether the queue is there at this moment: then all that was read from it until now was good.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Gone`].
    pub fn intact(&self) -> Result<()> {
        match self.parts.cq.look() {
            true => Err(self.lost("using a queue")),
            false => Ok(()),
        }
    }

    /// Whether what was read from the completion queue was read from memory that is no more.
    #[inline]
    pub(super) fn is_revoked(&self) -> bool {
        self.parts.cq.is_revoked()
    }

    pub(super) fn lost(&self, what: &'static str) -> Error {
        self.backend.lost(what)
    }

    /// Whether commands of this queue may point at a buffer.
    pub(crate) fn admit(&self, buffer: &Buffer) -> Result<()> {
        if !buffer.belongs_to(&self.backend) {
            return Err(Error::ForeignBuffer);
        }
        if !buffer.is_of_epoch(self.epoch) {
            // One of the two is from before a reset. If it is the buffer, its addresses are another's by now.
            self.intact()?;
            return Err(Error::BufferGone);
        }
        Ok(())
    }

    /// Queue identifier, which completions carry.
    pub const fn qid(&self) -> u16 {
        self.parts.qid
    }

    /// Entries of each of the two queues.
    pub const fn entries(&self) -> u32 {
        self.parts.entries
    }

    /// The handle in the ioctl interface.
    pub const fn handle(&self) -> u32 {
        self.parts.handle
    }

    /// First entry of the submission queue.
    pub fn sq_ptr(&self) -> *mut u8 {
        self.parts.sq.as_ptr()
    }

    /// First entry of the completion queue.
    pub fn cq_ptr(&self) -> *mut u8 {
        self.parts.cq.as_ptr()
    }

    /// The submission queue's tail doorbell.
    pub fn sq_doorbell_ptr(&self) -> *mut u32 {
        self.parts.sq_doorbell.as_ptr()
    }

    /// The completion queue's head doorbell.
    pub fn cq_doorbell_ptr(&self) -> *mut u32 {
        self.parts.cq_doorbell.as_ptr()
    }

    /// Makes a dma-buf of a part, for the driver of another device to import: where a GPU can not map the doorbells by their
    /// address in this process, its driver can by this. It is revoked when the queue goes.
    ///
    /// # Errors
    /// When the module or the kernel has no exports.
    pub fn export(&self, part: QueuePart) -> Result<Exported> {
        self.backend.export_queue(self.parts.handle, part)
    }

    /// Deletes the queue. When it returns `Ok` the controller does nothing for it any more.
    ///
    /// # Errors
    /// [`Error::Timeout`] or others when the controller does not delete it; the module resets it then.
    pub fn close(mut self) -> Result<()> {
        self.delete()
    }

    /// Deletes the queue, once. A controller that is gone or stopped does nothing any more either.
    pub(crate) fn delete(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.deleted, true) {
            return Ok(());
        }
        match self.backend.destroy_queue(self.parts.handle) {
            Err(Error::Gone | Error::NotLive { .. }) => Ok(()),
            done => done,
        }
    }

    pub(super) const fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Writes an entry of the submission queue.
    pub(super) fn write(&self, slot: u32, sqe: &Sqe) {
        self.parts.sq.write(slot as usize * Sqe::SIZE, zerocopy::IntoBytes::as_bytes(sqe));
    }

    /// The entry of the completion queue, if its phase tag is `phase`.
    #[inline]
    pub(super) fn read(&self, slot: u32, phase: bool) -> Option<Cqe> {
        read(&self.parts.cq, slot, phase)
    }

    pub(super) const fn sq_doorbell(&self) -> &Doorbell {
        &self.parts.sq_doorbell
    }

    pub(super) const fn cq_doorbell(&self) -> &Doorbell {
        &self.parts.cq_doorbell
    }
}

/// The entry of a completion queue, if its phase tag is `phase`.
#[inline]
pub(crate) fn read(cq: &Region, slot: u32, phase: bool) -> Option<Cqe> {
    let at = slot as usize * Cqe::SIZE;
    let last = cq.load_acquire(at + Cqe::SIZE - 4);
    // Status and phase are the upper half of the last dword.
    if (last >> 16 & 1 == 1) != phase {
        return None;
    }
    // The rest is read after the phase; the last dword is the one that had it.
    let mut bytes = [0; Cqe::SIZE];
    let (rest, end) = bytes.split_at_mut(Cqe::SIZE - 4);
    cq.read(at, rest);
    end.copy_from_slice(&last.to_le_bytes());
    Some(zerocopy::transmute!(bytes))
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // Nobody to tell: `close` is there for those who want to know, and the file's end deletes it in any case.
        let _ = self.delete();
    }
}
