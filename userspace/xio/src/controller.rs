// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controllers.

use crate::backend::{Backend, BufferParts, Select};
use crate::buffer::Buffer;
use crate::device::{self, Device};
use crate::dmabuf::Import;
use crate::error::{os, Error, Result};
use crate::info::{Info, Namespace};
use crate::loopback;
use crate::mediated::MediatedQueue;
use crate::memory::Memory;
use crate::queue::{Queue, QueueOptions, RawQueue};
use crate::ring::MediatedRing;
use crate::state::{ControllerState, Events};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// How often something is made before the controller is taken for one that is being reset all the time.
const EPOCHS: u32 = 4;

/// An open controller: one client of the module. Clones are the same client.
///
/// It stays open until the last clone, queue and buffer of it is gone. When the controller is reset, queues and buffers are lost
/// ([`Error::Revoked`]), and new ones can be made on it.
#[derive(Clone, Debug)]
pub struct Controller {
    backend: Arc<dyn Backend>,
    path: Option<PathBuf>,
    /// Whether somebody has the events.
    events: Arc<AtomicBool>,
}

impl Controller {
    pub(crate) fn new(backend: Arc<dyn Backend>, path: Option<PathBuf>) -> Self {
        Self { backend, path, events: Arc::default() }
    }

    /// Nodes of the controllers that the module drives, `/dev/rocm-xio0` and so on.
    ///
    /// # Errors
    /// When `/dev` can not be read.
    pub fn list() -> Result<Vec<PathBuf>> {
        device::nodes()
    }

