// SPDX-License-Identifier: MIT OR Apache-2.0
//! A software controller and a host, in one thread.

use nvme_kv::regs::{offset, Aqa, Cc};
use nvme_kv::{admin, kv, Cqe, DataPointer, Key, Sqe, PAGE_SIZE};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use xio_target::host::{DmaFault, Doorbells, Host, HostMemory, Interrupts};
use xio_target::store::{MemStore, Store};
use xio_target::{Config, Controller, NamespaceConfig};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the host's memory.
pub(crate) const MEMORY: usize = 32 * PAGE_SIZE;
/// Entries of each queue.
pub(crate) const ENTRIES: u32 = 16;
/// A page for data.
pub(crate) const DATA: u64 = 0x8000;
const CAPACITY: u64 = 128 << 10;
const MAX_VALUE: u32 = 64 << 10;

/// Memory, doorbells and interrupts.
pub(crate) struct FuzzHost {
    pub(crate) memory: Mutex<Vec<u8>>,
    doorbells: Vec<AtomicU32>,
}

impl FuzzHost {
    fn with(&self, addr: u64, len: usize, write: bool, work: impl FnOnce(&mut [u8])) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len, write };
        let at = usize::try_from(addr).map_err(|_| fault)?;
        let end = at.checked_add(len).ok_or(fault)?;
        work(self.memory.lock().unwrap().get_mut(at..end).ok_or(fault)?);
        Ok(())
    }
}

impl HostMemory for FuzzHost {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        self.with(addr, to.len(), false, |from| to.copy_from_slice(from))
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        self.with(addr, from.len(), true, |to| to.copy_from_slice(from))
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        self.write(addr, cqe.as_bytes())
    }
}

impl Doorbells for FuzzHost {
    fn load(&self, offset: usize) -> u32 {
        self.doorbells[(offset - offset::DOORBELLS) / 4].load(Ordering::Relaxed)
    }

    fn clear(&self, offset: usize) {
        self.doorbells[(offset - offset::DOORBELLS) / 4].store(0, Ordering::Relaxed);
    }
}

impl Interrupts for FuzzHost {
    fn raise(&self, vector: u16) {
        assert!(vector < 4);
    }
}

/// The controller, with an admin queue and queue 1.
pub(crate) struct Rig {
    pub(crate) controller: Controller,
    pub(crate) host: Arc<FuzzHost>,
    stores: Vec<Arc<MemStore>>,
    tails: [u32; 2],
}

impl Rig {
    /// Running.
    pub(crate) fn new() -> Self {
        let namespace = NamespaceConfig {
            capacity: CAPACITY,
            max_value: MAX_VALUE,
            max_key: 16,
            max_keys: 9,
            read_only: false,
        };
        let config = Config {
            serial: "FUZZ".into(),
            max_queue_entries: ENTRIES,
            max_queues: 3,
            mdts: 5,
            namespaces: vec![namespace; 2],
            ..Config::default()
        };
        let doorbells = (config.bar_len() - offset::DOORBELLS).div_ceil(4);
        let doorbells = (0..doorbells).map(|_| AtomicU32::new(0)).collect();
        let host = Arc::new(FuzzHost { memory: Mutex::new(vec![0; MEMORY]), doorbells });
        let parts = Host { memory: host.clone(), doorbells: host.clone(), interrupts: host.clone() };
        let mut stores = Vec::new();
        let controller = Controller::with_stores(config, parts, |_, namespace| {
            stores.push(Arc::new(MemStore::new(namespace)));
            stores[stores.len() - 1].clone()
        });
        let mut rig = Self { controller: controller.unwrap(), host, stores, tails: [0; 2] };
        rig.start();
        rig
    }

