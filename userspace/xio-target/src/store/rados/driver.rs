// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that drives all operations of a store. It never waits for one of them.

use super::super::mem::{check, cost};
use super::super::{Promise, Reply, Request, Value};
use super::index::{entry, name, shard, Index};
use super::pool::{Ended, Existing, Operation, Pool};
use super::{status, Event, Shared, WAKE};
use nix::libc;
use nvme_kv::kv::Condition;
use nvme_kv::{Key, Status};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at an object about which the cluster said nothing.
const RETRY: Duration = Duration::from_secs(1);

/// What an operation of the cluster is for.
enum Job {
    Read { key: Key, offset: usize, len: usize, promise: Promise },
    Exist { promise: Promise },
    Change(Change),
}

/// A pair that is being stored or deleted.
struct Change {
    key: Key,
    /// The new value; `None` to delete.
    value: Option<Arc<Vec<u8>>>,
    condition: Condition,
    /// Length of the old value.
    old: Option<u64>,
    /// Length of the value afterwards.
    new: Option<u64>,
    /// Bytes and pairs that are reserved for it.
    reserved: (u64, u64),
    promise: Option<Promise>,
    /// The entry is uncertain.
    marked: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The entry becomes uncertain.
    Mark,
    /// The object is written or removed.
    Object,
    /// Nobody knows whether it was: the object is looked at.
    Resolve,
    /// The entry becomes certain, or goes.
    Settle,
}

/// A key with a change under way: what waits for it, or `None` when nothing can be said about the key now.
type Waiting = Option<VecDeque<(Request, Promise)>>;

pub(super) struct Driver {
    pool: Arc<Pool>,
    index: Index,
    shared: Arc<Shared>,
    asked: Receiver<Event>,
    ended: Sender<Ended>,
    jobs: HashMap<u64, Job>,
    last_tag: u64,
    busy: HashMap<Key, Waiting>,
    /// Changes to resolve, and when.
    later: Vec<(Instant, Change)>,
    reserved: (u64, u64),
    stopping: bool,
}

impl Driver {
    pub(super) fn new(
        pool: Arc<Pool>,
        index: Index,
        shared: Arc<Shared>,
        asked: Receiver<Event>,
        ended: Sender<Ended>,
    ) -> Self {
        Self {
            pool,
            index,
            shared,
            asked,
            ended,
            jobs: HashMap::new(),
            last_tag: 0,
            busy: HashMap::new(),
            later: Vec::new(),
            reserved: (0, 0),
            stopping: false,
        }
    }

