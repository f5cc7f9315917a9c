// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose turn it is. Waves run a few instructions at a time, in any order; time passes with every instruction, and
//! jumps when all of them sleep.

use super::launch::Launch;
use super::{Device, Machine, Outcome, CODE};
use crate::decode::Operation;
use crate::error::{Error, Result, Violation};
use crate::memory::Memory;
use crate::wave::{Context, State, Wave};
use std::collections::BTreeSet;

/// Most instructions of a turn.
const TURN: u64 = 12;

/// A block on the device.
#[derive(Debug)]
struct Block {
    waves: Vec<Wave>,
    lds: Vec<u8>,
}

impl Machine {
    pub(super) fn schedule(&mut self, launch: &Launch, device: &mut dyn Device) -> Result<Outcome> {
        let begin = self.now;
        let entry = self.program.find(launch.kernel.entry);
        let entry = entry.ok_or_else(|| launch.error("its first instruction is not there".into()))?;
        let mut executed = vec![false; self.program.instructions.len()];
        let mut blocks = Vec::new();
        let (mut started, mut instructions) = (0, 0);
        let mut device_next = device.poll(self.now, true)?;
        loop {
            while blocks.len() < self.resident && started < launch.grid.blocks {
                blocks.push(self.start_block(launch, started, entry));
                started += 1;
            }
            if blocks.is_empty() {
                break;
            }
            if instructions > self.limit {
                return Err(Error::Limit { instructions, waves: self.places(&blocks) });
            }
            instructions += self.turn(&mut blocks, device_next, &mut executed)?;
            let rung = self.memory.lock().take_rung();
            if rung || device_next.is_some_and(|next| next <= self.now) {
                device_next = device.poll(self.now, rung)?;
            }
            blocks.retain(|block| block.waves.iter().any(|wave| wave.state != State::Ended));
        }
        Ok(Outcome {
            instructions,
            time: self.now - begin,
            stale: Vec::new(),
            executed: self.names(&executed),
        })
    }

    fn start_block(&mut self, launch: &Launch, block: u32, entry: usize) -> Block {
        let rng = &mut self.rng;
        let waves = (0..launch.waves_of_block()).map(|index| launch.wave(block, index, entry, rng)).collect();
        let rubbish = rng.next() as u8;
        Block { waves, lds: vec![rubbish; launch.kernel.group_size] }
    }

    /// One wave's turn; how many instructions it carried out.
    fn turn(&mut self, blocks: &mut [Block], device_next: Option<u64>, executed: &mut [bool]) -> Result<u64> {
        let memory = self.memory.clone();
        let mut memory = memory.lock();
        self.perform_due(blocks, &mut memory)?;
        let Some((block, wave)) = self.choose(blocks, device_next)? else { return Ok(0) };
        let turn = 1 + self.rng.below(TURN);
        let Block { waves, lds } = &mut blocks[block];
        let mut done = 0;
        let signalled = waves[wave].signalled;
        while done < turn
            && waves[wave].state == State::Running
            && waves[wave].signalled == signalled
            && !memory.rings()
        {
            if let Some(seen) = executed.get_mut(waves[wave].next) {
                *seen = true;
            }
            let program = &self.program;
            let mut context =
                Context { program, base: CODE, memory: &mut memory, lds, now: self.now, rng: &mut self.rng };
            waves[wave].step(&mut context)?;
            self.now += 1;
            done += 1;
            if waves[wave].due().is_some_and(|due| due <= self.now) {
                context.now = self.now;
                let performed = waves[wave].perform_due(&mut context);
                performed.map_err(|what| late(&waves[wave], what))?;
            }
        }
        if waves[wave].signalled || waves[wave].state == State::Ended {
            self.meet(&mut blocks[block], &mut memory)?;
        }
        Ok(done)
    }

