// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enabling the controller and making queues, as a driver does, while no kernel runs.

use super::KvController;
use crate::error::{Error, Result};
use crate::machine::Device;
use crate::memory::Kind;
use nvme_kv::admin::{self, Command, CreateCq, CreateSq, Feature, NumberOfQueues};
use nvme_kv::regs::{offset, Aqa, Cc, Csts};
use nvme_kv::ring::{CqConsumer, SqProducer};
use nvme_kv::{Cqe, Sqe, PAGE_SIZE};
use zerocopy::IntoBytes;

/// Where the admin queues are: submissions, then completions.
const ADMIN: u64 = 0x7f31_0000_0000;
const ENTRIES: u32 = 16;

/// The host's side of the admin queues.
#[derive(Debug)]
pub(super) struct Admin {
    sq: SqProducer,
    cq: CqConsumer,
}

/// A queue pair in memory of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePair {
    /// Identifier of both.
    pub qid: u16,
    /// Entries of each.
    pub entries: u32,
    /// Address of the submission queue for the device.
    pub sq: u64,
    /// Address of the completion queue for the device.
    pub cq: u64,
}

fn failed(what: impl Into<String>) -> Error {
    Error::Controller(what.into())
}

impl KvController {
    pub(super) fn enable(&mut self) -> Result<()> {
        self.bus.memory.lock().map("admin queues", ADMIN, 2 * PAGE_SIZE, Kind::Shared);
        let base = self.bus.dma.contiguous(ADMIN, 2 * PAGE_SIZE, true);
        let size = ENTRIES - 1;
        let aqa = Aqa(0).with_asqs(size).with_acqs(size);
        self.controller.write_register(offset::AQA, &aqa.0.to_le_bytes());
        self.controller.write_register(offset::ASQ, &base.to_le_bytes());
        self.controller.write_register(offset::ACQ, &(base + PAGE_SIZE as u64).to_le_bytes());
        self.controller.write_register(offset::CC, &Cc::KV_ENABLE.0.to_le_bytes());
        let mut csts = [0; 4];
        self.controller.read_register(offset::CSTS, &mut csts);
        if !Csts(u32::from_le_bytes(csts)).is_operational() {
            return Err(failed("it can not be enabled"));
        }
        let (Some(sq), Some(cq)) = (SqProducer::new(ENTRIES), CqConsumer::new(ENTRIES)) else {
            return Err(failed("an admin queue of no size"));
        };
        self.admin = Some(Admin { sq, cq });
        let value = NumberOfQueues { sq: 8, cq: 8 }.to_dword();
        let queues = Feature { fid: admin::feature::NUMBER_OF_QUEUES, value, ..Feature::default() };
        self.execute(&Command::SetFeatures(queues)).map(drop)
    }

    /// Makes a queue pair.
    pub fn create(&mut self, pair: &QueuePair) -> Result<()> {
        let QueuePair { qid, entries, sq, cq } = *pair;
        let len = |entry: usize| (entries as usize * entry).next_multiple_of(PAGE_SIZE);
        let sq = self.bus.dma.contiguous(sq, len(Sqe::SIZE), false);
        let cq = self.bus.dma.contiguous(cq, len(Cqe::SIZE), true);
        let completion = CreateCq { qid, entries, contiguous: true, base: cq, vector: None };
        self.execute(&Command::CreateCq(completion))?;
        let submission = CreateSq { qid, entries, contiguous: true, base: sq, priority: 0, cqid: qid };
        self.execute(&Command::CreateSq(submission)).map(drop)
    }

    fn execute(&mut self, command: &Command) -> Result<Cqe> {
        let Some(Admin { mut sq, mut cq }) = self.admin.take() else {
            return Err(failed("it is not enabled"));
        };
        let slot = sq.push().ok_or_else(|| failed("its admin queue is full"))?;
        let memory = self.bus.memory.clone();
        let write = |addr: u64, bytes: &[u8]| {
            let written = memory.lock().write(addr, bytes);
            written.map_err(|e| failed(e.to_string()))
        };
        write(ADMIN + u64::from(slot) * Sqe::SIZE as u64, command.encode(slot as u16).as_bytes())?;
        let (tail, head) = self.doorbells(0);
        write(tail, &sq.tail().to_le_bytes())?;
        self.poll(0, true)?;
        memory.lock().end();
        let mut bytes = [0; Cqe::SIZE];
        let at = ADMIN + PAGE_SIZE as u64 + u64::from(cq.head()) * Cqe::SIZE as u64;
        memory.lock().read(at, &mut bytes).map_err(|e| failed(e.to_string()))?;
        let cqe: Cqe = zerocopy::transmute!(bytes);
        if cqe.phase() != cq.phase() || u32::from(cqe.cid.get()) != slot || !sq.update_head(cqe.sqhd.get()) {
            return Err(failed("no answer to an admin command"));
        }
        cq.pop();
        write(head, &cq.head().to_le_bytes())?;
        self.admin = Some(Admin { sq, cq });
        if cqe.status().is_success() {
            Ok(cqe)
        } else {
            Err(failed(format!("admin command: {}", cqe.status())))
        }
    }
}
