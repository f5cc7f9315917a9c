// SPDX-License-Identifier: GPL-2.0
//! Commands that the kernel submits for clients, on a queue of its own.
//!
//! A call is a [`Batch`]. Commands of all batches share one queue: each free place goes to the client that has the
//! fewest commands in it, so that none starves another. A command holds its buffer until it is answered, even when
//! its call has ended meanwhile.

use crate::{
    buffer::Buffer,
    controller::{Hw, State},
    error::AdminError,
    queue::{Described, QueuePair},
    submit::Target,
    sys::{params, trace, uring},
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{Instant, Monotonic},
};
use nvme_kv::{
    admin::Command as AdminCommand,
    kv::{Command, Condition, RetrieveOptions, StoreOptions},
    regs::Doorbells,
    ring::{CqConsumer, SqProducer},
    Cqe, DataPointer, Key, Sqe, Status,
};
use xio_uapi::KvEntry;
use zerocopy::FromBytes;

/// Entries of the kernel's queue, as far as the controller has so many.
const ENTRIES: u32 = 256;
/// Most calls under way, of all clients and of one.
const MAX_BATCHES: usize = 256;
const MAX_CLIENT_BATCHES: usize = 32;
/// A command that was aborted is to be answered within this time; else the queue is deleted.
const ABORT_MS: i64 = 5_000;

/// Commands that the kernel's queue of a controller holds.
pub(crate) fn depth(hw: &Hw) -> u32 {
    hw.regs.cap().max_queue_entries().min(ENTRIES) - 1
}

/// A call.
pub(crate) struct Batch {
    id: u64,
    client: u64,
    /// The caller's entries, with their results.
    pub(crate) entries: KVec<KvEntry>,
    /// What the entries that can be submitted mean.
    commands: KVec<Option<(Command, Option<Arc<Buffer>>)>>,
    /// First entry that was not looked at.
    next: usize,
    /// Entries in the queue.
    in_flight: usize,
    /// The io_uring command to complete; else somebody waits.
    pub(crate) uring: Option<uring::Command>,
    /// Where that wants its results.
    pub(crate) target: Target,
}

impl Batch {
    fn is_done(&self) -> bool {
        self.next == self.entries.len() && self.in_flight == 0
    }

    /// Entries that got a status.
    pub(crate) fn answered(&self) -> u32 {
        self.entries.iter().filter(|e| e.error == 0).count() as u32
    }
}

/// A command in the queue.
struct Slot {
    batch: u64,
    index: usize,
    client: u64,
    since: Instant<Monotonic>,
    /// When the controller was asked to abort it.
    aborted: Option<Instant<Monotonic>>,
    _buffer: Option<Arc<Buffer>>,
}

/// The kernel's queue.
pub(crate) struct Mediated {
    queue: QueuePair,
    producer: SqProducer,
    consumer: CqConsumer,
    /// By command identifier.
    slots: KVec<Option<Slot>>,
    free: KVec<u16>,
}

impl Mediated {
    pub(crate) fn qid(&self) -> u16 {
        self.queue.qid
    }

    /// Whether commands of a client other than this are in the queue.
    pub(crate) fn is_used_by_other(&self, client: u64) -> bool {
        self.slots.iter().flatten().any(|slot| slot.client != client)
    }

    /// What there is to see of it, for debugging.
    pub(crate) fn describe(&self, doorbells: Doorbells) -> Described<'_> {
        self.queue.describe(doorbells)
    }

    /// Commands in the queue.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn in_flight_of(&self, client: u64) -> usize {
        self.slots.iter().flatten().filter(|slot| slot.client == client).count()
    }

    /// Takes the next completion: its command's slot, and what came of it.
    fn reap(&mut self) -> Result<Option<(Option<Slot>, Cqe)>> {
        let at = self.consumer.head() as usize * Cqe::SIZE;
        let last: [u8; 4] = self.queue.cq.kernel()?.read(at + 12)?;
        if (last[2] & 1 == 1) != self.consumer.phase() {
            return Ok(None);
        }
        kernel::sync::barrier::dma_mb(kernel::sync::barrier::Read);
        let bytes: [u8; Cqe::SIZE] = self.queue.cq.kernel()?.read(at)?;
        let cqe = Cqe::read_from_bytes(&bytes).map_err(|_| EINVAL)?;
        self.consumer.pop();
        // A wrong SQHD only leaves places unused.
        let _ = self.producer.update_head(cqe.sqhd.get());
        let cid = cqe.cid.get();
        let ours = cqe.sqid.get() == self.queue.qid;
        let slot = self.slots.get_mut(usize::from(cid)).filter(|_| ours).and_then(Option::take);
        if slot.is_some() {
            self.free.push(cid, GFP_KERNEL)?;
        }
        Ok(Some((slot, cqe)))
    }
}

