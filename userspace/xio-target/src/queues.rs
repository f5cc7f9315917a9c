// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: creating and deleting them, fetching commands and posting completions (Base, section 3.3).

use crate::data;
use crate::features::Features;
use crate::host::{DmaFault, Host, HostMemory};
use crate::shadow::Shadow;
use crate::Config;
use nvme_kv::admin::{CreateCq, CreateSq};
use nvme_kv::ring::{CqProducer, InvalidDoorbell, SqConsumer};
use nvme_kv::{prp, regs, Cqe, DataPointer, Sqe, Status, PAGE_SIZE};
use std::time::Instant;
use zerocopy::{FromZeros, IntoBytes};

/// Where the entries of a queue are.
enum Memory {
    Contiguous(u64),
    Pages(Vec<u64>),
}

impl Memory {
    /// The memory of a queue of `len` bytes; reads the PRP list of one that is not contiguous.
    fn new(memory: &dyn HostMemory, base: u64, contiguous: bool, len: usize) -> Result<Self, Status> {
        if base % PAGE_SIZE as u64 != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        if contiguous {
            return Ok(Self::Contiguous(base));
        }
        // The list names every page. A transfer's PRP entries are the same less the first page.
        let pages = len.div_ceil(PAGE_SIZE);
        let mut first = [0; 2];
        data::read_entries(memory, base, first.get_mut(..pages.min(2)).unwrap_or(&mut []))?;
        let prp2 = if pages > 2 { base.wrapping_add(8) } else { first[1] };
        let mut list = Vec::with_capacity(pages);
        prp::walk(
            DataPointer { prp1: first[0], prp2 },
            pages * PAGE_SIZE,
            |addr, to| data::read_entries(memory, addr, to),
            |page| {
                list.push(page.addr);
                Ok(())
            },
        )?;
        // An offset in the first page makes one more page of it.
        if list.len() != pages {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok(Self::Pages(list))
    }

    /// Address of an entry of `size` bytes; `None` beyond the end of the memory.
    fn entry(&self, slot: u32, size: usize) -> Option<u64> {
        let at = slot as usize * size;
        match self {
            Self::Contiguous(base) => base.checked_add(at as u64),
            Self::Pages(pages) => pages.get(at / PAGE_SIZE)?.checked_add((at % PAGE_SIZE) as u64),
        }
    }
}

struct SubmissionQueue {
    memory: Memory,
    ring: SqConsumer,
    cqid: u16,
    /// Doorbell value that was found invalid and reported.
    bad_tail: Option<u32>,
    /// A command that was fetched and is to be given out again.
    held: Option<Sqe>,
    /// Tail from which on the host was asked to ring the register.
    told: u32,
    /// Commands that will be completed later.
    under_way: u32,
}

struct CompletionQueue {
    memory: Memory,
    ring: CqProducer,
    vector: Option<u16>,
    /// Completions posted since the last interrupt, and since when.
    posted: u32,
    since: Option<Instant>,
    /// Head doorbell as last read.
    head: u32,
    bad_head: Option<u32>,
    /// Commands that will be completed to it later; room is kept for them.
    reserved: u32,
}

impl CompletionQueue {
    fn new(memory: Memory, entries: u32, vector: Option<u16>) -> Option<Self> {
        let ring = CqProducer::new(entries)?;
        Some(Self { memory, ring, vector, posted: 0, since: None, head: 0, bad_head: None, reserved: 0 })
    }
}

impl CompletionQueue {
    /// Base, section 5.1.25.1.8: one interrupt for several completions.
    fn signal(&mut self, features: &Features, host: &Host) {
        let vector = self.vector;
        if let Some((count, time)) = vector.and_then(|vector| features.coalescing(vector)) {
            let since = self.since.get_or_insert_with(Instant::now);
            if self.posted < count && since.elapsed() < time {
                return;
            }
        }
        (self.posted, self.since) = (0, None);
        if let Some(vector) = vector {
            host.interrupts.raise(vector);
        }
    }
}

impl SubmissionQueue {
    fn new(memory: Memory, entries: u32, cqid: u16) -> Option<Self> {
        let ring = SqConsumer::new(entries)?;
        Some(Self { memory, ring, cqid, bad_tail: None, held: None, told: 0, under_way: 0 })
    }
}

/// What looking for a command gives.
pub(crate) enum Fetch {
    /// Nothing to do: no queue, no command, or no room for its completion.
    Idle,
    /// A command. Before the next one is fetched it is completed, [started](Queues::started) or
    /// [held](Queues::hold).
    Command(Sqe),
    /// A doorbell of the queue got a value that is no index; told once for each value.
    BadDoorbell,
}

/// All queues of a controller.
pub(crate) struct Queues {
    sq: Vec<Option<SubmissionQueue>>,
    cq: Vec<Option<CompletionQueue>>,
    doorbells: regs::Doorbells,
    shadow: Option<Shadow>,
    /// Completion queues whose interrupt is being held back.
    coalescing: usize,
}

impl Queues {
    pub(crate) const fn new(doorbells: regs::Doorbells) -> Self {
        Self { sq: Vec::new(), cq: Vec::new(), doorbells, shadow: None, coalescing: 0 }
    }

