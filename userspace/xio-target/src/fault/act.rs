// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller doing what a script says. None of this is reached without one.

use super::effect::Effects;
use super::engine::{Engine, RuleReport};
use super::parse::Script;
use super::waiting::{Completion, Postponed, Rest, Waiting, REST};
use crate::controller::{completion, Controller, Outcome, Registers};
use crate::host::DmaFault;
use crate::kv::Step;
use nvme_kv::admin::{self, Identify};
use nvme_kv::regs::{Cap, Csts};
use nvme_kv::{identify, kv, Cqe, Sqe};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Until a command that found too much under way is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// A script in use, and what it made wait.
pub(crate) struct Faults {
    engine: Engine,
    waiting: Waiting,
    /// The controller has vanished, until then or for good.
    absent: Option<Option<Instant>>,
    /// CSTS.RDY is not what it should be.
    unready: bool,
}

impl Faults {
    fn new(script: Script, waiting: Waiting) -> Self {
        Self { engine: Engine::new(script), waiting, absent: None, unready: false }
    }

    /// A queue is gone, or all are: nothing is done for it any more.
    pub(crate) fn forget(&mut self, sqid: Option<u16>) {
        self.waiting.forget(sqid);
    }

    /// Whether the controller has vanished.
    pub(crate) const fn is_absent(&self) -> bool {
        self.absent.is_some()
    }

    /// Whether a queue's commands have to wait.
    pub(crate) fn blocks(&self, sqid: u16) -> bool {
        self.waiting.blocks(sqid)
    }

    /// Changes the data of an Identify command.
    pub(crate) fn identify(&mut self, command: &Identify, data: &mut [u8]) {
        self.engine.identify(command, data);
    }

    /// What CAP reads as.
    pub(crate) fn cap(&self, right: Cap) -> Cap {
        self.engine.cap(right)
    }
}

impl Controller {
    /// Misbehaves as a script says, instead of what an earlier one said.
    pub fn set_faults(&mut self, script: Script) {
        self.clear_faults();
        let waiting = self.faults.take().map(|faults| faults.waiting).unwrap_or_default();
        let mut faults = Faults::new(script, waiting);
        let effects = faults.engine.now();
        self.faults = Some(Box::new(faults));
        self.strike(&effects, Instant::now());
    }

    /// Behaves again: what was held back is done, and a controller that has vanished is back. Completions that were dropped
    /// stay dropped, and a controller that has failed is to be reset.
    pub fn clear_faults(&mut self) {
        let Some(faults) = &mut self.faults else { return };
        let (now, unready) = (Instant::now(), faults.unready);
        faults.waiting.hurry(now);
        let faults = Faults::new(Script::default(), std::mem::take(&mut faults.waiting));
        let old = self.faults.replace(Box::new(faults));
        if old.is_some_and(|old| old.is_absent()) {
            self.reset();
        } else if unready {
            self.be_ready();
        }
        // What still finds no room is done by and by, and only then is there no script.
        self.fault_pass();
    }

    /// The seed and the rules in use; `None` without any.
    pub fn faults(&self) -> Option<(u64, Vec<RuleReport>)> {
        let engine = &self.faults.as_ref().filter(|faults| !faults.engine.is_empty())?.engine;
        Some((engine.seed(), engine.report()))
    }

    /// Whether the controller has vanished: its registers read as ones. Looks whether it is time to come back.
    pub fn is_absent(&mut self) -> bool {
        self.come_back(Instant::now());
        self.faults.as_ref().is_some_and(|faults| faults.is_absent())
    }

    /// Whether the controller has vanished, and nobody has looked since whether it is time to come back.
    pub(crate) const fn has_vanished(&self) -> bool {
        self.registers.csts.is_absent()
    }

    fn come_back(&mut self, now: Instant) {
        let Some(faults) = &mut self.faults else { return };
        if faults.absent.flatten().is_some_and(|until| until <= now) {
            log::warn!("back again");
            faults.absent = None;
            self.reset();
        }
    }

    /// CC.EN changes: whether CSTS.RDY stays as it is meant to be otherwise. All else is as it should be.
    pub(crate) fn keeps_ready(&mut self, enable: bool) -> bool {
        let Some(faults) = &mut self.faults else { return false };
        faults.unready = faults.engine.keeps_ready(enable);
        let unready = faults.unready;
        if unready {
            log::warn!("{}", if enable { "enabled, but not ready" } else { "disabled, but still ready" });
            self.disable();
            self.registers.csts = Csts::default().with_rdy((!enable).into());
        }
        unready
    }

