// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts: one rule a line.

use super::rule::{Action, Rule, Subject, Value, When};
use super::words::{self, Word};
use nvme_kv::identify::SIZE;
use std::collections::VecDeque;
use std::str::FromStr;
use std::time::Duration;

/// Rules that one script may have: all are looked at for each command.
const MAX_RULES: usize = 1024;
/// How long a completion that is to be overtaken waits when nothing overtakes it.
const WITHIN: Duration = Duration::from_millis(100);
/// How long a completion is torn.
const TORN: Duration = Duration::from_millis(1);
/// Most copies of a completion.
const MAX_TIMES: u64 = 1000;

/// What is wrong with a script.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Line, from 1 on.
    pub line: usize,
    /// A sentence: what is wrong, and what would be right.
    pub problem: String,
}

/// How a controller is to misbehave; made of text with [`str::parse`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    pub(super) seed: u64,
    pub(super) rules: Vec<Rule>,
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let mut seeded = false;
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<_> = text.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
            let parsed = match words[..] {
                [] => Ok(()),
                ["seed", ..] if seeded => Err("there is a seed already; a script has one".to_owned()),
                ["seed", number] => {
                    seeded = true;
                    words::number(number, 0, u64::MAX).map(|seed| script.seed = seed)
                }
                ["seed", ..] => Err("a seed is one number: seed N".to_owned()),
                _ if script.rules.len() >= MAX_RULES => {
                    Err(format!("a script has {MAX_RULES} rules at most"))
                }
                _ => rule(line, &words).map(|rule| script.rules.push(rule)),
            };
            parsed.map_err(|problem| ScriptError { line, problem })?;
        }
        Ok(script)
    }
}

/// What is left of a line: words alone, and words of the form `name=value`.
struct Rest<'a> {
    name: &'a str,
    plain: VecDeque<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Rest<'a> {
    fn new(name: &'a str, words: &[&'a str]) -> Self {
        let (mut plain, mut options) = (VecDeque::new(), Vec::new());
        for word in words {
            match word.split_once('=') {
                Some(option) => options.push(option),
                None => plain.push_back(*word),
            }
        }
        Self { name, plain, options }
    }

    /// The next word, which must be there.
    fn argument<T>(&mut self, what: &str, parse: impl Fn(&str) -> Word<T>) -> Word<T> {
        let word = self.plain.pop_front();
        parse(word.ok_or_else(|| format!("{} needs {what}", self.name))?)
    }

    /// The next word, if there is one that is not `now`.
    fn argument_or<T>(&mut self, default: T, parse: impl Fn(&str) -> Word<T>) -> Word<T> {
        match self.plain.front() {
            Some(&"now") | None => Ok(default),
            Some(_) => self.argument("", parse),
        }
    }

    /// The value of an option.
    fn option<T>(&mut self, name: &str, parse: impl Fn(&str) -> Word<T>) -> Word<Option<T>> {
        let Some(at) = self.options.iter().position(|(option, _)| *option == name) else { return Ok(None) };
        let (_, value) = self.options.remove(at);
        if self.options.iter().any(|(option, _)| *option == name) {
            return Err(format!("there is {name}= twice"));
        }
        parse(value).map(Some).map_err(|problem| format!("{name}: {problem}"))
    }

    /// Nothing must be left.
    fn end(&self, options: &str) -> Word<()> {
        let has = if options.is_empty() { "nothing else".into() } else { format!("{options} only") };
        if let Some(word) = self.plain.front() {
            return Err(format!("{word:?} is too much; after {} come {has}", self.name));
        }
        match self.options.first() {
            Some((name, _)) => Err(format!("{name}= is unknown here; {} has {has}", self.name)),
            None => Ok(()),
        }
    }
}

