// SPDX-License-Identifier: MIT OR Apache-2.0
//! When what the controller writes arrives: data some time before the completion that tells of it, completions in
//! any order that the rings allow. Places of a completion queue are filled in order; which command's completion goes to a
//! place is a matter of who is done first.

use crate::rng::Rng;
use nvme_kv::Cqe;
use std::collections::{BTreeMap, VecDeque};
use zerocopy::IntoBytes;

/// How long commands take.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Shortest time.
    pub least: u64,
    /// Longest time.
    pub most: u64,
}

/// A command whose completion is kept back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// How many commands are completed before it is one.
    pub after: u64,
    /// For how long.
    pub time: u64,
}

/// A place of a completion queue.
#[derive(Debug)]
struct Place {
    addr: u64,
    head: u16,
    phase: bool,
}

/// A completion that has no place yet.
#[derive(Debug)]
struct Done {
    cqe: Cqe,
    ready: u64,
}

#[derive(Debug, Default)]
struct Ring {
    places: VecDeque<Place>,
    done: Vec<Done>,
}

/// What was written, and has not arrived.
#[derive(Debug)]
pub(super) struct Delivery {
    latency: Latency,
    rng: Rng,
    now: u64,
    writes: Vec<(u64, Vec<u8>)>,
    rings: BTreeMap<u16, Ring>,
    posted: u64,
    holds: Vec<Hold>,
}

/// Writes with their addresses.
pub(super) type Writes = Vec<(u64, Vec<u8>)>;
/// Completions with their addresses.
pub(super) type Posts = Vec<(u64, [u8; Cqe::SIZE])>;

impl Delivery {
    pub(super) fn new(latency: Latency, seed: u64) -> Self {
        Self {
            latency,
            rng: Rng::new(seed),
            now: 0,
            writes: Vec::new(),
            rings: BTreeMap::new(),
            posted: 0,
            holds: Vec::new(),
        }
    }

    pub(super) fn hold(&mut self, hold: Hold) {
        self.holds.push(Hold { after: self.posted + hold.after, ..hold });
    }

    pub(super) fn outstanding(&self) -> usize {
        self.rings.values().map(|ring| ring.done.len()).sum()
    }

    pub(super) const fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    pub(super) fn write(&mut self, addr: u64, bytes: &[u8]) {
        self.writes.push((addr, bytes.to_vec()));
    }

    /// Takes the writes out that reach into a range, with all before them.
    pub(super) fn writes_to(&mut self, addr: u64, len: usize) -> Writes {
        let end = addr + len as u64;
        let reaches = |(at, bytes): &(u64, Vec<u8>)| *at < end && addr < at + bytes.len() as u64;
        let count = self.writes.iter().rposition(reaches).map_or(0, |last| last + 1);
        self.writes.drain(..count).collect()
    }

    pub(super) fn post(&mut self, addr: u64, cqe: &Cqe) {
        let qid = cqe.sqid.get();
        // The admin queue is nobody's but the host's.
        let (held, span) = (self.holds.iter().find(|hold| hold.after == self.posted), self.latency);
        let wait = match held {
            _ if qid == 0 => 0,
            Some(hold) => hold.time,
            None => span.least + self.rng.below(span.most - span.least + 1),
        };
        self.posted += u64::from(qid != 0);
        let ring = self.rings.entry(qid).or_default();
        ring.places.push_back(Place { addr, head: cqe.sqhd.get(), phase: cqe.phase() });
        ring.done.push(Done { cqe: *cqe, ready: self.now + wait });
    }

    /// What has arrived by now, data first, and when something will.
    pub(super) fn due(&mut self, now: u64) -> (Writes, Posts, Option<u64>) {
        let (mut posts, mut next) = (Vec::new(), None);
        for ring in self.rings.values_mut() {
            loop {
                let ready: Vec<_> = (0..ring.done.len()).filter(|n| ring.done[*n].ready <= now).collect();
                let Some(chosen) = ready.get(self.rng.below(ready.len() as u64) as usize) else { break };
                let Some(place) = ring.places.pop_front() else { break };
                let done = ring.done.swap_remove(*chosen);
                let mut cqe = done.cqe.with_phase(place.phase);
                cqe.sqhd = place.head.into();
                let mut bytes = [0; Cqe::SIZE];
                bytes.copy_from_slice(cqe.as_bytes());
                posts.push((place.addr, bytes));
            }
            let soonest = ring.done.iter().map(|done| done.ready).min();
            next = next.into_iter().chain(soonest).min();
        }
        // Data never come behind the completion that tells of them.
        let writes = if posts.is_empty() { Vec::new() } else { std::mem::take(&mut self.writes) };
        (writes, posts, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_kv::Status;

    #[test]
    fn places_are_filled_in_order_by_whoever_is_done() {
        let mut delivery = Delivery::new(Latency { least: 10, most: 10 }, 1);
        delivery.hold(Hold { after: 0, time: 100 });
        for n in 0..3u16 {
            delivery.write(0x1000, &[1]);
            let cqe = Cqe::new(1, n + 1, n, Status::SUCCESS, u32::from(n)).with_phase(true);
            delivery.post(0x2000 + u64::from(n) * 16, &cqe);
        }
        assert_eq!(delivery.outstanding(), 3);
        let (writes, posts, next) = delivery.due(9);
        assert!(writes.is_empty() && posts.is_empty() && next == Some(10));
        let (writes, posts, next) = delivery.due(10);
        assert_eq!((writes.len(), posts.len(), next), (3, 2, Some(100)));
        // First and second place, with their heads, of the second and third command.
        assert_eq!([posts[0].0, posts[1].0], [0x2000, 0x2010]);
        assert_eq!([posts[0].1[8], posts[1].1[8]], [1, 2]);
        let mut commands = [posts[0].1[12], posts[1].1[12]];
        commands.sort_unstable();
        assert_eq!(commands, [1, 2]);
        let (_, posts, next) = delivery.due(100);
        assert_eq!((posts.len(), posts[0].1[8], posts[0].1[12], next), (1, 3, 0, None));
    }

    #[test]
    fn the_controller_sees_what_it_wrote() {
        let mut delivery = Delivery::new(Latency { least: 0, most: 0 }, 1);
        delivery.write(0x1000, &[1, 2]);
        delivery.write(0x2000, &[3]);
        assert_eq!(delivery.writes_to(0x1001, 1).len(), 1);
        assert!(delivery.writes_to(0x1000, 2).is_empty());
        assert_eq!(delivery.writes_to(0x1fff, 2).len(), 1);
    }
}