    /// Forgets all queues.
    pub(crate) fn clear(&mut self) {
        self.sq.clear();
        self.cq.clear();
        self.shadow = None;
        self.coalescing = 0;
    }

    /// Doorbell Buffer Config (Base, section 5.2.5): from now on the doorbells of I/O queues are in memory. Those that are
    /// there start with what their registers say.
    pub(crate) fn shadow(&mut self, buffers: DataPointer, host: &Host) -> Result<(), Status> {
        let shadow = Shadow::new(buffers, host)?;
        let all = (1..).zip(self.sq.iter().skip(1)).filter(|(_, q)| q.is_some());
        let tails = all.map(|(qid, _)| self.doorbells.sq_tail(qid));
        let all = (1..).zip(self.cq.iter().skip(1)).filter(|(_, q)| q.is_some());
        let heads = all.map(|(qid, _)| self.doorbells.cq_head(qid));
        for at in tails.chain(heads) {
            shadow.store(at, host.doorbells.load(at), host).map_err(data::transfer_error)?;
        }
        self.shadow = Some(shadow);
        Ok(())
    }

    /// Value of a doorbell.
    fn doorbell(&self, qid: u16, at: usize, host: &Host) -> Result<u32, DmaFault> {
        match &self.shadow {
            Some(shadow) if qid != 0 && Shadow::has(at) => shadow.load(at, host),
            _ => Ok(host.doorbells.load(at)),
        }
    }

    /// Sets the doorbell of a new queue to zero.
    fn clear_doorbell(&self, qid: u16, at: usize, host: &Host) -> Result<(), DmaFault> {
        host.doorbells.clear(at);
        match &self.shadow {
            Some(shadow) if qid != 0 => shadow.store(at, 0, host),
            _ => Ok(()),
        }
    }

    /// One more than the highest submission queue identifier in use.
    pub(crate) fn len(&self) -> usize {
        self.sq.len()
    }

    /// I/O submission queues.
    pub(crate) fn io_queues(&self) -> u64 {
        self.sq.iter().skip(1).flatten().count() as u64
    }

    /// Whether there are queues beside the admin queues.
    pub(crate) fn has_io(&self) -> bool {
        self.sq.iter().skip(1).any(Option::is_some) || self.cq.iter().skip(1).any(Option::is_some)
    }

    /// Makes the admin queues (Base, section 3.1.4.8); `None` when their sizes are impossible.
    pub(crate) fn enable(&mut self, aqa: regs::Aqa, asq: u64, acq: u64, host: &Host) -> Option<()> {
        self.clear();
        let cq = CompletionQueue::new(Memory::Contiguous(acq), aqa.acqs() + 1, Some(0))?;
        let sq = SubmissionQueue::new(Memory::Contiguous(asq), aqa.asqs() + 1, 0)?;
        self.insert_cq(0, cq, host).ok()?;
        self.insert_sq(0, sq, host).ok()
    }

