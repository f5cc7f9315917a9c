// SPDX-License-Identifier: GPL-2.0
//! What clients make: queues and buffers, their identifiers, their owner, and how they end.

use crate::{
    buffer::{self, Buffer},
    controller::{Hw, State, Xio},
    mmap::Cookie,
    queue::{InBuffer, QueuePair, Ring},
    client::Client,
    sys::{dmabuf::ImportedMemory, event::EventFd, iommu, params, pin::UserMemory},
};
use kernel::{prelude::*, sync::Arc, task::Kuid};
use nvme_kv::{admin::Command, PAGE_SIZE};

/// Most queues and buffers of a controller.
const MAX_OBJECTS: usize = 1024;

/// A queue or a buffer.
pub(crate) struct Object {
    /// Unique on the controller among all objects there are.
    pub(crate) id: u32,
    /// Number of the client.
    pub(crate) client: u64,
    /// User of the client.
    user: Kuid,
    /// Freed by its client, but the device may still reach the memory.
    pub(crate) freed: bool,
    pub(crate) kind: Kind,
}

/// Kinds of objects.
pub(crate) enum Kind {
    /// A queue pair.
    Queue(QueuePair),
    /// A buffer. Commands of the kernel's queue hold it too.
    Buffer(Arc<Buffer>),
    /// What is left of a buffer whose memory another driver took back.
    TakenBack,
}

/// Where a queue is to be.
pub(crate) enum Where {
    /// In memory of the module.
    Kernel,
    /// In the controller memory buffer.
    Cmb,
    /// In a buffer of the client: handle, offset.
    Buffer(u32, u64),
}

/// A queue pair that a client wants.
pub(crate) struct Wanted {
    pub(crate) entries: u32,
    pub(crate) eventfd: Option<EventFd>,
    pub(crate) sq: Where,
    pub(crate) cq: Where,
}

impl Object {
    /// Pages of memory that the device reaches.
    pub(crate) fn pages(&self) -> usize {
        match &self.kind {
            Kind::Queue(queue) => queue.sq.pages() + queue.cq.pages(),
            Kind::Buffer(buffer) => buffer.pages(),
            Kind::TakenBack => 0,
        }
    }

    fn memory(&self) -> u64 {
        match &self.kind {
            Kind::Queue(queue) => QueuePair::memory(queue.entries),
            Kind::Buffer(buffer) => buffer.charge(),
            Kind::TakenBack => 0,
        }
    }

