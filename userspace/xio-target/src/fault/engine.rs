// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rules a command, an Identify or a change of CC.EN meets.

use super::effect::Effects;
use super::parse::Script;
use super::random::Random;
use super::rule::{Action, Fill, Rule, Subject, Tally};
use nvme_kv::admin::Identify;
use nvme_kv::regs::Cap;
use nvme_kv::Sqe;

/// A rule, and how often it was met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleReport {
    /// Line of the script.
    pub line: usize,
    /// The rule.
    pub rule: String,
    /// How many times something met it, before anything else was counted.
    pub met: u64,
    /// How many times it was done.
    pub done: u64,
}

/// A script in use.
#[derive(Debug)]
pub(super) struct Engine {
    seed: u64,
    rules: Vec<(Rule, Tally)>,
}

impl Engine {
    pub(super) fn new(script: Script) -> Self {
        let tally = |(n, rule)| (rule, Tally::new(Random::new(script.seed, n)));
        Self {
            seed: script.seed,
            rules: script.rules.into_iter().enumerate().map(|(n, r)| tally((n, r))).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    fn about(&mut self, subject: Subject) -> impl Iterator<Item = (&Rule, &mut Tally)> {
        let all = self.rules.iter_mut().filter(move |(rule, _)| rule.action.subject() == subject);
        all.map(|(rule, tally)| (&*rule, tally))
    }

    /// What is to happen to a command.
    pub(super) fn command(&mut self, sqid: u16, sqe: &Sqe) -> Effects {
        let mut effects = Effects::default();
        for (rule, tally) in self.about(Subject::Command) {
            if !rule.when.now && rule.when.is_about(sqid, sqe) && tally.pass(&rule.when) {
                log::info!(
                    "queue {sqid} command {}, opcode {:#04x}: {}",
                    sqe.cid.get(),
                    sqe.opcode,
                    rule.text
                );
                effects.add(&rule.action, &mut tally.random);
            }
        }
        effects
    }

    /// What is to happen as soon as the script is set.
    pub(super) fn now(&mut self) -> Effects {
        let mut effects = Effects::default();
        for (rule, tally) in self.about(Subject::Command).filter(|(rule, _)| rule.when.now) {
            (tally.met, tally.done) = (1, 1);
            effects.add(&rule.action, &mut tally.random);
        }
        effects
    }

    /// Changes the data of an Identify command.
    pub(super) fn identify(&mut self, command: &Identify, data: &mut [u8]) {
        for (rule, _) in &self.rules {
            if let Action::Limit { limit, max } = &rule.action {
                limit.in_identify(command.cns, data, *max);
            }
        }
        for (rule, tally) in self.about(Subject::Identify) {
            let meant = rule.when.is_about_identify(command.cns, command.csi, command.nsid);
            let Action::Identify { offset, fill } = &rule.action else { continue };
            let Some(field) = data.get_mut(*offset..*offset + fill.len()) else { continue };
            if meant && tally.pass(&rule.when) {
                match fill {
                    Fill::Bytes(bytes) => field.copy_from_slice(bytes),
                    Fill::Random(_) => tally.random.fill(field),
                }
            }
        }
    }

    /// What CAP reads as.
    pub(super) fn cap(&self, right: Cap) -> Cap {
        self.rules.iter().fold(right, |cap, (rule, _)| match &rule.action {
            Action::Limit { limit, max } => limit.in_cap(cap, *max),
            _ => cap,
        })
    }

    /// CC.EN changes: whether CSTS.RDY does not follow.
    pub(super) fn keeps_ready(&mut self, enable: bool) -> bool {
        let subject = if enable { Subject::Enable } else { Subject::Disable };
        // Each is counted, whatever the others say.
        self.about(subject).fold(false, |keeps, (rule, tally)| tally.pass(&rule.when) || keeps)
    }

    /// All rules, and how often they were met.
    pub(super) fn report(&self) -> Vec<RuleReport> {
        let report = |(rule, tally): &(Rule, Tally)| RuleReport {
            line: rule.line,
            rule: rule.text.clone(),
            met: tally.met,
            done: tally.done,
        };
        self.rules.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_kv::identify::{cns, SIZE};
    use nvme_kv::{kv, Key};

    fn engine(script: &str) -> Engine {
        Engine::new(script.parse().unwrap())
    }

    fn exist(key: &str) -> Sqe {
        kv::Command::Exist { key: Key::new(key.as_bytes()).unwrap() }.encode(3, 1)
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let run = |seed: u64| {
            let mut e = engine(&format!("seed {seed}\ndrop chance=0.5\ncid random chance=0.3\ndw0 random"));
            (0..200).map(|_| e.command(1, &exist("a"))).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        // A rule draws the same whatever stands before it matches.
        let drops = |script: &str| {
            let mut e = engine(script);
            (0..200).map(|_| e.command(1, &exist("a")).drop).collect::<Vec<_>>()
        };
        let (with, without) = ("dw0 random\ndrop chance=0.5", "dw0 random op=list\ndrop chance=0.5");
        assert_eq!(drops(with), drops(without));
    }

    #[test]
    fn rules_are_counted_each_for_itself() {
        let mut e = engine("drop key=a every=2\nphase prefix=a\nfatal now");
        let met = [exist("a"), exist("ab"), exist("b"), exist("a")].map(|sqe| e.command(1, &sqe).drop);
        assert_eq!(met, [false, false, false, true]);
        let counts = |e: &Engine| e.report().iter().map(|r| (r.met, r.done)).collect::<Vec<_>>();
        assert_eq!(counts(&e), [(2, 1), (3, 3), (0, 0)]);
        assert!(e.now().fatal && !e.command(1, &exist("a")).fatal);
        assert_eq!(counts(&e)[2], (1, 1));
        assert_eq!((e.report()[1].line, &*e.report()[1].rule), (2, "phase prefix=a"));
    }

    #[test]
    fn identify_is_changed_where_a_rule_says_so() {
        let mut e = engine("identify 1 0x0102 cns=1 count=1\nlimit mdts max\nidentify 4090 random:6 cns=5");
        let mut identify = |cns| {
            let mut data = [0; SIZE];
            e.identify(&Identify { cns, ..Identify::default() }, &mut data);
            data
        };
        let first = identify(cns::CONTROLLER);
        assert_eq!((&first[..4], first[77]), (&[0, 1, 2, 0][..], 0xff));
        let second = identify(cns::CONTROLLER);
        assert_eq!((&second[..4], second[77]), (&[0; 4][..], 0xff));
        let other = identify(cns::CSI_NAMESPACE);
        assert!(other[..4090] == [0; 4090] && other[4090..] != [0; 6]);
    }

    #[test]
    fn ready_and_cap_are_kept_back() {
        let mut e = engine("never-ready after=1 count=1\nlimit mqes 0\nlimit to max");
        let enables = [0; 3].map(|_| e.keeps_ready(true));
        assert_eq!((enables, e.keeps_ready(false)), ([false, true, false], false));
        let cap = e.cap(Cap(0).with_mqes(99).with_dstrd(3));
        assert_eq!(cap, Cap(0).with_to(0xff).with_dstrd(3));
    }
}