    /// Opens a node.
    ///
    /// # Errors
    /// [`Error::NoNode`], [`Error::Permission`], [`Error::Interface`], [`Error::Gone`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Ok(Self::new(Arc::new(Device::open(path)?), Some(path.to_owned())))
    }

    /// Opens the first controller that there is.
    ///
    /// # Errors
    /// [`Error::NoDevice`], and those of [`open`](Self::open).
    pub fn open_default() -> Result<Self> {
        Self::open(Self::list()?.first().ok_or(Error::NoDevice)?)
    }

    /// Starts a software controller inside this process. It is empty, and its pairs go when it does.
    ///
    /// # Errors
    /// [`Error::Loopback`] when there can be no such controller.
    pub fn loopback(config: xio_target::Config) -> Result<Self> {
        Ok(loopback::start(config)?.0)
    }

    /// The node, `None` for a loopback controller.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// How the controller is at this moment, and how often it was reset.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::NoState`] with an older module.
    pub fn state(&self) -> Result<ControllerState> {
        self.backend.state()
    }

    /// What happens to the controller from now on. One handle at a time; clones of this controller share it.
    ///
    /// # Errors
    /// [`Error::EventsTaken`], and those of [`state`](Self::state).
    pub fn events(&self) -> Result<Events> {
        Events::new(&self.backend, &self.events)
    }

    /// What the controller is and what this process may do with it, at this moment.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn info(&self) -> Result<Info> {
        self.backend.info().map(Info::new)
    }

    /// The Key Value namespaces in ascending order, as they are at this moment.
    ///
    /// # Errors
    /// [`Error::Gone`], or what the controller answers.
    pub fn namespaces(&self) -> Result<Vec<Namespace>> {
        let info = self.info()?;
        let mut all = Vec::new();
        while let Some(raw) = self.backend.namespace(Select::Index(all.len() as u32))? {
            all.push(Namespace::new(raw, &info));
        }
        Ok(all)
    }

    /// A namespace, as it is at this moment.
    ///
    /// # Errors
    /// [`Error::NoNamespace`], [`Error::Gone`], or what the controller answers.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace> {
        let info = self.info()?;
        let raw = self.backend.namespace(Select::Nsid(nsid))?;
        raw.map(|raw| Namespace::new(raw, &info)).ok_or(Error::NoNamespace { nsid })
    }

    /// The namespace with the smallest identifier.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`], [`Error::Gone`], or what the controller answers.
    pub fn first_namespace(&self) -> Result<Namespace> {
        let info = self.info()?;
        let raw = self.backend.namespace(Select::Index(0))?;
        raw.map(|raw| Namespace::new(raw, &info)).ok_or(Error::NoNamespaces)
    }

    /// Makes a queue.
    ///
    /// # Errors
    /// [`Error::QueueEntries`], [`Error::Busy`] while another process has queues or memory,
    /// [`Error::DirectRefused`], [`Error::NoQueueLeft`], [`Error::Quota`], [`Error::Gone`]; with
    /// [`cmb`](QueueOptions::cmb) [`Error::NoCmb`] and [`Error::CmbFull`].
    pub fn queue(&self, options: QueueOptions) -> Result<Queue> {
        self.check_entries(options.entries)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = options.event.then(|| EventFd::from_value_and_flags(0, flags)).transpose();
        let event = event.map_err(|e| os("making an eventfd", e))?;
        let event_fd = event.as_ref().map(AsFd::as_fd);
        let raw = self.make_queue(options.entries, event_fd, options.cmb)?;
        Queue::new(raw, event, options)
    }

    /// Makes a queue for code that drives it itself.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    pub fn raw_queue(&self, entries: u32) -> Result<RawQueue> {
        self.check_entries(entries)?;
        self.make_queue(entries, None, false)
    }

    fn make_queue(&self, entries: u32, event: Option<BorrowedFd<'_>>, cmb: bool) -> Result<RawQueue> {
        let (parts, epoch) = self.in_one_epoch(
            "making a queue",
            |backend| backend.create_queue(entries, event, cmb),
            |backend, parts| backend.destroy_queue(parts.handle),
        )?;
        Ok(RawQueue::new(self.backend.clone(), parts, epoch))
    }

    /// Makes something that a reset takes away, and tells how many there were before it. The module may reset an idle controller
    /// as part of making the first thing on it; then it is made once more.
    fn in_one_epoch<T>(
        &self,
        what: &'static str,
        mut make: impl FnMut(&dyn Backend) -> Result<T>,
        undo: impl Fn(&dyn Backend, T) -> Result<()>,
    ) -> Result<(T, u32)> {
        let backend = self.backend.as_ref();
        let mut before = backend.epoch()?;
        for _ in 0..EPOCHS {
            let made = make(backend)?;
            let after = backend.epoch()?;
            if after == before {
                return Ok((made, after));
            }
            before = after;
            // It may have gone with the reset.
            let _ = undo(backend, made);
        }
        Err(backend.lost(what))
    }

    /// Commands by way of the kernel. It costs nothing until it is used.
    ///
    /// # Errors
    /// [`Error::NoMediated`], [`Error::Gone`].
    pub fn mediated_queue(&self) -> Result<MediatedQueue> {
        if !self.info()?.mediated() {
            return Err(Error::NoMediated);
        }
        Ok(MediatedQueue::new(self.backend.clone()))
    }

    /// Commands by way of the kernel with up to `depth` in flight.
    ///
    /// # Errors
    /// [`Error::NoMediated`], [`Error::NoRing`], [`Error::Gone`].
    pub fn mediated_ring(&self, depth: usize) -> Result<MediatedRing> {
        if !self.info()?.mediated() {
            return Err(Error::NoMediated);
        }
        Ok(MediatedRing::new(self.backend.clone(), self.backend.clone().calls()?, depth))
    }

    fn check_entries(&self, entries: u32) -> Result<()> {
        let limit = self.info()?.max_queue_entries();
        if !(2..=limit).contains(&entries) {
            return Err(Error::QueueEntries { entries, limit });
        }
        Ok(())
    }

    /// Allocates at least `len` bytes, all zeros.
    ///
    /// # Errors
    /// [`Error::BufferSize`], [`Error::Quota`], [`Error::Busy`] while another process has direct queues, [`Error::Gone`].
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.check_len(len as u64)?;
        self.make_buffer(|backend| backend.alloc_buffer(len as u64, false))
    }

    /// The same in the controller memory buffer: values do not cross the bus a second time, but this process reads and writes
    /// them slowly.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc), [`Error::NoCmb`], [`Error::CmbFull`].
    pub fn alloc_cmb(&self, len: usize) -> Result<Buffer> {
        self.check_len(len as u64)?;
        self.make_buffer(|backend| backend.alloc_buffer(len as u64, true))
    }

    /// Makes a buffer of a dma-buf, such as memory of a GPU, which may be closed afterwards. The memory stays where it is until
    /// the buffer is freed.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc), [`Error::NotPeer`], or what the exporting driver says.
    pub fn import(&self, dmabuf: BorrowedFd<'_>, import: &Import) -> Result<Buffer> {
        self.check_len(import.len as u64)?;
        self.make_buffer(|backend| backend.import_buffer(dmabuf, import))
    }

    /// Makes a buffer of this process' own memory. Its pages are pinned until the buffer is freed, and count against
    /// RLIMIT_MEMLOCK.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc); [`Error::MemoryLock`].
    pub fn register(&self, memory: Memory) -> Result<Buffer> {
        self.check_len(memory.len() as u64)?;
        let (region, writable) = memory.into_parts();
        self.make_buffer(|backend| backend.register_buffer(region.clone(), writable))
    }

    fn make_buffer(&self, make: impl FnMut(&dyn Backend) -> Result<BufferParts>) -> Result<Buffer> {
        let free = |backend: &dyn Backend, BufferParts { handle, data, table, .. }| {
            // Unmapped first.
            drop((data, table));
            backend.free_buffer(handle)
        };
        let (parts, epoch) = self.in_one_epoch("making a buffer", make, free)?;
        Buffer::new(self.backend.clone(), parts, epoch)
    }

    fn check_len(&self, len: u64) -> Result<()> {
        let limit = self.info()?.max_buffer();
        if !(1..=limit).contains(&len) {
            return Err(Error::BufferSize { len, limit });
        }
        Ok(())
    }
}