    /// Number of the client's user.
    pub(crate) fn user(&self) -> u32 {
        self.user.into_uid_in_current_ns()
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
            _ => Err(ENOENT),
        }
    }

    /// A buffer of a client.
    pub(crate) fn buffer(&self, client: u64, id: u32) -> Result<&Arc<Buffer>> {
        match &self.find(client, id)?.kind {
            Kind::Buffer(buffer) if buffer.is_taken_back() => Err(ESTALE),
            Kind::Buffer(buffer) => Ok(buffer),
            Kind::TakenBack => Err(ESTALE),
            Kind::Queue(_) => Err(ENOENT),
        }
    }

    /// Whether a client may make an object that takes so many bytes: nobody else has direct queues, and it and its user
    /// stay below their limits.
    fn admit(&self, client: &Client, memory: u64) -> Result {
        if self.state != State::Live {
            return Err(ENODEV);
        }
        if self.owner.is_some_and(|owner| owner != client.id) {
            return Err(EBUSY);
        }
        if self.objects.len() >= MAX_OBJECTS {
            return Err(EDQUOT);
        }
        let sum = |of: &dyn Fn(&Object) -> bool| -> u64 {
            self.objects.iter().filter(|o| of(o)).map(Object::memory).sum::<u64>().saturating_add(memory)
        };
        let by_client = sum(&|o| o.client == client.id) > params::max_client_memory();
        if by_client || sum(&|o| o.user == client.user) > params::max_user_memory() {
            return Err(EDQUOT);
        }
        Ok(())
    }

    /// Resets the controller before another user than the last one with direct queues has anything on it.
    ///
    /// The admin completion queue is in the domain that direct queues reach, so who has some can forge the completion
    /// of Delete Queue, and leave a queue behind that is then at work in the next one's memory. Of a reset the
    /// proof is a register.
    ///
    /// The same user is not kept waiting for that, unless this is the first of what others may have beside it.
    fn cleanse(&mut self, client: &Client) -> Result {
        let Some(user) = self.direct_user else { return Ok(()) };
        if !self.objects.is_empty() {
            return if user == client.user { Ok(()) } else { Err(EBUSY) };
        }
        self.stop();
        self.start_again(xio_uapi::RESET_USER);
        match self.state {
            State::Live => Ok(()),
            _ => Err(ENODEV),
        }
    }

    /// The same for what others may have something beside: buffers, and calls of the kernel's queue.
    pub(crate) fn admit_shared(&mut self, client: &Client, memory: u64) -> Result {
        self.admit(client, memory)?;
        self.cleanse(client)
    }

    /// Whether a client may have direct queues: the rule for what confines the device holds at this moment, and there
    /// is nothing of other clients that the device could reach.
    fn admit_direct(&self, client: &Client) -> Result {
        match self.direct(true) {
            xio_uapi::DIRECT_REFUSED => return Err(EPERM),
            xio_uapi::DIRECT_CONFINED => {}
            _ => iommu::use_unconfined()?,
        }
        let others = self.objects.iter().any(|o| o.client != client.id)
            || self.mediated.as_ref().is_some_and(|m| m.is_used_by_other(client.id));
        if others {
            return Err(EBUSY);
        }
        let own = self.objects.iter().filter(|o| o.client == client.id && o.is_queue()).count();
        if own >= params::max_client_queues() as usize {
            return Err(EDQUOT);
        }
        Ok(())
    }

    fn add(&mut self, client: &Client, kind: Kind) -> Result<u32> {
        let taken = |id: u32| self.objects.iter().any(|o| o.id == id);
        let after = |id: u32| if id >= Cookie::MAX_ID { 1 } else { id + 1 };
        let mut id = after(self.last_id);
        while taken(id) {
            id = after(id);
        }
        if matches!(kind, Kind::Queue(_)) {
            self.owner = Some(client.id);
            self.direct_user = Some(client.user);
        }
        let object = Object { id, client: client.id, user: client.user, freed: false, kind };
        self.objects.push(object, GFP_KERNEL_ACCOUNT)?;
        self.last_id = id;
        Ok(id)
    }

    /// The lowest queue identifier that is not in use.
    pub(crate) fn free_qid(&self) -> Option<u16> {
        let used = |qid: u16| {
            let by_client =
                self.objects.iter().any(|o| matches!(&o.kind, Kind::Queue(q) if q.qid == qid));
            by_client || self.mediated.as_ref().is_some_and(|m| m.qid() == qid)
        };
        (1..=self.identity.max_queues).find(|qid| !used(*qid))
    }

    /// The place of a queue of so many bytes; `None` is memory of its own.
    fn ring(&self, client: &Client, place: &Where, bytes: usize) -> Result<Option<Ring>> {
        Ok(match place {
            Where::Kernel => None,
            Where::Cmb => {
                let memory = self.place.cmb_for(xio_uapi::CMB_SQ)?.alloc(bytes.div_ceil(PAGE_SIZE), true)?;
                Some(Ring::Cmb(memory))
            }
            Where::Buffer(handle, offset) => {
                let buffer = self.buffer(client.id, *handle)?;
                let lists = self.regs.cap().cqr() == 0;
                Some(Ring::Buffer(InBuffer::new(self.dev, buffer, *offset, bytes, lists)?))
            }
        })
    }

    /// Makes a queue pair.
    pub(crate) fn create_queue(&mut self, client: &Client, wanted: Wanted) -> Result<u32> {
        let Wanted { entries, eventfd, sq, cq } = wanted;
        if entries < 2 || entries > self.regs.cap().max_queue_entries() {
            return Err(EINVAL);
        }
        self.admit_direct(client)?;
        // A user's own direct queues may follow one another without a reset.
        if self.direct_user.is_some_and(|user| user != client.user) {
            self.cleanse(client)?;
        }
        self.admit(client, QueuePair::memory(entries))?;
        let qid = self.free_qid().ok_or(ENOSPC)?;
        // Room first: once the controller knows the queue, it must not be lost.
        self.objects.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let (sq, cq) = (
            self.ring(client, &sq, QueuePair::sq_bytes(entries))?,
            self.ring(client, &cq, QueuePair::cq_bytes(entries))?,
        );
        if cq.as_ref().and_then(Ring::buffer).is_some_and(|buffer| !buffer.is_writable()) {
            return Err(EACCES);
        }
        let mut queue = QueuePair::new(self.dev, qid, entries, sq, cq)?;
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
                    self.lost.get_or_insert(left);
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

    /// The direct path is free again when there is no queue any more.
    fn update_owner(&mut self) {
        if !self.objects.iter().any(Object::is_queue) {
            self.owner = None;
        }
    }

    /// Makes a buffer of `len` bytes, rounded up to pages, in the system's memory or in the controller's.
    pub(crate) fn alloc_buffer(&mut self, client: &Client, len: u64, in_cmb: bool) -> Result<u32> {
        if len == 0 || len > buffer::MAX_LEN {
            return Err(EINVAL);
        }
        let pages = (len as usize).div_ceil(PAGE_SIZE);
        if !in_cmb {
            self.admit_shared(client, Buffer::memory(pages))?;
            return self.add_buffer(client, Buffer::alloc(self.dev, pages)?);
        }
        self.admit_shared(client, Buffer::overhead(pages))?;
        let memory = self.place.cmb_for(xio_uapi::CMB_DATA)?.alloc(pages, false)?;
        self.add_buffer(client, Buffer::in_cmb(self.dev, memory)?)
    }

    fn add_buffer(&mut self, client: &Client, buffer: Buffer) -> Result<u32> {
        self.add(client, Kind::Buffer(Arc::new(buffer, GFP_KERNEL)?))
    }

    /// Makes a buffer of a user's memory.
    pub(crate) fn register_buffer(&mut self, client: &Client, memory: UserMemory) -> Result<u32> {
        self.admit_shared(client, Buffer::memory(memory.len()))?;
        self.add_buffer(client, Buffer::register(self.dev, memory)?)
    }

    /// Makes a buffer of another driver's memory.
    pub(crate) fn import_buffer(&mut self, client: &Client, memory: ImportedMemory) -> Result<u32> {
        self.admit_shared(client, Buffer::overhead(memory.addrs().len()))?;
        // What comes later finds the buffer: it needs the lock that is held here.
        if memory.is_taken_back() {
            return Err(ESTALE);
        }
        self.add_buffer(client, Buffer::import(self.dev, memory)?)
    }

    /// Exports a part of a queue: a file descriptor of the caller, and the length.
    pub(crate) fn export_queue(&mut self, client: u64, id: u32, part: u32) -> Result<(i32, usize)> {
        let doorbells = self.regs.cap().doorbells();
        let found = self.objects.iter_mut().find(|o| o.id == id && o.client == client);
        let Some(Object { kind: Kind::Queue(queue), .. }) = found else { return Err(ENOENT) };
        let export = queue.export(part, &self.place, doorbells)?;
        Ok((export.fd()?, export.len()))
    }
}

