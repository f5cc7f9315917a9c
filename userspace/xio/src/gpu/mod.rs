// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that store and retrieve by themselves: the host's side of `kernels/include/xio_kv.h`.
//!
//! * [`Gpu`]: what runs kernels: an AMD or NVIDIA GPU, or threads of this process. The vendor's runtime is opened when
//!   it is asked for, so that one program starts on machines with both, one, or none.
//! * [`GpuQueue`]: a queue that kernels drive. [`GpuBuffer`]: memory that their commands point at.
//! * [`Kernel`]: a kernel, the library's or the application's own.
//! * [`GpuKv`]: tables of operations carried out by kernels. The place to start.
//! * [`Doorbell`]: by which way the GPU reaches the controller's doorbells.
//! * [`mod@bench`]: rates, beside those of a bare queue of the same shape.
//!
//! ```
//! use xio::gpu::{Gpu, GpuKv, GpuOptions, Task};
//! use xio::Controller;
//!
//! # if Gpu::host().is_err() { return Ok(()); } // built without a C++ compiler
//! let controller = Controller::loopback(xio::loopback::Config::default())?;
//! let gpu = Gpu::host()?;
//! let mut kv = GpuKv::open(&gpu, &controller, None, GpuOptions::default())?;
//! let buffer = kv.buffer(8192)?;
//! buffer.buffer().write(0, b"some bytes")?;
//! let key = "weights.7".parse()?;
//! kv.run(&buffer, &[Task::store(key, 0, 10)])?;
//! let outcome = kv.run(&buffer, &[Task::retrieve(key, 4096, 4096)])?;
//! assert_eq!(outcome[0].length, 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What ran where: everything on the host and on an NVIDIA GPU; the AMD machine code in an interpreter, but neither it
//! nor the calls into AMD's runtime on an AMD GPU.

pub mod bench;
mod buffer;
mod code;
mod cuda;
mod device;
mod doorbell;
mod executor;
mod hip;
mod host;
mod hsa;
mod kernel;
mod kv;
mod library;
mod memory;
mod queue;

pub use buffer::GpuBuffer;
pub use device::{Gpu, GpuInfo, Which};
pub use doorbell::Doorbell;
pub use executor::Kind;
pub use kernel::{Builtin, Kernel};
pub use kv::{GpuKv, GpuOptions, Outcome, Task};
pub use library::{symbols, Symbol};
pub use memory::{DeviceDmabuf, DeviceMemory};
pub use queue::{GpuQueue, GpuQueueOptions, QueueCounters};
pub use xio_device_abi as abi;
