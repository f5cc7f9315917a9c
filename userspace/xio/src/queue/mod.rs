// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: submit, poll, wait.

mod blocking;
mod raw;
mod table;

pub(crate) use blocking::blocking_calls;
#[cfg(test)]
pub(crate) use raw::read;
pub use raw::RawQueue;

use crate::command::{Completion, Operation, Token};
use crate::error::{os, protocol, Error, Result};
use crate::info::Namespace;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use nvme_kv::ring::{CqConsumer, SqProducer};
use nvme_kv::Cqe;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use table::{Answered, Table};

/// How a thread waits for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// It reads the completion queue until something is there, without a system call.
    #[default]
    Spin,
    /// The same, and it yields the processor once in a while: kinder where processors are few.
    Yield,
}

/// What queue to make.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Entries of each of the two queues, 2 up to the controller's limit. One less commands can be in flight.
    pub entries: u32,
    /// Make an eventfd that is signalled for each completion, see [`Queue::wait_event`]. It costs an interrupt each.
    pub event: bool,
    /// Put the submission queue into the controller memory buffer: the controller fetches commands from its own memory.
    pub cmb: bool,
    /// How the blocking calls wait.
    pub wait: Wait,
    /// For how long the blocking calls wait.
    pub timeout: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { entries: 64, event: false, cmb: false, wait: Wait::Spin, timeout: Duration::from_secs(30) }
    }
}

/// A submission and a completion queue, driven by the caller's thread: the data path makes no system call.
///
/// Commands are submitted with [`submit`](Self::submit), made known to the controller with [`ring`](Self::ring)
/// (one doorbell for any number of commands), and their completions taken with [`poll`](Self::poll) or
/// [`wait`](Self::wait). The blocking calls ([`store`](Self::store) and so on) do all of it. A queue belongs to one
/// thread at a time; make several for several threads.
///
/// Each command holds the [`Slice`](crate::Slice) it uses until it is answered, so no buffer is freed under it.
/// Dropping the queue deletes it in the controller first and then lets go of the memory of unanswered commands.
///
/// When the controller is reset, the module revokes the mappings of the queue and of its buffers: all calls fail with
/// [`Error::Revoked`], but for completions that came before. Drop the queue and make a new one.
#[derive(Debug)]
pub struct Queue {
    raw: RawQueue,
    sq: SqProducer,
    cq: CqConsumer,
    table: Table,
    event: Option<EventFd>,
    options: QueueOptions,
    unrung: bool,
    broken: Option<Broken>,
}

/// Why a queue takes no more commands.
#[derive(Debug)]
enum Broken {
    /// The controller broke the protocol in this way.
    Protocol(String),
    /// The controller was reset or is gone.
    Revoked,
}

/// What calls that are about no command in particular are doing.
const POLLING: &str = "waiting for a completion";

/// Sleeps until a descriptor is readable, or for about `left`.
pub(crate) fn sleep_until_readable(fd: BorrowedFd<'_>, left: Duration) -> Result<()> {
    // Rounded up, so that the last part of a millisecond is not spent spinning.
    let left = left + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(os("waiting for an eventfd", errno)),
    }
}

/// Passes of a waiting loop between two looks at the clock.
const CLOCK_INTERVAL: u32 = 1024;

/// Longer waits are no different (a hundred years), and their end might be no time that there is.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// When to stop waiting.
#[derive(Clone, Copy, Debug)]
enum Limit {
    At(Instant),
    /// So long after the first look at the clock, which quick answers do not need.
    After(Duration),
}

impl Queue {
    pub(crate) fn new(raw: RawQueue, event: Option<EventFd>, options: QueueOptions) -> Result<Self> {
        let entries = raw.entries();
        let (Some(sq), Some(cq)) = (SqProducer::new(entries), CqConsumer::new(entries)) else {
            return protocol(format!("a queue of {entries} entries was made"));
        };
        // One less than entries: then neither queue can overflow, whatever the controller does. The command identifier
        // 0xffff is not used (Base, section 3.3.3.1).
        let table = Table::new((entries - 1).min(0xffff) as u16);
        Ok(Self { raw, sq, cq, table, event, options, unrung: false, broken: None })
    }