    /// Enables the controller and makes queue 1.
    pub(crate) fn start(&mut self) {
        self.tails = [0; 2];
        self.host.memory.lock().unwrap()[..0x4000].fill(0);
        let aqa = Aqa(0).with_asqs(ENTRIES - 1).with_acqs(ENTRIES - 1);
        self.controller.write_register(offset::AQA, &aqa.0.to_le_bytes());
        self.controller.write_register(offset::ASQ, &0u64.to_le_bytes());
        self.controller.write_register(offset::ACQ, &0x1000u64.to_le_bytes());
        self.controller.write_register(offset::CC, &Cc::KV_ENABLE.0.to_le_bytes());
        let (qid, entries, contiguous) = (1, ENTRIES, true);
        let cq = admin::CreateCq { qid, entries, contiguous, base: 0x3000, vector: Some(1) };
        self.submit(0, &admin::Command::CreateCq(cq).encode(1));
        let sq = admin::CreateSq { qid, entries, contiguous, base: 0x2000, cqid: 1, priority: 0 };
        self.submit(0, &admin::Command::CreateSq(sq).encode(2));
    }

    /// Puts a command into queue 0 or 1, whatever is there, rings, and lets the controller work.
    pub(crate) fn submit(&mut self, queue: usize, sqe: &Sqe) {
        let tail = self.tails[queue];
        self.host.write(queue as u64 * 0x2000 + u64::from(tail) * 64, sqe.as_bytes()).unwrap();
        self.tails[queue] = (tail + 1) % ENTRIES;
        self.ring(2 * queue, self.tails[queue]);
        self.work();
    }

    /// Writes doorbell `n`.
    pub(crate) fn ring(&self, n: usize, value: u32) {
        self.host.doorbells[n % self.host.doorbells.len()].store(value, Ordering::Relaxed);
    }

    /// Two passes, and what must hold at any time.
    pub(crate) fn work(&mut self) {
        for _ in 0..2 {
            assert!(self.controller.poll() <= 4 * 64 * 2);
        }
        for store in &self.stores {
            assert!(store.usage() <= CAPACITY && store.pairs() <= 9);
        }
    }

    /// After a reset nothing of the host's memory is touched, and a host that starts anew is served.
    pub(crate) fn end(mut self) {
        self.controller.clear_faults();
        self.controller.reset();
        let before = self.host.memory.lock().unwrap().clone();
        self.work();
        assert!(*self.host.memory.lock().unwrap() == before, "memory written after a reset");
        self.start();
        let page = self.identify(1, 0, 0);
        assert_eq!(page[4..8], *b"FUZZ", "a controller that does not recover");
    }

    /// An Identify data structure.
    pub(crate) fn identify(&mut self, cns: u8, csi: u8, nsid: u32) -> Vec<u8> {
        let data = DataPointer { prp1: DATA, prp2: 0 };
        let identify = admin::Identify { cns, csi, nsid, data, cntid: 0 };
        self.submit(0, &admin::Command::Identify(identify).encode(3));
        self.host.memory.lock().unwrap()[DATA as usize..][..PAGE_SIZE].to_vec()
    }

    /// A command of each kind on queue 1.
    pub(crate) fn commands() -> Vec<Sqe> {
        let (key, data) = (Key::new(b"weights.7").unwrap(), DataPointer { prp1: DATA, prp2: DATA + 4096 });
        let options = kv::StoreOptions::default();
        let commands = [
            kv::Command::Store { key, len: 5000, options, data },
            kv::Command::Retrieve { key, len: 8192, options: kv::RetrieveOptions::default(), data },
            kv::Command::List { start: None, len: 4096, data },
            kv::Command::Exist { key },
            kv::Command::Delete { key },
            kv::Command::Flush,
        ];
        (10..).zip(commands).map(|(cid, command)| command.encode(cid, 1)).collect()
    }

    /// Completions of queue 1 as they stand in memory.
    pub(crate) fn completions(&self) -> Vec<Cqe> {
        let memory = self.host.memory.lock().unwrap();
        let entries = memory[0x3000..][..ENTRIES as usize * Cqe::SIZE].chunks_exact(Cqe::SIZE);
        entries.map(|entry| Cqe::read_from_bytes(entry).unwrap()).collect()
    }
}
