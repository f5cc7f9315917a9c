// SPDX-License-Identifier: GPL-2.0
//! What clients make: queues and buffers, their identifiers, their owner, and how they end.

use crate::{
    buffer::{self, Buffer},
    controller::{Hw, State, Xio},
    mmap::Cookie,
    queue::QueuePair,
    sys::{event::EventFd, params},
};
use kernel::prelude::*;
use nvme_kv::{admin::Command, PAGE_SIZE};

/// A queue or a buffer.
pub(crate) struct Object {
    /// Unique on the controller among all objects there are.
    pub(crate) id: u32,
    /// Number of the client.
    pub(crate) client: u64,
    /// Freed by its client, but the device may still reach the memory.
    pub(crate) freed: bool,
    pub(crate) kind: Kind,
}

/// Kinds of objects.
pub(crate) enum Kind {
    /// A queue pair.
    Queue(QueuePair),
    /// A buffer.
    Buffer(Buffer),
}

impl Object {
    /// Pages of memory that the device reaches.
    pub(crate) fn pages(&self) -> usize {
        match &self.kind {
            Kind::Queue(queue) => queue.sq.len() + queue.cq.len(),
            Kind::Buffer(buffer) => buffer.data.len(),
        }
    }

    fn memory(&self) -> u64 {
        match &self.kind {
            Kind::Queue(queue) => QueuePair::memory(queue.entries),
            Kind::Buffer(buffer) => Buffer::memory(buffer.data.len()),
        }
    }

    pub(crate) fn is_queue(&self) -> bool {
        matches!(self.kind, Kind::Queue(_))
    }
}

impl Hw {
    /// An object of a client.
    pub(crate) fn find(&self, client: u64, id: u32) -> Result<&Object> {
        self.objects.iter().find(|o| o.id == id && o.client == client && !o.freed).ok_or(ENOENT)
    }

    /// A queue of a client.
    pub(crate) fn queue(&self, client: u64, id: u32) -> Result<&QueuePair> {
        match &self.find(client, id)?.kind {
            Kind::Queue(queue) => Ok(queue),
            Kind::Buffer(_) => Err(ENOENT),
        }
    }

    /// A buffer of a client.
    pub(crate) fn buffer(&self, client: u64, id: u32) -> Result<&Buffer> {
        match &self.find(client, id)?.kind {
            Kind::Buffer(buffer) => Ok(buffer),
            Kind::Queue(_) => Err(ENOENT),
        }
    }

    /// Whether a client may make an object that takes so many bytes: it may use the direct path, nobody else owns it,
    /// and it stays below its limit. The client owns the path from then on.
    fn admit(&mut self, client: u64, memory: u64) -> Result {
        if self.state != State::Live {
            return Err(ENODEV);
        }
        if self.direct(true) == xio_uapi::DIRECT_REFUSED {
            return Err(EPERM);
        }
        if self.owner.is_some_and(|owner| owner != client) {
            return Err(EBUSY);
        }
        let used: u64 = self.objects.iter().map(Object::memory).sum();
        if used.saturating_add(memory) > params::max_client_memory() {
            return Err(EDQUOT);
        }
        Ok(())
    }

    fn add(&mut self, client: u64, kind: Kind) -> Result<u32> {
        let taken = |id: u32| self.objects.iter().any(|o| o.id == id);
        let after = |id: u32| if id >= Cookie::MAX_ID { 1 } else { id + 1 };
        let mut id = after(self.last_id);
        while taken(id) {
            id = after(id);
        }
        self.objects.push(Object { id, client, freed: false, kind }, GFP_KERNEL)?;
        self.last_id = id;
        self.owner = Some(client);
        Ok(id)
    }

