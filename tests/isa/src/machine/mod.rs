// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that runs kernels, with a controller beside it.

mod launch;
mod schedule;

use crate::arch::Arch;
use crate::decode::Program;
use crate::error::{Error, Result};
use crate::memory::{Kind, Memory, Stale};
use crate::object::{CodeObject, Kernel};
use crate::rng::Rng;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where code objects are loaded.
const CODE: u64 = 0x7f10_0000_0000;
/// Where the arguments of kernels are.
const ARGUMENTS: u64 = 0x7f20_0000_0000;

/// Memory that the device and the controller share.
#[derive(Clone, Debug)]
pub struct SharedMemory(Arc<Mutex<Memory>>);

impl SharedMemory {
    /// Memory of a device, with nothing in it.
    pub fn new(arch: Arch) -> Self {
        Self(Arc::new(Mutex::new(Memory::new(arch))))
    }

    /// Access to it. Nobody keeps it for long.
    pub fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What runs beside the device.
pub trait Device {
    /// Does what is due. `rung` says that doorbells were written since the last call. The answer is when there is
    /// something to do next, if that is known.
    fn poll(&mut self, now: u64, rung: bool) -> Result<Option<u64>>;
}

/// Nothing beside the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDevice;

impl Device for NoDevice {
    fn poll(&mut self, _: u64, _: bool) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// Blocks and threads, in one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Instructions of all waves.
    pub instructions: u64,
    /// Time that passed.
    pub time: u64,
    /// What the controller read too early.
    pub stale: Vec<Stale>,
    /// Names of the instructions that were carried out.
    pub executed: BTreeSet<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instructions, time, stale) = (self.instructions, self.time, self.stale.len());
        write!(f, "{instructions} instructions in {time} ticks, {stale} stale reads")
    }
}

/// A device with a code object.
#[derive(Debug)]
pub struct Machine {
    /// Memory.
    pub memory: SharedMemory,
    /// Blocks that are on the device at the same time.
    pub resident: usize,
    /// Most instructions of a run, all waves together.
    pub limit: u64,
    program: Arc<Program>,
    kernels: Vec<Kernel>,
    rng: Rng,
    now: u64,
}

impl Machine {
    /// Loads a code object into the memory of a new device.
    pub fn new(object: &CodeObject, seed: u64) -> Result<Self> {
        Self::with_program(object, object.program.clone(), seed)
    }

    /// Loads a code object whose instructions were changed.
    pub fn with_program(object: &CodeObject, program: Program, seed: u64) -> Result<Self> {
        let memory = SharedMemory::new(object.arch);
        for (n, segment) in object.segments()?.iter().enumerate() {
            let kind = if segment.writable { Kind::Shared } else { Kind::Constant };
            let mut memory = memory.lock();
            memory.map(&format!("segment {n}"), CODE + segment.addr, segment.size as usize, kind);
            let loaded = memory.write(CODE + segment.addr, segment.bytes);
            loaded.map_err(|e| Error::Object(format!("segment {n}: {e}")))?;
        }
        Ok(Self {
            memory,
            resident: 8,
            limit: 3_000_000,
            program: Arc::new(program),
            kernels: object.kernels.clone(),
            rng: Rng::new(seed),
            now: 0,
        })
    }

    /// Runs a kernel to its end, with a controller beside it.
    pub fn run(
        &mut self,
        kernel: &str,
        grid: Grid,
        arguments: &[u8],
        device: &mut dyn Device,
    ) -> Result<Outcome> {
        let found = self.kernels.iter().find(|k| k.name == kernel);
        let kernel = found.ok_or_else(|| Error::NoKernel(kernel.into()))?.clone();
        let launch = launch::Launch::new(self.program.arch, kernel, grid, arguments)?;
        {
            let mut memory = self.memory.lock();
            memory.map("arguments", ARGUMENTS, launch.arguments.len(), Kind::Constant);
            let written = memory.write(ARGUMENTS, &launch.arguments);
            written.map_err(|e| launch.error(e.to_string()))?;
            memory.begin(grid.blocks as usize, launch.caches_of_block());
        }
        let result = self.schedule(&launch, device);
        let mut memory = self.memory.lock();
        memory.end();
        memory.unmap(ARGUMENTS);
        let mut outcome = result?;
        outcome.stale = memory.stale().to_vec();
        Ok(outcome)
    }
}
