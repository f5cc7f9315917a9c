// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller in this process: [`xio_target::Controller`] on a thread of its own, driven through its registers
//! and admin queue, in memory that it sees at scattered addresses. For trying the library without a device, and for
//! tests of what the library does with addresses, queues and errors.

mod arena;
mod bare;
mod buffer;
mod driver;
mod hooks;
mod life;
mod mediated;
mod poller;

use crate::backend::{Backend, BufferParts, Calls, QueueParts, Select};
use crate::controller::Controller;
use crate::dmabuf::{sealed_memory, Exported, Import, QueuePart};
use crate::error::{os, Error, Result};
use crate::info::{Iommu, Unconfined};
use crate::mapping::{Doorbell, Region};
use crate::state::{ControllerState, Liveness};
use arena::{Arena, DoorbellMemory, Mapped};
use buffer::Allocation;
use driver::{first, Driver};
use life::Life;
use mediated::{errno, LoopbackCalls, Mediated};
use nvme_kv::admin::{CreateCq, CreateSq};
use nvme_kv::{identify, Cqe, Sqe, PAGE_SIZE};
use poller::{Events, Poller, Shared};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use xio_target::Host;
use xio_uapi as uapi;
use zerocopy::FromZeros;

pub use bare::{bare, Bare};
pub use hooks::{Hooks, Surroundings};
pub use xio_target::{Config, NamespaceConfig};

const MAX_BUFFER: u64 = 256 << 20;
const MAX_CLIENT_MEMORY: u64 = 1 << 30;

/// Entries of the queue of mediated commands, as far as the controller has so many.
const MEDIATED_ENTRIES: u32 = 256;

/// Starts a controller, and gives the means to hold it.
///
/// # Errors
/// [`Error::Loopback`] when there can be no such controller, or none of Key Value.
pub fn start(config: Config) -> Result<(Controller, Hooks)> {
    let (backend, hooks) = backend(config)?;
    Ok((Controller::new(backend, None), hooks))
}

/// The same, to be used as it is.
pub(crate) fn backend(config: Config) -> Result<(Arc<dyn Backend>, Hooks)> {
    let loopback = Arc::new(Loopback::new(config)?);
    let hooks = Hooks::new(&loopback);
    Ok((loopback, hooks))
}

/// # Invariants
///
/// Drop order: the thread ends before the memory goes that it works in.
#[derive(Debug)]
struct Loopback {
    _poller: Poller,
    state: Mutex<State>,
    shared: Arc<Shared>,
    events: Arc<Events>,
    arena: Arc<Arena>,
    vectors: u16,
    info: uapi::GetInfo,
    surroundings: Arc<Mutex<Surroundings>>,
    /// The file that the registers are in.
    registers: File,
    /// The queue of mediated commands, once one was asked for. Locked after `state`.
    mediated: Mutex<Option<Mediated>>,
}

#[derive(Debug)]
struct State {
    driver: Driver,
    /// Queues by handle; no handle is used twice, whatever becomes of the queue.
    queues: HashMap<u32, QueueMemory>,
    /// Identifier of the queue of mediated commands.
    mediated: Option<u16>,
    buffers: HashMap<u32, Arc<Allocation>>,
    last_handle: u32,
    memory: u64,
    life: Life,
}

impl State {
    fn next_handle(&mut self) -> u32 {
        self.last_handle += 1;
        self.last_handle
    }
}

/// A client's queue and its memory.
#[derive(Debug)]
struct QueueMemory {
    qid: u16,
    sq: Mapped,
    cq: Mapped,
    /// The client's own mapping.
    doorbells: Arc<Region>,
}

impl QueueMemory {
    fn revoke(&self) {
        [&self.sq.region, &self.cq.region, &self.doorbells].into_iter().for_each(|region| region.revoke());
    }
}

impl Loopback {
    fn new(config: Config) -> Result<Self> {
        let len = config.bar_len().next_multiple_of(PAGE_SIZE);
        let registers = sealed_memory(len)?;
        let bar = Arc::new(Region::of_file(&registers, 0, len, true, "mapping registers")?);
        let (arena, events) = (Arc::new(Arena::default()), Arc::new(Events::default()));
        let host = Host {
            memory: arena.clone(),
            doorbells: Arc::new(DoorbellMemory(bar.clone())),
            interrupts: events.clone(),
        };
        let (vectors, queues) = (config.vectors(), config.max_queues.into());
        let controller =
            xio_target::Controller::new(config, host).map_err(|e| Error::Loopback(e.to_string()))?;
        let shared = Arc::new(Shared::new(controller, bar));
        let poller = Poller::start(shared.clone())?;
        let mut driver = Driver::start(shared.clone(), &arena)?;
        let info = describe(&mut driver, queues, &shared)?;
        let (queues, buffers) = (HashMap::new(), HashMap::new());
        let life = Life::new();
        let state = State { driver, queues, mediated: None, buffers, last_handle: 0, memory: 0, life };
        let surroundings = Arc::default();
        let (state, mediated) = (Mutex::new(state), Mutex::new(None));
        let _poller = poller;
        Ok(Self { _poller, state, shared, events, arena, vectors, info, surroundings, registers, mediated })
    }

