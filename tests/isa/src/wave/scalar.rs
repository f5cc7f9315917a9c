// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scalar instructions.

use super::action::Action;
use super::pending::Counter;
use super::{Context, State, Wave};
use crate::decode::{Condition, Instruction, Operand, Scalar, Width, VCC};
use crate::error::Violation;

/// Time that a unit of `s_sleep`, 64 clocks, takes.
const SLEEP: u64 = 16;
/// Clocks of the shader in a unit of time.
const CLOCKS: u64 = 20;

impl Wave {
    pub(super) fn scalar(
        &mut self,
        scalar: &Scalar,
        instruction: &Instruction,
        context: &mut Context,
    ) -> Result<(), Violation> {
        match scalar {
            Scalar::Form { form, to, from } => {
                let [a, b] = [0, 1].map(|n: usize| self.uniform(from[n], form.widths[n]));
                let (value, code) = (form.function)(a, b, self.scc);
                self.set_uniform(*to, value, form.result);
                self.scc = code.unwrap_or(self.scc);
            }
            Scalar::Float { function, to, from } => {
                let [a, b, c] = from.map(|operand| self.uniform(operand, Width::Word) as u32);
                self.set_uniform(*to, function(a, b, c).into(), Width::Word);
            }
            Scalar::Compare { compare, from } => {
                let [a, b] = from.map(|operand| self.uniform(operand, compare.width));
                self.scc = (compare.function)(a, b);
            }
            Scalar::CompareBit { from, bit, width, value } => {
                let bits = if *width == Width::Wide { 64 } else { 32 };
                let bit = self.uniform(*bit, Width::Word) % bits;
                self.scc = (self.uniform(*from, *width) >> bit & 1 == 1) == *value;
            }
            Scalar::SaveExec { function, to, from } => {
                let (old, operand) = (self.exec(), self.mask(*from));
                let lanes = if self.lanes == 64 { u64::MAX } else { u64::from(u32::MAX) };
                let new = function(operand, old) & lanes;
                self.set_mask(*to, old);
                self.set_exec(new);
                self.scc = new != 0;
            }
            Scalar::GetPc { to } => {
                self.set_uniform(*to, Self::following(instruction, context), Width::Wide);
            }
            Scalar::Jump { link, from } => {
                let to = self.uniform(*from, Width::Wide);
                self.set_uniform(*link, Self::following(instruction, context), Width::Wide);
                self.jump(to, context)?;
            }
            Scalar::Branch { condition, distance, link } => {
                if self.holds(*condition) {
                    let from = Self::following(instruction, context);
                    self.set_uniform(*link, from, Width::Wide);
                    self.jump(from.wrapping_add_signed(4 * i64::from(*distance)), context)?;
                }
            }
            Scalar::Clock { to, steady, message } => {
                let value = if *steady { context.now } else { context.now * CLOCKS };
                let Operand::Scalar(to) = *to else { return Ok(()) };
                self.start(Counter::Scalar, Action::Value { to, value, message: *message }, context);
            }
            Scalar::Cycles { to, shift, bits } => {
                let value = (context.now * CLOCKS) >> shift & ((1 << bits) - 1);
                self.set_uniform(*to, value, Width::Word);
            }
            Scalar::Load { to, count, base, offset, immediate } => {
                let base = self.uniform(*base, Width::Wide);
                let addr =
                    base.wrapping_add(self.uniform(*offset, Width::Word)).wrapping_add_signed(*immediate);
                let Operand::Scalar(to) = *to else { return Ok(()) };
                self.start(Counter::Scalar, Action::ScalarLoad { to, count: *count, addr }, context);
            }
            Scalar::Sleep(units) => self.state = State::Asleep(context.now + SLEEP * u64::from(*units)),
            Scalar::Barrier => {
                self.signalled = true;
                self.state = State::AtBarrier;
            }
            Scalar::Signal => self.signalled = true,
            Scalar::AwaitSignal => {
                if !std::mem::take(&mut self.passed) {
                    self.state = State::AtBarrier;
                }
            }
            Scalar::Wait(wait) => self.wait(wait, context)?,
            Scalar::End => {
                self.finish(context)?;
                self.state = State::Ended;
            }
            Scalar::Trap => return Err(Violation::Trap),
            // Scalar loads see memory as it was when the kernel was started, whatever is forgotten.
            Scalar::Invalidate | Scalar::Nothing => {}
        }
        Ok(())
    }

    /// Address of the next instruction.
    fn following(instruction: &Instruction, context: &Context) -> u64 {
        context.base + instruction.line.addr + instruction.line.size
    }

    fn jump(&mut self, to: u64, context: &Context) -> Result<(), Violation> {
        let at = to.checked_sub(context.base).and_then(|addr| context.program.find(addr));
        self.next = at.ok_or(Violation::Jump(to))?;
        Ok(())
    }

    fn holds(&self, condition: Condition) -> bool {
        match condition {
            Condition::Always => true,
            Condition::Scc(value) => self.scc == value,
            Condition::ExecZero(value) => (self.exec() == 0) == value,
            Condition::VccZero(value) => (self.mask(Operand::Scalar(VCC)) == 0) == value,
        }
    }
}
