// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the machine code that AMD GPUs get, without one.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
