// SPDX-License-Identifier: MIT OR Apache-2.0
//! A software NVMe Key Value controller.
//!
//! [`Controller`] is the device: it has registers, fetches commands from the queues in a [`host::Host`]'s
//! memory when [polled](Controller::poll), and keeps the pairs in a [`store::Store`]. It knows nothing of
//! how it is plugged in: the binary serves it to QEMU over vfio-user (module `vfio`), the library `xio` runs it
//! inside its own process.
//!
//! | module | what |
//! |---|---|
//! | [`host`] | what a controller needs of its host |
//! | `config` | its limits |
//! | `attach` | namespaces come and go; statistics |
//! | `cmb` | Controller Memory Buffer |
//! | `controller` | registers, enable, disable, shutdown, the pass over all queues |
//! | `queues`, `shadow` | rings in host memory, and doorbells there |
//! | `admin`, `identify`, `features`, `log_page`, `event` | the admin command set |
//! | `kv`, `flight`, [`store`] | the Key Value command set, its commands under way, and where pairs are kept |
//! | [`fault`] | misbehaving on purpose |
//! | `sync` | what threads share, by names that a checker can give another meaning |
//! | [`vfio`] | PCI function, DMA and interrupts for a vfio-user client |
#![warn(missing_docs)]

mod admin;
mod attach;
mod cmb;
mod config;
mod controller;
mod data;
mod event;
pub mod fault;
mod features;
mod flight;
pub mod host;
mod huge;
mod identify;
mod kv;
mod log_page;
mod queues;
mod shadow;
pub mod store;
mod sync;
pub mod vfio;

pub use attach::{AttachError, Attached, Statistics};
pub use config::{CommandSets, Config, ConfigError, NamespaceConfig};
pub use controller::Controller;
pub use host::Host;