    /// Create I/O Completion Queue (Base, section 5.2.1).
    pub(crate) fn create_cq(
        &mut self,
        create: &CreateCq,
        config: &Config,
        host: &Host,
    ) -> Result<(), Status> {
        if !is_io(create.qid, config) || get(&self.cq, create.qid).is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        check_shape(create.entries, create.contiguous, config)?;
        if create.vector.is_some_and(|v| v >= config.vectors()) {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        let len = create.entries as usize * Cqe::SIZE;
        let memory = Memory::new(&*host.memory, create.base, create.contiguous, len)?;
        let queue = CompletionQueue::new(memory, create.entries, create.vector);
        let queue = queue.ok_or(Status::INVALID_QUEUE_SIZE)?;
        self.insert_cq(create.qid, queue, host).map_err(data::transfer_error)
    }

    /// Create I/O Submission Queue (Base, section 5.2.2).
    pub(crate) fn create_sq(
        &mut self,
        create: &CreateSq,
        config: &Config,
        host: &Host,
    ) -> Result<(), Status> {
        if !is_io(create.qid, config) || get(&self.sq, create.qid).is_some() || !is_io(create.cqid, config) {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if get(&self.cq, create.cqid).is_none() {
            return Err(Status::COMPLETION_QUEUE_INVALID);
        }
        check_shape(create.entries, create.contiguous, config)?;
        let len = create.entries as usize * Sqe::SIZE;
        let memory = Memory::new(&*host.memory, create.base, create.contiguous, len)?;
        let queue = SubmissionQueue::new(memory, create.entries, create.cqid);
        let queue = queue.ok_or(Status::INVALID_QUEUE_SIZE)?;
        self.insert_sq(create.qid, queue, host).map_err(data::transfer_error)
    }

    /// Delete I/O Submission Queue (Base, section 5.2.4). Commands that were not completed never are.
    pub(crate) fn delete_sq(&mut self, qid: u16) -> Result<(), Status> {
        let queue = self.sq.get_mut(usize::from(qid)).filter(|_| qid != 0).and_then(Option::take);
        let queue = queue.ok_or(Status::INVALID_QUEUE_ID)?;
        if let Some(cq) = self.cq.get_mut(usize::from(queue.cqid)).and_then(Option::as_mut) {
            cq.reserved = cq.reserved.saturating_sub(queue.under_way);
        }
        trim(&mut self.sq);
        Ok(())
    }

    /// Delete I/O Completion Queue (Base, section 5.2.3): refused while a submission queue uses it.
    pub(crate) fn delete_cq(&mut self, qid: u16) -> Result<(), Status> {
        if qid == 0 || get(&self.cq, qid).is_none() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if self.sq.iter().flatten().any(|sq| sq.cqid == qid) {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        let queue = self.cq.get_mut(usize::from(qid)).and_then(Option::take);
        self.coalescing -= usize::from(queue.is_some_and(|queue| queue.since.is_some()));
        trim(&mut self.cq);
        Ok(())
    }

    /// The next command of a submission queue whose completion there is room for.
    pub(crate) fn fetch(&mut self, sqid: u16, host: &Host) -> Result<Fetch, DmaFault> {
        let Some(SubmissionQueue { cqid, .. }) = get(&self.sq, sqid) else { return Ok(Fetch::Idle) };
        let cqid = *cqid;
        let tail = self.doorbell(sqid, self.doorbells.sq_tail(sqid), host)?;
        match self.has_room(cqid, host)? {
            Ok(true) => {}
            Ok(false) => return Ok(Fetch::Idle),
            Err(InvalidDoorbell(_)) => return Ok(Fetch::BadDoorbell),
        }
        let Some(sq) = self.sq.get_mut(usize::from(sqid)).and_then(Option::as_mut) else {
            return Ok(Fetch::Idle);
        };
        if let Some(sqe) = sq.held.take() {
            return Ok(Fetch::Command(sqe));
        }
        let slot = match sq.ring.pop(tail) {
            Ok(Some(slot)) => slot,
            Ok(None) => {
                // Now it would have to be told of more, were it not looking.
                if let Some(shadow) = self.shadow.as_ref().filter(|_| sqid != 0 && sq.told != tail) {
                    sq.told = tail;
                    shadow.tell_from(self.doorbells.sq_tail(sqid), tail, host)?;
                }
                return Ok(Fetch::Idle);
            }
            Err(InvalidDoorbell(bad)) if sq.bad_tail.replace(bad) != Some(bad) => {
                return Ok(Fetch::BadDoorbell)
            }
            Err(InvalidDoorbell(_)) => return Ok(Fetch::Idle),
        };
        sq.bad_tail = None;
        let mut sqe = Sqe::new_zeroed();
        let addr = address(&sq.memory, slot, Sqe::SIZE, false)?;
        host.memory.read(addr, sqe.as_mut_bytes())?;
        Ok(Fetch::Command(sqe))
    }

    /// Whether the completion queue has room. A head that is no index counts as none, and is an error when it
    /// is new.
    pub(crate) fn has_room(
        &mut self,
        cqid: u16,
        host: &Host,
    ) -> Result<Result<bool, InvalidDoorbell>, DmaFault> {
        let head = self.doorbell(cqid, self.doorbells.cq_head(cqid), host)?;
        let Some(cq) = self.cq.get_mut(usize::from(cqid)).and_then(Option::as_mut) else {
            return Ok(Ok(false));
        };
        Ok(match cq.ring.room(head) {
            Ok(room) => {
                (cq.head, cq.bad_head) = (head, None);
                Ok(room > cq.reserved)
            }
            Err(bad) if cq.bad_head.replace(bad.0) != Some(bad.0) => Err(bad),
            Err(_) => Ok(false),
        })
    }

    /// The command that was fetched last will be completed later.
    pub(crate) fn started(&mut self, sqid: u16) {
        self.reserve(sqid, |n| n.saturating_add(1));
    }

    /// A command that was started is to be completed now.
    pub(crate) fn landed(&mut self, sqid: u16) {
        self.reserve(sqid, |n| n.saturating_sub(1));
    }

    fn reserve(&mut self, sqid: u16, change: impl Fn(u32) -> u32) {
        let Some(sq) = self.sq.get_mut(usize::from(sqid)).and_then(Option::as_mut) else { return };
        sq.under_way = change(sq.under_way);
        if let Some(cq) = self.cq.get_mut(usize::from(sq.cqid)).and_then(Option::as_mut) {
            cq.reserved = change(cq.reserved);
        }
    }

    /// The command that was fetched last is to be fetched again.
    pub(crate) fn hold(&mut self, sqid: u16, sqe: Sqe) {
        if let Some(sq) = self.sq.get_mut(usize::from(sqid)).and_then(Option::as_mut) {
            sq.held = Some(sqe);
        }
    }

    /// Posts a completion to the queue of `sqid`, in which room was found before.
    pub(crate) fn complete(
        &mut self,
        sqid: u16,
        cqe: impl FnOnce(u16) -> Cqe,
        host: &Host,
    ) -> Result<(), DmaFault> {
        match self.place(sqid, cqe)? {
            Some((addr, cqe)) => host.memory.post(addr, &cqe),
            None => Ok(()),
        }
    }

    /// Takes the next place in the completion queue of `sqid`: its address, and the entry to write there.
    pub(crate) fn place(
        &mut self,
        sqid: u16,
        cqe: impl FnOnce(u16) -> Cqe,
    ) -> Result<Option<(u64, Cqe)>, DmaFault> {
        let Some(sq) = get(&self.sq, sqid) else { return Ok(None) };
        let cqe = cqe(sq.ring.head());
        let Some(cq) = self.cq.get_mut(usize::from(sq.cqid)).and_then(Option::as_mut) else {
            return Ok(None);
        };
        // The head is the one that room was found with, whatever the host did to the doorbell since.
        let Ok(Some((slot, phase))) = cq.ring.push(cq.head) else { return Ok(None) };
        cq.posted = cq.posted.saturating_add(1);
        let addr = address(&cq.memory, slot, Cqe::SIZE, true)?;
        Ok(Some((addr, cqe.with_phase(phase))))
    }

    /// Whether the completion queue of `sqid` has room.
    pub(crate) fn room_for(
        &mut self,
        sqid: u16,
        host: &Host,
    ) -> Result<Result<bool, InvalidDoorbell>, DmaFault> {
        match get(&self.sq, sqid).map(|sq| sq.cqid) {
            Some(cqid) => self.has_room(cqid, host),
            None => Ok(Ok(false)),
        }
    }

    /// Interrupts the host for what was posted for `sqid`, unless it is to be held back.
    pub(crate) fn signal(&mut self, sqid: u16, features: &Features, host: &Host) {
        let Some(cqid) = get(&self.sq, sqid).map(|sq| sq.cqid) else { return };
        let Some(cq) = self.cq.get_mut(usize::from(cqid)).and_then(Option::as_mut) else { return };
        if cq.posted > 0 {
            self.coalescing -= usize::from(cq.since.is_some());
            cq.signal(features, host);
            self.coalescing += usize::from(cq.since.is_some());
        }
    }

    /// Interrupts that were held back for as long as they may be.
    pub(crate) fn signal_overdue(&mut self, features: &Features, host: &Host) {
        if self.coalescing == 0 {
            return;
        }
        self.cq.iter_mut().flatten().filter(|cq| cq.since.is_some()).for_each(|cq| cq.signal(features, host));
        self.coalescing = self.cq.iter().flatten().filter(|cq| cq.since.is_some()).count();
    }

    fn insert_sq(&mut self, qid: u16, queue: SubmissionQueue, host: &Host) -> Result<(), DmaFault> {
        self.clear_doorbell(qid, self.doorbells.sq_tail(qid), host)?;
        insert(&mut self.sq, qid, queue);
        Ok(())
    }

    fn insert_cq(&mut self, qid: u16, queue: CompletionQueue, host: &Host) -> Result<(), DmaFault> {
        self.clear_doorbell(qid, self.doorbells.cq_head(qid), host)?;
        insert(&mut self.cq, qid, queue);
        Ok(())
    }
}

fn is_io(qid: u16, config: &Config) -> bool {
    (1..=config.max_queues).contains(&qid)
}

fn check_shape(entries: u32, contiguous: bool, config: &Config) -> Result<(), Status> {
    if !(2..=config.max_queue_entries).contains(&entries) {
        return Err(Status::INVALID_QUEUE_SIZE);
    }
    if !contiguous && config.contiguous_queues {
        return Err(Status::INVALID_FIELD);
    }
    Ok(())
}

fn address(memory: &Memory, slot: u32, len: usize, write: bool) -> Result<u64, DmaFault> {
    memory.entry(slot, len).ok_or(DmaFault { addr: u64::MAX, len, write })
}

fn get<T>(queues: &[Option<T>], qid: u16) -> Option<&T> {
    queues.get(usize::from(qid)).and_then(Option::as_ref)
}

fn insert<T>(queues: &mut Vec<Option<T>>, qid: u16, queue: T) {
    let at = usize::from(qid);
    if queues.len() <= at {
        queues.resize_with(at + 1, || None);
    }
    if let Some(place) = queues.get_mut(at) {
        *place = Some(queue);
    }
}

/// Drops unused places at the end, so that a pass does not visit them.
fn trim<T>(queues: &mut Vec<Option<T>>) {
    while let Some(None) = queues.last() {
        queues.pop();
    }
}