impl Hw {
    /// Makes the kernel's queue, unless it is there. It costs a queue of the controller, so it waits for a user.
    pub(crate) fn start_mediated(&mut self) -> Result {
        if self.mediated.is_some() {
            return Ok(());
        }
        let depth = depth(self);
        let qid = self.free_qid().ok_or(ENOSPC)?;
        let queue = QueuePair::new(self.dev, qid, depth + 1, None, None)?;
        let mut slots = KVec::with_capacity(depth as usize, GFP_KERNEL)?;
        let mut free = KVec::with_capacity(depth as usize, GFP_KERNEL)?;
        for cid in (0..depth as u16).rev() {
            slots.push(None, GFP_KERNEL)?;
            free.push(cid, GFP_KERNEL)?;
        }
        let producer = SqProducer::new(depth + 1).ok_or(EINVAL)?;
        let consumer = CqConsumer::new(depth + 1).ok_or(EINVAL)?;
        let (cq, sq) = (queue.create_cq(Some(self.interrupts.vector_of(qid)))?, queue.create_sq()?);
        self.run(AdminCommand::CreateCq(cq))?;
        self.mediated = Some(Mediated { queue, producer, consumer, slots, free });
        self.interrupts.reap_on(qid);
        let created = self.run(AdminCommand::CreateSq(sq));
        if let Err(e) = created {
            // Half a queue: a reset ends it.
            self.lost.get_or_insert(e);
        }
        Ok(created.map(|_| ())?)
    }

    /// Adds a call; `EAGAIN` when there are too many.
    pub(crate) fn add_batch(
        &mut self,
        client: u64,
        mut entries: KVec<KvEntry>,
        uring: Option<(uring::Command, Target)>,
    ) -> Result<u64, (Error, Option<(uring::Command, Target)>)> {
        let added = (|| {
            let own = self.batches.iter().filter(|b| b.client == client).count();
            if self.batches.len() >= MAX_BATCHES || own >= MAX_CLIENT_BATCHES {
                return Err(EAGAIN);
            }
            let mut commands = KVec::with_capacity(entries.len(), GFP_KERNEL)?;
            for entry in entries.iter_mut() {
                (entry.error, entry.status, entry.value_len) = (ECANCELED.to_errno(), 0, 0);
                let command = self.parse(client, entry).inspect_err(|e| entry.error = e.to_errno()).ok();
                commands.push(command, GFP_KERNEL)?;
            }
            self.batches.reserve(1, GFP_KERNEL)?;
            // Boxed now, so that ending a call needs no memory.
            Ok((commands, KBox::<Batch>::new_uninit(GFP_KERNEL)?))
        })();
        let (commands, room) = match added {
            Ok(added) => added,
            Err(e) => return Err((e, uring)),
        };
        self.last_batch += 1;
        let id = self.last_batch;
        let (uring, target) = uring.map_or((None, Target::default()), |(c, t)| (Some(c), t));
        let batch = Batch { id, client, entries, commands, next: 0, in_flight: 0, uring, target };
        // Reserved above.
        let _ = self.batches.push_within_capacity(KBox::write(room, batch));
        Ok(id)
    }

