// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the disassembler's text to instructions that can be run.
//!
//! The decoder proper is `llvm-objdump -d`: encodings of five architectures are its business. What is read here is its
//! text, all of it: a name, operand or modifier that is not known is an error that says which, and never skipped.

mod compare;
mod element;
mod lanes;
mod lds;
mod listing;
mod memory;
mod operand;
mod reader;
mod registers;
mod scalar;
mod scalar_table;
mod vector;
mod vector_table;
mod wait;

pub use compare::Compare;
pub use element::{Element, Function};
pub use lanes::{Lanes, Pattern};
pub use lds::{Lds, Permute};
pub use listing::Line;
pub use memory::{Access, Cache, Memory, Space};
pub use operand::{
    Operand, Part, Source, Width, ACCUMULATORS, EXEC, M0, PRIVATE_WINDOW, SCRATCH_RESOURCE, SHARED_WINDOW,
    TTMP, VCC,
};
pub use registers::Registers;
pub use scalar::{Condition, Scalar};
pub use vector::{Kind, Rest, Vector};
pub use wait::Wait;

use crate::arch::Arch;
use crate::error::{Error, Result};
use listing::Fields;
use std::collections::{BTreeSet, HashMap};

/// What an instruction does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Once for the wave.
    Scalar(Scalar),
    /// For each lane.
    Vector(Box<Vector>),
    /// Two at once, for each lane.
    Dual(Box<(Vector, Vector)>),
    /// Memory, for each lane.
    Memory(Box<Memory>),
    /// LDS, for each lane.
    Lds(Box<Lds>),
    /// Lanes of each other.
    Permute(Permute),
    /// Caches.
    Cache(Cache),
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The line of the listing.
    pub line: Line,
    /// What it does.
    pub operation: Operation,
    /// Registers that it reads or writes.
    pub registers: Registers,
}

/// All instructions of a code object.
#[derive(Clone, Debug)]
pub struct Program {
    /// Architecture.
    pub arch: Arch,
    /// Instructions by address.
    pub instructions: Vec<Instruction>,
    at: HashMap<u64, usize>,
}

impl Program {
    /// Reads the text of a disassembly.
    pub fn parse(arch: Arch, text: &str) -> Result<Self> {
        let lines = listing::parse(text);
        let instructions = lines.into_iter().map(|line| decode(arch, line)).collect::<Result<Vec<_>>>()?;
        let at = instructions.iter().enumerate().map(|(n, i)| (i.line.addr, n)).collect();
        Ok(Self { arch, instructions, at })
    }

    /// Number of the instruction at an address.
    pub fn find(&self, addr: u64) -> Option<usize> {
        self.at.get(&addr).copied()
    }

    /// Names of all instructions.
    pub fn mnemonics(&self) -> BTreeSet<String> {
        let names = self.instructions.iter().flat_map(|i| {
            let second =
                i.line.rest.split_once(":: ").and_then(|(_, second)| second.split_whitespace().next());
            [Some(i.line.mnemonic.as_str()), second]
        });
        names.flatten().map(str::to_owned).collect()
    }
}

fn decode(arch: Arch, line: Line) -> Result<Instruction> {
    match operation(arch, &line) {
        Ok(Some(operation)) => {
            let registers = Registers::of(arch, &operation);
            Ok(Instruction { line, operation, registers })
        }
        Ok(None) => Err(Error::Unknown {
            mnemonic: line.mnemonic.clone(),
            arch,
            addr: line.addr,
            function: line.function.clone(),
            text: line.text(),
        }),
        Err(what) => Err(Error::Operand {
            what,
            arch,
            addr: line.addr,
            function: line.function.clone(),
            text: line.text(),
        }),
    }
}

fn operation(arch: Arch, line: &Line) -> Result<Option<Operation>, String> {
    let name = line.mnemonic.as_str();
    if let Some((first, second)) = line.rest.split_once("::") {
        let (other, rest) = second.trim().split_once(' ').ok_or("half of a pair is missing")?;
        let first = vector::dual(arch, name, first.trim())?;
        return Ok(first
            .zip(vector::dual(arch, other, rest)?)
            .map(|(first, second)| Operation::Dual(Box::new((first, second)))));
    }
    let fields = Fields::new(&line.rest);
    if name.starts_with("s_") || name.starts_with("v_s_") {
        return Ok(scalar::scalar(arch, name, &fields)?.map(Operation::Scalar));
    }
    if name.starts_with("v_") {
        return Ok(vector::vector(arch, name, &fields)?.map(|v| Operation::Vector(Box::new(v))));
    }
    if let Some(permute) = lds::permute(arch, name, &fields)? {
        return Ok(Some(Operation::Permute(permute)));
    }
    if let Some(cache) = memory::cache(arch, name, &fields)? {
        return Ok(Some(Operation::Cache(cache)));
    }
    if let Some(lds) = lds::lds(arch, name, &fields)? {
        return Ok(Some(Operation::Lds(Box::new(lds))));
    }
    Ok(memory::memory(arch, name, &fields)?.map(|m| Operation::Memory(Box::new(m))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(arch: Arch, lines: &[&str]) -> Result<Program> {
        let line = |(n, text): (usize, &&str)| format!("\t{text} // {:012X}: 00000000\n", 0x1000 + 4 * n);
        let text: String = lines.iter().enumerate().map(line).collect();
        Program::parse(arch, &format!("0000000000001000 <kernel>:\n{text}"))
    }

    #[test]
    fn unknown_instructions_are_named() {
        let error =
            program(Arch::Gfx942, &["v_mov_b32_e32 v0, 1", "v_frobnicate_b32_e32 v0, v1"]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("unknown instruction v_frobnicate_b32_e32 of gfx942 at 0x1004 in kernel"),
            "{text}"
        );
        for (line, what) in [
            ("v_add_u32_e32 v0, v1, foo", "unknown operand foo"),
            ("v_add_u32_e64 v0, v1, v2 mul:2", "unknown modifier mul:2"),
            ("global_load_dword v0, v1, off lds", "unknown modifier lds"),
            ("v_add_u32_e32 v0, v1", "an operand is missing"),
        ] {
            let text = program(Arch::Gfx942, &[line]).unwrap_err().to_string();
            assert!(text.contains(what) && text.contains(line), "{text}");
        }
    }

    #[test]
    fn names_of_both_halves_of_a_pair() {
        let program =
            program(Arch::Gfx1100, &["v_dual_mov_b32 v0, 1 :: v_dual_add_nc_u32 v1, v2, v3"]).unwrap();
        let names: Vec<_> = program.mnemonics().into_iter().collect();
        assert_eq!(names, ["v_dual_add_nc_u32", "v_dual_mov_b32"]);
        assert_eq!(program.find(0x1000), Some(0));
    }
}