impl Xio {
    /// Ends an object of a client, in the order: mappings, queue, memory.
    pub(crate) fn destroy(&self, hw: &mut Hw, client: u64, id: u32) -> Result {
        let is_queue = hw.find(client, id)?.is_queue();
        self.unmap(id);
        if is_queue {
            self.delete_queue(hw, id)
        } else {
            self.free_buffer(hw, client, id)
        }
    }

    /// Removes the mappings of an object.
    pub(crate) fn unmap(&self, id: u32) {
        self.node().space().unmap(Cookie::new(id, 0).offset(), Cookie::SPAN);
    }

    fn delete_queue(&self, hw: &mut Hw, id: u32) -> Result {
        let Some(at) = hw.objects.iter().position(|o| o.id == id) else { return Ok(()) };
        let Some(Object { kind: Kind::Queue(queue), client, .. }) = hw.objects.get_mut(at) else {
            return Err(ENOENT);
        };
        queue.revoke();
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
    fn free_buffer(&self, hw: &mut Hw, client: u64, id: u32) -> Result {
        let holds_queue = hw.objects.iter().any(|o| match &o.kind {
            Kind::Queue(queue) => hw.buffer(client, id).is_ok_and(|buffer| queue.is_in(buffer)),
            _ => false,
        });
        if holds_queue {
            return Err(EBUSY);
        }
        let reachable = !hw.is_translated() && hw.objects.iter().any(|o| o.client == client && o.is_queue());
        if reachable {
            hw.objects.iter_mut().filter(|o| o.id == id).for_each(|o| o.freed = true);
        } else {
            hw.forget(id);
        }
        Ok(())
    }

    /// Deletes all queues of a client.
    pub(crate) fn delete_queues(&self, hw: &mut Hw, client: u64) {
        while let Some(id) = hw.objects.iter().find(|o| o.client == client && o.is_queue()).map(|o| o.id) {
            self.unmap(id);
            if let Err(e) = self.delete_queue(hw, id) {
                pr_err!("queue {id} was not deleted: {e:?}\n");
                break;
            }
        }
    }

    /// Ends everything of a client: first its queues, so that nothing reaches the buffers.
    pub(crate) fn destroy_all(&self, hw: &mut Hw, client: u64) {
        self.delete_queues(hw, client);
        hw.objects.retain(|o| o.client != client);
        hw.update_owner();
    }
}
