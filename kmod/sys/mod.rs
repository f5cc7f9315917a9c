// SPDX-License-Identifier: GPL-2.0
//! Everything that the `kernel` crate has no safe abstraction for: the only place that names `bindings` and
//! the C shim. Each submodule gives out a type that is safe to use.

pub(crate) mod chardev;
pub(crate) mod cmb;
pub(crate) mod debugfs;
pub(crate) mod dma;
pub(crate) mod dmabuf;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod iommu;
pub(crate) mod lock;
pub(crate) mod mm;
pub(crate) mod pages;
pub(crate) mod params;
pub(crate) mod pci;
pub(crate) mod pin;
mod shim;
pub(crate) mod signal;
pub(crate) mod trace;
pub(crate) mod uring;
pub(crate) mod work;