fn rule(line: usize, words: &[&str]) -> Word<Rule> {
    let Some((name, rest)) = words.split_first() else { return Err("an empty rule".into()) };
    let mut rest = Rest::new(name, rest);
    let (action, own) = action(&mut rest)?;
    let (when, shared) = when(&mut rest, &action)?;
    let names: Vec<_> = [own, shared].into_iter().filter(|names| !names.is_empty()).collect();
    rest.end(&names.join(", "))?;
    Ok(Rule { line, text: words.join(" "), action, when })
}

/// The action, and the options that it alone has.
fn action(rest: &mut Rest<'_>) -> Word<(Action, &'static str)> {
    let word = |value: u32| move |text: &str| words::value(text, value);
    let action = match rest.name {
        "delay" => Action::Delay(rest.argument("a time, such as 20ms", words::time)?),
        "drop" => Action::Drop,
        "reorder" => return reorder(rest),
        "duplicate" => {
            let times = rest.option("times", |text| words::number(text, 1, MAX_TIMES))?;
            return Ok((Action::Duplicate(times.unwrap_or(1) as u32), "times="));
        }
        "cid" => Action::Cid(rest.argument("a command identifier, +N, -N or random", word(0xffff))?),
        "sqid" => Action::SqId(rest.argument("a queue identifier, +N, -N or random", word(0xffff))?),
        "sqhead" => Action::SqHead(rest.argument("a head, +N, -N or random", word(0xffff))?),
        "dw0" => Action::Dw0(rest.argument_or(Value::Is(u32::MAX), word(u32::MAX))?),
        "phase" => Action::Phase,
        "torn" => Action::Torn(rest.argument_or(TORN, words::time)?),
        "error" => Action::Error(rest.argument("a status, such as internal-error or 0x006", words::status)?),
        "slow" => Action::Slow(rest.argument("bytes a second, such as 1M/s", words::rate)?),
        "fatal" => Action::Fatal,
        "vanish" => return Ok((Action::Vanish(rest.option("back", words::time)?), "now, back=")),
        "never-ready" => Action::NeverReady,
        "stay-ready" => Action::StayReady,
        "identify" => return identify(rest),
        "limit" => {
            let limit = rest.argument("a limit and 0 or max, such as limit mdts 0", words::limit)?;
            let max = rest.argument("0 or max behind the limit", words::extreme)?;
            Action::Limit { limit, max }
        }
        other => {
            return Err(format!(
            "{other:?} is not a fault; there are delay, drop, reorder, duplicate, cid, sqid, sqhead, dw0, \
                 phase, torn, error, slow, fatal, vanish, never-ready, stay-ready, identify, limit, and seed"
        ))
        }
    };
    let own = if action == Action::Fatal { "now" } else { "" };
    Ok((action, own))
}

fn reorder(rest: &mut Rest<'_>) -> Word<(Action, &'static str)> {
    let behind = rest.option("behind", |text| words::number(text, 1, MAX_TIMES))?;
    let within = rest.option("within", words::time)?;
    let action = Action::Reorder { behind: behind.unwrap_or(1) as u32, within: within.unwrap_or(WITHIN) };
    Ok((action, "behind=, within="))
}

fn identify(rest: &mut Rest<'_>) -> Word<(Action, &'static str)> {
    let offset = |text: &str| words::number(text, 0, SIZE as u64 - 1);
    let offset = rest.argument("an offset and bytes, such as identify 77 0xff cns=1", offset)? as usize;
    let fill = rest.argument("bytes behind the offset, such as 0xff or random:4", words::fill)?;
    if offset + fill.len() > SIZE {
        return Err(format!("{} bytes from {offset} on are more than the {SIZE} that there are", fill.len()));
    }
    Ok((Action::Identify { offset, fill }, "cns=, csi=, nsid="))
}

