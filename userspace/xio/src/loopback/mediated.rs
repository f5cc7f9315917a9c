// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel does for `KV_SUBMIT`: a queue that calls of all threads share, whose commands are tracked until they are
//! answered, also when their call has ended.

use super::arena::Mapped;
use super::buffer::Allocation;
use super::{doorbell, Loopback};
use crate::backend::{Calls, Done};
use crate::error::{Error, Result};
use crate::mapping::Doorbell;
use nix::errno::Errno;
use nvme_kv::kv::{Command, Condition, RetrieveOptions, StoreOptions};
use nvme_kv::ring::{CqConsumer, SqProducer};
use nvme_kv::{Cqe, DataPointer, Key, Sqe};
use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use xio_uapi::{self as uapi, KvEntry};
use zerocopy::IntoBytes;

/// A command with what must stay until it is answered.
type Tracked = (Command, Option<Arc<Allocation>>);

/// A command in the queue.
#[derive(Debug)]
struct Slot {
    call: u64,
    index: usize,
    _memory: Option<Arc<Allocation>>,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Mediated {
    sq: SqProducer,
    cq: CqConsumer,
    memory: (Mapped, Mapped),
    doorbells: (Doorbell, Doorbell),
    /// By command identifier.
    slots: Vec<Option<Slot>>,
    /// Completions of the calls under way.
    answers: HashMap<u64, Vec<(usize, Cqe)>>,
    last: u64,
}

impl Mediated {
    /// Takes a queue that was made; `None` when it has no size.
    fn new(entries: u32, memory: (Mapped, Mapped), doorbells: (Doorbell, Doorbell)) -> Option<Self> {
        let (sq, cq) = (SqProducer::new(entries)?, CqConsumer::new(entries)?);
        let slots = (1..entries).map(|_| None).collect();
        Some(Self { sq, cq, memory, doorbells, slots, answers: HashMap::new(), last: 0 })
    }

    /// Begins a call; its number.
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.answers.insert(self.last, Vec::new());
        self.last
    }

    /// Ends a call. What it has in the queue stays there until it is answered.
    fn end(&mut self, call: u64) {
        self.answers.remove(&call);
    }

    /// Submits a command of a call, or gives it back when there is no room.
    fn push(&mut self, call: u64, index: usize, nsid: u32, command: Tracked) -> Result<(), Tracked> {
        let Some(cid) = self.slots.iter().position(Option::is_none) else { return Err(command) };
        let Some(slot) = self.sq.push() else { return Err(command) };
        let (command, memory) = command;
        let sqe = command.encode(cid as u16, nsid);
        self.memory.0.region.write(slot as usize * Sqe::SIZE, sqe.as_bytes());
        self.slots[cid] = Some(Slot { call, index, _memory: memory });
        self.doorbells.0.ring(self.sq.tail());
        Ok(())
    }

    /// Takes all completions that are there; those of a call are given out.
    fn reap(&mut self, call: u64) -> Vec<(usize, Cqe)> {
        while let Some(cqe) = self.next() {
            let slot = self.slots.get_mut(usize::from(cqe.cid.get())).and_then(Option::take);
            // Calls that have ended have nobody to tell.
            if let Some((slot, answers)) = slot.and_then(|s| Some((s.index, self.answers.get_mut(&s.call)?)))
            {
                answers.push((slot, cqe));
            }
        }
        self.answers.get_mut(&call).map(std::mem::take).unwrap_or_default()
    }

    fn next(&mut self) -> Option<Cqe> {
        let (region, at) = (&self.memory.1.region, self.cq.head() as usize * Cqe::SIZE);
        if (region.load_acquire(at + Cqe::SIZE - 4) >> 16 & 1 == 1) != self.cq.phase() {
            return None;
        }
        let mut bytes = [0; Cqe::SIZE];
        region.read(at, &mut bytes);
        let cqe: Cqe = zerocopy::transmute!(bytes);
        self.cq.pop();
        self.doorbells.1.ring(self.cq.head());
        // A wrong SQHD only leaves places unused.
        let _ = self.sq.update_head(cqe.sqhd.get());
        Some(cqe)
    }
}

