// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller as a PCI function that a vfio-user client (QEMU's `vfio-user-pci`) plugs into its machine.
//!
//! One client at a time speaks over a Unix socket. Its memory is mapped here and the doorbells are mapped there,
//! so commands flow without messages: a thread polls the doorbells, and messages are for set-up, for
//! registers, and for interrupts to be wired.
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages |
//! | `socket` | their transport, with file descriptors |
//! | `mapping` | memory shared with the client |
//! | `dma` | the client's memory by address |
//! | `remote` | memory that the client has not shared: it is asked to copy |
//! | `interrupts` | MSI-X vectors, an eventfd each |
//! | `pci` | configuration space |
//! | `bar` | layout of BAR 0, doorbells |
//! | `cmb` | BAR 2, the Controller Memory Buffer |
//! | `device` | answers messages |
//! | `poller` | the thread that runs the controller |
//! | `server` | clients, one after the other |
//!
//! The client is trusted as far as its own memory goes: one that truncates a file it has shared stops this program.

mod bar;
mod cmb;
mod device;
mod dma;
mod interrupts;
mod mapping;
mod pci;
mod poller;
mod remote;
mod server;
mod socket;
mod wire;

pub use poller::Handle;
pub use server::{Listener, Server};