/// The conditions, and which there are.
fn when(rest: &mut Rest<'_>, action: &Action) -> Word<(When, &'static str)> {
    let mut when = When::default();
    let subject = action.subject();
    if subject == Subject::Always {
        return Ok((when, ""));
    }
    let immediate = matches!(action, Action::Fatal | Action::Vanish(_));
    if immediate && rest.plain.front() == Some(&"now") {
        rest.plain.pop_front();
        when.now = true;
        return Ok((when, ""));
    }
    let names = match subject {
        Subject::Command => {
            about_command(rest, &mut when)?;
            "op=, queue=, nsid=, key=, prefix=, after=, every=, count=, chance="
        }
        Subject::Identify => {
            when.cns = rest.option("cns", |text| words::fitting(text, u8::MAX))?;
            when.csi = rest.option("csi", |text| words::fitting(text, u8::MAX))?;
            when.nsid = rest.option("nsid", |text| words::fitting(text, u32::MAX))?;
            "after=, every=, count=, chance="
        }
        Subject::Enable | Subject::Disable | Subject::Always => "after=, every=, count=, chance=",
    };
    let number = |min| move |text: &str| words::number(text, min, u64::MAX);
    when.after = rest.option("after", number(0))?.unwrap_or(when.after);
    when.every = rest.option("every", number(1))?.unwrap_or(when.every);
    when.count = rest.option("count", number(1))?.unwrap_or(when.count);
    when.chance = rest.option("chance", words::chance)?.unwrap_or(when.chance);
    Ok((when, names))
}

