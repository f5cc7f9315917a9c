// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a controller is reached through: the module's node, or a software controller in this process.

use crate::dmabuf::{Exported, Import, QueuePart};
use crate::error::{os, Error, Result};
use crate::mapping::{Doorbell, Region};
use crate::state::ControllerState;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use xio_uapi::{GetInfo, GetNamespace, KvEntry};

/// A queue pair as it was made.
#[derive(Debug)]
pub(crate) struct QueueParts {
    /// Handle.
    pub handle: u32,
    /// Queue identifier, as completions carry it.
    pub qid: u16,
    /// Entries of each of the two queues.
    pub entries: u32,
    /// Submission queue, at least `entries` times 64 bytes.
    pub sq: Arc<Region>,
    /// Completion queue, at least `entries` times 16 bytes.
    pub cq: Arc<Region>,
    /// Tail doorbell of the submission queue.
    pub sq_doorbell: Doorbell,
    /// Head doorbell of the completion queue.
    pub cq_doorbell: Doorbell,
}

/// A buffer as it was allocated or registered.
#[derive(Debug)]
pub(crate) struct BufferParts {
    /// Handle.
    pub handle: u32,
    /// The data, whole pages; `None` where only devices reach it.
    pub data: Option<Arc<Region>>,
    /// Bytes of the data.
    pub len: usize,
    /// One `xio_page` for each page of the data, where the client may know them.
    pub table: Option<Arc<Region>>,
    /// Whether it can be written to, by the client and by the controller.
    pub writable: bool,
    /// Whether it is another's, who may take it back.
    pub imported: bool,
}

/// Which namespace to ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Select {
    /// By identifier.
    Nsid(u32),
    /// By position among the active ones.
    Index(u32),
}

/// A call of `KV_SUBMIT` that is done.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its number.
    pub id: u64,
    /// Its entries, with their results if `result` is good.
    pub entries: Vec<KvEntry>,
    /// Its result.
    pub result: nix::Result<()>,
}

/// Calls of `KV_SUBMIT` that do not wait.
pub(crate) trait Calls: Debug + Send + Sync {
    /// Starts a call of 1 to `MAX_SUBMIT` entries.
    fn start(&mut self, id: u64, entries: Vec<KvEntry>) -> Result<()>;
    /// A call that is done.
    fn take(&mut self) -> Option<Done>;
    /// Waits until there may be one, at most so long.
    fn wait(&mut self, timeout: Duration) -> Result<()>;
}

/// The requests of the ioctl interface. Handles that are destroyed or freed are not used again by callers.
pub(crate) trait Backend: Debug + Send + Sync {
    /// `GET_INFO`.
    fn info(&self) -> Result<GetInfo>;
    /// `GET_STATE`; [`Error::NoState`] where there is no such request.
    fn state(&self) -> Result<ControllerState>;
    /// `GET_STATE` that sets the eventfd for changes of the state.
    fn set_state_event(&self, event: Option<BorrowedFd<'_>>) -> Result<()>;
    /// Resets until now, for what is made now and does not outlive the next one; 0 where the module does not tell.
    fn epoch(&self) -> Result<u32> {
        match self.state() {
            Err(Error::NoState) => Ok(0),
            state => state.map(|state| state.resets),
        }
    }
    /// The error of somebody whose queue or buffer was revoked, or whose command was ended by a reset.
    fn lost(&self, what: &'static str) -> Error {
        match self.state() {
            Err(Error::Gone) => Error::Gone,
            state => Error::Revoked { what, state: state.ok() },
        }
    }
    /// The error of somebody who was not served.
    fn not_live(&self, what: &'static str) -> Error {
        self.state().map_or(Error::Gone, |state| Error::NotLive { what, state })
    }
    /// The error of somebody who got no answer in time.
    fn timeout(&self, what: &'static str, after: Duration) -> Error {
        Error::Timeout { what, after, state: self.state().ok() }
    }
    /// `GET_NAMESPACE`; `None` when there is no such one.
    fn namespace(&self, which: Select) -> Result<Option<GetNamespace>>;
    /// `QUEUE_CREATE`; `cmb` asks for the submission queue in the controller memory buffer.
    fn create_queue(&self, entries: u32, event: Option<BorrowedFd<'_>>, cmb: bool) -> Result<QueueParts>;
    /// `QUEUE_DESTROY`: when it returns `Ok` the controller does nothing for the queue any more.
    fn destroy_queue(&self, handle: u32) -> Result<()>;
    /// `BUFFER_ALLOC`; `cmb` asks for the controller memory buffer.
    fn alloc_buffer(&self, len: u64, cmb: bool) -> Result<BufferParts>;
    /// `BUFFER_IMPORT` of whole pages.
    fn import_buffer(&self, _dmabuf: BorrowedFd<'_>, _import: &Import) -> Result<BufferParts> {
        Err(os("importing memory", nix::Error::ENOTTY))
    }
    /// `QUEUE_EXPORT`.
    fn export_queue(&self, _handle: u32, _part: QueuePart) -> Result<Exported> {
        Err(os("exporting a queue", nix::Error::ENOTTY))
    }
    /// `BUFFER_REGISTER` of whole pages, which the parts then keep.
    fn register_buffer(&self, _memory: Arc<Region>, _writable: bool) -> Result<BufferParts> {
        Err(os("registering memory", nix::Error::ENOTTY))
    }
    /// `BUFFER_FREE`: when it returns the controller does not reach the memory any more.
    fn free_buffer(&self, handle: u32) -> Result<()>;
    /// `KV_SUBMIT` of 1 to `MAX_SUBMIT` entries, which then have their results. A signal or the deadline is no error here: the
    /// entries tell how far they got. (Each entry of a call that failed gets an error of its own, so this is an errno.)
    fn submit(&self, _entries: &mut [KvEntry], _timeout: Duration) -> nix::Result<()> {
        Err(nix::Error::ENOTTY)
    }
    /// `KV_SUBMIT` without waiting.
    fn calls(self: Arc<Self>) -> Result<Box<dyn Calls>> {
        Err(Error::NoMediated)
    }
}
