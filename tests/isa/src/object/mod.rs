// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code objects: which kernels they hold, what those want to be started with, and what is loaded into memory.

mod elf;
mod msgpack;

pub use elf::{Elf, Segment};
pub use msgpack::Value;

use crate::arch::Arch;
use crate::decode::Program;
use crate::error::{Error, Result};
use crate::tools::Tools;
use std::path::Path;

/// Type of the note that holds the metadata.
const METADATA: u32 = 32;
/// Bytes of a kernel descriptor.
const DESCRIPTOR: u64 = 64;

/// An argument of a kernel, or one that the runtime adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Offset in the argument block.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// What it is, as the metadata says: `by_value`, `hidden_block_count_x`, ….
    pub kind: String,
}

/// The kernel descriptor: how registers are set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// Kernel code properties.
    pub properties: u16,
    /// Length and offset, in dwords, of arguments preloaded into registers.
    pub preload: u16,
}

impl Descriptor {
    /// Whether a wave's lanes use two compute units' caches (RDNA's workgroup processor mode).
    pub const fn spans_units(&self) -> bool {
        self.rsrc1 >> 29 & 1 == 1
    }

    /// Whether the wave has 32 lanes.
    pub const fn is_wave32(&self) -> bool {
        self.properties >> 10 & 1 == 1
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name.
    pub name: String,
    /// Address of its first instruction, relative to where the object is loaded.
    pub entry: u64,
    /// Bytes of the argument block, hidden arguments included.
    pub argument_size: usize,
    /// Bytes of LDS.
    pub group_size: usize,
    /// Bytes of scratch memory of a lane.
    pub private_size: usize,
    /// Most threads of a block.
    pub max_threads: u32,
    /// Arguments.
    pub arguments: Vec<Argument>,
    /// Descriptor.
    pub descriptor: Descriptor,
}

/// A code object.
#[derive(Debug)]
pub struct CodeObject {
    /// Architecture.
    pub arch: Arch,
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// All instructions.
    pub program: Program,
    elf: Elf,
}

impl CodeObject {
    /// Reads a code object and all of its instructions.
    pub fn load(tools: &Tools, path: &Path) -> Result<Self> {
        let file = |source| Error::File { path: path.display().to_string(), source };
        let elf = Elf::new(std::fs::read(path).map_err(file)?)?;
        let metadata = msgpack::parse(elf.note("AMDGPU", METADATA)?)?;
        let target = metadata.get("amdhsa.target").and_then(Value::as_text).unwrap_or_default();
        let name = target.rsplit("--").next().unwrap_or_default();
        let name = name.split(':').next().unwrap_or_default();
        let arch = Arch::parse(name).ok_or_else(|| {
            Error::Object(format!("it is for {target}, which the interpreter does not know"))
        })?;
        let kernels = metadata.get("amdhsa.kernels").map(Value::items).unwrap_or_default();
        let kernels = kernels.iter().map(|kernel| read_kernel(&elf, kernel)).collect::<Result<_>>()?;
        let program = Program::parse(arch, &tools.disassemble(path)?)?;
        Ok(Self { arch, kernels, program, elf })
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Result<&Kernel> {
        self.kernels.iter().find(|k| k.name == name).ok_or_else(|| Error::NoKernel(name.into()))
    }

    /// What is loaded into memory.
    pub fn segments(&self) -> Result<Vec<Segment<'_>>> {
        self.elf.segments()
    }
}

fn read_kernel(elf: &Elf, kernel: &Value) -> Result<Kernel> {
    let text = |key: &str| {
        let value = kernel.get(key).and_then(Value::as_text);
        value.map(str::to_owned).ok_or_else(|| Error::Object(format!("a kernel has no {key}")))
    };
    let number = |of: &Value, key: &str| {
        let value = of.get(key).and_then(Value::as_u64);
        value.map(|n| n as usize).ok_or_else(|| Error::Object(format!("a kernel has no {key}")))
    };
    let argument = |arg: &Value| {
        Ok(Argument {
            offset: number(arg, ".offset")?,
            size: number(arg, ".size")?,
            kind: arg.get(".value_kind").and_then(Value::as_text).unwrap_or_default().to_owned(),
        })
    };
    let arguments = kernel.get(".args").map(Value::items).unwrap_or_default();
    let at = elf.symbol(&text(".symbol")?)?;
    let bytes = elf.bytes_at(at, DESCRIPTOR)?;
    let word = |at: usize, len: usize| {
        let bytes = bytes.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    Ok(Kernel {
        name: text(".name")?,
        entry: at.wrapping_add(word(16, 8)),
        argument_size: number(kernel, ".kernarg_segment_size")?,
        group_size: number(kernel, ".group_segment_fixed_size")?,
        private_size: number(kernel, ".private_segment_fixed_size")?,
        max_threads: number(kernel, ".max_flat_workgroup_size")? as u32,
        arguments: arguments.iter().map(argument).collect::<Result<_>>()?,
        descriptor: Descriptor {
            rsrc1: word(48, 4) as u32,
            rsrc2: word(52, 4) as u32,
            properties: word(56, 2) as u16,
            preload: word(58, 2) as u16,
        },
    })
}
