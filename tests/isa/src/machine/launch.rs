// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting a kernel: its argument block, and the registers that its waves begin with.

use super::{Grid, ARGUMENTS};
use crate::arch::Arch;
use crate::decode::{SCRATCH_RESOURCE, TTMP};
use crate::error::{Error, Result};
use crate::memory::{Origin, Viewer};
use crate::object::Kernel;
use crate::rng::Rng;
use crate::wave::Wave;

/// A kernel that is about to run.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) arch: Arch,
    pub(super) kernel: Kernel,
    pub(super) grid: Grid,
    pub(super) arguments: Vec<u8>,
}

/// Bits of the kernel code properties: which registers come before the argument block's address, and how many.
const BEFORE_ARGUMENTS: [(u16, u8); 3] = [(1 << 0, 4), (1 << 1, 2), (1 << 2, 2)];
/// The resource descriptor of scratch memory, which comes first.
const SCRATCH_BUFFER: u16 = 1 << 0;
/// The argument block's address.
const ARGUMENT_ADDRESS: u16 = 1 << 3;
/// What comes behind it: dispatch id, scratch initialisation, size of scratch memory.
const BEHIND_ARGUMENTS: [(u16, u8); 3] = [(1 << 4, 2), (1 << 5, 2), (1 << 6, 1)];

impl Launch {
    pub(super) fn new(arch: Arch, kernel: Kernel, grid: Grid, explicit: &[u8]) -> Result<Self> {
        let mut launch = Self { arch, kernel, grid, arguments: Vec::new() };
        if grid.blocks == 0 || grid.threads == 0 || grid.threads > launch.kernel.max_threads {
            let most = launch.kernel.max_threads;
            return Err(launch.error(format!("{grid:?}, while a block has at most {most} threads")));
        }
        if launch.kernel.descriptor.is_wave32() == arch.is_cdna() {
            return Err(launch.error("it is not built for the architecture's own wave size".into()));
        }
        launch.fill_arguments(explicit)?;
        Ok(launch)
    }

    pub(super) fn error(&self, what: String) -> Error {
        Error::Launch { kernel: self.kernel.name.clone(), what }
    }

    fn fill_arguments(&mut self, explicit: &[u8]) -> Result<()> {
        let hidden = |kind: &str| kind.starts_with("hidden_");
        let own = self.kernel.arguments.iter().filter(|a| !hidden(&a.kind)).map(|a| a.offset + a.size).max();
        if own.unwrap_or_default() != explicit.len() {
            let (want, got) = (own.unwrap_or_default(), explicit.len());
            return Err(self.error(format!("it takes {want} bytes of arguments, not {got}")));
        }
        let mut block = explicit.to_vec();
        block.resize(self.kernel.argument_size.max(explicit.len()), 0);
        let Grid { blocks, threads } = self.grid;
        for argument in &self.kernel.arguments {
            let value: u64 = match argument.kind.as_str() {
                "hidden_block_count_x" => blocks.into(),
                "hidden_group_size_x" => threads.into(),
                "hidden_block_count_y"
                | "hidden_block_count_z"
                | "hidden_group_size_y"
                | "hidden_group_size_z"
                | "hidden_grid_dims" => 1,
                _ => continue,
            };
            let to = block.get_mut(argument.offset..argument.offset + argument.size).unwrap_or_default();
            to.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        self.arguments = block;
        Ok(())
    }

    pub(super) const fn waves_of_block(&self) -> u32 {
        self.grid.threads.div_ceil(self.arch.lanes() as u32)
    }

    /// Whether the waves of a block have first level caches of their own.
    const fn waves_have_caches(&self) -> bool {
        !self.arch.is_cdna() && self.kernel.descriptor.spans_units()
    }

    pub(super) const fn caches_of_block(&self) -> usize {
        if self.waves_have_caches() {
            self.waves_of_block() as usize
        } else {
            1
        }
    }

    /// A wave at its first instruction.
    pub(super) fn wave(&self, block: u32, index: u32, next: usize, rng: &mut Rng) -> Wave {
        let number = block * self.waves_of_block() + index;
        let viewer = Viewer {
            domain: if self.waves_have_caches() { number } else { block },
            group: block,
            second: block % self.arch.second_level_caches() as u32,
            number,
            origin: Origin { block, wave: index, addr: 0 },
        };
        let mut wave = Wave::new(self.arch, viewer, self.kernel.private_size, next, rng);
        let lanes = self.arch.lanes() as u32;
        let threads = (self.grid.threads - index * lanes).min(lanes);
        wave.set_exec(if threads == 64 { u64::MAX } else { (1 << threads) - 1 });
        // All three indices of a thread are packed into one register; the two others are zero.
        for lane in 0..threads {
            wave.set_vector(0, lane as usize, index * lanes + lane);
        }
        self.user_registers(&mut wave);
        self.system_registers(&mut wave, block);
        wave
    }

    /// Registers that the descriptor asks for.
    fn user_registers(&self, wave: &mut Wave) {
        let properties = self.kernel.descriptor.properties;
        let count = |bits: &[(u16, u8)]| {
            bits.iter().filter(|(bit, _)| properties & bit != 0).map(|(_, n)| n).sum::<u8>()
        };
        let mut next = count(&BEFORE_ARGUMENTS);
        if properties & SCRATCH_BUFFER != 0 {
            wave.set_scalar(3, SCRATCH_RESOURCE);
        }
        if properties & ARGUMENT_ADDRESS != 0 {
            wave.set_scalar_pair(next, ARGUMENTS);
            next += 2;
        }
        next += count(&BEHIND_ARGUMENTS);
        // Arguments that come in registers.
        let preload = self.kernel.descriptor.preload;
        let (len, offset) = (preload & 0x7f, usize::from(preload >> 7));
        let words = self.arguments.chunks_exact(4).skip(offset).take(len.into());
        for word in words {
            wave.set_scalar(next, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            next += 1;
        }
    }

    /// Indices of the block, behind as many user registers as the descriptor states.
    fn system_registers(&self, wave: &mut Wave, block: u32) {
        let rsrc2 = self.kernel.descriptor.rsrc2;
        let mut next = (rsrc2 >> 1 & 0x1f) as u8;
        if self.arch == Arch::Gfx1201 {
            wave.set_scalar(TTMP + 9, block);
            wave.set_scalar(TTMP + 7, 0);
        }
        for (bit, value) in [(7, block), (8, 0), (9, 0)] {
            if rsrc2 >> bit & 1 == 1 {
                wave.set_scalar(next, value);
                next += 1;
            }
        }
        // Where the wave's scratch memory begins.
        if rsrc2 & 1 == 1 {
            wave.set_scalar(next, 0);
        }
    }
}