    /// CSTS.RDY becomes what CC.EN asks for.
    fn be_ready(&mut self) {
        if self.registers.cc.en() == 1 {
            self.enable();
        } else {
            self.registers.csts = Csts::default();
        }
    }

    /// What happens to the whole controller; whether anything does.
    fn strike(&mut self, effects: &Effects, now: Instant) -> bool {
        if let Some(back) = effects.vanish {
            log::warn!("vanished");
            self.disable();
            self.registers = Registers::default();
            self.registers.csts = Csts::ABSENT;
            if let Some(faults) = &mut self.faults {
                faults.absent = Some(back.map(|time| now + time));
            }
        } else if effects.fatal {
            self.break_down();
        }
        effects.fatal || effects.vanish.is_some()
    }

    /// One pass over what waits; the number of commands that were completed.
    pub(crate) fn fault_pass(&mut self) -> usize {
        let now = Instant::now();
        self.come_back(now);
        let done = self.release(now).unwrap_or_else(|fault| {
            self.fail(fault);
            0
        });
        if self.faults.as_ref().is_some_and(|faults| faults.engine.is_empty() && faults.waiting.is_empty()) {
            self.faults = None;
        }
        done
    }

    fn release(&mut self, now: Instant) -> Result<usize, DmaFault> {
        let mut done = 0;
        if !self.is_running() {
            return Ok(done);
        }
        while let Some(rest) = self.take(|waiting| waiting.due_rest(now)) {
            self.host.memory.write(rest.addr, &rest.bytes)?;
        }
        while let Some(command) = self.take(|waiting| waiting.due_command(now)) {
            done += self.resume(command, now)?;
        }
        while let Some(completion) = self.take(|waiting| waiting.due_completion(now)) {
            self.queues.landed(completion.sqid);
            self.post_badly(completion)?;
            self.queues.signal(completion.sqid, &self.features, &self.host);
            done += 1;
        }
        self.post_copies()?;
        Ok(done)
    }

    fn take<T>(&mut self, take: impl FnOnce(&mut Waiting) -> Option<T>) -> Option<T> {
        self.faults.as_mut().and_then(|faults| take(&mut faults.waiting))
    }

    fn waiting(&mut self, change: impl FnOnce(&mut Waiting)) {
        if let Some(faults) = &mut self.faults {
            change(&mut faults.waiting);
        }
    }

    /// Executes a command that was fetched, as far as the script lets it.
    pub(crate) fn execute_badly(&mut self, sqid: u16, sqe: &Sqe) -> Step {
        let Some(faults) = &mut self.faults else { return self.execute(sqid, sqe) };
        let effects = match faults.waiting.kept(sqid) {
            Some(effects) => effects,
            None => faults.engine.command(sqid, sqe),
        };
        let now = Instant::now();
        if self.strike(&effects, now) {
            return Step::Away;
        }
        let Some(time) = effects.transfer(transfer_len(sqid, sqe)) else {
            let step = self.perform(sqid, sqe, effects);
            if matches!(step, Step::Held) {
                self.waiting(|waiting| waiting.keep(sqid, effects));
            }
            return step;
        };
        self.queues.started(sqid);
        let effects = Effects { rate: None, ..effects };
        self.waiting(|waiting| waiting.postpone(Postponed { due: now + time, sqid, sqe: *sqe, effects }));
        Step::Away
    }

    fn perform(&mut self, sqid: u16, sqe: &Sqe, effects: Effects) -> Step {
        let step = match effects.error {
            Some(status) => Step::Done(Err(status)),
            None => self.execute(sqid, sqe),
        };
        if effects.changes_completion() && !matches!(step, Step::Held) {
            self.waiting(|waiting| waiting.remember(sqid, sqe.cid.get(), effects));
        }
        step
    }

