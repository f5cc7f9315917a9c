// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions that access memory and LDS.

use super::action::{Action, LaneAccess};
use super::pending::Counter;
use super::private::WINDOW;
use super::{lanes_of, Context, Wave};
use crate::decode::{
    Access, Cache, Element, Function, Lds, Memory, Operand, Part, Permute, Rest, Space, Width,
    PRIVATE_WINDOW, SCRATCH_RESOURCE, SHARED_WINDOW,
};
use crate::error::Violation;
use crate::memory::Kind;

impl Wave {
    pub(super) fn memory(&mut self, memory: &Memory, context: &mut Context) -> Result<(), Violation> {
        self.make_room(context)?;
        let mut lanes = self.addresses(memory);
        match memory.space {
            Space::Scratch => return self.scratch(memory, &lanes, context),
            Space::Buffer => {
                let Operand::Scalar(resource) = memory.resource else { return Ok(()) };
                if self.scalar_register(resource + 3) != SCRATCH_RESOURCE {
                    return Err(Violation::Unsupported("a buffer that is not scratch memory".into()));
                }
                return self.scratch(memory, &lanes, context);
            }
            Space::Flat => {
                let window = |base: u64| move |l: &LaneAccess| l.addr >= base && l.addr - base < WINDOW;
                if lanes.iter().any(window(SHARED_WINDOW)) {
                    return self.through_window(memory, lanes, SHARED_WINDOW, context);
                }
                if lanes.iter().any(window(PRIVATE_WINDOW)) {
                    return self.through_window(memory, lanes, PRIVATE_WINDOW, context);
                }
            }
            Space::Global => {}
        }
        let flat = memory.space == Space::Flat;
        let bytes = u64::from(memory.element.bytes);
        let first = lanes.iter().map(|l| l.addr).min().unwrap_or_default();
        let last = lanes.iter().map(|l| l.addr).max().unwrap_or_default();
        let writes = !matches!(memory.access, Access::Load);
        self.order((first, last.saturating_add(bytes)), writes, context)?;
        match memory.access {
            Access::Load => {
                let Operand::Vector(to) = memory.to else { return Ok(()) };
                let action = Action::Load { to, element: memory.element, lanes, scope: memory.scope };
                self.start_flat(Counter::Loads, action, flat, context);
            }
            Access::Store => {
                let mut handles = Vec::with_capacity(lanes.len());
                let mut at_once = false;
                for lane in &lanes {
                    let data = self.element(memory.data, memory.element, lane.lane);
                    let data = data.get(..usize::from(memory.element.bytes)).unwrap_or_default();
                    context.memory.store(&self.viewer, lane.addr, data, &mut handles)?;
                    at_once |= context.memory.kind(lane.addr) == Some(Kind::Registers);
                }
                if at_once {
                    // Nothing keeps a doorbell from getting there before all else.
                    handles.drain(..).for_each(|handle| context.memory.perform(handle, memory.scope));
                }
                let action = Action::Store { handles, scope: memory.scope };
                self.start_flat(Counter::Stores, action, flat, context);
            }
            Access::Atomic { function, compares, returns } => {
                let wide = memory.element.bytes == 8;
                let width = if wide { Width::Wide } else { Width::Word };
                for lane in &mut lanes {
                    lane.data = self.value(memory.data, width, lane.lane);
                    if let (true, Operand::Vector(n)) = (compares, memory.data) {
                        lane.compare = self.value(Operand::Vector(n + width.registers()), width, lane.lane);
                    }
                }
                let to = match memory.to {
                    Operand::Vector(to) if returns => Some(to),
                    _ => None,
                };
                let counter = if returns { Counter::Loads } else { Counter::Stores };
                let action = Action::Atomic { to, function, wide, lanes, scope: memory.scope };
                self.start_flat(counter, action, flat, context);
            }
        }
        Ok(())
    }

    /// Addresses of all active lanes.
    fn addresses(&self, memory: &Memory) -> Vec<LaneAccess> {
        let lane = |lane: usize| {
            let addr = match (memory.space, memory.base) {
                (Space::Scratch, base) => {
                    let (a, b) =
                        (self.value(memory.address, Width::Word, lane), self.uniform(base, Width::Word));
                    a.wrapping_add(b) & 0xffff_ffff
                }
                (Space::Buffer, base) => {
                    let base = self.uniform(base, Width::Word) / self.lanes as u64;
                    base + self.value(memory.address, Width::Word, lane)
                }
                (_, Operand::Null) => self.value(memory.address, Width::Wide, lane),
                (_, base) => self.uniform(base, Width::Wide).wrapping_add(self.value(
                    memory.address,
                    Width::Word,
                    lane,
                )),
            };
            LaneAccess { lane, addr: addr.wrapping_add_signed(memory.offset), data: 0, compare: 0 }
        };
        lanes_of(self.exec()).map(lane).collect()
    }

