// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that the kernel submits, without waiting for it.

use crate::backend::{Backend, Calls, Done};
use crate::buffer::Slice;
use crate::command::{Completion, Operation, Token};
use crate::error::{Error, Result};
use crate::info::Namespace;
use crate::mediated::{answer, call_error, check, guard_memory};
use crate::queue::FOREVER;
use nix::errno::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xio_uapi::{KvEntry, MAX_SUBMIT};

/// Calls at a time. The kernel lets a process have twice as many.
const MAX_CALLS: usize = 16;
/// For how long dropping waits for commands that are under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command with what must stay until it is done.
#[derive(Debug)]
struct Command {
    token: Token,
    what: &'static str,
    memory: Option<Slice>,
}

/// Commands by way of the kernel with many in flight, over io_uring: [`submit`](Self::submit), [`ring`](Self::ring), then
/// [`poll`](Self::poll) or [`wait`](Self::wait), as with a direct [`Queue`](crate::Queue).
///
/// What is submitted between two calls of `ring` goes to the kernel in one system call for up to 256 commands, and is
/// answered together. `poll` makes none. It belongs to one thread: when a thread ends that rang, the kernel ends what it issued
/// ([`Error::Interrupted`]).
///
/// Each command holds the [`Slice`] it uses until it is done. Dropping waits for what is under way, at most for ten seconds;
/// should something never end, its memory is never given back to this process.
#[derive(Debug)]
pub struct MediatedRing {
    backend: Arc<dyn Backend>,
    calls: Box<dyn Calls>,
    depth: usize,
    waiting: VecDeque<(Command, KvEntry)>,
    /// How many of `waiting` are to be issued.
    rung: usize,
    /// Calls under way by number.
    flight: HashMap<u64, Vec<Command>>,
    in_flight: usize,
    ready: VecDeque<(Token, Result<Completion>)>,
    given_up: HashSet<Token>,
    last_call: u64,
    last_token: u64,
}

impl MediatedRing {
    pub(crate) fn new(backend: Arc<dyn Backend>, calls: Box<dyn Calls>, depth: usize) -> Self {
        Self {
            backend,
            calls,
            depth,
            waiting: VecDeque::new(),
            rung: 0,
            flight: HashMap::new(),
            in_flight: 0,
            ready: VecDeque::new(),
            given_up: HashSet::new(),
            last_call: 0,
            last_token: 0,
        }
    }

    /// Commands that can be under way at once, done ones that were not asked for included.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Commands that can be submitted now.
    pub fn free(&self) -> usize {
        self.depth.saturating_sub(self.in_flight() + self.ready.len())
    }

    /// Commands that are not done, whether issued or not.
    pub fn in_flight(&self) -> usize {
        self.waiting.len() + self.in_flight
    }

    /// Submits a command; [`ring`](Self::ring) lets the kernel know.
    ///
    /// # Errors
    /// [`Error::QueueFull`] when results must be taken first, and errors about keys, sizes and buffers.
    pub fn submit(&mut self, namespace: &Namespace, operation: Operation) -> Result<Token> {
        let entry = check(&self.backend, namespace, &operation)?;
        if self.free() == 0 {
            return Err(Error::QueueFull { depth: self.depth });
        }
        self.last_token += 1;
        let token = Token { slot: 0, sequence: self.last_token };
        let command = Command { token, what: operation.name(), memory: operation.slice().cloned() };
        self.waiting.push_back((command, entry));
        Ok(token)
    }

    /// Issues all commands submitted since the last time. What the kernel has no room for now is issued by later calls of
    /// `poll` and `wait`.
    ///
    /// # Errors
    /// When the operating system does not take them.
    pub fn ring(&mut self) -> Result<()> {
        self.rung = self.waiting.len();
        self.issue()
    }

