// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to happen to one command, and what becomes of its completion queue entry.

use super::random::Random;
use super::rule::{Action, Value};
use nvme_kv::{Cqe, Status};
use std::time::Duration;

/// What is wrong in a completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Forgery {
    cid: Option<Value>,
    sqid: Option<Value>,
    sqhead: Option<Value>,
    dw0: Option<Value>,
    /// The phase tag is the other one.
    phase: bool,
    /// For how long the status dword is there alone.
    pub(super) torn: Option<Duration>,
}

impl Forgery {
    /// What becomes of an entry.
    pub(super) fn apply(&self, right: Cqe) -> Cqe {
        let number = |value: Option<Value>, right: u32| value.map_or(right, |value| value.instead_of(right));
        // Fields of two bytes keep the lower half.
        let short = |value, right: u16| number(value, right.into()) as u16;
        let cqe = Cqe {
            dw0: number(self.dw0, right.dw0.get()).into(),
            sqhd: short(self.sqhead, right.sqhd.get()).into(),
            sqid: short(self.sqid, right.sqid.get()).into(),
            cid: short(self.cid, right.cid.get()).into(),
            ..right
        };
        cqe.with_phase(right.phase() != self.phase)
    }
}

/// What is to happen to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Effects {
    /// The controller fails.
    pub(super) fatal: bool,
    /// The controller vanishes, for a time or for good.
    pub(super) vanish: Option<Option<Duration>>,
    /// It is not executed but completed with this.
    pub(super) error: Option<Status>,
    /// Its data moves at so many bytes a second.
    pub(super) rate: Option<u64>,
    /// It is not completed.
    pub(super) drop: bool,
    /// It is completed so much later.
    pub(super) delay: Option<Duration>,
    /// It is completed after so many others, or after this time.
    pub(super) behind: Option<(u32, Duration)>,
    /// Its completion is posted so many times more.
    pub(super) times: u32,
    pub(super) forgery: Forgery,
}

impl Effects {
    /// Adds what a rule says. Of two rules that say the same kind of thing, the later one is heard.
    pub(super) fn add(&mut self, action: &Action, random: &mut Random) {
        let entry = &mut self.forgery;
        match action {
            Action::Delay(time) => self.delay = Some(*time),
            Action::Drop => self.drop = true,
            Action::Reorder { behind, within } => self.behind = Some((*behind, *within)),
            Action::Duplicate(times) => self.times = *times,
            Action::Cid(value) => entry.cid = Some(value.draw(random)),
            Action::SqId(value) => entry.sqid = Some(value.draw(random)),
            Action::SqHead(value) => entry.sqhead = Some(value.draw(random)),
            Action::Dw0(value) => entry.dw0 = Some(value.draw(random)),
            Action::Phase => entry.phase = true,
            Action::Torn(time) => entry.torn = Some(*time),
            Action::Error(status) => self.error = Some(*status),
            Action::Slow(rate) => self.rate = Some(*rate),
            Action::Fatal => self.fatal = true,
            Action::Vanish(back) => self.vanish = Some(*back),
            // Not about commands.
            Action::NeverReady | Action::StayReady | Action::Identify { .. } | Action::Limit { .. } => {}
        }
    }

    /// Whether there is something about the completion.
    pub(super) fn changes_completion(&self) -> bool {
        let before = Self {
            fatal: self.fatal,
            vanish: self.vanish,
            error: self.error,
            rate: self.rate,
            ..Self::default()
        };
        *self != before
    }

    /// How long data of `len` bytes takes, where it is slow.
    pub(super) fn transfer(&self, len: u64) -> Option<Duration> {
        let rate = self.rate?.max(1);
        let (seconds, rest) = (len / rate, len % rate);
        let nanos = u128::from(rest) * 1_000_000_000 / u128::from(rate);
        Some(Duration::new(seconds, nanos as u32)).filter(|time| !time.is_zero())
    }

    /// For how long the completion is held back, and behind how many others.
    pub(super) fn wait(&self) -> Option<(Duration, Option<u32>)> {
        match (self.delay, self.behind) {
            (None, None) => None,
            (Some(delay), None) => Some((delay, None)),
            (delay, Some((behind, within))) => Some((delay.unwrap_or(within), Some(behind))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(actions: &[Action]) -> Effects {
        let (mut effects, mut random) = (Effects::default(), Random::new(1, 1));
        actions.iter().for_each(|action| effects.add(action, &mut random));
        effects
    }

    #[test]
    fn entries_are_forged_field_by_field() {
        let right = Cqe::new(1, 7, 100, Status::SUCCESS, 5).with_phase(true);
        assert_eq!(Forgery::default().apply(right), right);
        let forged = |action| effects(&[action]).forgery.apply(right);
        assert_eq!(forged(Action::Cid(Value::Plus(-1))), Cqe { cid: 99.into(), ..right });
        assert_eq!(forged(Action::SqId(Value::Is(9))), Cqe { sqid: 9.into(), ..right });
        assert_eq!(forged(Action::SqHead(Value::Plus(-8))), Cqe { sqhd: 0xffff.into(), ..right });
        assert_eq!(forged(Action::Dw0(Value::Is(u32::MAX))), Cqe { dw0: u32::MAX.into(), ..right });
        assert_eq!(forged(Action::Phase), right.with_phase(false));
    }

    #[test]
    fn effects_add_up() {
        let second = Duration::from_secs(1);
        let all =
            effects(&[Action::Drop, Action::Delay(second), Action::Delay(2 * second), Action::Duplicate(3)]);
        assert!(all.drop && all.changes_completion());
        assert_eq!((all.times, all.wait()), (3, Some((2 * second, None))));
        let behind = effects(&[Action::Reorder { behind: 2, within: second }]);
        assert_eq!(behind.wait(), Some((second, Some(2))));
        let before = effects(&[Action::Slow(1000), Action::Error(Status::INTERNAL_ERROR), Action::Fatal]);
        assert!(!before.changes_completion() && before.wait().is_none());
        assert_eq!(before.transfer(2500), Some(Duration::from_millis(2500)));
        assert_eq!((before.transfer(0), effects(&[]).transfer(9)), (None, None));
    }
}
