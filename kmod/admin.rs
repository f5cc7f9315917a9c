// SPDX-License-Identifier: GPL-2.0
//! The admin queue pair: one command at a time, its completion checked before it is believed.

use crate::{
    error::AdminError,
    interrupt::Interrupts,
    registers::Registers,
    sys::{
        dma::{Access, DmaDevice, DmaMemory},
        params,
    },
};
use kernel::{
    prelude::*,
    time::{Instant, Monotonic},
};
use nvme_kv::{
    admin::{Command, Feature, Identify},
    identify,
    ring::{CqConsumer, SqProducer},
    Cqe, DataPointer, Sqe,
};
use zerocopy::{FromBytes, IntoBytes};

const ENTRIES: u32 = 32;
/// Without an interrupt the queue is looked at so often.
const POLL_MS: u32 = 10;

/// What unused slots hold, so that a stray ring of the admin doorbell does no harm: Get Features of a feature that
/// does not exist. (Zeros would be Delete I/O Submission Queue.)
fn harmless() -> [u8; Sqe::SIZE] {
    let sqe = Command::GetFeatures(Feature::default()).encode(u16::MAX);
    zerocopy::transmute!(sqe)
}

/// The admin queue pair.
pub(crate) struct Admin {
    sq: DmaMemory,
    cq: DmaMemory,
    producer: SqProducer,
    consumer: CqConsumer,
    cid: u16,
    /// Completions that belong to no command of ours.
    pub(crate) stray: u32,
    /// Identify data; the device may change it at any time, so it is copied before use.
    data: DmaMemory,
}

impl Admin {
    pub(crate) fn new(dev: DmaDevice) -> Result<Self> {
        let this = Self {
            sq: DmaMemory::contiguous(dev, ENTRIES as usize * Sqe::SIZE, Access::Read)?,
            cq: DmaMemory::contiguous(dev, ENTRIES as usize * Cqe::SIZE, Access::ReadWrite)?,
            producer: SqProducer::new(ENTRIES).ok_or(EINVAL)?,
            consumer: CqConsumer::new(ENTRIES).ok_or(EINVAL)?,
            cid: 0,
            stray: 0,
            data: DmaMemory::contiguous(dev, identify::SIZE, Access::ReadWrite)?,
        };
        Ok(this)
    }

    /// Enables the controller with empty admin queues, and with its memory buffer at this bus address.
    pub(crate) fn enable(
        &mut self,
        regs: &Registers,
        dev: DmaDevice,
        cmb: Option<u64>,
    ) -> Result<(), AdminError> {
        // Not before it is disabled: firmware may have left it with queues of its own.
        regs.disable()?;
        cmb.map_or(Ok(()), |bus| regs.place_cmb(bus))?;
        dev.set_master(true);
        self.cq.clear()?;
        for slot in 0..ENTRIES as usize {
            self.sq.write(slot * Sqe::SIZE, &harmless())?;
        }
        self.producer = SqProducer::new(ENTRIES).ok_or(EINVAL)?;
        self.consumer = CqConsumer::new(ENTRIES).ok_or(EINVAL)?;
        regs.enable(ENTRIES, self.sq.addr(0)?, self.cq.addr(0)?)
    }

    /// Runs a command and returns dword 0 of its completion.
    pub(crate) fn run(
        &mut self,
        regs: &Registers,
        interrupts: &Interrupts,
        command: Command,
    ) -> Result<u32, AdminError> {
        self.cid = self.cid.wrapping_add(1) & 0x7fff;
        // A full queue means that the controller fetches nothing.
        let slot = self.producer.push().ok_or(AdminError::Timeout)? as usize;
        let sqe: [u8; Sqe::SIZE] = zerocopy::transmute!(command.encode(self.cid));
        self.sq.write(slot * Sqe::SIZE, &sqe)?;
        interrupts.admin.reset();
        regs.ring(regs.cap().doorbells().sq_tail(0), self.producer.tail())?;
        let result = self.wait(regs, interrupts);
        self.sq.write(slot * Sqe::SIZE, &harmless())?;
        let cqe = result?;
        match cqe.status() {
            status if status.is_success() => Ok(cqe.dw0.get()),
            status => Err(AdminError::Status(status)),
        }
    }

    fn wait(&mut self, regs: &Registers, interrupts: &Interrupts) -> Result<Cqe, AdminError> {
        let start = Instant::<Monotonic>::now();
        let limit = params::command_timeout_ms();
        while start.elapsed().as_millis() < limit {
            if let Some(cqe) = self.reap(regs)? {
                if cqe.sqid.get() == 0 && cqe.cid.get() == self.cid {
                    return Ok(cqe);
                }
                self.stray = self.stray.saturating_add(1);
                return Err(AdminError::OutOfStep);
            }
            if !regs.status().is_operational() {
                return Err(AdminError::Gone);
            }
            interrupts.admin.wait(POLL_MS);
        }
        Err(AdminError::Timeout)
    }

    /// Takes the next completion.
    fn reap(&mut self, regs: &Registers) -> Result<Option<Cqe>, AdminError> {
        let at = self.consumer.head() as usize * Cqe::SIZE;
        // The last dword first: once its phase tag is right, the rest is there.
        let last: [u8; 4] = self.cq.read(at + 12)?;
        if (last[2] & 1 == 1) != self.consumer.phase() {
            return Ok(None);
        }
        kernel::sync::barrier::dma_mb(kernel::sync::barrier::Read);
        let bytes: [u8; Cqe::SIZE] = self.cq.read(at)?;
        let cqe = Cqe::read_from_bytes(&bytes).map_err(|_| EINVAL)?;
        self.consumer.pop();
        // A wrong SQHD only leaves slots unused.
        let _ = self.producer.update_head(cqe.sqhd.get());
        regs.ring(regs.cap().doorbells().cq_head(0), self.consumer.head())?;
        Ok(Some(cqe))
    }

    /// Runs Identify and returns a copy of its data.
    pub(crate) fn identify(
        &mut self,
        regs: &Registers,
        interrupts: &Interrupts,
        what: Identify,
    ) -> Result<KVec<u8>, AdminError> {
        let mut copy = KVec::zeroed(identify::SIZE, GFP_KERNEL).map_err(|_| ENOMEM)?;
        self.data.clear()?;
        let data = DataPointer { prp1: self.data.addr(0)?, prp2: 0 };
        self.run(regs, interrupts, Command::Identify(Identify { data, ..what }))?;
        for (n, chunk) in copy.chunks_exact_mut(64).enumerate() {
            let bytes: [u8; 64] = self.data.read(n * 64)?;
            chunk.copy_from_slice(bytes.as_bytes());
        }
        Ok(copy)
    }
}
