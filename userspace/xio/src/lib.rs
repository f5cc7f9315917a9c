// SPDX-License-Identifier: MIT OR Apache-2.0
//! NVMe Key Value storage from user space, in one of two ways (see [`Path`]):
//!
//! * **direct**: commands go straight from this process to the controller and completions straight back, without a
//!   system call, over queues that the `rocm_xio` module maps. One process at a time, where an IOMMU confines the device.
//! * **mediated**: the kernel checks and submits them, one or many in a system call. Everybody, everywhere.
//!
//! * [`Controller`]: a controller, by its node `/dev/rocm-xioN` or [inside this process](Controller::loopback).
//! * [`Kv`]: values in ordinary memory, one call at a time. The place to start.
//! * [`Queue`]: blocking calls, and submit and poll with many commands in flight.
//! * [`MediatedQueue`]: blocking calls and batches by way of the kernel; [`MediatedRing`]: submit and poll.
//! * [`Buffer`], [`Slice`]: memory that commands point at: of the module, [`Memory`] of this process, the controller's own, or
//!   what another device has, [imported](Controller::import).
//! * [`gpu`]: kernels that store and retrieve by themselves.
//! * [`RawQueue`]: a queue for code outside this library.
//! * [`ControllerState`], [`Events`]: whether the controller takes commands, and being told when it was reset.
//! * [`Error`]: says which limit was hit and what to do.
//!
//! ```
//! use xio::{Controller, Kv, StoreOptions};
//!
//! let controller = Controller::loopback(xio::loopback::Config::default())?;
//! let mut kv = Kv::open(&controller, None)?;
//! let key = "weights.7".parse()?;
//! kv.store(&key, b"some bytes", StoreOptions::default())?;
//! assert_eq!(kv.retrieve(&key)?, b"some bytes");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Resets
//!
//! A controller may be reset while programs use it: by an administrator, by suspend and resume, or by the module when it does not
//! answer. All queues and buffers of all programs go with that, and what is called next fails with [`Error::Revoked`]: commands
//! that were in flight may or may not have been done. The [`Controller`] stays: new queues and buffers can be made on it. Only
//! [`Error::Gone`] is for good. Memory that was revoked raises SIGBUS when it is touched, which this library handles: see
//! [`sigbus`].
//!
//! # Who else
//!
//! Direct queues are for one process alone: beside it no other has queues or buffers on the controller, see
//! [`Error::Busy`]. Ordering of memory
//! accesses relies on x86-64 for what a real device sees.

mod backend;
mod buffer;
mod command;
mod controller;
mod device;
mod dmabuf;
mod error;
pub mod gpu;
mod info;
mod kv;
mod list;
pub mod loopback;
mod mapping;
mod mediated;
mod memory;
mod path;
mod queue;
mod revocation;
mod ring;
pub mod sigbus;
mod state;
mod uring;
mod way;

pub use buffer::{Buffer, Slice};
pub use command::{Completion, Operation, Token};
pub use controller::Controller;
pub use dmabuf::{system_dmabuf, Exported, Import, QueuePart};
pub use error::{Error, LimitBy, Result};
pub use info::{Cmb, Direct, Info, Iommu, Namespace, Unconfined};
pub use kv::{Kv, KvOptions};
pub use list::Pages;
pub use mediated::MediatedQueue;
pub use memory::Memory;
pub use nvme_kv::kv::{Condition, RetrieveOptions, StoreOptions};
pub use nvme_kv::{list::Keys, Key, KeyError, ParseKeyError, Status};
pub use path::{MemoryKind, Path};
pub use queue::{Queue, QueueOptions, RawQueue, Wait};
pub use ring::MediatedRing;
pub use state::{ControllerState, Events, Liveness, ResetCause};
