// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways by which a GPU reaches a doorbell: the first that works is taken, and which one it is can be asked for.
#![allow(unsafe_code, reason = "registers of a device")]

use super::device::Gpu;
use super::executor::{Kind, MappedDmabuf, Mapping};
use super::memory::Registered;
use crate::dmabuf::QueuePart;
use crate::error::{Error, Result};
use crate::queue::RawQueue;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How a GPU reaches the doorbells of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doorbell {
    /// The doorbells are ordinary memory (a loopback controller), mapped for the device.
    Memory,
    /// The runtime mapped the register: hipHostRegister or cuMemHostRegister with the flag for I/O memory.
    IoMemory,
    /// hsa_amd_memory_lock mapped the register.
    HsaLock,
    /// The GPU's driver mapped the register from a dma-buf that the module made: hsa_amd_interop_map_buffer or
    /// cuImportExternalMemory.
    Dmabuf,
    /// The GPU writes to memory, and a thread of this process writes on to the register: a fraction of the speed.
    Proxy,
}

impl fmt::Display for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "memory, mapped for the device",
            Self::IoMemory => "register, mapped by the runtime",
            Self::HsaLock => "register, mapped by hsa_amd_memory_lock",
            Self::Dmabuf => "register, mapped from a dma-buf of the module",
            Self::Proxy => "memory, carried on to the register by a thread of this process",
        })
    }
}

/// The two doorbells of a queue, for kernels.
#[derive(Debug)]
pub(super) struct Doorbells {
    pub way: Doorbell,
    /// Why the ways before were not taken.
    pub refused: Vec<String>,
    pub sq: u64,
    pub cq: u64,
    held: Held,
}