    /// Checks an entry, and makes a command of it.
    fn parse(&self, client: u64, entry: &KvEntry) -> Result<(Command, Option<Arc<Buffer>>)> {
        let key = match entry.key_len {
            0 => None,
            len => {
                let bytes = entry.key.get(..usize::from(len)).ok_or(EINVAL)?;
                Some(Key::new(bytes).map_err(|_| EINVAL)?)
            }
        };
        if entry.nsid == 0 || entry.nsid == u32::MAX || entry.reserved0 != 0 || entry.reserved != 0 {
            return Err(EINVAL);
        }
        let op = u32::from(entry.op);
        let into_memory = op == xio_uapi::KV_RETRIEVE || op == xio_uapi::KV_LIST;
        let (data, buffer) = match op {
            xio_uapi::KV_STORE | xio_uapi::KV_RETRIEVE | xio_uapi::KV_LIST => {
                self.range(client, entry, into_memory)?
            }
            _ => (DataPointer::default(), None),
        };
        let (len, options) = (entry.len, u32::from(entry.options));
        let command = match (op, key) {
            (xio_uapi::KV_STORE, Some(key)) => {
                Command::Store { key, len, options: store_options(options)?, data }
            }
            (xio_uapi::KV_RETRIEVE, Some(key)) if options & !xio_uapi::KV_RETRIEVE_RAW == 0 => {
                Command::Retrieve { key, len, options: RetrieveOptions { raw: options != 0 }, data }
            }
            (xio_uapi::KV_LIST, start) if options == 0 => Command::List { start, len, data },
            (xio_uapi::KV_FLUSH, None) if options == 0 => Command::Flush,
            (xio_uapi::KV_DELETE, Some(key)) if options == 0 => Command::Delete { key },
            (xio_uapi::KV_EXIST, Some(key)) if options == 0 => Command::Exist { key },
            _ => return Err(EINVAL),
        };
        Ok((command, buffer))
    }

    /// Where an entry's data is.
    fn range(&self, client: u64, entry: &KvEntry, write: bool) -> Result<(DataPointer, Option<Arc<Buffer>>)> {
        if entry.len == 0 {
            return Ok((DataPointer::default(), None));
        }
        let limit = self.identity.max_transfer;
        if limit != 0 && u64::from(entry.len) > limit {
            return Err(EMSGSIZE);
        }
        let buffer = self.buffer(client, entry.buffer)?;
        if write && !buffer.is_writable() {
            return Err(EACCES);
        }
        Ok((buffer.point(entry.offset, entry.len)?, Some(buffer.clone())))
    }

    /// Submits what the queue has room for, and rings once.
    pub(crate) fn pump(&mut self) -> Result {
        let mut rung = false;
        while let Some(at) = self.next_batch() {
            let (Some(mediated), Some(batch)) = (self.mediated.as_mut(), self.batches.get_mut(at)) else { break };
            let index = batch.next;
            let Some((command, buffer)) = batch.commands.get_mut(index).and_then(Option::take) else {
                // It has its error already.
                batch.next += 1;
                continue;
            };
            let Some(cid) = mediated.free.pop() else { break };
            let Some(slot) = mediated.producer.push() else {
                mediated.free.push(cid, GFP_KERNEL)?;
                batch.commands.get_mut(index).map(|c| c.replace((command, buffer)));
                break;
            };
            let nsid = batch.entries.get(index).map_or(0, |e| e.nsid);
            let sqe: [u8; Sqe::SIZE] = zerocopy::transmute!(command.encode(cid, nsid));
            mediated.queue.sq.kernel()?.write(slot as usize * Sqe::SIZE, &sqe)?;
            let (batch_id, client) = (batch.id, batch.client);
            let filled = Slot { batch: batch_id, index, client, since: Instant::now(), aborted: None, _buffer: buffer };
            if let Some(slot) = mediated.slots.get_mut(usize::from(cid)) {
                *slot = Some(filled);
            }
            trace::submitted(self.place.address, mediated.queue.qid, client, &sqe);
            batch.next += 1;
            batch.in_flight += 1;
            rung = true;
        }
        match &self.mediated {
            Some(mediated) if rung => {
                let doorbell = self.regs.cap().doorbells().sq_tail(mediated.queue.qid);
                self.regs.ring(doorbell, mediated.producer.tail())
            }
            _ => Ok(()),
        }
    }

    /// The batch whose client has the fewest commands in the queue, of those with something to submit.
    fn next_batch(&self) -> Option<usize> {
        let mediated = self.mediated.as_ref().filter(|m| !m.free.is_empty())?;
        let waiting = self.batches.iter().enumerate().filter(|(_, b)| b.next < b.entries.len());
        waiting.min_by_key(|(_, b)| mediated.in_flight_of(b.client)).map(|(at, _)| at)
    }