    /// Executes a command that was postponed.
    fn resume(&mut self, command: Postponed, now: Instant) -> Result<usize, DmaFault> {
        let Postponed { sqid, sqe, effects, .. } = command;
        self.queues.landed(sqid);
        match self.perform(sqid, &sqe, effects) {
            Step::Done(outcome) => {
                self.complete(sqid, sqe.cid.get(), outcome)?;
                self.queues.signal(sqid, &self.features, &self.host);
                return Ok(1);
            }
            Step::Started if sqid == 0 => {}
            Step::Started => self.queues.started(sqid),
            Step::Held | Step::Away => {
                self.queues.started(sqid);
                let again = Postponed { due: now + AGAIN, sqid, sqe, effects };
                self.waiting(|waiting| waiting.postpone(again));
            }
        }
        Ok(0)
    }

    /// Answers a command as the script says.
    pub(crate) fn answer_badly(&mut self, sqid: u16, cid: u16, outcome: Outcome) -> Result<(), DmaFault> {
        let effects = self.take(|waiting| Some(waiting.recall(sqid, cid))).unwrap_or_default();
        if effects.drop {
            return Ok(());
        }
        let completion = Completion { sqid, cid, outcome, forgery: effects.forgery, times: effects.times };
        let Some((time, behind)) = effects.wait() else { return self.post_badly(completion) };
        // Room is kept for it.
        self.queues.started(sqid);
        self.waiting(|waiting| waiting.hold(Instant::now() + time, behind, completion));
        Ok(())
    }

    /// Posts a completion, and those that it is the last to overtake.
    fn post_badly(&mut self, completion: Completion) -> Result<(), DmaFault> {
        let sqid = completion.sqid;
        let mut next = Some(completion);
        while let Some(completion) = next {
            self.post_entry(&completion)?;
            self.waiting(|waiting| {
                (0..completion.times).for_each(|_| waiting.copy(completion));
                waiting.posted(sqid);
            });
            next = self.take(|waiting| waiting.overtaken(sqid));
            if next.is_some() {
                self.queues.landed(sqid);
            }
        }
        self.post_copies()
    }

    /// Posts copies as far as there is room beyond what is kept for commands under way.
    fn post_copies(&mut self) -> Result<(), DmaFault> {
        for _ in 0..self.faults.as_ref().map_or(0, |faults| faults.waiting.copies()) {
            let Some(copy) = self.take(Waiting::next_copy) else { break };
            match self.queues.room_for(copy.sqid, &self.host)? {
                Ok(true) => {
                    self.post_entry(&copy)?;
                    self.queues.signal(copy.sqid, &self.features, &self.host);
                }
                Ok(false) => self.waiting(|waiting| waiting.copy(copy)),
                Err(_) => {
                    self.bad_doorbell(copy.sqid);
                    self.waiting(|waiting| waiting.copy(copy));
                }
            }
        }
        Ok(())
    }

    fn post_entry(&mut self, what: &Completion) -> Result<(), DmaFault> {
        let Completion { sqid, cid, outcome, forgery, .. } = *what;
        let right = |sqhd| completion(sqid, sqhd, cid, outcome);
        let Some((addr, cqe)) = self.queues.place(sqid, right)? else { return Ok(()) };
        if let Some(rest) = self.take(|waiting| waiting.rest_at(addr)) {
            self.host.memory.write(rest.addr, &rest.bytes)?;
        }
        let cqe = forgery.apply(cqe);
        match forgery.torn {
            None => self.host.memory.post(addr, &cqe),
            Some(time) => self.tear(sqid, addr, &cqe, time),
        }
    }

    /// Writes the status dword now, and the rest later.
    fn tear(&mut self, sqid: u16, addr: u64, cqe: &Cqe, time: Duration) -> Result<(), DmaFault> {
        let (first, last) = cqe.as_bytes().split_at(REST);
        let mut bytes = [0; REST];
        bytes.copy_from_slice(first);
        self.host.memory.write(addr.wrapping_add(REST as u64), last)?;
        self.waiting(|waiting| waiting.tear(Rest { due: Instant::now() + time, sqid, addr, bytes }));
        Ok(())
    }
}

/// Bytes that a command asks to be moved.
fn transfer_len(sqid: u16, sqe: &Sqe) -> u64 {
    if sqid != 0 {
        return match sqe.opcode {
            kv::opcode::STORE | kv::opcode::RETRIEVE | kv::opcode::LIST => sqe.dword(10).into(),
            _ => 0,
        };
    }
    match admin::Command::decode(sqe) {
        Ok(admin::Command::Identify(_)) => identify::SIZE as u64,
        Ok(admin::Command::GetLogPage(page)) => page.len(),
        _ => 0,
    }
}
