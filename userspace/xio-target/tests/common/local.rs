// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller in this process.

use super::{Bus, Driver};
use nvme_kv::regs::offset;
use nvme_kv::{Cqe, PAGE_SIZE};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use xio_target::host::{DmaFault, Doorbells, Host, HostMemory, Interrupts};
use xio_target::store::{MemStore, Store};
use xio_target::{Config, Controller, NamespaceConfig};
use zerocopy::IntoBytes;

pub struct TestHost {
    pub memory: Mutex<Vec<u8>>,
    /// Addresses that only the host may write.
    pub read_only: Mutex<Range<u64>>,
    pub doorbells: Vec<AtomicU32>,
    pub interrupts: Vec<AtomicU32>,
}

impl TestHost {
    fn range(&self, addr: u64, len: usize, write: bool) -> Result<Range<usize>, DmaFault> {
        let fault = DmaFault { addr, len, write };
        let end = addr.checked_add(len as u64).ok_or(fault)?;
        let protected = self.read_only.lock().unwrap();
        if end > self.memory.lock().unwrap().len() as u64
            || write && addr < protected.end && end > protected.start
        {
            return Err(fault);
        }
        Ok(addr as usize..end as usize)
    }
}

impl HostMemory for TestHost {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let range = self.range(addr, to.len(), false)?;
        to.copy_from_slice(&self.memory.lock().unwrap()[range]);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        let range = self.range(addr, from.len(), true)?;
        self.memory.lock().unwrap()[range].copy_from_slice(from);
        Ok(())
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        self.write(addr, cqe.as_bytes())
    }
}

impl Doorbells for TestHost {
    fn load(&self, offset: usize) -> u32 {
        self.doorbells[(offset - offset::DOORBELLS) / 4].load(Ordering::Acquire)
    }

    fn clear(&self, offset: usize) {
        self.doorbells[(offset - offset::DOORBELLS) / 4].store(0, Ordering::Release);
    }
}

impl Interrupts for TestHost {
    fn raise(&self, vector: u16) {
        self.interrupts[usize::from(vector)].fetch_add(1, Ordering::Relaxed);
    }
}

pub struct Local {
    pub controller: Controller,
    pub host: Arc<TestHost>,
}

impl Bus for Local {
    fn read_register(&mut self, offset: usize, to: &mut [u8]) {
        self.controller.read_register(offset, to);
    }
    fn write_register(&mut self, offset: usize, from: &[u8]) {
        self.controller.write_register(offset, from);
    }
    fn ring(&mut self, offset: usize, value: u32) {
        self.host.doorbells[(offset - offset::DOORBELLS) / 4].store(value, Ordering::Release);
    }
    fn peek(&self, addr: u64, to: &mut [u8]) {
        self.host.read(addr, to).unwrap();
    }
    fn poke(&mut self, addr: u64, from: &[u8]) {
        let at = addr as usize;
        self.host.memory.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
    }
    fn work(&mut self) {
        self.controller.poll();
    }
}

/// A controller with `mib` MiB of host memory.
pub fn plug(config: Config, mib: usize) -> Driver<Local> {
    plug_stores(config, mib, |_, namespace| Arc::new(MemStore::new(namespace)))
}

/// With stores of one's own.
pub fn plug_stores(
    config: Config,
    mib: usize,
    open: impl FnMut(u32, &NamespaceConfig) -> Arc<dyn Store>,
) -> Driver<Local> {
    let doorbells = (config.bar_len() - offset::DOORBELLS).div_ceil(4);
    let host = Arc::new(TestHost {
        memory: Mutex::new(vec![0; mib << 20]),
        read_only: Mutex::new(0..0),
        doorbells: (0..doorbells).map(|_| AtomicU32::new(0)).collect(),
        interrupts: (0..config.vectors()).map(|_| AtomicU32::new(0)).collect(),
    });
    let parts = Host { memory: host.clone(), doorbells: host.clone(), interrupts: host.clone() };
    let controller = Controller::with_stores(config, parts, open).unwrap();
    Driver::new(Local { controller, host }, PAGE_SIZE as u64)
}

/// Enabled, with I/O queue 1.
pub fn ready(config: Config, mib: usize) -> Driver<Local> {
    let mut d = plug(config, mib);
    d.enable(16);
    d.create(1, 16);
    d
}

pub fn small(namespace: NamespaceConfig) -> Config {
    Config { namespaces: vec![namespace], ..Config::default() }
}
