// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine code that AMD GPUs get, looked at and run without a GPU: `gfx90a`, `gfx942`, `gfx950`, `gfx1100`,
//! `gfx1201`.
//!
//! * [`check`] walks over all paths of a function and finds doorbells that are not behind a write-back of the cache at
//!   system scope, or not behind the wait for it.
//! * [`machine`] runs kernels: blocks, waves, lanes, registers, execution masks, LDS, barriers, clocks, atomics, scratch
//!   memory. Its [`memory`] is as weak as the architecture's: a store can be seen by others when it was performed, by
//!   other dies and by the controller when it was written back and waited for; loads are performed some time after
//!   they were issued; caches hold what was there before until they are invalidated; completions arrive torn. Where
//!   hardware may do something, it is done whenever that hurts; chance is a matter of a seed.
//! * [`host`] is the software controller `xio-target` beside it: it reads and writes that memory by addresses of its
//!   own, looks at doorbells the moment they are written, and completes commands in any order.
//! * [`mutate`] spoils machine code, to see that runs with it fail.
//!
//! Instructions are decoded by `llvm-objdump -d`; [`decode`] reads its text. Everything that it does not know is an error
//! that names it: instructions, operands, modifiers. Kernel descriptors come from the symbols of the code object,
//! argument blocks and sizes from its notes ([`object`]).
//!
//! What an interpreter can not find: that hardware differs from what is known of it, and what only happens under
//! timing that no seed gives. Instructions that kernels of this project do not use are mostly not known.
//!
//! | module | what |
//! |---|---|
//! | [`arch`] | the architectures and their differences |
//! | [`tools`] | compiler and disassembler |
//! | [`object`] | ELF, notes, kernels |
//! | [`decode`] | instructions |
//! | [`wave`] | a wave: registers, and how it carries out instructions |
//! | [`memory`] | who sees what |
//! | [`machine`] | start of kernels, whose turn it is |
//! | [`host`] | the software controller |
//! | [`check`], [`mutate`] | as above |
#![forbid(unsafe_code)]

pub mod arch;
pub mod check;
pub mod decode;
pub mod error;
pub mod host;
pub mod machine;
pub mod memory;
pub mod mutate;
pub mod object;
pub mod rng;
pub mod tools;
pub mod wave;

pub use arch::Arch;
pub use error::{Error, Result};
