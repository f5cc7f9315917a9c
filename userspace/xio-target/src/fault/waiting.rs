// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands and completions that are held back, and what is to happen to those that are under way.

use super::effect::{Effects, Forgery};
use crate::controller::Outcome;
use nvme_kv::{Cqe, Sqe};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Bytes of a completion queue entry before its status dword.
pub(super) const REST: usize = Cqe::SIZE - 4;

/// A command whose data is slow: it is executed later.
#[derive(Debug)]
pub(super) struct Postponed {
    pub(super) due: Instant,
    pub(super) sqid: u16,
    pub(super) sqe: Sqe,
    pub(super) effects: Effects,
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) sqid: u16,
    pub(super) cid: u16,
    pub(super) outcome: Outcome,
    pub(super) forgery: Forgery,
    /// Copies to follow.
    pub(super) times: u32,
}

#[derive(Debug)]
struct Held {
    due: Instant,
    /// Completions that are still to come before.
    behind: Option<u32>,
    completion: Completion,
}

/// The rest of a torn completion queue entry.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) due: Instant,
    pub(super) sqid: u16,
    pub(super) addr: u64,
    pub(super) bytes: [u8; REST],
}

/// All that waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    postponed: Vec<Postponed>,
    held: Vec<Held>,
    rests: Vec<Rest>,
    copies: VecDeque<Completion>,
    /// Of commands under way, by queue and command identifier.
    effects: HashMap<(u16, u16), Effects>,
    /// Of commands that will be fetched again, by queue.
    again: HashMap<u16, Effects>,
}

