// SPDX-License-Identifier: GPL-2.0
//! Gives unprivileged programs, and the GPU code they run, queues of an NVMe Key Value controller.
//!
//! The module claims a controller, owns its admin queue, and makes I/O queues and memory for clients, who map
//! them and drive the controller without any system call. A client never learns or states an address of its own
//! making: buffers come with their DMA addresses. Direct queues are given out only where an IOMMU confines the
//! device (or to those who could do the same anyway), one owner at a time.
//!
//! Table of contents:
//!
//! * [`driver`]: which PCI functions are taken, and how they are let go.
//! * [`registers`], [`admin`], [`identity`]: enabling a controller and talking to it.
//! * [`controller`]: its state; [`object`], [`queue`], [`buffer`]: what clients make, and how it ends.
//! * [`chardev`], [`client`], [`ioctl`], [`mmap`]: the device node.
//! * [`mediated`], [`submit`]: commands that the kernel submits for clients.
//! * [`revoke`]: imported memory whose driver wants it back.
//! * [`state`]: what clients are told of the controller's state.
//! * [`interrupt`], [`error`].
//! * [`sys`]: unsafe code around what the `kernel` crate lacks, the only place that names `bindings`.
//!
//! Locking: each controller has one mutex, taken by ioctls, by page faults (so below the mmap lock), by unbind
//! and by reset. User memory is never touched while it is held. What a client maps is inserted by faults under
//! the mutex, and revoked under it before the memory goes. Reservation locks of dma-bufs are taken below it, so what their
//! drivers ask for is done later, by a work item.

#![deny(unsafe_code)]

use kernel::{driver::Registration, prelude::*};

mod admin;
mod buffer;
mod chardev;
mod client;
mod controller;
#[allow(unsafe_code)] // Promises about lifetimes that end with unbind.
mod driver;
mod error;
mod identity;
#[allow(unsafe_code)] // Handlers borrow from their vectors; eventfds are handed to handlers.
mod interrupt;
mod ioctl;
mod mediated;
mod mmap;
mod object;
#[allow(unsafe_code)] // Exports borrow from their queue.
mod queue;
mod registers;
mod revoke;
mod state;
mod submit;
#[allow(unsafe_code)] // Made for it.
mod sys;

#[pin_data]
struct Module {
    #[pin]
    _driver: Registration<sys::pci::adapter::Adapter<driver::Driver>>,
}

impl kernel::InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            sys::params::check()?;
            let name = <Self as kernel::ModuleMetadata>::NAME;
            Ok(try_pin_init!(Self { _driver <- Registration::new(name, module) }))
        })
    }
}

module! {
    type: Module,
    name: "rocm_xio",
    authors: ["The rocm-xio authors"],
    description: "NVMe Key Value queues for unprivileged programs and GPUs",
    license: "GPL",
    imports_ns: ["DMA_BUF"],
}
