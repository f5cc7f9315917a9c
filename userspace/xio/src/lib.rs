// SPDX-License-Identifier: MIT OR Apache-2.0
//! NVMe Key Value storage from user space: commands go straight from this process to the controller and
//! completions straight back, without a system call, over queues that the `rocm_xio` module maps.
//!
//! * [`Controller`]: a controller, by its node `/dev/rocm-xioN` or [inside this process](Controller::loopback).
//! * [`Kv`]: values in ordinary memory, one call at a time. The place to start.
//! * [`Queue`]: blocking calls, and submit and poll with many commands in flight.
//! * [`Buffer`], [`Slice`]: memory that commands point at.
//! * [`gpu`]: kernels that store and retrieve by themselves.
//! * [`RawQueue`]: a queue for code outside this library.
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
//! Only one process at a time has queues and buffers on a controller; see [`Error::Busy`]. Ordering of memory
//! accesses relies on x86-64 for what a real device sees.

mod backend;
mod buffer;
mod command;
mod controller;
mod device;
mod error;
pub mod gpu;
mod info;
mod kv;
mod list;
pub mod loopback;
mod mapping;
mod queue;

pub use buffer::{Buffer, Slice};
pub use command::{Completion, Operation, Token};
pub use controller::Controller;
pub use error::{Error, LimitBy, Result};
pub use info::{Direct, Info, Iommu, Namespace};
pub use kv::Kv;
pub use list::Pages;
pub use nvme_kv::kv::{Condition, RetrieveOptions, StoreOptions};
pub use nvme_kv::{list::Keys, Key, KeyError, ParseKeyError, Status};
pub use queue::{Queue, QueueOptions, RawQueue, Wait};