/// The first in time that is due. Of those of the same time, the one that waits longest.
fn take_due<T>(from: &mut Vec<T>, now: Instant, due: impl Fn(&T) -> Instant) -> Option<T> {
    let all = from.iter().enumerate().filter(|(_, one)| due(one) <= now);
    let at = all.min_by_key(|(_, one)| due(one)).map(|(at, _)| at)?;
    Some(from.remove(at))
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        let nothing = self.postponed.is_empty() && self.held.is_empty() && self.rests.is_empty();
        nothing && self.again.is_empty() && self.effects.is_empty() && self.copies.is_empty()
    }

    /// The command of these identifiers has been started, and this is to happen.
    pub(super) fn remember(&mut self, sqid: u16, cid: u16, effects: Effects) {
        self.effects.insert((sqid, cid), effects);
    }

    /// What is to happen to a completion.
    pub(super) fn recall(&mut self, sqid: u16, cid: u16) -> Effects {
        self.effects.remove(&(sqid, cid)).unwrap_or_default()
    }

    /// The command that was fetched last will be fetched again, and is not to be asked about then.
    pub(super) fn keep(&mut self, sqid: u16, effects: Effects) {
        self.again.insert(sqid, effects);
    }

    /// What was decided when the command was fetched before.
    pub(super) fn kept(&mut self, sqid: u16) -> Option<Effects> {
        self.again.remove(&sqid)
    }

    pub(super) fn postpone(&mut self, command: Postponed) {
        self.postponed.push(command);
    }

    pub(super) fn due_command(&mut self, now: Instant) -> Option<Postponed> {
        take_due(&mut self.postponed, now, |command| command.due)
    }

    pub(super) fn hold(&mut self, due: Instant, behind: Option<u32>, completion: Completion) {
        self.held.push(Held { due, behind, completion });
    }

    pub(super) fn due_completion(&mut self, now: Instant) -> Option<Completion> {
        take_due(&mut self.held, now, |held| held.due).map(|held| held.completion)
    }

    /// A completion of this queue was posted.
    pub(super) fn posted(&mut self, sqid: u16) {
        for held in self.held.iter_mut().filter(|held| held.completion.sqid == sqid) {
            held.behind = held.behind.map(|behind| behind.saturating_sub(1));
        }
    }

    /// A completion of this queue that has been overtaken by as many as it should.
    pub(super) fn overtaken(&mut self, sqid: u16) -> Option<Completion> {
        let is = |held: &Held| held.completion.sqid == sqid && held.behind == Some(0);
        let at = self.held.iter().position(is)?;
        Some(self.held.remove(at).completion)
    }

    pub(super) fn tear(&mut self, rest: Rest) {
        self.rests.push(rest);
    }

    pub(super) fn due_rest(&mut self, now: Instant) -> Option<Rest> {
        take_due(&mut self.rests, now, |rest| rest.due)
    }

    /// The rest of the entry at this address, which is to be used for another one.
    pub(super) fn rest_at(&mut self, addr: u64) -> Option<Rest> {
        let at = self.rests.iter().position(|rest| rest.addr == addr)?;
        Some(self.rests.remove(at))
    }

    pub(super) fn copy(&mut self, completion: Completion) {
        self.copies.push_back(completion);
    }

    pub(super) fn copies(&self) -> usize {
        self.copies.len()
    }

    pub(super) fn next_copy(&mut self) -> Option<Completion> {
        self.copies.pop_front()
    }

    /// Whether copies wait for room that commands of this queue would take.
    pub(super) fn blocks(&self, sqid: u16) -> bool {
        self.copies.iter().any(|copy| copy.sqid == sqid)
    }

    /// A queue is gone, or all are.
    pub(super) fn forget(&mut self, sqid: Option<u16>) {
        let stays = |of: u16| sqid.is_some_and(|sqid| sqid != of);
        self.postponed.retain(|command| stays(command.sqid));
        self.held.retain(|held| stays(held.completion.sqid));
        self.rests.retain(|rest| stays(rest.sqid));
        self.copies.retain(|copy| stays(copy.sqid));
        self.effects.retain(|(of, _), _| stays(*of));
        self.again.retain(|of, _| stays(*of));
    }

    /// The faults have ended: what waits is due, and becomes right.
    pub(super) fn hurry(&mut self, now: Instant) {
        for command in &mut self.postponed {
            (command.due, command.effects) = (now, Effects::default());
        }
        for held in &mut self.held {
            (held.due, held.behind) = (now, None);
            (held.completion.forgery, held.completion.times) = (Forgery::default(), 0);
        }
        self.rests.iter_mut().for_each(|rest| rest.due = now);
        self.copies.clear();
        self.effects.clear();
        self.again.values_mut().for_each(|effects| *effects = Effects::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn completion(sqid: u16, cid: u16) -> Completion {
        Completion { sqid, cid, outcome: Ok(0), forgery: Forgery::default(), times: 0 }
    }

    #[test]
    fn what_is_due_comes_in_the_order_of_time() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        for (cid, ms) in [(1, 30), (2, 10), (3, 10), (4, 40)] {
            waiting.hold(at(ms), None, completion(1, cid));
        }
        let mut due = |ms| waiting.due_completion(at(ms)).map(|completion| completion.cid);
        assert_eq!([due(9), due(30), due(30), due(30), due(30)], [None, Some(2), Some(3), Some(1), None]);
        waiting.hurry(now);
        assert_eq!(waiting.due_completion(now).map(|completion| completion.cid), Some(4));
        assert!(waiting.is_empty());
    }

    #[test]
    fn completions_of_the_same_queue_overtake() {
        let (mut waiting, later) = (Waiting::default(), Instant::now() + Duration::from_secs(9));
        waiting.hold(later, Some(2), completion(1, 7));
        waiting.hold(later, None, completion(1, 8));
        waiting.posted(2);
        waiting.posted(1);
        assert!(waiting.overtaken(1).is_none());
        waiting.posted(1);
        assert_eq!(waiting.overtaken(1).map(|completion| completion.cid), Some(7));
        assert!(waiting.overtaken(1).is_none() && !waiting.is_empty());
    }

    #[test]
    fn a_queue_that_is_gone_is_forgotten() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        for sqid in [1, 2] {
            let (sqe, effects) = (Sqe::default(), Effects::default());
            waiting.postpone(Postponed { due: now, sqid, sqe, effects });
            waiting.hold(now, None, completion(sqid, 1));
            waiting.tear(Rest { due: now, sqid, addr: sqid.into(), bytes: [0; REST] });
            waiting.copy(completion(sqid, 1));
            waiting.remember(sqid, 1, effects);
            waiting.keep(sqid, effects);
        }
        waiting.forget(Some(1));
        assert!(!waiting.blocks(1) && waiting.blocks(2) && waiting.kept(1).is_none());
        assert!(waiting.rest_at(1).is_none() && waiting.rest_at(2).is_some());
        waiting.forget(None);
        assert!(waiting.is_empty());
    }
}