    /// Bytes of an element in vector registers.
    pub(super) fn element(&self, from: Operand, element: Element, lane: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        if let Operand::Vector(n) = from {
            for (word, register) in bytes.chunks_exact_mut(4).zip(n..n + element.registers()) {
                word.copy_from_slice(&self.vector_register(register, lane).to_le_bytes());
            }
        }
        if element.half == Some(1) {
            bytes.copy_within(2..4, 0);
        }
        bytes
    }

    /// Puts an element into vector registers.
    pub(super) fn put_element(&mut self, to: u16, element: Element, lane: usize, bytes: &[u8]) {
        let mut words = [0; 16];
        for (to, from) in words.iter_mut().zip(bytes) {
            *to = *from;
        }
        if element.bytes >= 4 {
            for (word, register) in words.chunks_exact(4).zip(to..to + element.registers()) {
                let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                self.set_vector(register, lane, value);
            }
            return;
        }
        let value = match (element.bytes, element.signed) {
            (1, false) => u64::from(words[0]),
            (1, true) => words[0] as i8 as u64,
            (_, false) => u64::from(u16::from_le_bytes([words[0], words[1]])),
            (_, true) => i16::from_le_bytes([words[0], words[1]]) as u64,
        };
        let (part, rest) =
            element.half.map_or((Part::All, Rest::Zero), |half| (Part::Half(half), Rest::Keep));
        self.write(Operand::Vector(to), lane, value & 0xffff_ffff, Width::Word, part, rest);
    }

    pub(super) fn lds(&mut self, lds: &Lds, context: &mut Context) -> Result<(), Violation> {
        self.make_room(context)?;
        let offsets = [Some(lds.offsets.0), lds.offsets.1];
        let registers = lds.element.registers();
        for (n, offset) in offsets.into_iter().flatten().enumerate() {
            let data = lds.data[n % 2];
            let access = |lane: usize| {
                let addr =
                    self.value(lds.address, Width::Word, lane).wrapping_add_signed(offset) & 0xffff_ffff;
                LaneAccess { lane, addr, data: 0, compare: 0 }
            };
            let mut lanes: Vec<_> = lanes_of(self.exec()).map(access).collect();
            let to = match lds.to {
                Operand::Vector(to) => Some(to + registers * n as u16),
                _ => None,
            };
            let action = match (lds.access, to) {
                (Access::Load, Some(to)) => Action::LdsLoad { to, element: lds.element, lanes },
                (Access::Load, None) => continue,
                (Access::Store, _) => {
                    let data = lanes.iter().map(|l| self.element(data, lds.element, l.lane)).collect();
                    Action::LdsStore { element: lds.element, lanes, data }
                }
                (Access::Atomic { function, compares, .. }, to) => {
                    let wide = lds.element.bytes == 8;
                    let width = if wide { Width::Wide } else { Width::Word };
                    for lane in &mut lanes {
                        lane.data = self.value(lds.data[0], width, lane.lane);
                        if compares {
                            lane.compare = self.value(lds.data[1], width, lane.lane);
                        }
                    }
                    Action::LdsAtomic { to, function, wide, lanes }
                }
            };
            self.start(Counter::Lds, action, context);
        }
        Ok(())
    }

    pub(super) fn permute(&mut self, permute: &Permute, context: &mut Context) -> Result<(), Violation> {
        let Operand::Vector(to) = permute.to else { return Ok(()) };
        let exec = self.exec();
        let index = |lane: usize| (self.value(permute.index, Width::Word, lane) / 4) as usize % self.lanes;
        let data = |lane: usize| self.value(permute.data, Width::Word, lane) as u32;
        let values = if permute.forward {
            let mut values = vec![0; self.lanes];
            for lane in lanes_of(exec) {
                if let Some(value) = values.get_mut(index(lane)) {
                    *value = data(lane);
                }
            }
            lanes_of(exec).map(|lane| (lane, values.get(lane).copied().unwrap_or_default())).collect()
        } else {
            // Lanes that are not active give zero.
            let from = |lane| if exec >> lane & 1 == 1 { data(lane) } else { 0 };
            lanes_of(exec).map(|lane| (lane, from(index(lane)))).collect()
        };
        self.start(Counter::Lds, Action::Lanes { to, values }, context);
        Ok(())
    }