fn about_command(rest: &mut Rest<'_>, when: &mut When) -> Word<()> {
    when.operation = rest.option("op", words::operation)?;
    when.queues = rest.option("queue", words::queues)?;
    when.nsid = rest.option("nsid", |text| words::fitting(text, u32::MAX))?;
    when.key = rest.option("key", words::key)?;
    when.prefix = rest.option("prefix", words::key)?;
    if when.key.is_some() && when.prefix.is_some() {
        return Err("key= and prefix= exclude each other".into());
    }
    let admin = when.operation.is_some_and(|operation| operation.admin);
    if admin && (when.key.is_some() || when.prefix.is_some()) {
        return Err("admin commands have no key".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Fill, Operation, CERTAIN};
    use super::*;
    use nvme_kv::{Key, Status};
    use proptest::prelude::*;

    fn one(text: &str) -> Rule {
        let script: Script = text.parse().unwrap();
        assert_eq!(script.rules.len(), 1);
        script.rules[0].clone()
    }

    #[test]
    fn a_script_is_lines_of_rules_and_remarks() {
        let text = "# first\n\nseed 0x2a\n  drop   op=store every=3   # lost\n\tfatal now\r\n";
        let script: Script = text.parse().unwrap();
        assert_eq!((script.seed, script.rules.len()), (42, 2));
        assert_eq!((script.rules[0].line, &*script.rules[0].text), (4, "drop op=store every=3"));
        assert!(script.rules[1].when.now && script.rules[1].line == 5);
        assert_eq!("".parse(), Ok(Script::default()));
    }

    #[test]
    fn every_fault_can_be_written() {
        for (text, action) in [
            ("delay 20ms", Action::Delay(Duration::from_millis(20))),
            ("drop", Action::Drop),
            ("reorder", Action::Reorder { behind: 1, within: WITHIN }),
            ("reorder behind=3 within=1s", Action::Reorder { behind: 3, within: Duration::from_secs(1) }),
            ("duplicate", Action::Duplicate(1)),
            ("duplicate times=3", Action::Duplicate(3)),
            ("cid +1", Action::Cid(Value::Plus(1))),
            ("sqid 9", Action::SqId(Value::Is(9))),
            ("sqhead 0xffff", Action::SqHead(Value::Is(0xffff))),
            ("dw0", Action::Dw0(Value::Is(u32::MAX))),
            ("dw0 random", Action::Dw0(Value::Random)),
            ("phase", Action::Phase),
            ("torn", Action::Torn(TORN)),
            ("torn 5ms", Action::Torn(Duration::from_millis(5))),
            ("error internal-error", Action::Error(Status::INTERNAL_ERROR)),
            ("slow 1M/s", Action::Slow(1 << 20)),
            ("fatal", Action::Fatal),
            ("vanish", Action::Vanish(None)),
            ("vanish now back=2s", Action::Vanish(Some(Duration::from_secs(2)))),
            ("never-ready count=1", Action::NeverReady),
            ("stay-ready", Action::StayReady),
            ("identify 77 0xff cns=1", Action::Identify { offset: 77, fill: Fill::Bytes(vec![0xff]) }),
            ("limit mdts max", Action::Limit { limit: words::limit("mdts").unwrap(), max: true }),
        ] {
            assert_eq!(one(text).action, action, "{text}");
        }
    }

    #[test]
    fn conditions_can_be_combined() {
        let text = "drop op=store queue=1-4 nsid=2 prefix=0x00ff after=10 every=3 count=5 chance=50%";
        let expected = When {
            operation: Some(Operation { admin: false, opcode: 1 }),
            queues: Some(1..=4),
            nsid: Some(2),
            prefix: Some(Key::new(&[0, 0xff]).unwrap()),
            after: 10,
            every: 3,
            count: 5,
            chance: CERTAIN / 2,
            ..When::default()
        };
        assert_eq!(one(text).when, expected);
        assert_eq!(one("drop key=a=b").when.key, Some(Key::new(b"a=b").unwrap()));
        let when = one("identify 0 random:8 cns=5 csi=1 nsid=3").when;
        assert_eq!((when.cns, when.csi, when.nsid), (Some(5), Some(1), Some(3)));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, words) in [
            ("drop\ndorp", 2, "\"dorp\" is not a fault; there are delay, drop"),
            ("drop evry=3", 1, "evry= is unknown here; drop has op=, queue="),
            ("drop 3", 1, "\"3\" is too much; after drop come op="),
            ("drop now", 1, "\"now\" is too much"),
            ("delay", 1, "delay needs a time, such as 20ms"),
            ("delay 20", 1, "\"20\" is not a time"),
            ("drop op=stroe", 1, "op: \"stroe\" is not an operation; there are store"),
            ("drop op=store op=list", 1, "there is op= twice"),
            ("drop key=a prefix=b", 1, "key= and prefix= exclude"),
            ("drop op=identify key=a", 1, "admin commands have no key"),
            ("drop every=0", 1, "every: \"0\" is not a number from 1"),
            ("drop chance=2", 1, "chance: \"2\" is not a probability"),
            ("fatal now op=store", 1, "op= is unknown here"),
            ("never-ready op=store", 1, "op= is unknown here; never-ready has after="),
            ("identify 4095 ones:2", 1, "2 bytes from 4095 on are more than the 4096"),
            ("identify 1", 1, "identify needs bytes behind the offset"),
            ("limit mdts 0 every=2", 1, "every= is unknown here; limit has nothing else"),
            ("limit mdts", 1, "0 or max"),
            ("limit size 0", 1, "\"size\" is not a limit; there are mqes"),
            ("error success", 1, "\"success\" is not a status"),
            ("seed 1\nseed 2", 2, "there is a seed already"),
            ("seed", 1, "a seed is one number"),
            ("duplicate times=1001", 1, "times: \"1001\" is not a number from 1"),
            ("=", 1, "\"=\" is not a fault"),
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert!(error.line == line && error.problem.contains(words), "{text}: {error}");
            assert!(error.to_string().starts_with(&format!("line {line}: ")));
        }
        let long = "drop\n".repeat(MAX_RULES + 1);
        assert_eq!(long.parse::<Script>().unwrap_err().line, MAX_RULES + 1);
    }

    proptest! {
        #[test]
        fn no_text_is_too_bad(text in "([a-z0-9-]{0,9}[ =:%/+\n]){0,30}", noise in "\\PC{0,80}") {
            let _ = text.parse::<Script>();
            let _ = noise.parse::<Script>();
            for name in ["delay", "cid", "identify 0", "limit", "slow", "drop op=io:", "drop key="] {
                let _ = format!("{name} {noise}").parse::<Script>();
                let _ = format!("{name}{noise}").parse::<Script>();
            }
        }
    }
}
