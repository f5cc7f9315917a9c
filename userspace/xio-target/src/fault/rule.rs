// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules: what to do, and when.

use super::limit::Limit;
use super::random::Random;
use nvme_kv::{kv, Key, Sqe, Status};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A number to put in the place of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// This one.
    Is(u32),
    /// So much more, or less.
    Plus(i32),
    /// Any.
    Random,
}

impl Value {
    /// Settles on a number, or on a difference.
    pub(super) fn draw(self, random: &mut Random) -> Self {
        match self {
            Self::Random => Self::Is(random.word()),
            value => value,
        }
    }

    /// What becomes of `right`.
    pub(super) const fn instead_of(self, right: u32) -> u32 {
        match self {
            Self::Is(value) => value,
            Self::Plus(more) => right.wrapping_add_signed(more),
            Self::Random => right,
        }
    }
}

/// Bytes for a field of Identify.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    Bytes(Vec<u8>),
    Random(usize),
}

impl Fill {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Random(len) => *len,
        }
    }
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Delay(Duration),
    Drop,
    /// After so many completions of the queue that would have come later, or after this time.
    Reorder {
        behind: u32,
        within: Duration,
    },
    /// Posted so many times more.
    Duplicate(u32),
    Cid(Value),
    SqId(Value),
    SqHead(Value),
    Dw0(Value),
    Phase,
    /// The status dword is there for so long before the rest.
    Torn(Duration),
    Error(Status),
    /// Bytes a second.
    Slow(u64),
    Fatal,
    /// Until this time is over, or for good.
    Vanish(Option<Duration>),
    NeverReady,
    StayReady,
    Identify {
        offset: usize,
        fill: Fill,
    },
    Limit {
        limit: &'static Limit,
        max: bool,
    },
}

/// What a rule is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// A command that was fetched.
    Command,
    /// The data of an Identify command.
    Identify,
    /// CC.EN becomes 1.
    Enable,
    /// CC.EN becomes 0.
    Disable,
    /// Nothing: it holds all the time.
    Always,
}

impl Action {
    pub(super) const fn subject(&self) -> Subject {
        match self {
            Self::Identify { .. } => Subject::Identify,
            Self::NeverReady => Subject::Enable,
            Self::StayReady => Subject::Disable,
            Self::Limit { .. } => Subject::Always,
            _ => Subject::Command,
        }
    }
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    pub(super) admin: bool,
    pub(super) opcode: u8,
}

/// A chance of 1 of this.
pub(super) const CERTAIN: u64 = 1 << 32;

/// When to do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct When {
    /// As soon as the script is set, and not again.
    pub(super) now: bool,
    pub(super) operation: Option<Operation>,
    pub(super) queues: Option<RangeInclusive<u16>>,
    pub(super) nsid: Option<u32>,
    pub(super) key: Option<Key>,
    pub(super) prefix: Option<Key>,
    pub(super) cns: Option<u8>,
    pub(super) csi: Option<u8>,
    pub(super) after: u64,
    pub(super) every: u64,
    pub(super) count: u64,
    /// Of [`CERTAIN`].
    pub(super) chance: u64,
}

impl Default for When {
    fn default() -> Self {
        Self {
            now: false,
            operation: None,
            queues: None,
            nsid: None,
            key: None,
            prefix: None,
            cns: None,
            csi: None,
            after: 0,
            every: 1,
            count: u64::MAX,
            chance: CERTAIN,
        }
    }
}

impl When {
    /// Whether a command is meant, before anything is counted.
    pub(super) fn is_about(&self, sqid: u16, sqe: &Sqe) -> bool {
        let operation = self.operation.map(|o| o.admin == (sqid == 0) && o.opcode == sqe.opcode);
        let queue = self.queues.as_ref().map(|queues| queues.contains(&sqid));
        // Admin commands only where a rule says so: a host that can not even start tests nothing.
        let named = operation.is_some() || queue.is_some() || sqid != 0;
        let nsid = self.nsid.is_none_or(|nsid| nsid == sqe.nsid.get());
        named && operation.unwrap_or(true) && queue.unwrap_or(true) && nsid && self.has_key(sqid, sqe)
    }

    fn has_key(&self, sqid: u16, sqe: &Sqe) -> bool {
        if self.key.is_none() && self.prefix.is_none() {
            return true;
        }
        let key = if sqid == 0 { None } else { key_of(sqe) };
        let is = |key: &Key| self.key.is_none_or(|wanted| wanted == *key);
        let begins = |key: &Key| self.prefix.is_none_or(|p| key.as_bytes().starts_with(p.as_bytes()));
        key.is_some_and(|key| is(&key) && begins(&key))
    }

