// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wave: registers, what it waits for, and how it carries out instructions.

mod action;
mod lanes;
mod memory;
mod pending;
mod private;
mod scalar;
mod vector;

use crate::arch::Arch;
use crate::decode::{Instruction, Operand, Operation, Part, Program, Rest, Source, Width, EXEC};
use crate::error::{Error, Result, Violation};
use crate::memory::{Memory, Origin, Viewer};
use crate::rng::Rng;
use pending::Pending;

/// What a wave finds around it.
pub struct Context<'a> {
    /// All instructions.
    pub program: &'a Program,
    /// Where the code object is loaded.
    pub base: u64,
    /// Memory.
    pub memory: &'a mut Memory,
    /// LDS of the block.
    pub lds: &'a mut [u8],
    /// Time.
    pub now: u64,
    /// Choices.
    pub rng: &'a mut Rng,
}

/// Whether a wave can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It can.
    Running,
    /// Not before that time.
    Asleep(u64),
    /// When the others of the block came to the barrier.
    AtBarrier,
    /// It is done.
    Ended,
}

/// A wave.
#[derive(Debug)]
pub struct Wave {
    /// Architecture.
    pub arch: Arch,
    /// Whether it can go on.
    pub state: State,
    /// It told that it came to the barrier, and not all others did.
    pub signalled: bool,
    /// All others came to the barrier since, and it did not go through yet.
    pub passed: bool,
    /// From where it looks at memory.
    pub viewer: Viewer,
    /// Number of the next instruction.
    pub next: usize,
    lanes: usize,
    scalars: [u32; 128],
    scc: bool,
    vectors: Vec<u32>,
    /// Scratch memory, lane by lane.
    private: Vec<u8>,
    pending: Pending,
}

impl Wave {
    /// A wave with registers full of rubbish.
    pub fn new(arch: Arch, viewer: Viewer, private: usize, next: usize, rng: &mut Rng) -> Self {
        let lanes = arch.lanes();
        let registers = if arch.is_cdna() { 512 } else { 256 };
        let mut scalars = [0; 128];
        scalars.fill_with(|| rng.next() as u32);
        let rubbish = rng.next() as u32;
        let vectors = (0..registers * lanes as u32).map(|n| n.wrapping_mul(0x9e37_79b9) ^ rubbish).collect();
        Self {
            arch,
            state: State::Running,
            signalled: false,
            passed: false,
            viewer,
            next,
            lanes,
            scalars,
            scc: false,
            vectors,
            private: vec![0xdb; private * lanes],
            pending: Pending::default(),
        }
    }

    /// Carries out the next instruction.
    pub fn step(&mut self, context: &mut Context) -> Result<()> {
        let Some(instruction) = context.program.instructions.get(self.next) else {
            let what = Violation::Jump(context.base);
            return Err(self.error(&Error::NoKernel(String::new()).to_string(), 0, what));
        };
        self.viewer.origin.addr = instruction.line.addr;
        let here = self.next;
        self.next += 1;
        self.execute(instruction, context).map_err(|what| {
            self.next = here;
            self.error(&instruction.line.text(), instruction.line.addr, what)
        })
    }

    fn error(&self, text: &str, addr: u64, what: Violation) -> Error {
        let Origin { block, wave, .. } = self.viewer.origin;
        Error::Execution { block, wave, addr, text: text.into(), what }
    }

    fn execute(&mut self, instruction: &Instruction, context: &mut Context) -> Result<(), Violation> {
        self.pending.check(&instruction.registers)?;
        match &instruction.operation {
            Operation::Scalar(scalar) => self.scalar(scalar, instruction, context),
            Operation::Vector(vector) => self.vector(vector),
            Operation::Dual(pair) => self.dual(&pair.0, &pair.1),
            Operation::Memory(memory) => self.memory(memory, context),
            Operation::Lds(lds) => self.lds(lds, context),
            Operation::Permute(permute) => self.permute(permute, context),
            Operation::Cache(cache) => self.cache(*cache, context),
        }
    }

    /// Lanes that are active.
    pub fn exec(&self) -> u64 {
        self.mask(Operand::Scalar(EXEC))
    }

    /// Sets which lanes are active.
    pub fn set_exec(&mut self, mask: u64) {
        self.set_mask(Operand::Scalar(EXEC), mask);
    }

    /// Sets a scalar register.
    pub fn set_scalar(&mut self, n: u8, value: u32) {
        if let Some(register) = self.scalars.get_mut(usize::from(n)) {
            *register = value;
        }
    }

