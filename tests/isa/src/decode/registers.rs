// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which registers an instruction reads or writes, so that the use of one whose load was not waited for can be told.

use super::{Access, Kind, Lds, Memory, Operand, Operation, Scalar, Space, Vector, Width, EXEC, VCC};
use crate::arch::Arch;

/// Registers, as ranges of first and count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Scalar registers.
    pub scalar: Vec<(u8, u8)>,
    /// Vector registers.
    pub vector: Vec<(u16, u16)>,
}

impl Registers {
    /// Those of an instruction.
    pub fn of(arch: Arch, operation: &Operation) -> Self {
        let mut registers = Self::default();
        match operation {
            Operation::Scalar(scalar) => registers.scalar(arch, scalar),
            Operation::Vector(vector) => registers.vector(arch, vector),
            Operation::Dual(pair) => {
                registers.vector(arch, &pair.0);
                registers.vector(arch, &pair.1);
            }
            Operation::Memory(memory) => registers.memory(memory),
            Operation::Lds(lds) => registers.lds(lds),
            Operation::Permute(permute) => {
                registers.add(&[permute.to, permute.index, permute.data], 1);
            }
            Operation::Cache(_) => {}
        }
        registers
    }

    fn add(&mut self, operands: &[Operand], count: u16) {
        for operand in operands {
            match operand {
                Operand::Scalar(n) => self.scalar.push((*n, count as u8)),
                Operand::Vector(n) => self.vector.push((*n, count)),
                Operand::Constant(_) | Operand::Scc | Operand::Null => {}
            }
        }
    }

    fn scalar(&mut self, arch: Arch, scalar: &Scalar) {
        let mask = if arch.is_cdna() { 2 } else { 1 };
        match scalar {
            Scalar::Form { form, to, from } => {
                self.add(&[*to], form.result.registers());
                for (operand, width) in from.iter().zip(form.widths) {
                    self.add(&[*operand], width.registers());
                }
            }
            Scalar::Float { to, from, .. } => {
                self.add(&[*to], 1);
                self.add(from, 1);
            }
            Scalar::Compare { compare, from } => self.add(from, compare.width.registers()),
            Scalar::CompareBit { from, bit, width, .. } => {
                self.add(&[*from], width.registers());
                self.add(&[*bit], 1);
            }
            Scalar::SaveExec { to, from, .. } => self.add(&[*to, *from, Operand::Scalar(EXEC)], mask),
            Scalar::GetPc { to } | Scalar::Clock { to, .. } => self.add(&[*to], 2),
            Scalar::Jump { link, from } => self.add(&[*link, *from], 2),
            Scalar::Branch { condition, link, .. } => {
                self.add(&[*link], 2);
                if let super::Condition::VccZero(_) = condition {
                    self.add(&[Operand::Scalar(VCC)], mask);
                }
            }
            Scalar::Cycles { to, .. } => self.add(&[*to], 1),
            Scalar::Load { to, count, base, offset, .. } => {
                self.add(&[*to], u16::from(*count));
                self.add(&[*base], 2);
                self.add(&[*offset], 1);
            }
            _ => {}
        }
    }

    fn vector(&mut self, arch: Arch, vector: &Vector) {
        let mask = if arch.is_cdna() { 2 } else { 1 };
        let word = Width::Word.registers();
        let (result, widths) = match &vector.kind {
            Kind::Form(form) => (form.result.registers(), form.widths.map(Width::registers)),
            Kind::Carry { out, carry, .. } => {
                self.add(&[*out], mask);
                self.add(carry.as_slice(), mask);
                (word, [word; 3])
            }
            Kind::Multiply { out, .. } => {
                self.add(&[*out], mask);
                (2, [1, 1, 2])
            }
            Kind::Compare { compare, .. } => (mask, [compare.width.registers(); 3]),
            Kind::Select { mask: selector } => {
                self.add(&[*selector], mask);
                (word, [word; 3])
            }
            Kind::MovePair { .. } => (2, [2; 3]),
            Kind::Bitwise { .. }
            | Kind::CountBelow { .. }
            | Kind::ReadFirst
            | Kind::ReadLane
            | Kind::WriteLane
            | Kind::Swap
            | Kind::Packed { .. }
            | Kind::PermuteRow { .. } => (word, [word; 3]),
        };
        self.add(&[vector.to], result);
        for (source, count) in vector.from.iter().zip(widths) {
            self.add(&[source.operand], count);
        }
    }

    fn memory(&mut self, memory: &Memory) {
        let count = memory.element.registers();
        // With a scalar base, or within scratch memory, the address is a 32-bit offset.
        let scratch = matches!(memory.space, Space::Scratch | Space::Buffer);
        let based = !matches!(memory.base, Operand::Null) || scratch;
        self.add(&[memory.address], if based { 1 } else { 2 });
        self.add(&[memory.base], if scratch { 1 } else { 2 });
        self.add(&[memory.resource], 4);
        self.add(&[memory.to], count);
        let double = matches!(memory.access, Access::Atomic { compares: true, .. });
        self.add(&[memory.data], if double { 2 * count } else { count });
    }

    fn lds(&mut self, lds: &Lds) {
        let count = lds.element.registers();
        self.add(&[lds.address], 1);
        self.add(&[lds.to], if lds.offsets.1.is_some() { 2 * count } else { count });
        self.add(&lds.data, count);
    }
}
