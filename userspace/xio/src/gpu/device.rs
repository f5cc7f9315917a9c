// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which executors and devices there are.

use super::executor::{Executor, Kind};
use super::memory::{DeviceMemory, Registry};
use super::{cuda, hip, host};
use crate::error::{gpu, Error, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Which device to take: `host`, `hip:N`, `cuda:N`, or `N` of all GPUs, AMD's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// A GPU by its number among those of one kind; of the host there is one.
    One(Kind, u32),
    /// A GPU by its number among all, AMD's first.
    Any(u32),
}

impl Default for Which {
    fn default() -> Self {
        Self::Any(0)
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, number) = text.split_once(':').map_or((text, None), |(kind, number)| (kind, Some(number)));
        let parse = |number: &str| number.parse().map_err(|_| format!("{number:?} is no number of a GPU"));
        match (kind, number) {
            ("host", None) => Ok(Self::One(Kind::Host, 0)),
            ("hip", n) => Ok(Self::One(Kind::Hip, n.map_or(Ok(0), parse)?)),
            ("cuda", n) => Ok(Self::One(Kind::Cuda, n.map_or(Ok(0), parse)?)),
            (n, None) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => Ok(Self::Any(parse(n)?)),
            _ => Err("a GPU is host, hip:N, cuda:N or a number".into()),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(Kind::Host, _) => f.write_str("host"),
            Self::One(kind, n) => write!(f, "{kind}:{n}"),
            Self::Any(n) => write!(f, "{n}"),
        }
    }
}

/// A device that runs kernels. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) registry: Arc<Registry>,
    which: Which,
}

/// A device, for lists.
#[derive(Clone, Debug)]
pub struct GpuInfo {
    /// How to name it.
    pub which: Which,
    /// Its name.
    pub name: String,
    /// Which of the library's kernels it runs, or why none.
    pub kernels: String,
    /// Whether a storage device can reach its memory.
    pub peer_to_peer: String,
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::Gpu`] when runtime or device are not there.
    pub fn open(which: Which) -> Result<Self> {
        let (kind, n) = match which {
            Which::One(kind, n) => (kind, n),
            Which::Any(n) => Self::nth(n)?,
        };
        let executor: Arc<dyn Executor> = match kind {
            Kind::Hip => Arc::new(hip::Hip::new(n)?),
            Kind::Cuda => Arc::new(cuda::Cuda::new(n)?),
            Kind::Host => Arc::new(host::Host::new()?),
        };
        Ok(Self { executor, registry: Arc::default(), which: Which::One(kind, n) })
    }

    /// Threads of this process in the place of a GPU.
    ///
    /// # Errors
    /// [`Error::Gpu`] when the library was built without a C++ compiler.
    pub fn host() -> Result<Self> {
        Self::open(Which::One(Kind::Host, 0))
    }

    fn nth(n: u32) -> Result<(Kind, u32)> {
        let (hip, cuda) = (hip::count(), cuda::count());
        let (amd, nvidia) = (hip.as_ref().copied().unwrap_or(0), cuda.as_ref().copied().unwrap_or(0));
        if n < amd {
            return Ok((Kind::Hip, n));
        }
        if n < amd + nvidia {
            return Ok((Kind::Cuda, n - amd));
        }
        let why = |count: Result<u32>| count.err().map(|e| format!("; {e}")).unwrap_or_default();
        let found = format!("there is no GPU {n}: found {amd} of AMD and {nvidia} of NVIDIA");
        Err(gpu("gpu", format!("{found}{}{}", why(hip), why(cuda))))
    }

    /// All devices there are, and the errors of the runtimes that found none.
    pub fn list() -> (Vec<GpuInfo>, Vec<Error>) {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for (kind, count) in [(Kind::Hip, hip::count()), (Kind::Cuda, cuda::count()), (Kind::Host, Ok(1))] {
            let count = count.unwrap_or_else(|error| {
                errors.push(error);
                0
            });
            for n in 0..count {
                match Self::open(Which::One(kind, n)) {
                    Ok(gpu) => found.push(gpu.info()),
                    Err(error) => errors.push(error),
                }
            }
        }
        (found, errors)
    }

    /// What it is.
    pub fn info(&self) -> GpuInfo {
        GpuInfo {
            which: self.which,
            name: self.executor.name(),
            kernels: self.executor.code(),
            peer_to_peer: self.executor.peer_to_peer(),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.executor.kind()
    }

    /// Ticks of the device's clock in a second, as kernels measure.
    pub fn clock_hz(&self) -> u64 {
        self.executor.clock_hz()
    }

    /// Allocates memory of the device, zeroed, at least `len` bytes.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn alloc(&self, len: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(&self.executor, len)
    }

    /// The same, for [`DeviceMemory::export`]; [`GpuBuffer::in_device_memory`](super::GpuBuffer::in_device_memory) does both,
    /// and the import. On the host it is a file in memory.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn alloc_shared(&self, len: usize) -> Result<DeviceMemory> {
        DeviceMemory::shared(&self.executor, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_text() {
        let parse = |text: &str| text.parse::<Which>();
        assert_eq!(parse("host"), Ok(Which::One(Kind::Host, 0)));
        assert_eq!(parse("hip:2"), Ok(Which::One(Kind::Hip, 2)));
        assert_eq!(parse("cuda"), Ok(Which::One(Kind::Cuda, 0)));
        assert_eq!(parse("3"), Ok(Which::Any(3)));
        for bad in ["", "gpu", "host:1", "cuda:x", "hip:", "-1", "4294967296"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_an_error_and_not_a_crash() {
        let error = Gpu::open(Which::Any(99)).unwrap_err().to_string();
        assert!(error.contains("no GPU 99"), "{error}");
    }
}