    /// The state, unless the controller is gone.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.life.gone {
            return Err(Error::Gone);
        }
        Ok(state)
    }

    /// The state, unless the controller takes no commands.
    fn live(&self, what: &'static str) -> Result<MutexGuard<'_, State>> {
        let state = self.state()?;
        match state.life.state.is_live() {
            true => Ok(state),
            false => Err(Self::not_served(&state.life, what)),
        }
    }

    fn surroundings(&self) -> Surroundings {
        *self.surroundings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory and mediated commands are for everybody but beside another's direct queues.
    fn admit(&self) -> Result<()> {
        match self.surroundings() {
            Surroundings::OtherHasQueues => Err(Error::Busy),
            _ => Ok(()),
        }
    }

    fn admit_direct(&self) -> Result<()> {
        match self.surroundings() {
            Surroundings::Alone => Ok(()),
            Surroundings::Unconfined => {
                let missing = Unconfined(uapi::UNCONFINED_NOT_TRANSLATED);
                Err(Error::DirectRefused { iommu: Iommu::None, missing })
            }
            Surroundings::OtherHasMemory | Surroundings::OtherHasQueues => Err(Error::Busy),
        }
    }

    /// Makes a buffer of memory.
    fn add_buffer(&self, memory: Arc<Region>, writable: bool, whose: Whose) -> Result<BufferParts> {
        self.admit()?;
        let mut state = self.live("making a buffer")?;
        let len = memory.len() as u64;
        if state.memory + len > MAX_CLIENT_MEMORY {
            let (client, user, queues) = (MAX_CLIENT_MEMORY, MAX_CLIENT_MEMORY, self.info.max_queues);
            return Err(Error::Quota { what: "making a buffer", client, user, queues });
        }
        let ours = whose == Whose::Module;
        let allocation = Allocation::new(&self.arena, memory.clone(), writable, ours)?;
        // As with the module: addresses are for those who may have direct queues.
        let known = self.surroundings() != Surroundings::Unconfined;
        let table = known.then(|| allocation.table()).transpose()?;
        state.memory += len;
        let handle = state.next_handle();
        state.buffers.insert(handle, Arc::new(allocation));
        let imported = whose == Whose::Another;
        Ok(BufferParts { handle, len: memory.len(), data: Some(memory), table, writable, imported })
    }

    /// Makes a queue pair in the controller; its identifier and memory.
    fn add_queue(
        &self,
        state: &mut State,
        entries: u32,
        vector: impl FnOnce(u16) -> Result<Option<u16>>,
    ) -> Result<(u16, Mapped, Mapped)> {
        let used = |qid: u16| state.queues.values().any(|q| q.qid == qid) || state.mediated == Some(qid);
        let all = u16::try_from(self.info.max_queues).unwrap_or(u16::MAX);
        let qid = (1..=all).find(|qid| !used(*qid)).ok_or(Error::NoQueueLeft)?;
        let bytes = |entry: usize| (entries as usize * entry).next_multiple_of(PAGE_SIZE);
        // As with the module, the controller can not write to submission queues.
        let sq = self.arena.contiguous(bytes(Sqe::SIZE), false)?;
        let cq = self.arena.contiguous(bytes(Cqe::SIZE), true)?;
        let vector = vector(qid)?;
        let create_cq = CreateCq { qid, entries, contiguous: true, base: first(&cq), vector };
        let create_sq = CreateSq { qid, entries, contiguous: true, base: first(&sq), priority: 0, cqid: qid };
        state.driver.create_queue(create_sq, create_cq).inspect_err(|_| self.events.remove(qid))?;
        Ok((qid, sq, cq))
    }

    /// Vector of a queue; several share one when there are fewer.
    const fn vector(&self, qid: u16) -> u16 {
        match self.vectors {
            0 | 1 => 0,
            n => 1 + (qid - 1) % (n - 1),
        }
    }

    /// A mapping of the registers for a client, which can be revoked.
    fn map_registers(&self) -> Result<Arc<Region>> {
        let len = self.shared.doorbells.len();
        let mapped = Region::of_file(&self.registers, 0, len, true, "mapping doorbells")?;
        Ok(Arc::new(mapped.revocable()))
    }
}

/// Whose memory a buffer is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    Module,
    Client,
    Another,
}

fn doorbell(registers: &Arc<Region>, at: usize) -> Result<Doorbell> {
    let doorbell = Doorbell::new(registers.clone(), at);
    doorbell.ok_or_else(|| Error::Protocol(format!("no doorbell at {at}")))
}

/// What the module tells of a controller.
fn describe(driver: &mut Driver, queues: u32, shared: &Shared) -> Result<uapi::GetInfo> {
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