/// A call under way.
#[derive(Debug)]
struct Progress {
    /// Its number in the queue, once it has one.
    call: Option<u64>,
    commands: Vec<Option<Tracked>>,
    entries: Vec<KvEntry>,
    /// Resets before it.
    epoch: u32,
}

impl Loopback {
    /// Runs entries until all are answered, or until the deadline.
    pub(super) fn call(&self, entries: &mut [KvEntry], until: Instant) -> Result<()> {
        let mut progress = self.begin(entries.to_vec())?;
        while !self.step(&mut progress)? && Instant::now() < until {
            std::thread::yield_now();
        }
        self.end(&progress);
        entries.copy_from_slice(&progress.entries);
        Ok(())
    }

    /// Checks the entries of a call.
    fn begin(&self, mut entries: Vec<KvEntry>) -> Result<Progress> {
        self.admit()?;
        let (state, limit) = (self.live("a call")?, self.info.max_transfer);
        let parsed = entries.iter_mut().map(|entry| {
            let parsed = parse(entry, limit, &state.buffers);
            parsed.inspect_err(|errno| entry.error = -(*errno as i32)).ok()
        });
        let epoch = state.life.state.resets;
        Ok(Progress { call: None, commands: parsed.collect(), entries, epoch })
    }

    /// Takes completions and submits what has room; whether all entries are answered.
    fn step(&self, progress: &mut Progress) -> Result<bool> {
        let Progress { call, commands, entries, epoch } = progress;
        let waiting = [Errno::ETIMEDOUT, Errno::ECANCELED].map(|errno| -(errno as i32));
        let Some(mut guard) = self.mediated(*epoch)? else {
            for entry in entries.iter_mut().filter(|entry| waiting.contains(&entry.error)) {
                entry.error = -(Errno::ENODEV as i32);
            }
            return Ok(true);
        };
        let Some(queue) = guard.as_mut() else { return Err(Error::Gone) };
        let call = *call.get_or_insert_with(|| queue.begin());
        for (index, cqe) in queue.reap(call) {
            let Some(entry) = entries.get_mut(index) else { continue };
            (entry.error, entry.status) = (0, cqe.status().bits().into());
            if cqe.dnr() && entry.status != 0 {
                entry.status |= uapi::KV_STATUS_DNR;
            }
            let retrieved = u32::from(entry.op) == uapi::KV_RETRIEVE && cqe.status().is_success();
            entry.value_len = if retrieved { cqe.dw0.get() } else { 0 };
        }
        for (index, (command, entry)) in commands.iter_mut().zip(entries.iter_mut()).enumerate() {
            let Some(next) = command.take() else { continue };
            if let Err(full) = queue.push(call, index, entry.nsid, next) {
                *command = Some(full);
                break;
            }
            // Until it is answered.
            entry.error = -(Errno::ETIMEDOUT as i32);
        }
        Ok(!entries.iter().any(|entry| waiting.contains(&entry.error)))
    }

    /// Nobody asks for the call any more.
    fn end(&self, progress: &Progress) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.life.state.resets != progress.epoch {
            // It ended with the queue.
            return;
        }
        let mut guard = self.mediated.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(queue), Some(call)) = (guard.as_mut(), progress.call) {
            queue.end(call);
        }
    }

    /// The queue of mediated commands, made when it is asked for first; `None` for calls from before a reset.
    fn mediated(&self, epoch: u32) -> Result<Option<MutexGuard<'_, Option<Mediated>>>> {
        let mut state = self.state()?;
        if !state.life.state.is_live() || state.life.state.resets != epoch {
            return Ok(None);
        }
        let mut mediated = self.mediated.lock().unwrap_or_else(PoisonError::into_inner);
        if mediated.is_none() {
            let entries = self.info.mediated_depth + 1;
            let (qid, sq, cq) = self.add_queue(&mut state, entries, |_| Ok(None))?;
            state.mediated = Some(qid);
            let doorbells = state.driver.cap().doorbells();
            let registers = &self.shared.doorbells;
            let (tail, head) = (doorbells.sq_tail(qid), doorbells.cq_head(qid));
            let doorbells = (doorbell(registers, tail)?, doorbell(registers, head)?);
            *mediated = Mediated::new(entries, (sq, cq), doorbells);
        }
        Ok(Some(mediated))
    }
}