    /// Takes completions, as many as the queue can hold, and notes their results.
    pub(crate) fn reap(&mut self) -> Result {
        let Some(entries) = self.mediated.as_ref().map(|m| m.queue.entries) else { return Ok(()) };
        let mut reaped = false;
        for _ in 0..entries {
            let Some(mediated) = self.mediated.as_mut() else { break };
            let Some((slot, cqe)) = mediated.reap()? else { break };
            reaped = true;
            let Some(slot) = slot else {
                self.admin.stray = self.admin.stray.saturating_add(1);
                continue;
            };
            trace::completed(self.place.address, slot.client, &cqe, slot.since.elapsed().as_micros_ceil());
            // That there is no such key is an answer.
            let answers = [Status::SUCCESS, Status::KEY_NOT_FOUND, Status::KEY_EXISTS];
            self.errors += u64::from(!answers.contains(&cqe.status()));
            self.answer(&slot, &cqe);
        }
        match &self.mediated {
            Some(mediated) if reaped => {
                let doorbell = self.regs.cap().doorbells().cq_head(mediated.queue.qid);
                self.regs.ring(doorbell, mediated.consumer.head())
            }
            _ => Ok(()),
        }
    }

    fn answer(&mut self, slot: &Slot, cqe: &Cqe) {
        // A call that ended before has nobody to tell.
        let Some(batch) = self.batches.iter_mut().find(|b| b.id == slot.batch) else { return };
        let Some(in_flight) = batch.in_flight.checked_sub(1) else { return };
        batch.in_flight = in_flight;
        let Some(entry) = batch.entries.get_mut(slot.index) else { return };
        entry.error = 0;
        entry.status = cqe.status().bits().into();
        if cqe.dnr() && entry.status != 0 {
            entry.status |= xio_uapi::KV_STATUS_DNR;
        }
        let retrieved = u32::from(entry.op) == xio_uapi::KV_RETRIEVE && cqe.status().is_success();
        entry.value_len = if retrieved { cqe.dw0.get() } else { 0 };
    }

    /// Forgets commands that use a buffer whose memory is taken back, as far as they are not in the queue.
    pub(crate) fn refuse(&mut self, buffer: &Arc<Buffer>) {
        for batch in self.batches.iter_mut() {
            let batch = &mut **batch;
            for (command, entry) in batch.commands.iter_mut().zip(batch.entries.iter_mut()) {
                if matches!(command, Some((_, Some(used))) if Arc::ptr_eq(used, buffer)) {
                    *command = None;
                    entry.error = ESTALE.to_errno();
                }
            }
        }
    }

    /// Takes a batch that is done, by its identifier.
    pub(crate) fn take_done(&mut self, id: u64) -> Option<KBox<Batch>> {
        let at = self.batches.iter().position(|b| b.id == id && b.is_done())?;
        self.batches.remove(at).ok()
    }

    /// Takes a batch whose io_uring command is to be completed.
    pub(crate) fn take_done_uring(&mut self) -> Option<KBox<Batch>> {
        let at = self.batches.iter().position(|b| b.uring.is_some() && b.is_done())?;
        self.batches.remove(at).ok()
    }

    /// Ends a batch before it is done. Commands in the queue get `error`; they are still tracked there.
    pub(crate) fn abandon(&mut self, id: u64, error: Error) -> Option<KBox<Batch>> {
        self.end_batch(id, error);
        self.take_done(id)
    }

    /// The same for the call of an io_uring command, which stays to be completed.
    pub(crate) fn abandon_uring(&mut self, command: usize) {
        let ids = |b: &KBox<Batch>| b.uring.as_ref().is_some_and(|c| c.id() == command);
        if let Some(id) = self.batches.iter().find(|b| ids(b)).map(|b| b.id) {
            self.end_batch(id, EINTR);
        }
    }

    fn end_batch(&mut self, id: u64, error: Error) {
        let Some(batch) = self.batches.iter_mut().find(|b| b.id == id) else { return };
        let slots = self.mediated.iter().flat_map(|m| m.slots.iter().flatten());
        for slot in slots.filter(|slot| slot.batch == id) {
            if let Some(entry) = batch.entries.get_mut(slot.index) {
                entry.error = error.to_errno();
            }
        }
        (batch.next, batch.in_flight) = (batch.entries.len(), 0);
    }

