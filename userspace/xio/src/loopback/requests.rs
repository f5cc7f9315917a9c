// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of the ioctl interface.

use super::mediated::{errno, LoopbackCalls};
use super::{
    doorbell, Driver, Loopback, QueueMemory, Shared, Surroundings, Whose, MAX_BUFFER, MAX_CLIENT_MEMORY,
};
use crate::backend::{Backend, BufferParts, Calls, QueueParts, Select};
use crate::dmabuf::{Exported, Import, QueuePart};
use crate::error::{os, Error, Result};
use crate::mapping::Region;
use crate::state::{ControllerState, Liveness};
use nvme_kv::{identify, PAGE_SIZE};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use xio_uapi as uapi;
use zerocopy::FromZeros;

/// Entries of the queue of mediated commands, as far as the controller has so many.
const MEDIATED_ENTRIES: u32 = 256;

/// What the module tells of a controller.
pub(super) fn describe(driver: &mut Driver, queues: u32, shared: &Shared) -> Result<uapi::GetInfo> {
    let (cap, id) = (driver.cap(), driver.controller()?);
    let mut info = uapi::GetInfo::new_zeroed();
    info.size = uapi::GetInfo::LAYOUT.size as u32;
    info.abi_version = uapi::ABI_VERSION;
    info.nvme_version = shared.read32(nvme_kv::regs::offset::VS);
    info.features = uapi::FEATURE_DIRECT_QUEUE
        | uapi::FEATURE_EVENTFD
        | uapi::FEATURE_BUFFER_TABLE
        | uapi::FEATURE_BUFFER_REGISTER
        | uapi::FEATURE_MEDIATED;
    info.cap = cap.0;
    info.max_transfer = id.max_transfer().unwrap_or(0);
    (info.max_buffer, info.max_client_memory) = (MAX_BUFFER, MAX_CLIENT_MEMORY);
    info.max_queue_entries = cap.max_queue_entries();
    info.max_queues = driver.request_queues(queues)?;
    info.doorbell_stride = cap.doorbells().stride() as u32;
    info.namespaces = driver.namespaces()?.len() as u32;
    // The arena confines the controller to what was given to it.
    (info.iommu, info.direct) = (uapi::IOMMU_TRANSLATED, uapi::DIRECT_CONFINED);
    info.queue_kinds = uapi::QUEUE_KIND_DIRECT | uapi::QUEUE_KIND_MEDIATED;
    info.mediated_depth = info.max_queue_entries.min(MEDIATED_ENTRIES) - 1;
    (info.max_user_memory, info.max_client_queues) = (MAX_CLIENT_MEMORY, info.max_queues);
    info.numa_node = -1;
    info.doorbell_pages = cap.doorbells().have_own_pages().into();
    (info.vendor_id, info.subsystem_vendor_id) = (id.vid.get(), id.ssvid.get());
    info.controller_id = id.cntlid.get();
    (info.serial, info.model, info.firmware) = (id.sn, id.mn, id.fr);
    info.subnqn = id.subnqn;
    Ok(info)
}

fn namespace(nsid: u32, id: &identify::KvNamespace) -> Result<uapi::GetNamespace> {
    let format = id.format();
    let (index, format) = format.ok_or_else(|| Error::Protocol("a format that is not there".into()))?;
    let mut namespace = uapi::GetNamespace::new_zeroed();
    namespace.size = uapi::GetNamespace::LAYOUT.size as u32;
    namespace.nsid = nsid;
    (namespace.capacity, namespace.used) = (id.nsze.get(), id.nuse.get());
    (namespace.max_key, namespace.max_value) = (format.kvkml.get(), format.kvvml.get());
    namespace.max_keys = format.mnks.get();
    (namespace.formats, namespace.format) = (u16::from(id.nkvf) + 1, index.into());
    (namespace.nguid, namespace.eui64) = (id.nguid, id.eui64);
    Ok(namespace)
}

impl Backend for Loopback {
    fn info(&self) -> Result<uapi::GetInfo> {
        // As the module: one that failed has nothing to tell but its state.
        let state = self.state()?;
        if state.life.state.liveness == Liveness::Failed {
            return Err(Self::not_served(&state.life, "asking for the controller"));
        }
        drop(state);
        let mut info = self.info;
        if self.surroundings() == Surroundings::Unconfined {
            (info.iommu, info.direct) = (uapi::IOMMU_NONE, uapi::DIRECT_REFUSED);
            info.queue_kinds = uapi::QUEUE_KIND_MEDIATED;
            info.unconfined = uapi::UNCONFINED_NOT_TRANSLATED;
        }
        Ok(info)
    }

    fn state(&self) -> Result<ControllerState> {
        self.state().map(|state| state.life.state)
    }

    fn set_state_event(&self, event: Option<BorrowedFd<'_>>) -> Result<()> {
        let event = event.map(|event| event.try_clone_to_owned()).transpose();
        let event = event.map_err(|e| Error::Os { what: "sharing an eventfd", source: e })?;
        self.state()?.life.event = event;
        Ok(())
    }