/// Calls that do not wait.
#[derive(Debug)]
pub(super) struct LoopbackCalls {
    loopback: Arc<Loopback>,
    calls: Vec<(u64, nix::Result<Progress>)>,
}

impl LoopbackCalls {
    pub(super) const fn new(loopback: Arc<Loopback>) -> Self {
        Self { loopback, calls: Vec::new() }
    }
}

impl Calls for LoopbackCalls {
    fn start(&mut self, id: u64, entries: Vec<KvEntry>) -> Result<()> {
        let begun = self.loopback.begin(entries).and_then(|mut progress| {
            // So that what has room is with the controller when this returns.
            self.loopback.step(&mut progress).map(|_| progress)
        });
        self.calls.push((id, begun.map_err(|error| errno(&error))));
        Ok(())
    }

    fn take(&mut self) -> Option<Done> {
        let loopback = &self.loopback;
        let is_done = |progress: &mut nix::Result<Progress>| match progress {
            Err(_) => true,
            Ok(under_way) => loopback.step(under_way).unwrap_or_else(|error| {
                *progress = Err(errno(&error));
                true
            }),
        };
        let at = self.calls.iter_mut().position(|(_, progress)| is_done(progress))?;
        let (id, progress) = self.calls.remove(at);
        if let Ok(progress) = &progress {
            loopback.end(progress);
        }
        let result = progress.as_ref().map(|_| ()).map_err(|errno| *errno);
        Some(Done { id, entries: progress.map(|p| p.entries).unwrap_or_default(), result })
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        // Until the next look.
        std::thread::sleep(timeout.min(Duration::from_micros(50)));
        Ok(())
    }
}

/// What the kernel would say.
pub(super) const fn errno(error: &Error) -> Errno {
    match error {
        Error::Busy => Errno::EBUSY,
        Error::NoQueueLeft => Errno::ENOSPC,
        _ => Errno::ENODEV,
    }
}

/// Checks an entry, and makes a command of it.
fn parse(
    entry: &KvEntry,
    max_transfer: u64,
    buffers: &HashMap<u32, Arc<Allocation>>,
) -> nix::Result<Tracked> {
    let key = match usize::from(entry.key_len) {
        0 => None,
        len => Some(entry.key.get(..len).and_then(|k| Key::new(k).ok()).ok_or(Errno::EINVAL)?),
    };
    let (op, options, len) = (u32::from(entry.op), u32::from(entry.options), entry.len);
    let has_data = matches!(op, uapi::KV_STORE | uapi::KV_RETRIEVE | uapi::KV_LIST) && len > 0;
    let memory = match buffers.get(&entry.buffer) {
        _ if !has_data => None,
        _ if max_transfer != 0 && u64::from(len) > max_transfer => return Err(Errno::EMSGSIZE),
        None => return Err(Errno::ENOENT),
        Some(memory) if op != uapi::KV_STORE && !memory.writable => return Err(Errno::EACCES),
        Some(memory) => Some(memory.clone()),
    };
    let pointed = memory.as_ref().map(|memory| memory.point(entry.offset, len)).transpose()?;
    let data: DataPointer = pointed.unwrap_or_default();
    let command = match (op, key) {
        (uapi::KV_STORE, Some(key)) => {
            let condition = match options & !uapi::KV_STORE_NO_COMPRESS {
                0 => Condition::Always,
                uapi::KV_STORE_IF_EXISTS => Condition::IfExists,
                uapi::KV_STORE_IF_ABSENT => Condition::IfAbsent,
                _ => return Err(Errno::EINVAL),
            };
            let no_compress = options & uapi::KV_STORE_NO_COMPRESS != 0;
            Command::Store { key, len, options: StoreOptions { condition, no_compress }, data }
        }
        (uapi::KV_RETRIEVE, Some(key)) => {
            let raw = options & uapi::KV_RETRIEVE_RAW != 0;
            Command::Retrieve { key, len, options: RetrieveOptions { raw }, data }
        }
        (uapi::KV_LIST, start) => Command::List { start, len, data },
        (uapi::KV_DELETE, Some(key)) => Command::Delete { key },
        (uapi::KV_FLUSH, None) => Command::Flush,
        (uapi::KV_EXIST, Some(key)) => Command::Exist { key },
        _ => return Err(Errno::EINVAL),
    };
    Ok((command, memory))
}