    /// Whether an Identify is meant.
    pub(super) fn is_about_identify(&self, cns: u8, csi: u8, nsid: u32) -> bool {
        let same = |wanted: Option<u8>, is| wanted.is_none_or(|wanted| wanted == is);
        same(self.cns, cns) && same(self.csi, csi) && self.nsid.is_none_or(|wanted| wanted == nsid)
    }
}

/// The key that a command is about; of List, the one to start at.
fn key_of(sqe: &Sqe) -> Option<Key> {
    match kv::Command::decode(sqe).ok()? {
        kv::Command::Store { key, .. } | kv::Command::Retrieve { key, .. } => Some(key),
        kv::Command::Delete { key } | kv::Command::Exist { key } => Some(key),
        kv::Command::List { start, .. } => start,
        kv::Command::Flush => None,
    }
}

/// A rule of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) line: usize,
    /// As it was written, with one space between words.
    pub(super) text: String,
    pub(super) action: Action,
    pub(super) when: When,
}

/// How often a rule was met.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) met: u64,
    pub(super) done: u64,
    pub(super) random: Random,
}

impl Tally {
    pub(super) const fn new(random: Random) -> Self {
        Self { met: 0, done: 0, random }
    }

    /// Counts once more; whether it is to be done this time.
    pub(super) fn pass(&mut self, when: &When) -> bool {
        self.met = self.met.saturating_add(1);
        let Some(n) = self.met.checked_sub(when.after).filter(|n| *n > 0) else { return false };
        if n % when.every != 0 || self.done >= when.count {
            return false;
        }
        if when.chance < CERTAIN && u64::from(self.random.word()) >= when.chance {
            return false;
        }
        self.done += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_kv::{admin, DataPointer};

    fn passes(when: &When, times: usize) -> Vec<usize> {
        let mut tally = Tally::new(Random::new(1, 1));
        (1..=times).filter(|_| tally.pass(when)).collect()
    }

    #[test]
    fn conditions_count_in_their_order() {
        let when = When { after: 2, every: 3, count: 2, ..When::default() };
        assert_eq!(passes(&when, 20), [5, 8]);
        assert_eq!(passes(&When::default(), 3), [1, 2, 3]);
        let half = When { chance: CERTAIN / 2, ..When::default() };
        let (first, second) = (passes(&half, 1000), passes(&half, 1000));
        assert!(first == second && (400..600).contains(&first.len()), "{}", first.len());
        assert!(passes(&When { chance: 0, ..half }, 100).is_empty());
    }

    #[test]
    fn commands_are_told_apart() {
        let key = Key::new(b"abc").unwrap();
        let list = kv::Command::List { start: Some(key), len: 64, data: DataPointer::default() }.encode(1, 7);
        let exist = kv::Command::Exist { key }.encode(1, 1);
        let identify = admin::Command::Identify(admin::Identify::default()).encode(1);
        let all = When::default();
        assert!(all.is_about(1, &exist) && !all.is_about(0, &identify));
        let admin = When { queues: Some(0..=0), ..When::default() };
        assert!(admin.is_about(0, &identify) && !admin.is_about(1, &exist));
        // The same opcode means Identify there and List here.
        let operation = Some(Operation { admin: true, opcode: 6 });
        let named = When { operation, ..When::default() };
        assert!(named.is_about(0, &identify) && !named.is_about(1, &list));
        let prefix = When { prefix: Some(Key::new(b"ab").unwrap()), ..When::default() };
        assert!(
            prefix.is_about(3, &exist) && prefix.is_about(3, &list) && !prefix.is_about(3, &Sqe::default())
        );
        let other = When { key: Some(Key::new(b"ab").unwrap()), ..When::default() };
        assert!(!other.is_about(3, &exist));
        assert!(!When { nsid: Some(2), ..When::default() }.is_about(1, &exist));
        assert!(When { cns: Some(1), ..When::default() }.is_about_identify(1, 0, 0));
        assert!(!When { cns: Some(1), csi: Some(1), ..When::default() }.is_about_identify(1, 0, 0));
    }

    #[test]
    fn numbers_take_the_place_of_others() {
        assert_eq!((Value::Is(5).instead_of(9), Value::Plus(-1).instead_of(0)), (5, u32::MAX));
        let drawn = Value::Random.draw(&mut Random::new(1, 1));
        assert!(matches!(drawn, Value::Is(_)) && drawn == Value::Random.draw(&mut Random::new(1, 1)));
    }
}
