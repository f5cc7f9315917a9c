// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong.

use crate::arch::Arch;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why machine code can not be had, read or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that is needed is not installed.
    #[error("{0} is not installed")]
    Missing(String),
    /// A program failed.
    #[error("{command} failed:\n{output}")]
    Tool {
        /// What was run.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// Reading or writing a file.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A code object that is none.
    #[error("code object: {0}")]
    Object(String),
    /// No such kernel.
    #[error("the code object has no kernel {0}")]
    NoKernel(String),
    /// An instruction that the interpreter does not know.
    #[error("unknown instruction {mnemonic} of {arch} at {addr:#x} in {function}: {text}")]
    Unknown {
        /// Its name.
        mnemonic: String,
        /// Architecture.
        arch: Arch,
        /// Where.
        addr: u64,
        /// In which function.
        function: String,
        /// With operands.
        text: String,
    },
    /// An operand or modifier that the interpreter does not know, of an instruction that it does know.
    #[error("{what} of {arch} at {addr:#x} in {function}: {text}")]
    Operand {
        /// What is wrong.
        what: String,
        /// Architecture.
        arch: Arch,
        /// Where.
        addr: u64,
        /// In which function.
        function: String,
        /// The instruction.
        text: String,
    },
    /// A kernel did something that it must not do.
    #[error("block {block}, wave {wave}, at {addr:#x} ({text}): {what}")]
    Execution {
        /// Block.
        block: u32,
        /// Wave of the block.
        wave: u32,
        /// Address of the instruction.
        addr: u64,
        /// The instruction.
        text: String,
        /// What.
        what: Violation,
    },
    /// Waves wait for each other.
    #[error("no wave can go on: {0}")]
    Deadlock(String),
    /// Not finished in time.
    #[error("not finished after {instructions} instructions: {waves}")]
    Limit {
        /// Instructions of all waves.
        instructions: u64,
        /// Where the waves are.
        waves: String,
    },
    /// A kernel that can not be started as asked.
    #[error("launch of {kernel}: {what}")]
    Launch {
        /// Kernel.
        kernel: String,
        /// Why.
        what: String,
    },
    /// The software controller did not do what the driver asked.
    #[error("controller: {0}")]
    Controller(String),
}

/// What a kernel must not do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Nothing is mapped there, or only for reading.
    #[error("{} {len} bytes at {addr:#x}, where nothing may be {}", if *write { "writing" } else { "reading" },
        if *write { "written" } else { "read" })]
    Fault {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u32,
        /// Direction.
        write: bool,
    },
    /// An address that is no multiple of what the instruction wants.
    #[error("address {0:#x} is not aligned")]
    Alignment(u64),
    /// A register whose load was not waited for.
    #[error("{0} is used before its load was waited for")]
    NotWaited(String),
    /// A jump to where there is no instruction.
    #[error("jump to {0:#x}, where there is no instruction")]
    Jump(u64),
    /// s_trap and the like.
    #[error("the kernel gives up")]
    Trap,
    /// Something that the interpreter can not do.
    #[error("{0}")]
    Unsupported(String),
}
