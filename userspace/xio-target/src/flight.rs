// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands under way: fetched, asked of a store, and not answered yet.

use crate::data::Buffer;
use crate::store::{Answer, Answers, Later};
use nvme_kv::Status;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// What one namespace may have under way for one controller: commands, and bytes of their values.
const MAX_COMMANDS: usize = 8192;
const MAX_BYTES: usize = 256 << 20;

/// What a namespace has under way for a controller.
#[derive(Debug, Default)]
pub(crate) struct Load {
    commands: AtomicUsize,
    bytes: AtomicUsize,
}

impl Load {
    /// Whether a command with a value of `bytes` may be added. One alone always may.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let (commands, used) = (self.commands.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        commands == 0 || commands < MAX_COMMANDS && used.saturating_add(bytes) <= MAX_BYTES
    }
}

/// What is left to do when the store has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finish {
    /// Nothing.
    Plain,
    /// A pair was deleted; `must_find`: it is an error when there was none.
    Delete { must_find: bool },
    /// A value of this length was stored.
    Store { len: usize },
    /// The value goes to the host's buffer of `len` bytes.
    Retrieve { len: usize, buffer: Buffer },
    /// The keys go to the host's buffer of `len` bytes.
    List { len: usize, buffer: Buffer },
    /// One of the flushes that `group` waits for.
    Member { group: u64 },
    /// Waits for `left` flushes; a host's command, or the shutdown of the controller.
    Group { left: usize, worst: Result<(), Status>, shutdown: bool },
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) sqid: u16,
    pub(crate) cid: u16,
    pub(crate) finish: Finish,
    /// Whom it loads, with how many bytes.
    pub(crate) load: Option<(Arc<Load>, usize)>,
    /// The host waits for it: neither its queue was deleted nor the controller reset.
    alive: bool,
}

impl Flight {
    pub(crate) fn new(sqid: u16, cid: u16, finish: Finish) -> Self {
        Self { sqid, cid, finish, load: None, alive: true }
    }

    pub(crate) fn with_load(mut self, load: &Arc<Load>, bytes: usize) -> Self {
        load.commands.fetch_add(1, Ordering::Relaxed);
        load.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.load = Some((load.clone(), bytes));
        self
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some((load, bytes)) = &self.load {
            load.commands.fetch_sub(1, Ordering::Relaxed);
            load.bytes.fetch_sub(*bytes, Ordering::Relaxed);
        }
    }
}

/// All commands under way of a controller.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    slots: Vec<Option<(u32, Flight)>>,
    free: Vec<u32>,
    /// Part of the next identifier, so that none is used twice.
    turn: u32,
    answers: Arc<Answers>,
    landed: Vec<(u64, Answer)>,
}

impl Flights {
    /// Identifier of the next flight.
    pub(crate) fn next(&self) -> u64 {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        u64::from(self.turn) << 32 | u64::from(slot)
    }

    /// The right to answer the next flight.
    pub(crate) fn later(&self) -> Later<'_> {
        Later::new(self.next(), &self.answers)
    }

    /// From now on the calling thread, which calls [`take`](Self::take), is woken by answers.
    pub(crate) fn wake_me(&self) {
        self.answers.wake_me();
    }

    /// Adds a flight with the identifier that [`next`](Self::next) gave.
    pub(crate) fn add(&mut self, flight: Flight) -> u64 {
        let (id, entry) = (self.next(), Some((self.turn, flight)));
        self.turn = self.turn.wrapping_add(1);
        match self.free.pop().and_then(|slot| self.slots.get_mut(slot as usize)) {
            Some(place) => *place = entry,
            None => self.slots.push(entry),
        }
        id
    }

    /// A flight that the host waits for.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Flight> {
        match self.slots.get_mut(id as u32 as usize)? {
            Some((turn, flight)) if u64::from(*turn) == id >> 32 && flight.alive => Some(flight),
            _ => None,
        }
    }

    /// Ends a flight; `None` when the host does not wait for it.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Flight> {
        let place = self.slots.get_mut(id as u32 as usize)?;
        let (_, flight) = place.take_if(|(turn, _)| u64::from(*turn) == id >> 32)?;
        self.free.push(id as u32);
        flight.alive.then_some(flight)
    }

    /// The host does not wait any more for the commands of a queue, or for any.
    pub(crate) fn orphan(&mut self, sqid: Option<u16>) {
        for (_, flight) in self.slots.iter_mut().flatten() {
            flight.alive &= sqid.is_some_and(|sqid| sqid != flight.sqid);
        }
        // Nobody answers a group.
        for (slot, place) in (0..).zip(&mut self.slots) {
            if place.take_if(|(_, f)| !f.alive && matches!(f.finish, Finish::Group { .. })).is_some() {
                self.free.push(slot);
            }
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    /// Identifiers and answers that arrived; to be given back with [`recycle`](Self::recycle).
    pub(crate) fn take(&mut self) -> Vec<(u64, Answer)> {
        let mut landed = std::mem::take(&mut self.landed);
        self.answers.take(&mut landed);
        landed
    }

    /// Keeps the memory of an emptied list.
    pub(crate) fn recycle(&mut self, landed: Vec<(u64, Answer)>) {
        self.landed = landed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Reply;

    #[test]
    fn flights_are_found_by_identifier_and_only_while_the_host_waits() {
        let mut flights = Flights::default();
        let promise = flights.later().promise();
        let first = flights.add(Flight::new(1, 7, Finish::Plain));
        let second = flights.add(Flight::new(2, 8, Finish::Plain));
        assert!(flights.get_mut(first).is_some() && flights.get_mut(second).is_some());
        promise.answer(Ok(Reply::Done));
        let landed = flights.take();
        assert!(matches!(landed[..], [(id, Ok(Reply::Done))] if id == first));
        flights.recycle(landed);
        assert_eq!(flights.remove(first).map(|f| f.cid), Some(7));
        assert!(flights.remove(first).is_none());
        flights.orphan(Some(2));
        assert!(flights.get_mut(second).is_none());
        let third = flights.add(Flight::new(1, 9, Finish::Plain));
        assert_ne!(third, first);
        assert!(flights.remove(second).is_none());
        flights.orphan(None);
        assert!(flights.remove(third).is_none());
        assert_eq!(flights.free.len(), 2);
    }

    #[test]
    fn a_load_has_room_for_one_and_for_what_fits() {
        let load = Arc::new(Load::default());
        assert!(load.has_room(usize::MAX));
        let flight = Flight::new(1, 1, Finish::Plain).with_load(&load, MAX_BYTES - 1);
        assert!(load.has_room(1) && !load.has_room(2));
        drop(flight);
        assert!(load.has_room(2 * MAX_BYTES));
    }
}