    /// Queue identifier.
    pub const fn qid(&self) -> u16 {
        self.raw.qid()
    }

    /// Entries of each of the two queues.
    pub const fn entries(&self) -> u32 {
        self.raw.entries()
    }

    /// Commands that can be in flight at once, done ones that were not asked for included.
    pub fn depth(&self) -> usize {
        self.table.depth()
    }

    /// Commands that can be submitted now.
    pub fn free(&self) -> usize {
        self.table.free()
    }

    /// Commands that were not answered so far.
    pub fn in_flight(&self) -> usize {
        self.table.in_flight()
    }

    /// Commands that were given up and are still not answered: each takes a place in the queue, and its memory,
    /// until the controller answers it or the queue is closed.
    pub const fn poisoned(&self) -> usize {
        self.table.poisoned()
    }

    /// The queue pair itself, to look at.
    pub const fn raw(&self) -> &RawQueue {
        &self.raw
    }

    /// How long the blocking calls wait.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.options.timeout = timeout;
    }

    /// Submits a command; [`ring`](Self::ring) lets the controller know.
    ///
    /// # Errors
    /// [`Error::QueueFull`] when completions must be taken first, errors about keys, sizes and buffers (then nothing
    /// was submitted), [`Error::BufferGone`] of a buffer from before a reset, [`Error::Protocol`], [`Error::Revoked`],
    /// [`Error::Gone`].
    pub fn submit(&mut self, namespace: &Namespace, operation: Operation) -> Result<Token> {
        let what = operation.name();
        self.healthy(what)?;
        let (command, memory) = operation.prepare(namespace)?;
        memory.as_ref().map_or(Ok(()), |memory| self.raw.admit(memory.buffer()))?;
        if self.table.next().is_none() {
            // Answers to commands that were given up make room.
            self.reap(what)?;
        }
        let full = Error::QueueFull { depth: self.depth() };
        let Some(cid) = self.table.next() else { return Err(full) };
        let Some(slot) = self.sq.push() else { return Err(full) };
        let Some(token) = self.table.take(memory) else { return Err(full) };
        self.raw.write(slot, &command.encode(cid, namespace.nsid()));
        self.unrung = true;
        Ok(token)
    }

    /// Rings the doorbell for all commands submitted since it was last rung, if any.
    pub fn ring(&mut self) {
        if std::mem::replace(&mut self.unrung, false) {
            self.raw.sq_doorbell().ring(self.sq.tail());
        }
    }

    /// The next completion in the controller's order, if there is one. Never waits, rings no doorbell for
    /// submissions, and looks at no clock.
    ///
    /// # Errors
    /// [`Error::Protocol`]: the controller broke the rules and the queue takes no more commands. [`Error::Revoked`],
    /// [`Error::Gone`].
    pub fn poll(&mut self) -> Result<Option<Completion>> {
        if let Some(completion) = self.table.first_ready() {
            return Ok(Some(completion));
        }
        self.healthy(POLLING)?;
        self.reap(POLLING)?;
        Ok(self.table.first_ready())
    }

    /// Rings and waits for one command; completions of others are kept for later.
    ///
    /// # Errors
    /// [`Error::Timeout`] at the deadline: the command is [given up](Self::abandon). [`Error::UnknownToken`],
    /// [`Error::Protocol`], [`Error::Revoked`], [`Error::Gone`].
    pub fn wait(&mut self, token: Token, deadline: Instant) -> Result<Completion> {
        self.wait_until(token, Limit::At(deadline), POLLING)
    }

    /// Gives a command up. Its completion, should one come, is dropped; its place and memory stay taken until then.
    ///
    /// # Errors
    /// [`Error::UnknownToken`] unless the command is in flight.
    pub fn abandon(&mut self, token: Token) -> Result<()> {
        self.table.poison(token).then_some(()).ok_or(Error::UnknownToken)
    }

    /// The eventfd, for event loops of the caller's. When it is readable: read it, then [`poll`](Self::poll) until
    /// nothing comes.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    /// Rings, then sleeps until there is a completion to poll, at most for `timeout`; whether there is one.
    ///
    /// # Errors
    /// [`Error::NoEvent`], [`Error::Protocol`], [`Error::Revoked`], [`Error::Gone`], or what the operating system says.
    pub fn wait_event(&mut self, timeout: Duration) -> Result<bool> {
        self.ring();
        let until = Instant::now() + timeout.min(FOREVER);
        loop {
            let event = self.event.as_ref().ok_or(Error::NoEvent)?;
            // Reset the event before the queue is looked at: what comes afterwards sets it again.
            match event.read() {
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(errno) => return Err(os("reading an eventfd", errno)),
            }
            self.healthy(POLLING)?;
            self.reap(POLLING)?;
            if self.table.has_ready() {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let event = self.event.as_ref().ok_or(Error::NoEvent)?;
            sleep_until_readable(event.as_fd(), left)?;
        }
    }

    /// Deletes the queue. What was not answered is not answered any more, but may have been carried out.
    ///
    /// # Errors
    /// When the controller does not delete it; then memory of unanswered commands is never given back to this process.
    pub fn close(mut self) -> Result<()> {
        self.delete()
    }

    fn delete(&mut self) -> Result<()> {
        self.raw.delete().inspect_err(|_| {
            // The controller may still write to these buffers.
            std::mem::forget(std::mem::replace(&mut self.table, Table::new(0)));
        })
    }

    fn healthy(&self, what: &'static str) -> Result<()> {
        match &self.broken {
            Some(Broken::Protocol(why)) => protocol(why.clone()),
            Some(Broken::Revoked) => Err(self.raw.lost(what)),
            None => Ok(()),
        }
    }

    fn wait_until(&mut self, token: Token, mut limit: Limit, what: &'static str) -> Result<Completion> {
        self.ring();
        let mut passes = 0u32;
        let mut since = None;
        loop {
            match self.table.ready(token) {
                Ok(Some(completion)) => return Ok(completion),
                Ok(None) => {}
                Err(()) => return Err(Error::UnknownToken),
            }
            self.healthy(what)?;
            if self.reap(what)? == 0 {
                std::hint::spin_loop();
            }
            passes = passes.wrapping_add(1);
            if passes % CLOCK_INTERVAL != 0 {
                continue;
            }
            let now = Instant::now();
            let since = *since.get_or_insert(now);
            let until = match limit {
                Limit::At(until) => until,
                Limit::After(timeout) => now + timeout.min(FOREVER),
            };
            limit = Limit::At(until);
            if now >= until && matches!(self.table.ready(token), Ok(None)) {
                self.table.poison(token);
                return Err(self.raw.backend().timeout(what, until.saturating_duration_since(since)));
            }
            if self.options.wait == Wait::Yield {
                std::thread::yield_now();
            }
        }
    }

    /// Takes note of all completions that are there; how many.
    fn reap(&mut self, what: &'static str) -> Result<usize> {
        let mut count = 0;
        loop {
            let cqe = self.raw.read(self.cq.head(), self.cq.phase());
            // The zeros in place of a revoked queue are no entries.
            if self.raw.is_revoked() {
                self.broken = Some(Broken::Revoked);
                return Err(self.raw.lost(what));
            }
            let Some(cqe) = cqe else { break };
            if let Err(why) = self.accept(&cqe) {
                self.broken = Some(Broken::Protocol(why.clone()));
                return protocol(why);
            }
            self.cq.pop();
            count += 1;
        }
        if count > 0 {
            self.raw.cq_doorbell().ring(self.cq.head());
        }
        Ok(count)
    }

    fn accept(&mut self, cqe: &Cqe) -> Result<(), String> {
        let (sqid, qid) = (cqe.sqid.get(), self.qid());
        if sqid != qid {
            return Err(format!("queue {qid} got a completion of queue {sqid}"));
        }
        if !self.sq.update_head(cqe.sqhd.get()) {
            return Err(format!("the head of queue {qid} went to {}, beyond its tail", cqe.sqhd));
        }
        match self.table.answer(cqe) {
            Answered::Ready | Answered::Late => Ok(()),
            Answered::Unknown => {
                Err(format!("queue {qid} got a completion of command {}, which is not in flight", cqe.cid))
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Drop order: deleted in the controller here, then `table` lets go of the memory. As for errors, see RawQueue.
        let _ = self.delete();
    }
}
