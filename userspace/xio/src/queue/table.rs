// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands in flight: each has a slot, whose number is its command identifier.

use crate::buffer::Slice;
use crate::command::{Completion, Token};
use nvme_kv::Cqe;
use std::collections::VecDeque;

/// Where a slot is in its life.
#[derive(Debug)]
enum State {
    /// Free to take.
    Free,
    /// The command is with the controller; `memory` is what it uses.
    InFlight {
        #[allow(dead_code, reason = "kept, not looked at")]
        memory: Option<Slice>,
        /// Nobody waits for it any more.
        poisoned: bool,
    },
    /// The controller answered, the caller has not asked yet.
    Done(Completion),
}

#[derive(Debug)]
struct Slot {
    state: State,
    sequence: u64,
}

/// What happened to a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// It waits to be taken.
    Ready,
    /// Its command was given up: the slot and the memory are free again.
    Late,
    /// No such command is in flight.
    Unknown,
}

/// # Invariants
///
/// A slot is in `free` exactly when its state is `Free`, and in `ready`, once, exactly when it is `Done`. `poisoned`
/// counts the slots in flight that are. Nothing is allocated after `new`.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u16>,
    ready: VecDeque<u16>,
    poisoned: usize,
    sequence: u64,
}

impl Table {
    /// An empty table of so many slots.
    pub(super) fn new(depth: u16) -> Self {
        let slots = (0..depth).map(|_| Slot { state: State::Free, sequence: 0 }).collect();
        let ready = VecDeque::with_capacity(depth.into());
        Self { slots, free: (0..depth).rev().collect(), ready, poisoned: 0, sequence: 0 }
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() - self.ready.len()
    }

    pub(super) const fn poisoned(&self) -> usize {
        self.poisoned
    }

    /// Slot for the next command, which is not taken yet.
    pub(super) fn next(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes the slot that `next` gave.
    pub(super) fn take(&mut self, memory: Option<Slice>) -> Option<Token> {
        let slot = self.free.pop()?;
        self.sequence += 1;
        let sequence = self.sequence;
        *self.slots.get_mut(usize::from(slot))? =
            Slot { state: State::InFlight { memory, poisoned: false }, sequence };
        Some(Token { slot, sequence })
    }

    /// Takes note of a completion.
    pub(super) fn answer(&mut self, cqe: &Cqe) -> Answered {
        let number = cqe.cid.get();
        let Some(slot) = self.slots.get_mut(usize::from(number)) else { return Answered::Unknown };
        let State::InFlight { poisoned, .. } = slot.state else { return Answered::Unknown };
        if poisoned {
            slot.state = State::Free;
            self.free.push(number);
            self.poisoned -= 1;
            return Answered::Late;
        }
        slot.state = State::Done(Completion {
            token: Token { slot: number, sequence: slot.sequence },
            status: cqe.status(),
            do_not_retry: cqe.dnr(),
            value_len: cqe.dw0.get(),
        });
        self.ready.push_back(number);
        Answered::Ready
    }

    /// The completion that came first of those not taken.
    pub(super) fn first_ready(&mut self) -> Option<Completion> {
        let number = self.ready.pop_front()?;
        self.release(number)
    }

    /// Whether `first_ready` has something.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The completion of a token: `Ok(None)` while it is in flight, `Err` when it never was, is poisoned or was taken.
    pub(super) fn ready(&mut self, token: Token) -> Result<Option<Completion>, ()> {
        let slot = self.slots.get(usize::from(token.slot)).filter(|s| s.sequence == token.sequence);
        match slot.map(|s| &s.state) {
            Some(State::InFlight { poisoned: false, .. }) => return Ok(None),
            Some(State::Done(_)) => {}
            _ => return Err(()),
        }
        if let Some(at) = self.ready.iter().position(|n| *n == token.slot) {
            self.ready.remove(at);
        }
        Ok(self.release(token.slot))
    }

    /// Frees a slot that is done.
    fn release(&mut self, number: u16) -> Option<Completion> {
        let slot = self.slots.get_mut(usize::from(number))?;
        let State::Done(completion) = slot.state else { return None };
        slot.state = State::Free;
        self.free.push(number);
        Some(completion)
    }

    /// Gives a command up: its slot and memory stay taken until it is answered. Does nothing to others.
    pub(super) fn poison(&mut self, token: Token) -> bool {
        let slot = self.slots.get_mut(usize::from(token.slot)).filter(|s| s.sequence == token.sequence);
        match slot.map(|s| &mut s.state) {
            Some(State::InFlight { poisoned, .. }) if !*poisoned => {
                *poisoned = true;
                self.poisoned += 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_kv::Status;

    fn cqe(cid: u16) -> Cqe {
        Cqe::new(1, 0, cid, Status::SUCCESS, u32::from(cid))
    }

    #[test]
    fn an_identifier_is_not_reused_while_in_flight() {
        let mut table = Table::new(2);
        let a = table.take(None).unwrap();
        let b = table.take(None).unwrap();
        assert_ne!(a.slot, b.slot);
        assert!(table.take(None).is_none() && table.in_flight() == 2);
        assert_eq!(table.answer(&cqe(b.slot)), Answered::Ready);
        assert!(table.take(None).is_none(), "not taken yet");
        assert_eq!(table.ready(b).unwrap().unwrap().value_len, u32::from(b.slot));
        let c = table.take(None).unwrap();
        assert!(c.slot == b.slot && c != b);
        assert!(table.ready(b).is_err() && table.ready(c) == Ok(None));
    }

    #[test]
    fn completions_of_nothing_are_unknown() {
        let mut table = Table::new(2);
        let a = table.take(None).unwrap();
        assert_eq!(table.answer(&cqe(1 - a.slot)), Answered::Unknown);
        assert_eq!(table.answer(&cqe(2)), Answered::Unknown);
        assert_eq!(table.answer(&cqe(a.slot)), Answered::Ready);
        assert_eq!(table.answer(&cqe(a.slot)), Answered::Unknown);
    }

    #[test]
    fn a_poisoned_slot_waits_for_its_answer() {
        let mut table = Table::new(1);
        let a = table.take(None).unwrap();
        assert!(table.poison(a) && !table.poison(a) && table.poisoned() == 1);
        assert!(table.next().is_none() && table.ready(a).is_err());
        assert_eq!(table.answer(&cqe(a.slot)), Answered::Late);
        assert!(table.first_ready().is_none() && table.poisoned() == 0 && table.next() == Some(0));
    }

    #[test]
    fn completions_come_in_the_order_of_the_controller() {
        let mut table = Table::new(3);
        let tokens = [(); 3].map(|()| table.take(None).unwrap());
        for n in [2, 0, 1] {
            table.answer(&cqe(tokens[n].slot));
        }
        assert_eq!(table.ready(tokens[0]).unwrap().unwrap().token, tokens[0]);
        assert_eq!(table.first_ready().unwrap().token, tokens[2]);
        assert_eq!(table.first_ready().unwrap().token, tokens[1]);
        assert!(table.first_ready().is_none() && table.free() == 3);
    }
}