    /// The next command that is done, in order of arrival, and what became of it. Never waits.
    ///
    /// # Errors
    /// When the operating system does not take commands that were left to be issued.
    pub fn poll(&mut self) -> Result<Option<(Token, Result<Completion>)>> {
        if self.ready.is_empty() {
            self.reap()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Rings and waits for one command; results of others are kept for later.
    ///
    /// # Errors
    /// What became of the command; [`Error::Timeout`] at the deadline, when its result, should one come, is dropped;
    /// [`Error::UnknownToken`].
    pub fn wait(&mut self, token: Token, deadline: Instant) -> Result<Completion> {
        let start = Instant::now();
        self.ring()?;
        loop {
            self.reap()?;
            if let Some(at) = self.ready.iter().position(|(ready, _)| *ready == token) {
                return self.ready.remove(at).map_or(Err(Error::UnknownToken), |(_, result)| result);
            }
            if !self.knows(token) {
                return Err(Error::UnknownToken);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.given_up.insert(token);
                return Err(self.backend.timeout("waiting for a completion", start.elapsed()));
            }
            self.calls.wait(left)?;
        }
    }

    /// Rings, then sleeps until there is something to poll, at most for `timeout`; whether there is.
    ///
    /// # Errors
    /// When the operating system does not take commands or does not wait.
    pub fn wait_any(&mut self, timeout: Duration) -> Result<bool> {
        let until = Instant::now() + timeout.min(FOREVER);
        self.ring()?;
        loop {
            self.reap()?;
            let left = until.saturating_duration_since(Instant::now());
            if !self.ready.is_empty() || left.is_zero() {
                return Ok(!self.ready.is_empty());
            }
            self.calls.wait(left)?;
        }
    }

    /// Whether a command is under way and not given up.
    fn knows(&self, token: Token) -> bool {
        let waiting = self.waiting.iter().map(|(command, _)| command);
        let mut all = waiting.chain(self.flight.values().flatten());
        !self.given_up.contains(&token) && all.any(|command| command.token == token)
    }

    fn issue(&mut self) -> Result<()> {
        while self.rung > 0 && self.flight.len() < MAX_CALLS {
            let count = self.rung.min(MAX_SUBMIT as usize);
            let (commands, entries): (Vec<_>, Vec<_>) = self.waiting.drain(..count).unzip();
            self.rung -= count;
            self.in_flight += count;
            self.last_call += 1;
            self.flight.insert(self.last_call, commands);
            self.calls.start(self.last_call, entries)?;
        }
        Ok(())
    }

    /// Takes note of all calls that are done, and issues what has room now.
    fn reap(&mut self) -> Result<()> {
        while let Some(done) = self.calls.take() {
            self.done(&done);
        }
        self.issue()
    }

    fn done(&mut self, done: &Done) {
        let commands = self.flight.remove(&done.id).unwrap_or_default();
        self.in_flight -= commands.len();
        let backend = self.backend.as_ref();
        for (n, Command { token, what, memory }) in commands.into_iter().enumerate() {
            let result = match (done.result, done.entries.get(n)) {
                (Ok(()), Some(entry)) => answer(backend, (token, what), entry, Duration::ZERO),
                (Ok(()), None) => Err(Error::NotStarted { what }),
                // The issuer went away meanwhile, and nobody wrote results.
                (Err(Errno::ECANCELED | Errno::EINTR), _) => Err(Error::Interrupted { what }),
                (Err(errno), _) => Err(call_error(backend, what, errno)),
            };
            guard_memory(&result, memory.as_ref());
            if !self.given_up.remove(&token) {
                self.ready.push_back((token, result));
            }
        }
    }
}

impl Drop for MediatedRing {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        // What was not issued never is.
        self.rung = 0;
        while !self.flight.is_empty() && Instant::now() < until {
            let waited = self.calls.wait(until.saturating_duration_since(Instant::now()));
            if waited.and_then(|()| self.reap()).is_err() {
                break;
            }
        }
        // The controller may still touch what these use.
        self.flight.drain().flat_map(|(_, commands)| commands).for_each(|c| std::mem::forget(c.memory));
    }
}