    /// Makes a queue pair.
    pub(crate) fn create_queue(
        &mut self,
        client: u64,
        entries: u32,
        eventfd: Option<EventFd>,
    ) -> Result<u32> {
        if entries < 2 || entries > self.regs.cap().max_queue_entries() {
            return Err(EINVAL);
        }
        self.admit(client, QueuePair::memory(entries))?;
        let used = |qid: u16| self.objects.iter().any(|o| matches!(&o.kind, Kind::Queue(q) if q.qid == qid));
        let qid = (1..=self.identity.max_queues).find(|qid| !used(*qid)).ok_or(ENOSPC)?;
        // Room first: once the controller knows the queue, it must not be lost.
        self.objects.reserve(1, GFP_KERNEL)?;
        let mut queue = QueuePair::new(self.dev, qid, entries)?;
        let vector = eventfd.as_ref().map(|_| self.interrupts.vector_of(qid));
        queue.armed = eventfd.map(|e| self.interrupts.arm(qid, e)).transpose()?;
        let (cq, sq) = (queue.create_cq(vector)?, queue.create_sq()?);
        // A command without an answer may still take effect: the queue must be known to `stop`.
        let id = self.add(client, Kind::Queue(queue))?;
        let created = self.run(Command::CreateCq(cq)).and_then(|_| {
            self.run(Command::CreateSq(sq)).map_err(|e| match self.run(Command::DeleteCq { qid }) {
                Ok(_) => e,
                // A completion queue is left behind: only a reset ends it.
                Err(left) => {
                    self.lost = Some(left);
                    e
                }
            })
        });
        if self.lost.is_none() && created.is_err() {
            // The controller has no such queue.
            self.forget(id);
        }
        created?;
        Ok(id)
    }

    /// Drops an object that the device does not know.
    fn forget(&mut self, id: u32) {
        self.objects.retain(|o| o.id != id);
        self.update_owner();
    }

    fn update_owner(&mut self) {
        if self.objects.is_empty() {
            self.owner = None;
        }
    }

    /// Makes a buffer of `len` bytes, rounded up to pages.
    pub(crate) fn alloc_buffer(&mut self, client: u64, len: u64) -> Result<u32> {
        if len == 0 || len > buffer::MAX_LEN {
            return Err(EINVAL);
        }
        let pages = (len as usize).div_ceil(PAGE_SIZE);
        self.admit(client, Buffer::memory(pages))?;
        let buffer = Buffer::new(self.dev, pages)?;
        self.add(client, Kind::Buffer(buffer))
    }
}

impl Xio {
    /// Ends an object of a client, in the order: mappings, queue, memory.
    pub(crate) fn destroy(&self, hw: &mut Hw, client: u64, id: u32) -> Result {
        let is_queue = hw.find(client, id)?.is_queue();
        let cookie = Cookie::new(id, 0);
        self.node().space().unmap(cookie.offset(), Cookie::SPAN);
        if is_queue {
            self.delete_queue(hw, id)
        } else {
            self.free_buffer(hw, client, id);
            Ok(())
        }
    }

    fn delete_queue(&self, hw: &mut Hw, id: u32) -> Result {
        let Some(at) = hw.objects.iter().position(|o| o.id == id) else { return Ok(()) };
        let Some(Object { kind: Kind::Queue(queue), client, .. }) = hw.objects.get(at) else {
            return Err(ENOENT);
        };
        let (qid, client) = (queue.qid, *client);
        let deleted = hw.run(Command::DeleteSq { qid }).and_then(|_| hw.run(Command::DeleteCq { qid }));
        match deleted {
            Ok(_) => drop(hw.objects.remove(at)),
            // What the controller still does with the queue is not known. The reset ends it, and all else.
            Err(e) => {
                hw.lost = Some(e);
                self.recover(hw);
                return Ok(());
            }
        }
        if !hw.objects.iter().any(|o| o.client == client && o.is_queue()) {
            hw.objects.retain(|o| !(o.client == client && o.freed));
        }
        hw.update_owner();
        Ok(())
    }

    /// Frees a buffer. Where no IOMMU keeps the device out, it waits until the client's queues are gone.
    fn free_buffer(&self, hw: &mut Hw, client: u64, id: u32) {
        let reachable = !hw.is_confined() && hw.objects.iter().any(|o| o.client == client && o.is_queue());
        if reachable {
            hw.objects.iter_mut().filter(|o| o.id == id).for_each(|o| o.freed = true);
        } else {
            hw.forget(id);
        }
    }

    /// Ends everything of a client: first its queues, so that nothing reaches the buffers.
    pub(crate) fn destroy_all(&self, hw: &mut Hw, client: u64) {
        while let Some(id) = hw.objects.iter().find(|o| o.client == client && o.is_queue()).map(|o| o.id) {
            // A client's files have no mapping any more when they are released.
            if let Err(e) = self.delete_queue(hw, id) {
                pr_err!("queue {id} was not deleted: {e:?}\n");
                break;
            }
        }
        hw.objects.retain(|o| o.client != client);
        hw.update_owner();
    }
}
