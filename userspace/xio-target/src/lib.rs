// SPDX-License-Identifier: MIT OR Apache-2.0
//! A software NVMe Key Value controller.
//!
//! [`Controller`] is the device: it has registers, fetches commands from the queues in a [`host::Host`]'s
//! memory when [polled](Controller::poll), and keeps the pairs. It knows nothing of how it is plugged in.
#![warn(missing_docs)]

mod config;
mod controller;
pub mod host;

pub use config::{CommandSets, Config, ConfigError, NamespaceConfig};
pub use controller::Controller;
pub use host::Host;
