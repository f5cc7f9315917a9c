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
mod requests;

use crate::backend::{Backend, BufferParts};
use crate::controller::Controller;
use crate::dmabuf::sealed_memory;
use crate::error::{Error, Result};
use crate::info::{Iommu, Unconfined};
use crate::mapping::{Doorbell, Region};
use arena::{Arena, DoorbellMemory, Mapped};
use buffer::Allocation;
use driver::{first, Driver};
use life::Life;
use mediated::Mediated;
use nvme_kv::admin::{CreateCq, CreateSq};
use nvme_kv::{Cqe, Sqe, PAGE_SIZE};
use poller::{Events, Poller, Shared};
use requests::describe;
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xio_target::Host;
use xio_uapi as uapi;

pub use bare::{bare, Bare};
pub use hooks::{Hooks, Surroundings};
pub use xio_target::{Config, NamespaceConfig};

const MAX_BUFFER: u64 = 256 << 20;
const MAX_CLIENT_MEMORY: u64 = 1 << 30;

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
        self.cleanse(&mut state)?;
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
