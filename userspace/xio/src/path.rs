// SPDX-License-Identifier: MIT OR Apache-2.0
//! How commands get to the controller, and what kind of memory they point at.

use std::fmt;

/// How commands get to the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Path {
    /// Direct where this process may have it and gets it, else mediated.
    #[default]
    Auto,
    /// Over queues mapped into this process: no system call per command. One process at a time, and only where something
    /// confines the device; see [`Info::direct`](crate::Info::direct).
    Direct,
    /// Over the kernel's queue: a system call per command or batch. For any number of processes, with IOMMU or without.
    Mediated,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Mediated => "mediated",
        })
    }
}

/// What kind of memory a [`Kv`](crate::Kv) works in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryKind {
    /// Allocated by the module: [`Controller::alloc`](crate::Controller::alloc).
    #[default]
    Coherent,
    /// Of this process, registered and pinned: [`Controller::register`](crate::Controller::register). It counts against
    /// RLIMIT_MEMLOCK.
    Pinned,
    /// In the controller memory buffer, if it has one: [`Controller::alloc_cmb`](crate::Controller::alloc_cmb).
    Cmb,
    /// An imported dma-buf of the system's memory: [`system_dmabuf`](crate::system_dmabuf) and
    /// [`Controller::import`](crate::Controller::import).
    Dmabuf,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Coherent => "coherent",
            Self::Pinned => "pinned",
            Self::Cmb => "cmb",
            Self::Dmabuf => "dmabuf",
        })
    }
}
