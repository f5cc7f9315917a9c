// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the client has not shared, such as another device's: it is asked to copy (DMA_READ, DMA_WRITE).
//!
//! The controller's thread asks and waits; the thread that receives messages brings the answer. That one must never wait
//! for the first: the client may not answer before it got an answer itself. So [`Remote::is_waiting`] tells it not
//! to wait for the controller, and [`Remote::interrupt`] makes every access fail at once where it has to.

use super::socket::{Message, Sender};
use super::wire::{command, parse, DmaAccess, Header};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// How long an answer may take. After that nothing is asked for as long again, so that commands fail at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of data in a message, whatever the client says that it takes. QEMU 11.1 never goes on with a reply that
/// does not fit into the socket at once, and Linux gives a socket 208 KiB.
const AT_ONCE: usize = 64 << 10;

#[derive(Default)]
struct State {
    /// The way to the client, if there is one.
    to: Option<Sender>,
    /// Bytes of data that it takes in one message.
    max: usize,
    last_id: u16,
    /// What was asked and not answered.
    asked: Option<Header>,
    answer: Option<Message>,
    /// The client let the time pass; until then it is not asked.
    silent_until: Option<Instant>,
    /// An access is under way.
    waiting: bool,
    /// How many want accesses to fail.
    interruptions: usize,
}

impl State {
    fn may_ask(&self) -> bool {
        self.to.is_some()
            && self.interruptions == 0
            && self.silent_until.is_none_or(|end| end <= Instant::now())
    }
}

/// The memory of a client that comes without a file.
#[derive(Default)]
pub(super) struct Remote {
    state: Mutex<State>,
    changed: Condvar,
}

/// While it lives, every access fails at once.
pub(super) struct Interruption<'a>(&'a Remote);

impl Drop for Interruption<'_> {
    fn drop(&mut self) {
        self.0.lock().interruptions -= 1;
    }
}

impl Remote {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has come.
    pub(super) fn connect(&self, to: Sender) {
        let mut state = self.lock();
        *state = State { to: Some(to), max: AT_ONCE, interruptions: state.interruptions, ..State::default() };
    }

    /// The client has left.
    pub(super) fn disconnect(&self) {
        self.lock().to = None;
        self.changed.notify_all();
    }

    /// The client takes that much data in a message.
    pub(super) fn limit(&self, max: usize) {
        self.lock().max = max.min(AT_ONCE);
    }

    /// Makes what is under way fail, and all accesses from now on.
    pub(super) fn interrupt(&self) -> Interruption<'_> {
        self.lock().interruptions += 1;
        self.changed.notify_all();
        Interruption(self)
    }

    /// Whether an access is waiting for the client.
    pub(super) fn is_waiting(&self) -> bool {
        self.lock().waiting
    }

    /// A reply of the client.
    pub(super) fn answered(&self, message: Message) {
        let (id, command) = (message.header.id, message.header.command);
        let mut state = self.lock();
        // Late or not, it is alive.
        if id == state.last_id {
            state.silent_until = None;
        }
        if state.asked.take_if(|asked| (asked.id, asked.command) == (id, command)).is_some() {
            state.answer = Some(message);
            self.changed.notify_all();
        } else {
            log::warn!("a reply to no command: {:?}", message.header);
        }
    }

    /// Bytes of data that a message may have, at least 1.
    fn max(&self) -> usize {
        self.lock().max.max(1)
    }

    /// Reads from the client's memory; `None` if that is not possible.
    pub(super) fn read(&self, addr: u64, to: &mut [u8]) -> Option<()> {
        let max = self.max();
        for (part, addr) in to.chunks_mut(max).zip((addr..).step_by(max)) {
            let answer = self.ask(command::DMA_READ, addr, part.len(), &[])?;
            let (access, data): (DmaAccess, _) = parse(&answer.payload).ok()?;
            if (access.address, access.count) != (addr, part.len() as u64) || data.len() != part.len() {
                log::warn!("the client was asked for {} bytes at {addr:#x} and gave {access:x?}", part.len());
                return None;
            }
            part.copy_from_slice(data);
        }
        Some(())
    }

    /// Writes to the client's memory; `None` if that is not possible, or only in part.
    pub(super) fn write(&self, addr: u64, from: &[u8]) -> Option<()> {
        let max = self.max();
        for (part, addr) in from.chunks(max).zip((addr..).step_by(max)) {
            let answer = self.ask(command::DMA_WRITE, addr, part.len(), part)?.payload;
            // The count is a dword in the protocol's text; QEMU leaves all of it out.
            let count = answer.get(8..12).map(|count| count == (part.len() as u32).to_ne_bytes());
            let same = answer.get(..8).is_some_and(|at| at == addr.to_ne_bytes()) && count == Some(true);
            if !(same || answer.is_empty()) {
                log::warn!(
                    "the client was asked to write {} bytes at {addr:#x} and says {answer:x?}",
                    part.len()
                );
                return None;
            }
        }
        Some(())
    }

    fn ask(&self, command: u16, address: u64, count: usize, data: &[u8]) -> Option<Message> {
        self.lock().waiting = true;
        let answer = self.ask_and_wait(command, address, count, data);
        self.lock().waiting = false;
        answer
    }

    /// Sends a request and waits for the answer that says that it was done.
    fn ask_and_wait(&self, command: u16, address: u64, count: usize, data: &[u8]) -> Option<Message> {
        let end = Instant::now() + PATIENCE;
        // An earlier request that was interrupted is answered first.
        let mut state = self.wait(self.lock(), end, |state| state.asked.is_some())?;
        state.last_id = state.last_id.wrapping_add(1);
        let access = DmaAccess { address, count: count as u64 };
        let payload = [access.as_bytes(), data].concat();
        let header = Header::request(state.last_id, command, payload.len());
        (state.asked, state.answer) = (Some(header), None);
        let to = state.to.clone()?;
        drop(state);
        if let Err(error) = to.send(&header, &payload, None) {
            log::warn!("the client can not be asked: {error}");
            return None;
        }
        let answer = self.wait(self.lock(), end, |state| state.answer.is_none())?.answer.take()?;
        if answer.header.is_error() {
            log::debug!("the client refuses {access:x?}, error {}", answer.header.error);
            return None;
        }
        Some(answer)
    }

    /// Waits as long as `more` says; `None` if that is in vain.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        end: Instant,
        more: impl Fn(&State) -> bool,
    ) -> Option<MutexGuard<'a, State>> {
        let time = end.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(state, time, |state| more(state) && state.may_ask());
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            log::warn!("the client does not answer");
            (state.asked, state.silent_until) = (None, Some(Instant::now() + PATIENCE));
        }
        (!more(&state) && state.may_ask()).then_some(state)
    }
}
