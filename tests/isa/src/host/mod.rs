// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software controller beside the interpreted device: it reaches the device's memory by addresses of its own, its
//! doorbells are memory of the device, and what it writes arrives late, completions in another order.

mod admin;
mod delivery;
mod dma;

pub use admin::QueuePair;
pub use delivery::{Hold, Latency};
pub use dma::Dma;

use crate::error::{Error, Result};
use crate::machine::{Device, SharedMemory};
use crate::memory::Kind;
use delivery::Delivery;
use nvme_kv::regs;
use nvme_kv::Cqe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xio_target::host::{DmaFault, Doorbells, HostMemory, Interrupts};
use xio_target::store::Store;
use xio_target::{Config, Controller, Host, NamespaceConfig};

/// Where the device sees the doorbells.
const REGISTERS: u64 = 0x7f30_0000_0000;

/// What is between the controller and the device's memory.
#[derive(Debug)]
struct Bus {
    memory: SharedMemory,
    dma: Arc<Dma>,
    delivery: Mutex<Delivery>,
}

impl Bus {
    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to the device's memory, of which the controller is not told whether it worked.
    fn write_now(&self, addr: u64, bytes: &[u8]) -> Result<()> {
        let written = self.memory.lock().controller_write(addr, bytes);
        written.map_err(|e| Error::Controller(e.to_string()))
    }
}

impl HostMemory for Bus {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let len = to.len();
        let fault = DmaFault { addr, len, write: false };
        for (device, range) in self.dma.segments(addr, len, false)? {
            // It sees what it wrote before, even if nobody else does.
            for (at, bytes) in self.delivery().writes_to(device, range.len()) {
                self.write_now(at, &bytes).map_err(|_| fault)?;
            }
            let read = self.memory.lock().controller_read(device, to.get_mut(range).unwrap_or_default());
            read.map_err(|_| fault)?;
        }
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        for (device, range) in self.dma.segments(addr, from.len(), true)? {
            self.delivery().write(device, from.get(range).unwrap_or_default());
        }
        Ok(())
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: Cqe::SIZE, write: true };
        match self.dma.segments(addr, Cqe::SIZE, true)?.first() {
            Some((device, range)) if range.len() == Cqe::SIZE && device % Cqe::SIZE as u64 == 0 => {
                self.delivery().post(*device, cqe);
                Ok(())
            }
            _ => Err(fault),
        }
    }
}

/// The doorbells, in memory of the device.
#[derive(Debug)]
struct Registers(SharedMemory);

impl Doorbells for Registers {
    fn load(&self, offset: usize) -> u32 {
        self.0.lock().register(REGISTERS + offset as u64).unwrap_or_default()
    }

    fn clear(&self, offset: usize) {
        // Queues are made while no kernel runs; a doorbell that is not mapped reads as zero anyway.
        let cleared = self.0.lock().write(REGISTERS + offset as u64, &[0; 4]);
        debug_assert!(cleared.is_ok(), "doorbell {offset:#x}");
    }
}

/// Nobody waits for interrupts.
#[derive(Debug)]
struct NoInterrupts;

impl Interrupts for NoInterrupts {
    fn raise(&self, _: u16) {}
}

/// The software controller beside a device.
pub struct KvController {
    controller: Controller,
    bus: Arc<Bus>,
    doorbells: regs::Doorbells,
    admin: Option<admin::Admin>,
}

impl KvController {
    /// Powers a controller on and enables it; `store` keeps the pairs of its namespaces, a store for each.
    pub fn new(
        memory: &SharedMemory,
        config: Config,
        latency: Latency,
        seed: u64,
        store: impl FnMut(u32, &NamespaceConfig) -> Arc<dyn Store>,
    ) -> Result<Self> {
        let doorbells = config.doorbells();
        let last = config.max_queues;
        memory.lock().map("doorbells", REGISTERS, doorbells.bar_len(last), Kind::Registers);
        let dma = Arc::new(Dma::default());
        let delivery = Mutex::new(Delivery::new(latency, seed));
        let bus = Arc::new(Bus { memory: memory.clone(), dma, delivery });
        let host = Host {
            memory: bus.clone(),
            doorbells: Arc::new(Registers(memory.clone())),
            interrupts: Arc::new(NoInterrupts),
        };
        let controller = Controller::with_stores(config, host, store);
        let controller = controller.map_err(|e| Error::Controller(e.to_string()))?;
        let mut this = Self { controller, bus, doorbells, admin: None };
        this.enable()?;
        Ok(this)
    }

    /// Addresses by which the controller reaches memory.
    pub fn dma(&self) -> &Dma {
        &self.bus.dma
    }

    /// Where the device finds the doorbells of a queue pair: tail of submissions, head of completions.
    pub fn doorbells(&self, qid: u16) -> (u64, u64) {
        let at = |offset: usize| REGISTERS + offset as u64;
        (at(self.doorbells.sq_tail(qid)), at(self.doorbells.cq_head(qid)))
    }

    /// Keeps the completion of a command back.
    pub fn hold(&self, hold: Hold) {
        self.bus.delivery().hold(hold);
    }

    /// Completions that were posted, and that nobody can see yet.
    pub fn outstanding(&self) -> usize {
        self.bus.delivery().outstanding()
    }
}

impl Device for KvController {
    fn poll(&mut self, now: u64, _: bool) -> Result<Option<u64>> {
        self.bus.delivery().set_time(now);
        while self.controller.poll() > 0 {}
        let (writes, posts, next) = self.bus.delivery().due(now);
        for (addr, bytes) in writes {
            self.bus.write_now(addr, &bytes)?;
        }
        for (addr, bytes) in posts {
            let posted = self.bus.memory.lock().controller_post(addr, &bytes);
            posted.map_err(|e| Error::Controller(e.to_string()))?;
        }
        if self.controller.is_running() {
            Ok(next)
        } else {
            Err(Error::Controller("it has failed, or was shut down".into()))
        }
    }
}