    /// Ends all batches, since the controller is stopped: nothing is in the queue any more.
    pub(crate) fn fail_batches(&mut self) {
        for batch in self.batches.iter_mut() {
            for entry in batch.entries.iter_mut().filter(|e| e.error == ECANCELED.to_errno()) {
                entry.error = ENODEV.to_errno();
            }
            (batch.next, batch.in_flight) = (batch.entries.len(), 0);
        }
    }

    /// Looks for commands in the kernel's queue that are not answered in time. They are aborted; if that does not help
    /// the queue is deleted, and if that does not help either, the controller is lost.
    pub(crate) fn check_stuck(&mut self) {
        let limit = params::command_timeout_ms();
        while let Some((qid, cid)) = self.next_stuck(limit) {
            // Whether it could be aborted shows in its completion, or in that there is none.
            let aborted = self.run(AdminCommand::Abort { sqid: qid, cid });
            if self.lost.is_some() {
                return;
            }
            if let Err(e) = aborted {
                pr_warn!("{}: command {cid} can not be aborted ({e:?})\n", self.place.address);
            }
        }
        let late = |slot: &Slot| slot.aborted.is_some_and(|at| at.elapsed().as_millis() > ABORT_MS);
        if self.state == State::Live && self.mediated.iter().flat_map(|m| m.slots.iter().flatten()).any(late) {
            self.delete_mediated();
        }
    }

    /// A command in the kernel's queue that is to be aborted, which is noted.
    fn next_stuck(&mut self, limit: i64) -> Option<(u16, u16)> {
        let mediated = self.mediated.as_mut().filter(|_| self.state == State::Live)?;
        let mut slots = (0u16..).zip(mediated.slots.iter_mut());
        let (cid, slot) = slots.find_map(|(cid, slot)| {
            let stuck = |slot: &Slot| slot.aborted.is_none() && slot.since.elapsed().as_millis() > limit;
            slot.as_mut().filter(|slot| stuck(slot)).map(|slot| (cid, slot))
        })?;
        slot.aborted = Some(Instant::now());
        pr_warn!("{}: command {cid} was not answered for {limit} ms\n", self.place.address);
        Some((mediated.queue.qid, cid))
    }

    /// Deletes the kernel's queue with what is stuck in it. The next command makes a new one.
    fn delete_mediated(&mut self) {
        let Some(qid) = self.mediated.as_ref().map(Mediated::qid) else { return };
        pr_warn!("{}: the kernel's queue is deleted with what is stuck in it\n", self.place.address);
        let deleted = self.run(AdminCommand::DeleteSq { qid }).map_err(Error::from);
        // What was answered meanwhile.
        let deleted = deleted.and_then(|_| self.reap());
        let deleted = deleted.and_then(|()| Ok(self.run(AdminCommand::DeleteCq { qid })?));
        if deleted.is_err() {
            // What the controller still does with the queue is not known: its memory stays until the reset.
            self.lost.get_or_insert(AdminError::Timeout);
            return;
        }
        self.interrupts.reap_on(0);
        let Some(mediated) = self.mediated.take() else { return };
        for slot in mediated.slots.iter().flatten() {
            self.errors += 1;
            let Some(batch) = self.batches.iter_mut().find(|b| b.id == slot.batch) else { continue };
            batch.in_flight = batch.in_flight.saturating_sub(1);
            if let Some(entry) = batch.entries.get_mut(slot.index) {
                entry.error = ETIMEDOUT.to_errno();
            }
        }
        // Others wait for their turn.
        if self.batches.iter().any(|b| b.next < b.entries.len()) && self.start_mediated().is_err() {
            self.fail_batches();
        }
    }
}

fn store_options(bits: u32) -> Result<StoreOptions> {
    let condition = match bits & !xio_uapi::KV_STORE_NO_COMPRESS {
        0 => Condition::Always,
        xio_uapi::KV_STORE_IF_EXISTS => Condition::IfExists,
        xio_uapi::KV_STORE_IF_ABSENT => Condition::IfAbsent,
        _ => return Err(EINVAL),
    };
    Ok(StoreOptions { condition, no_compress: bits & xio_uapi::KV_STORE_NO_COMPRESS != 0 })
}