    /// Runs until it is told to stop or the lock is lost, and everything under way has ended.
    pub(super) fn run(&mut self, ended: &Receiver<Ended>) {
        while !(self.stopping && self.jobs.is_empty()) {
            match ended.recv_timeout(RETRY) {
                Ok(Ended { tag: WAKE, .. }) => self.take_asked(),
                Ok(ended) => self.proceed(ended),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.stopping |= self.shared.lost.load(Ordering::Acquire);
            self.look_again();
        }
    }

    /// Answers what came too late, once nobody asks any more.
    pub(super) fn refuse_rest(&mut self) {
        while let Ok(event) = self.asked.try_recv() {
            if let Event::Asked(_, promise) = event {
                promise.answer(Err(Status::NAMESPACE_NOT_READY));
            }
        }
        let waiting = self.busy.drain().filter_map(|(_, waiting)| waiting).flatten();
        waiting.for_each(|(_, promise)| promise.answer(Err(Status::NAMESPACE_NOT_READY)));
    }

    fn take_asked(&mut self) {
        while let Ok(event) = self.asked.try_recv() {
            match event {
                Event::Asked(_, promise) if self.stopping => {
                    promise.answer(Err(Status::NAMESPACE_NOT_READY));
                }
                Event::Asked(request, promise) => self.ask(request, promise),
                Event::Stop => self.stopping = true,
            }
        }
    }

    fn ask(&mut self, request: Request, promise: Promise) {
        match request {
            Request::Get { key, offset, len } => self.read(key, offset, len, None, promise),
            Request::Exist { key } => self.start(&name(&key), &Operation::Stat, Job::Exist { promise }),
            Request::List { start, room } => {
                promise.answer(Ok(Reply::Keys(self.index.list(start, room))));
            }
            Request::Flush => promise.answer(Ok(Reply::Done)),
            Request::Put { key, .. } | Request::Delete { key } => match self.busy.get_mut(&key) {
                None => {
                    self.busy.insert(key, Some(VecDeque::from([(request, promise)])));
                    self.next(key);
                }
                Some(Some(waiting)) => waiting.push_back((request, promise)),
                Some(None) => promise.answer(Err(Status::NAMESPACE_NOT_READY)),
            },
        }
    }

    /// Reads at most `len` bytes, of which no more than `known` are expected.
    fn read(&mut self, key: Key, offset: usize, len: usize, known: Option<u64>, promise: Promise) {
        let known = known.or(self.index.keys.get(&key).copied()).unwrap_or(0);
        let room = usize::try_from(known).unwrap_or(usize::MAX).saturating_sub(offset).min(len);
        let operation = Operation::Read { offset: offset as u64, len: room };
        self.start(&name(&key), &operation, Job::Read { key, offset, len, promise });
    }

    fn start(&mut self, object: &str, operation: &Operation<'_>, job: Job) {
        self.last_tag = self.last_tag.wrapping_add(1) % WAKE;
        self.jobs.insert(self.last_tag, job);
        self.pool.start(object, operation, self.last_tag, &self.ended);
    }

    /// An operation has ended.
    fn proceed(&mut self, ended: Ended) {
        let Some(job) = self.jobs.remove(&ended.tag) else { return };
        self.shared.ready.store(ended.result != -libc::ETIMEDOUT, Ordering::Relaxed);
        if ended.result == -libc::ESHUTDOWN {
            log::error!("the cluster has put this connection on its blocklist");
            self.shared.lost.store(true, Ordering::Release);
        }
        match job {
            Job::Exist { promise } => promise.answer(match ended.result {
                0.. => Ok(Reply::Done),
                error => Err(status(-error, false)),
            }),
            Job::Read { promise, .. } if ended.result < 0 => {
                promise.answer(Err(status(-ended.result, false)));
            }
            Job::Read { key, offset, len, promise } => {
                let size = usize::try_from(ended.size).unwrap_or(usize::MAX);
                if ended.bytes.len() < size.saturating_sub(offset).min(len) {
                    // Others have changed the object.
                    self.read(key, offset, len, Some(ended.size), promise);
                } else {
                    promise.answer(Ok(Reply::Value(Value::part(ended.bytes, size))));
                }
            }
            Job::Change(change) => self.proceed_change(change, &ended),
        }
    }

    /// Begins a change; `false` when it was refused.
    fn begin(&mut self, key: Key, request: Request, promise: Promise) -> bool {
        let old = self.index.keys.get(&key).copied();
        let (value, condition) = match request {
            Request::Put { value, condition, .. } => (Some(Arc::new(value)), condition),
            _ => (None, Condition::IfExists),
        };
        let new = value.as_ref().map(|value| value.len() as u64);
        let admitted = check(condition, old.is_some()).and_then(|()| self.reserve(&key, old, new));
        let reserved = match admitted {
            Ok(reserved) => reserved,
            Err(status) => {
                promise.answer(Err(status));
                return false;
            }
        };
        let stage = if old == new { Stage::Object } else { Stage::Mark };
        let (promise, marked) = (Some(promise), false);
        self.run_stage(Change { key, value, condition, old, new, reserved, promise, marked, stage });
        true
    }

    /// Bytes and pairs by which the namespace grows, if there is room for them.
    fn reserve(&mut self, key: &Key, old: Option<u64>, new: Option<u64>) -> Result<(u64, u64), Status> {
        let bytes = |len: Option<u64>| len.map_or(0, |len| cost(key, 0) + len);
        let grows = (bytes(new).saturating_sub(bytes(old)), u64::from(new.is_some() && old.is_none()));
        let shared = &self.shared;
        let fits = shared.bytes.allows(0, self.reserved.0 + grows.0) || grows.0 == 0;
        if !fits || !(shared.pairs.allows(0, self.reserved.1 + grows.1) || grows.1 == 0) {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        self.reserved = (self.reserved.0 + grows.0, self.reserved.1 + grows.1);
        Ok(grows)
    }

    /// Starts the operation of a stage.
    fn run_stage(&mut self, change: Change) {
        let object = name(&change.key);
        let index = shard(&object);
        let mark = entry(change.new.or(change.old).unwrap_or(0), false);
        let settled = change.new.map(|len| entry(len, true));
        let value = change.value.clone().unwrap_or_default();
        let (place, operation) = match (change.stage, &settled) {
            (Stage::Mark, _) => (&index, Operation::SetIndex { key: &object, value: &mark }),
            (Stage::Object, _) if change.value.is_none() => (&object, Operation::Remove),
            (Stage::Object, _) => {
                let existing = match change.condition {
                    Condition::Always => Existing::Any,
                    Condition::IfExists => Existing::Needed,
                    Condition::IfAbsent => Existing::Refused,
                };
                (&object, Operation::Write { value: &value, existing })
            }
            (Stage::Resolve, _) => (&object, Operation::Stat),
            (Stage::Settle, Some(entry)) => (&index, Operation::SetIndex { key: &object, value: entry }),
            (Stage::Settle, None) => (&index, Operation::RemoveIndex { key: &object }),
        };
        self.start(place, &operation, Job::Change(change));
    }

    fn proceed_change(&mut self, mut change: Change, ended: &Ended) {
        let errno = -ended.result;
        match (change.stage, errno) {
            (Stage::Mark, ..=0) => (change.stage, change.marked) = (Stage::Object, true),
            (Stage::Mark, _) => return self.fail_unchanged(change, errno),
            (Stage::Object, ..=0) => {
                self.answer(&mut change, Ok(()));
                return self.is_now(change, None);
            }
            // It may have happened, or will.
            (Stage::Object, libc::ETIMEDOUT) => return self.unsure(change),
            // Others have removed it, or made it.
            (Stage::Object, libc::ENOENT) => {
                change.new = None;
                self.answer(&mut change, Err(Status::KEY_NOT_FOUND));
                return self.is_now(change, None);
            }
            (Stage::Object, libc::EEXIST) => {
                self.answer(&mut change, Err(Status::KEY_EXISTS));
                change.stage = Stage::Resolve;
            }
            (Stage::Object, _) => {
                change.new = change.old;
                self.answer(&mut change, Err(status(errno, true)));
                return self.is_now(change, None);
            }
            (Stage::Resolve, ..=0) => return self.is_now(change, Some(Some(ended.size))),
            (Stage::Resolve, libc::ENOENT) => return self.is_now(change, Some(None)),
            (Stage::Resolve, _) => return self.unsure(change),
            (Stage::Settle, _) => {
                if errno > 0 {
                    // It stays uncertain, and is looked at when the store is opened.
                    log::warn!("{}: the index was not settled, error {errno}", name(&change.key));
                }
                return self.next(change.key);
            }
        }
        self.run_stage(change);
    }

    fn answer(&mut self, change: &mut Change, outcome: Result<(), Status>) {
        if let Some(promise) = change.promise.take() {
            promise.answer(outcome.map(|()| Reply::Done));
        }
    }

    fn release(&mut self, change: &mut Change) {
        let (bytes, pairs) = std::mem::take(&mut change.reserved);
        self.reserved = (self.reserved.0.saturating_sub(bytes), self.reserved.1.saturating_sub(pairs));
    }

    fn fail_unchanged(&mut self, mut change: Change, errno: i32) {
        self.answer(&mut change, Err(status(errno, true)));
        self.release(&mut change);
        self.next(change.key);
    }

    /// It is certain what the object is: what the change says, or what was `seen`.
    fn is_now(&mut self, mut change: Change, seen: Option<Option<u64>>) {
        change.new = seen.unwrap_or(change.new);
        self.release(&mut change);
        let before = self.index.keys.get(&change.key).copied();
        match change.new {
            Some(len) => self.index.keys.insert(change.key, len),
            None => self.index.keys.remove(&change.key),
        };
        let bytes = |len: Option<u64>| len.map_or(0, |len| cost(&change.key, 0) + len);
        let used = self.shared.bytes.used().saturating_sub(bytes(before)) + bytes(change.new);
        self.shared.bytes.set(used);
        self.shared.pairs.set(self.index.keys.len() as u64);
        if change.marked || seen.is_some() || change.old != change.new {
            change.stage = Stage::Settle;
            // The value is not needed any more.
            change.value = None;
            return self.run_stage(change);
        }
        self.next(change.key);
    }

    /// Nobody knows what the object is. The host need not wait until somebody does.
    fn unsure(&mut self, mut change: Change) {
        self.answer(&mut change, Err(Status::NAMESPACE_NOT_READY));
        change.stage = Stage::Resolve;
        if let Some(waiting) = self.busy.get_mut(&change.key).and_then(Option::take) {
            waiting.into_iter().for_each(|(_, promise)| promise.answer(Err(Status::NAMESPACE_NOT_READY)));
        }
        self.later.push((Instant::now() + RETRY, change));
    }

    fn look_again(&mut self) {
        let now = Instant::now();
        if self.stopping || self.later.iter().all(|(when, _)| *when > now) {
            return;
        }
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(when, _)| *when <= now);
        self.later = later;
        let due: Vec<(Instant, Change)> = due;
        due.into_iter().for_each(|(_, change)| self.run_stage(change));
    }

    /// A change has come to its end: the next one of its key begins.
    fn next(&mut self, key: Key) {
        while let Some((request, promise)) =
            self.busy.get_mut(&key).and_then(|waiting| waiting.as_mut()?.pop_front())
        {
            if self.begin(key, request, promise) {
                return;
            }
        }
        self.busy.remove(&key);
    }
}