    pub(super) fn cache(&mut self, cache: Cache, context: &mut Context) -> Result<(), Violation> {
        match cache {
            Cache::WriteBack(scope) => {
                self.make_room(context)?;
                self.start(Counter::Stores, Action::WriteBack { scope }, context);
            }
            // As early as it can be: loads behind it may still see what was there then.
            cache => context.memory.invalidate(&self.viewer, cache),
        }
        Ok(())
    }

    /// Carries out an access.
    pub(super) fn act(&mut self, action: Action, context: &mut Context) -> Result<(), Violation> {
        match action {
            Action::Done => {}
            Action::Load { to, element, lanes, scope } => {
                let mut bytes = [0; 16];
                let len = usize::from(element.bytes);
                for lane in lanes {
                    let bytes = bytes.get_mut(..len).unwrap_or_default();
                    context.memory.load(&self.viewer, lane.addr, bytes, scope)?;
                    self.put_element(to, element, lane.lane, bytes);
                }
            }
            Action::Store { mut handles, scope } => {
                // Lanes in any order.
                while !handles.is_empty() {
                    let at = context.rng.below(handles.len() as u64) as usize;
                    context.memory.perform(handles.swap_remove(at), scope);
                }
            }
            Action::Atomic { to, function, wide, lanes, scope } => {
                for lane in lanes {
                    let change = |old| function(old, lane.data, lane.compare);
                    let old = context.memory.atomic(&self.viewer, lane.addr, wide, scope, change)?;
                    self.put_word(to, wide, lane.lane, old);
                }
            }
            Action::LdsLoad { to, element, lanes } => {
                for lane in lanes {
                    let mut data = [0; 16];
                    let from = lds_range(context, &lane, usize::from(element.bytes), false)?;
                    data.iter_mut().zip(&*from).for_each(|(to, from)| *to = *from);
                    self.put_element(to, element, lane.lane, &data);
                }
            }
            Action::LdsStore { element, lanes, data } => {
                for (lane, data) in lanes.iter().zip(data) {
                    let to = lds_range(context, lane, usize::from(element.bytes), true)?;
                    to.iter_mut().zip(data).for_each(|(to, from)| *to = from);
                }
            }
            Action::LdsAtomic { to, function, wide, lanes } => {
                self.lds_atomic(to, function, wide, &lanes, context)?
            }
            Action::Lanes { to, values } => {
                for (lane, value) in values {
                    self.set_vector(to, lane, value);
                }
            }
            Action::ScalarLoad { to, count, addr } => {
                for n in 0..count {
                    let value = context.memory.load_scalar(addr.wrapping_add(4 * u64::from(n)))?;
                    self.set_scalar(to + n, value);
                }
            }
            Action::Value { to, value, .. } => self.set_scalar_pair(to, value),
            Action::WriteBack { scope } => context.memory.write_back(self.viewer.second, scope),
        }
        Ok(())
    }

    fn lds_atomic(
        &mut self,
        to: Option<u16>,
        function: Function,
        wide: bool,
        lanes: &[LaneAccess],
        context: &mut Context,
    ) -> Result<(), Violation> {
        for lane in lanes {
            let place = lds_range(context, lane, if wide { 8 } else { 4 }, true)?;
            let old = place.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            let new = function(old, lane.data, lane.compare).to_le_bytes();
            place.iter_mut().zip(new).for_each(|(to, from)| *to = from);
            self.put_word(to, wide, lane.lane, old);
        }
        Ok(())
    }

    fn put_word(&mut self, to: Option<u16>, wide: bool, lane: usize, value: u64) {
        let Some(to) = to else { return };
        self.set_vector(to, lane, value as u32);
        if wide {
            self.set_vector(to + 1, lane, (value >> 32) as u32);
        }
    }
}

fn lds_range<'a>(
    context: &'a mut Context,
    lane: &LaneAccess,
    len: usize,
    write: bool,
) -> Result<&'a mut [u8], Violation> {
    let fault = Violation::Fault { addr: lane.addr, len: len as u32, write };
    let at = lane.addr as usize;
    context.lds.get_mut(at..at.saturating_add(len)).ok_or(fault)
}
