// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scratch memory, and flat accesses that reach it or LDS.

use super::action::{Action, LaneAccess};
use super::pending::Counter;
use super::{Context, Wave};
use crate::decode::{Access, Memory, Operand, PRIVATE_WINDOW};
use crate::error::Violation;

/// Bytes of a window that flat addresses reach LDS or scratch memory through.
pub(super) const WINDOW: u64 = 1 << 32;

impl Wave {
    /// A flat access all of whose lanes reach LDS, or scratch memory.
    pub(super) fn through_window(
        &mut self,
        memory: &Memory,
        mut lanes: Vec<LaneAccess>,
        base: u64,
        context: &mut Context,
    ) -> Result<(), Violation> {
        for lane in &mut lanes {
            let inside = lane.addr.checked_sub(base).filter(|addr| *addr < WINDOW);
            let mixed = || Violation::Unsupported("a flat access to memory of two kinds at once".into());
            lane.addr = inside.ok_or_else(mixed)?;
        }
        if base == PRIVATE_WINDOW {
            return self.scratch(memory, &lanes, context);
        }
        match memory.access {
            Access::Load => {
                let Operand::Vector(to) = memory.to else { return Ok(()) };
                self.start(Counter::Lds, Action::LdsLoad { to, element: memory.element, lanes }, context);
            }
            Access::Store => {
                let data = lanes.iter().map(|l| self.element(memory.data, memory.element, l.lane)).collect();
                self.start(Counter::Lds, Action::LdsStore { element: memory.element, lanes, data }, context);
            }
            Access::Atomic { .. } => {
                return Err(Violation::Unsupported("a flat atomic on LDS".into()));
            }
        }
        Ok(())
    }

    /// Scratch memory is the lane's own: nothing can be seen of when it is accessed.
    pub(super) fn scratch(
        &mut self,
        memory: &Memory,
        lanes: &[LaneAccess],
        context: &mut Context,
    ) -> Result<(), Violation> {
        let size = self.private.len() / self.lanes;
        let bytes = usize::from(memory.element.bytes);
        let mut loaded = Vec::new();
        for lane in lanes {
            let write = matches!(memory.access, Access::Store);
            let fault = Violation::Fault { addr: lane.addr, len: bytes as u32, write };
            let at = usize::try_from(lane.addr)
                .ok()
                .filter(|at| at + bytes <= size)
                .ok_or_else(|| fault.clone())?;
            let range = lane.lane * size + at..lane.lane * size + at + bytes;
            match memory.access {
                Access::Store => {
                    let data = self.element(memory.data, memory.element, lane.lane);
                    let to = self.private.get_mut(range).ok_or(fault)?;
                    to.copy_from_slice(data.get(..bytes).unwrap_or_default());
                }
                Access::Load => {
                    let mut data = [0; 16];
                    let from = self.private.get(range).ok_or(fault)?;
                    data.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                    loaded.push((lane.lane, data));
                }
                Access::Atomic { .. } => {
                    return Err(Violation::Unsupported("an atomic on scratch memory".into()))
                }
            }
        }
        let Operand::Vector(to) = memory.to else { return Ok(()) };
        for (lane, data) in loaded {
            self.put_element(to, memory.element, lane, data.get(..bytes).unwrap_or_default());
        }
        // It has to be waited for all the same.
        for register in to..to + memory.element.registers() {
            let values = lanes.iter().map(|l| (l.lane, self.vector_register(register, l.lane))).collect();
            self.start(Counter::Loads, Action::Lanes { to: register, values }, context);
        }
        Ok(())
    }
}