/// What must stay for the addresses to be good.
#[derive(Debug)]
enum Held {
    Nothing,
    Registered(#[allow(dead_code, reason = "kept, not looked at")] [Arc<Registered>; 2]),
    Dmabufs(#[allow(dead_code, reason = "kept, not looked at")] [MappedDmabuf; 2]),
    Proxy(#[allow(dead_code, reason = "kept, not looked at")] Proxy),
}

impl Doorbells {
    /// Finds a way. `registers` says whether the doorbells are registers of a device; `only` allows but one way.
    ///
    /// # Safety
    /// The queue is there until this is dropped.
    pub(super) unsafe fn reach(
        gpu: &Gpu,
        raw: &RawQueue,
        registers: bool,
        only: Option<Doorbell>,
    ) -> Result<Self> {
        let (sq, cq) = (raw.sq_doorbell_ptr(), raw.cq_doorbell_ptr());
        let ways: &[Doorbell] = match (gpu.kind(), registers) {
            // The kernels are threads of this process: its mapping is theirs.
            (Kind::Host, _) if only.is_none() => {
                let way = if registers { Doorbell::IoMemory } else { Doorbell::Memory };
                return Ok(Self { way, refused: vec![], sq: sq as u64, cq: cq as u64, held: Held::Nothing });
            }
            (_, false) => &[Doorbell::Memory, Doorbell::Proxy],
            (Kind::Hip, true) => &[Doorbell::IoMemory, Doorbell::HsaLock, Doorbell::Dmabuf, Doorbell::Proxy],
            (_, true) => &[Doorbell::IoMemory, Doorbell::Dmabuf, Doorbell::Proxy],
        };
        let mut refused = Vec::new();
        for way in ways.iter().filter(|way| only.is_none_or(|only| only == **way)) {
            // SAFETY: the caller's promise.
            match unsafe { Self::by(*way, gpu, raw) } {
                Ok(made) => return Ok(Self { refused, ..made }),
                Err(error) => refused.push(format!("{way}: {error}")),
            }
        }
        Err(Error::Gpu {
            executor: "doorbell",
            what: format!("the GPU does not reach it: {}", refused.join("; ")),
        })
    }

    /// # Safety
    /// As for `reach`.
    unsafe fn by(way: Doorbell, gpu: &Gpu, raw: &RawQueue) -> Result<Self> {
        let (sq, cq) = (raw.sq_doorbell_ptr(), raw.cq_doorbell_ptr());
        let how = match way {
            Doorbell::Memory => Mapping::Memory,
            Doorbell::IoMemory => Mapping::IoMemory,
            Doorbell::HsaLock => Mapping::HsaLock,
            Doorbell::Dmabuf => return Self::by_dmabuf(gpu, raw),
            Doorbell::Proxy => {
                // SAFETY: the caller's promise.
                let proxy = unsafe { Proxy::start(gpu, sq, cq)? };
                let (sq, cq) = (proxy.address, proxy.address + 4);
                return Ok(Self { way, refused: vec![], sq, cq, held: Held::Proxy(proxy) });
            }
        };
        // SAFETY: the caller's promise.
        let register = |p: *mut u32| unsafe { gpu.registry.register(&gpu.executor, p.cast(), 4, how) };
        let held = [register(sq)?, register(cq)?];
        let (sq, cq) = (held[0].address_of(sq.cast()), held[1].address_of(cq.cast()));
        Ok(Self { way, refused: vec![], sq, cq, held: Held::Registered(held) })
    }

    fn by_dmabuf(gpu: &Gpu, raw: &RawQueue) -> Result<Self> {
        let map = |part| -> Result<(u64, MappedDmabuf)> {
            let exported = raw.export(part)?;
            let len =
                usize::try_from(exported.len).map_err(|_| Error::Protocol("a dma-buf too large".into()))?;
            let mapped = gpu.executor.map_dmabuf(exported.dmabuf, len)?;
            Ok((mapped.address + u64::from(exported.at), mapped))
        };
        let ((sq, first), (cq, second)) = (map(QueuePart::SqDoorbell)?, map(QueuePart::CqDoorbell)?);
        let held = Held::Dmabufs([first, second]);
        Ok(Self { way: Doorbell::Dmabuf, refused: vec![], sq, cq, held })
    }

    /// Takes them from the device, whose kernels have ended.
    pub(super) fn release(&mut self) {
        self.held = Held::Nothing;
    }
}

/// Idle passes of the proxy before it yields, and before it sleeps between passes.
const SPINS: u32 = 10_000;
const YIELDS: u32 = 100_000;
const NAP: Duration = Duration::from_micros(50);

/// A thread that carries doorbell values from memory to the registers.
///
/// Drop order: the thread ends, then the memory goes.
#[derive(Debug)]
struct Proxy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Where kernels write, tail first.
    address: u64,
    _registered: Arc<Registered>,
    _memory: Arc<crate::mapping::Region>,
}

impl Proxy {
    /// # Safety
    /// Both pointers are doorbells that stay mapped until this is dropped.
    unsafe fn start(gpu: &Gpu, sq: *mut u32, cq: *mut u32) -> Result<Self> {
        let memory = Arc::new(crate::mapping::Region::anonymous(nvme_kv::PAGE_SIZE)?);
        // SAFETY: mapped as long as `memory`, which outlives the registration by the order of the fields.
        let registered =
            unsafe { gpu.registry.register(&gpu.executor, memory.as_ptr(), 4096, Mapping::Memory)? };
        let address = registered.address_of(memory.as_ptr());
        let stop = Arc::new(AtomicBool::new(false));
        let (from, to) = (memory.clone(), [sq as usize, cq as usize]);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("xio-doorbell".into()).spawn(move || {
            let mut last = [0; 2];
            let mut idle = 0u32;
            while !stopped.load(Ordering::Relaxed) {
                idle = idle.saturating_add(1);
                for n in 0..2 {
                    let value = from.load_acquire(n * 4);
                    if std::mem::replace(&mut last[n], value) != value {
                        idle = 0;
                        // SAFETY: a doorbell by the promise of `start`, mapped until the thread has ended.
                        unsafe { AtomicU32::from_ptr(to[n] as *mut u32) }.store(value, Ordering::Release);
                    }
                }
                match idle {
                    0..SPINS => std::hint::spin_loop(),
                    SPINS..YIELDS => std::thread::yield_now(),
                    _ => std::thread::sleep(NAP),
                }
            }
        });
        let thread = thread.map_err(|source| Error::Os { what: "starting a thread", source })?;
        let (_registered, _memory) = (registered, memory);
        Ok(Self { stop, thread: Some(thread), address, _registered, _memory })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok() || std::thread::panicking(), "the doorbell's thread panicked");
        }
    }
}