    /// Accesses whose time has come.
    fn perform_due(&mut self, blocks: &mut [Block], memory: &mut Memory) -> Result<()> {
        for Block { waves, lds } in blocks {
            for wave in waves.iter_mut().filter(|wave| wave.due().is_some_and(|due| due <= self.now)) {
                let (program, rng) = (&self.program, &mut self.rng);
                let mut context = Context { program, base: CODE, memory, lds, now: self.now, rng };
                wave.perform_due(&mut context).map_err(|what| late(wave, what))?;
            }
        }
        Ok(())
    }

    /// A wave that can go on. When all of them sleep, time passes; `None` then says that something may have happened.
    fn choose(&mut self, blocks: &mut [Block], device_next: Option<u64>) -> Result<Option<(usize, usize)>> {
        let mut ready = Vec::new();
        let mut next = device_next;
        for (b, block) in blocks.iter_mut().enumerate() {
            for (w, wave) in block.waves.iter_mut().enumerate() {
                match wave.state {
                    State::Asleep(until) if until <= self.now => wave.state = State::Running,
                    State::Asleep(until) => next = Some(next.map_or(until, |n| n.min(until))),
                    _ => {}
                }
                if wave.state == State::Running {
                    ready.push((b, w));
                } else if let Some(due) = wave.due() {
                    next = Some(next.map_or(due, |n| n.min(due)));
                }
            }
        }
        if let Some(chosen) = ready.get(self.rng.below(ready.len() as u64) as usize) {
            return Ok(Some(*chosen));
        }
        match next {
            Some(next) => {
                self.now = self.now.max(next);
                Ok(None)
            }
            None => Err(Error::Deadlock(self.places(blocks))),
        }
    }

    /// Lets the waves of a block go on when all of them came to the barrier, or ended.
    fn meet(&mut self, block: &mut Block, memory: &mut Memory) -> Result<()> {
        let Block { waves, lds } = block;
        let all = waves.iter().all(|wave| wave.signalled || wave.state == State::Ended);
        if !all || waves.iter().all(|wave| wave.state == State::Ended) {
            return Ok(());
        }
        for wave in waves.iter_mut() {
            wave.signalled = false;
            match wave.state {
                State::AtBarrier => wave.state = State::Running,
                State::Ended => {}
                // It told of its coming, and does something else before it waits.
                State::Running | State::Asleep(_) => wave.passed = true,
            }
            if wave.arch.is_cdna() {
                let (program, rng) = (&self.program, &mut self.rng);
                let mut context = Context { program, base: CODE, memory, lds, now: self.now, rng };
                wave.order_stores(&mut context).map_err(|what| late(wave, what))?;
            }
        }
        Ok(())
    }

    /// Where waves are, for messages.
    fn places(&self, blocks: &[Block]) -> String {
        let place = |wave: &Wave| {
            let at = wave.viewer.origin;
            let text = self.program.instructions.get(wave.next).map(|i| i.line.text()).unwrap_or_default();
            format!("block {} wave {} at {:#x} ({text}) is {:?}", at.block, at.wave, at.addr, wave.state)
        };
        blocks.iter().flat_map(|block| block.waves.iter().map(place)).collect::<Vec<_>>().join("; ")
    }

    fn names(&self, executed: &[bool]) -> BTreeSet<String> {
        let run = self.program.instructions.iter().zip(executed).filter(|(_, run)| **run);
        let names = run.flat_map(|(instruction, _)| {
            let second = match &instruction.operation {
                Operation::Dual(_) => instruction.line.rest.split_once(":: ").map(|(_, rest)| rest),
                _ => None,
            };
            let second = second.and_then(|rest| rest.split_whitespace().next());
            [Some(instruction.line.mnemonic.as_str()), second]
        });
        names.flatten().map(str::to_owned).collect()
    }
}

/// An access that failed later than its instruction.
fn late(wave: &Wave, what: Violation) -> Error {
    let at = wave.viewer.origin;
    let text = "an access that was issued before".into();
    Error::Execution { block: at.block, wave: at.wave, addr: at.addr, text, what }
}