    /// Sets two scalar registers.
    pub fn set_scalar_pair(&mut self, n: u8, value: u64) {
        self.set_scalar(n, value as u32);
        self.set_scalar(n + 1, (value >> 32) as u32);
    }

    /// Sets a vector register of a lane.
    pub fn set_vector(&mut self, n: u16, lane: usize, value: u32) {
        let at = usize::from(n) * self.lanes + lane;
        if let Some(register) = self.vectors.get_mut(at) {
            *register = value;
        }
    }

    fn scalar_register(&self, n: u8) -> u32 {
        self.scalars.get(usize::from(n)).copied().unwrap_or_default()
    }

    fn vector_register(&self, n: u16, lane: usize) -> u32 {
        self.vectors.get(usize::from(n) * self.lanes + lane).copied().unwrap_or_default()
    }

    /// Value of a mask of lanes.
    fn mask(&self, operand: Operand) -> u64 {
        let width = if self.lanes == 64 { Width::Wide } else { Width::Word };
        self.uniform(operand, width)
    }

    fn set_mask(&mut self, operand: Operand, value: u64) {
        let width = if self.lanes == 64 { Width::Wide } else { Width::Word };
        self.set_uniform(operand, value, width);
    }

    /// Value of an operand that is the same for all lanes.
    fn uniform(&self, operand: Operand, width: Width) -> u64 {
        let value = match operand {
            Operand::Scalar(n) if width == Width::Wide => {
                u64::from(self.scalar_register(n)) | u64::from(self.scalar_register(n + 1)) << 32
            }
            Operand::Scalar(n) => self.scalar_register(n).into(),
            Operand::Constant(value) => value,
            Operand::Scc => self.scc.into(),
            Operand::Null | Operand::Vector(_) => 0,
        };
        value & width.mask()
    }

    fn set_uniform(&mut self, operand: Operand, value: u64, width: Width) {
        if let Operand::Scalar(n) = operand {
            self.set_scalar(n, value as u32);
            if width == Width::Wide {
                self.set_scalar(n + 1, (value >> 32) as u32);
            }
        }
    }

    /// Value of an operand for a lane, before anything is done to it.
    fn value(&self, operand: Operand, width: Width, lane: usize) -> u64 {
        match operand {
            Operand::Vector(n) if width == Width::Wide => {
                u64::from(self.vector_register(n, lane)) | u64::from(self.vector_register(n + 1, lane)) << 32
            }
            Operand::Vector(n) => self.vector_register(n, lane).into(),
            other => self.uniform(other, if width == Width::Wide { width } else { Width::Word }),
        }
    }

    /// Value of an operand for a lane.
    fn source(&self, source: &Source, width: Width, lane: usize) -> u64 {
        let value = self.value(source.operand, width, lane);
        self.refine(source, width, value)
    }

    /// What is done to a value before it is used.
    fn refine(&self, source: &Source, width: Width, value: u64) -> u64 {
        let mut value = value;
        if source.part != Part::All {
            let (shift, bits) = source.part.bits();
            value = value >> shift & ((1 << bits) - 1);
            if source.signed {
                value = ((value << (64 - bits)) as i64 >> (64 - bits)) as u64;
            }
        }
        let sign = match width {
            Width::Half => 1 << 15,
            Width::Word => 1 << 31,
            Width::Wide => 1 << 63,
        };
        if source.absolute {
            value &= !sign;
        }
        if source.negative {
            value ^= sign;
        }
        value & width.mask()
    }

    /// Writes a result of a lane.
    fn write(&mut self, to: Operand, lane: usize, value: u64, width: Width, part: Part, rest: Rest) {
        let Operand::Vector(n) = to else { return };
        if part == Part::All {
            self.set_vector(n, lane, value as u32);
            if width == Width::Wide {
                self.set_vector(n + 1, lane, (value >> 32) as u32);
            }
            return;
        }
        let (shift, bits) = part.bits();
        let mask = ((1u64 << bits) - 1) << shift;
        let new = value << shift & mask;
        let old = u64::from(self.vector_register(n, lane));
        let all = match rest {
            Rest::Zero => new,
            Rest::Keep => old & !mask | new,
            Rest::Sign => {
                let value = value & ((1 << bits) - 1);
                ((value << (64 - bits)) as i64 >> (64 - bits) << shift) as u64
            }
        };
        self.set_vector(n, lane, all as u32);
    }
}

/// The lanes of a mask.
fn lanes_of(mask: u64) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        (rest != 0).then(|| {
            rest &= rest - 1;
            lane
        })
    })
}