    fn namespace(&self, which: Select) -> Result<Option<uapi::GetNamespace>> {
        let driver = &mut self.live("asking for a namespace")?.driver;
        let all = driver.namespaces()?;
        let nsid = match which {
            Select::Nsid(nsid) => all.into_iter().find(|n| *n == nsid),
            Select::Index(index) => all.get(index as usize).copied(),
        };
        nsid.map(|nsid| namespace(nsid, &driver.namespace(nsid)?)).transpose()
    }

    fn create_queue(&self, entries: u32, event: Option<BorrowedFd<'_>>, cmb: bool) -> Result<QueueParts> {
        if cmb {
            return Err(Error::NoCmb { what: "submission queues" });
        }
        self.admit_direct()?;
        let mut state = self.live("making a queue")?;
        self.cleanse(&mut state)?;
        let vector = |qid| {
            let Some(event) = event else { return Ok(None) };
            let event = event.try_clone_to_owned();
            let event = event.map_err(|e| Error::Os { what: "sharing an eventfd", source: e })?;
            self.events.insert(qid, self.vector(qid), event);
            Ok(Some(self.vector(qid)))
        };
        let (qid, sq, cq) = self.add_queue(&mut state, entries, vector)?;
        let (doorbells, handle) = (state.driver.cap().doorbells(), state.next_handle());
        let registers = self.map_registers()?;
        let parts = QueueParts {
            handle,
            qid,
            entries,
            sq: sq.region.clone(),
            cq: cq.region.clone(),
            sq_doorbell: doorbell(&registers, doorbells.sq_tail(qid))?,
            cq_doorbell: doorbell(&registers, doorbells.cq_head(qid))?,
        };
        state.queues.insert(handle, QueueMemory { qid, sq, cq, doorbells: registers });
        Ok(parts)
    }

    fn destroy_queue(&self, handle: u32) -> Result<()> {
        let mut state = self.state()?;
        // It may have gone with a reset.
        let Some(memory) = state.queues.remove(&handle) else { return Ok(()) };
        if state.driver.delete_queue(memory.qid).is_err() {
            // Then the controller touches nothing any more.
            self.lose(&mut state);
        }
        self.events.remove(memory.qid);
        drop(memory);
        Ok(())
    }

    fn alloc_buffer(&self, len: u64, cmb: bool) -> Result<BufferParts> {
        if cmb {
            return Err(Error::NoCmb { what: "values" });
        }
        let len = usize::try_from(len).map_err(|_| os("allocating a buffer", nix::Error::EOVERFLOW))?;
        let memory = Region::anonymous(len.next_multiple_of(PAGE_SIZE))?.revocable();
        self.add_buffer(Arc::new(memory), true, Whose::Module)
    }

    fn register_buffer(&self, memory: Arc<Region>, writable: bool) -> Result<BufferParts> {
        self.add_buffer(memory, writable, Whose::Client)
    }

    fn import_buffer(&self, dmabuf: BorrowedFd<'_>, import: &Import) -> Result<BufferParts> {
        let Import { offset, len, read_only, .. } = *import;
        let memory = Region::of_file(dmabuf, offset, len, !read_only, "mapping a dma-buf")?;
        self.add_buffer(Arc::new(memory), !read_only, Whose::Another)
    }

    /// Doorbells alone, as the file that they are in.
    fn export_queue(&self, handle: u32, part: QueuePart) -> Result<Exported> {
        let what = "exporting a queue";
        let state = self.state()?;
        let queue = state.queues.get(&handle).ok_or_else(|| os(what, nix::Error::ENOENT))?;
        let (doorbells, qid) = (state.driver.cap().doorbells(), queue.qid);
        let at = match part {
            QueuePart::SqDoorbell => doorbells.sq_tail(qid),
            QueuePart::CqDoorbell => doorbells.cq_head(qid),
            QueuePart::Sq | QueuePart::Cq => return Err(os(what, nix::Error::EOPNOTSUPP)),
        };
        let file = self.registers.try_clone().map_err(|source| Error::Os { what, source })?;
        Ok(Exported { dmabuf: file.into(), len: self.shared.doorbells.len() as u64, at: at as u32 })
    }

    fn submit(&self, entries: &mut [uapi::KvEntry], timeout: Duration) -> nix::Result<()> {
        self.call(entries, Instant::now() + timeout).map_err(|error| errno(&error))
    }

    fn calls(self: Arc<Self>) -> Result<Box<dyn Calls>> {
        Ok(Box::new(LoopbackCalls::new(self)))
    }

    fn free_buffer(&self, handle: u32) -> Result<()> {
        // Also of a controller that is gone.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let allocation = state.buffers.remove(&handle);
        let allocation = allocation.ok_or_else(|| os("freeing a buffer", nix::Error::ENOENT))?;
        state.memory -= allocation.data().len() as u64;
        Ok(())
    }
}
