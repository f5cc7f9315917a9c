// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives the software controller through its registers and its admin queue, as the module drives a real one.

use super::arena::{Arena, Mapped};
use super::poller::Shared;
use crate::error::{protocol, Error, Result};
use nvme_kv::admin::{self, Command, CreateCq, CreateSq, Feature, Identify, NumberOfQueues};
use nvme_kv::identify::{self, cns};
use nvme_kv::regs::{offset, Aqa, Cap, Cc, Csts};
use nvme_kv::ring::{CqConsumer, SqProducer};
use nvme_kv::{csi, Cqe, DataPointer, Sqe, PAGE_SIZE};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const ADMIN_ENTRIES: u32 = 32;

/// An enabled controller.
#[derive(Debug)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    sq: SqProducer,
    cq: CqConsumer,
    sq_memory: Mapped,
    cq_memory: Mapped,
    data: Mapped,
    cap: Cap,
    timeout: Duration,
}

impl Driver {
    /// Resets the controller and enables it for Key Value.
    pub(super) fn start(shared: Arc<Shared>, arena: &Arc<Arena>) -> Result<Self> {
        let cap = Cap(shared.read64(offset::CAP));
        if !cap.has_io_command_sets() {
            return Err(Error::Loopback("the controller has no choice of command sets".into()));
        }
        let (Some(sq), Some(cq)) = (SqProducer::new(ADMIN_ENTRIES), CqConsumer::new(ADMIN_ENTRIES)) else {
            return protocol("an admin queue of no size");
        };
        let mut driver = Self {
            sq,
            cq,
            sq_memory: arena.contiguous(PAGE_SIZE, false)?,
            cq_memory: arena.contiguous(PAGE_SIZE, true)?,
            data: arena.scatter(PAGE_SIZE, true)?,
            timeout: Duration::from_millis(cap.timeout_ms()),
            shared,
            cap,
        };
        driver.enable()?;
        driver.choose_key_value()?;
        Ok(driver)
    }

    /// Capabilities.
    pub(super) const fn cap(&self) -> Cap {
        self.cap
    }

    fn enable(&self) -> Result<()> {
        self.shared.write32(offset::CC, 0);
        self.wait_ready(0)?;
        let size = ADMIN_ENTRIES - 1;
        self.shared.write32(offset::AQA, Aqa(0).with_asqs(size).with_acqs(size).0);
        self.shared.write64(offset::ASQ, first(&self.sq_memory));
        self.shared.write64(offset::ACQ, first(&self.cq_memory));
        self.shared.write32(offset::CC, Cc::KV_ENABLE.0);
        self.wait_ready(1)
    }

    fn wait_ready(&self, ready: u32) -> Result<()> {
        let until = Instant::now() + self.timeout;
        while Csts(self.shared.read32(offset::CSTS)).rdy() != ready {
            if Instant::now() > until {
                return Err(self.late("enabling the controller"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    const fn late(&self, what: &'static str) -> Error {
        Error::Timeout { what, after: self.timeout, state: None }
    }

    fn choose_key_value(&mut self) -> Result<()> {
        let all = u16::MAX;
        let ask = Identify { cns: cns::COMMAND_SETS, cntid: all, ..Identify::default() };
        let sets: identify::CommandSets = self.identify(ask)?;
        let index = sets.find_kv();
        let value = index.ok_or_else(|| Error::Loopback("it has no Key Value command set".into()))?.into();
        let profile = Feature { fid: admin::feature::COMMAND_SET_PROFILE, value, ..Feature::default() };
        self.execute(&Command::SetFeatures(profile)).map(drop)
    }

    /// Asks for I/O queues; how many there are.
    pub(super) fn request_queues(&mut self, count: u32) -> Result<u32> {
        let value = NumberOfQueues { sq: count, cq: count }.to_dword();
        let queues = Feature { fid: admin::feature::NUMBER_OF_QUEUES, value, ..Feature::default() };
        let got = NumberOfQueues::from_dword(self.execute(&Command::SetFeatures(queues))?.dw0.get());
        Ok(got.sq.min(got.cq).min(count))
    }

    /// Identify Controller.
    pub(super) fn controller(&mut self) -> Result<identify::Controller> {
        self.identify(Identify { cns: cns::CONTROLLER, ..Identify::default() })
    }

    /// Identifiers of the active Key Value namespaces.
    pub(super) fn namespaces(&mut self) -> Result<Vec<u32>> {
        let ask = Identify { cns: cns::CSI_ACTIVE_NAMESPACES, csi: csi::KV, ..Identify::default() };
        let list: identify::NamespaceList = self.identify(ask)?;
        Ok(list.iter().collect())
    }

    /// Identify Namespace.
    pub(super) fn namespace(&mut self, nsid: u32) -> Result<identify::KvNamespace> {
        self.identify(Identify { cns: cns::CSI_NAMESPACE, csi: csi::KV, nsid, ..Identify::default() })
    }

    /// Makes a queue pair.
    pub(super) fn create_queue(&mut self, sq: CreateSq, cq: CreateCq) -> Result<()> {
        self.execute(&Command::CreateCq(cq))?;
        self.execute(&Command::CreateSq(sq)).map(drop).or_else(|error| {
            self.execute(&Command::DeleteCq { qid: cq.qid })?;
            Err(error)
        })
    }

    /// Deletes a queue pair, the submission queue first.
    pub(super) fn delete_queue(&mut self, qid: u16) -> Result<()> {
        self.execute(&Command::DeleteSq { qid })?;
        self.execute(&Command::DeleteCq { qid }).map(drop)
    }

    fn identify<T: FromBytes>(&mut self, mut ask: Identify) -> Result<T> {
        ask.data = DataPointer { prp1: first(&self.data), prp2: 0 };
        self.execute(&Command::Identify(ask))?;
        let mut bytes = [0; PAGE_SIZE];
        self.data.region.read(0, &mut bytes);
        T::read_from_bytes(&bytes).or_else(|_| protocol("identify data of another size"))
    }

    /// One admin command at a time, so that its identifier can be the slot.
    fn execute(&mut self, command: &Command) -> Result<Cqe> {
        let slot = self.sq.push().ok_or(Error::Gone)?;
        let cid = slot as u16;
        self.sq_memory.region.write(slot as usize * Sqe::SIZE, command.encode(cid).as_bytes());
        let doorbells = self.cap.doorbells();
        self.shared.doorbells.store_release(doorbells.sq_tail(0), self.sq.tail());
        let cqe = self.completion()?;
        self.cq.pop();
        self.shared.doorbells.store_release(doorbells.cq_head(0), self.cq.head());
        if cqe.cid.get() != cid || cqe.sqid.get() != 0 || !self.sq.update_head(cqe.sqhd.get()) {
            return protocol("an admin completion of nothing");
        }
        match cqe.status() {
            status if status.is_success() => Ok(cqe),
            status => Err(Error::Status { op: "admin command", key: None, status }),
        }
    }

    fn completion(&self) -> Result<Cqe> {
        let until = Instant::now() + self.timeout;
        let at = self.cq.head() as usize * Cqe::SIZE;
        let last = at + Cqe::SIZE - 4;
        while (self.cq_memory.region.load_acquire(last) >> 16 & 1 == 1) != self.cq.phase() {
            if Instant::now() > until {
                return Err(self.late("admin command"));
            }
            std::thread::yield_now();
        }
        let mut bytes = [0; Cqe::SIZE];
        self.cq_memory.region.read(at, &mut bytes);
        Ok(zerocopy::transmute!(bytes))
    }
}

/// Address of the first page.
pub(super) fn first(memory: &Mapped) -> u64 {
    memory.addrs.first().copied().unwrap_or_default()
}
