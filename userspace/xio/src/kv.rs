// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values in ordinary memory: a path to the controller, a buffer that grows, and copies in between.

use crate::buffer::{Buffer, Slice};
use crate::controller::Controller;
use crate::dmabuf::{system_dmabuf, Import};
use crate::error::{protocol, Error, Result};
use crate::info::Namespace;
use crate::list::Pages;
use crate::memory::Memory;
use crate::path::{MemoryKind, Path};
use crate::queue::{Queue, QueueOptions};
use crate::way::Way;
use nvme_kv::kv::{RetrieveOptions, StoreOptions};
use nvme_kv::{Key, Status};
use std::os::fd::AsFd;

/// Smallest buffer: most values fit, and a list has many keys.
const SMALLEST: u64 = 64 << 10;

/// How a [`Kv`] gets to the controller, and in what memory it works.
#[derive(Clone, Debug, Default)]
pub struct KvOptions {
    /// The path.
    pub path: Path,
    /// The memory.
    pub memory: MemoryKind,
    /// The queue of the direct path; of the mediated one, only `timeout` matters.
    pub queue: QueueOptions,
}

impl From<QueueOptions> for KvOptions {
    fn from(queue: QueueOptions) -> Self {
        Self { queue, ..Self::default() }
    }
}

/// Values by key in one namespace, one call at a time.
///
/// After a reset of the controller ([`Error::Revoked`], [`Error::BufferGone`]) a `Kv` of the mediated path goes on with the next call,
/// and one of the direct path has no queue any more: open another on the same controller.
///
/// Drop order: the queue, then the buffer that it works in.
#[derive(Debug)]
pub struct Kv {
    queue: Way,
    memory: MemoryKind,
    buffer: Option<Buffer>,
    namespace: Namespace,
    controller: Controller,
}

impl Kv {
    /// Opens a namespace, the first one unless `nsid` names one, by the path that [`Path::Auto`] finds.
    ///
    /// # Errors
    /// Those of [`with_options`](Self::with_options).
    pub fn open(controller: &Controller, nsid: Option<u32>) -> Result<Self> {
        let entries = controller.info()?.max_queue_entries().min(4);
        Self::with_options(controller, nsid, QueueOptions { entries, ..QueueOptions::default() })
    }

    /// The same, with path, memory and queue of the caller's choice ([`KvOptions`], or [`QueueOptions`] alone).
    ///
    /// # Errors
    /// Those of [`Controller::namespace`]; on the direct path those of [`Controller::queue`], on the mediated one those of
    /// [`Controller::mediated_queue`], and those of getting memory of the kind.
    pub fn with_options(
        controller: &Controller,
        nsid: Option<u32>,
        options: impl Into<KvOptions>,
    ) -> Result<Self> {
        let KvOptions { path, memory, queue } = options.into();
        let namespace = match nsid {
            Some(nsid) => controller.namespace(nsid)?,
            None => controller.first_namespace()?,
        };
        let queue = Way::open(controller, path, &queue)?;
        let mut kv = Self { queue, memory, buffer: None, namespace, controller: controller.clone() };
        if kv.path() == Path::Mediated {
            // Who has memory is not shut out by another process' direct queues later; whoever is already, learns it now.
            kv.room(0)?;
        }
        Ok(kv)
    }

    /// The path in use: direct or mediated.
    pub const fn path(&self) -> Path {
        self.queue.path()
    }

    /// The memory in use.
    pub const fn memory(&self) -> MemoryKind {
        self.memory
    }

    /// The namespace, as it was when it was opened.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The controller.
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The queue, on the direct path.
    pub fn queue(&mut self) -> Option<&mut Queue> {
        match &mut self.queue {
            Way::Direct(queue) => Some(queue),
            Way::Mediated(_) => None,
        }
    }

    /// Stores a value of any length up to the limits, 0 included.
    ///
    /// # Errors
    /// Those of [`Queue::store`].
    pub fn store(&mut self, key: &Key, value: &[u8], options: StoreOptions) -> Result<()> {
        self.namespace.check_key(key)?;
        self.namespace.check_value(key, value.len() as u64)?;
        let slice = self.room(value.len() as u64)?.slice(..value.len())?;
        let written = slice.buffer().write(0, value);
        let stored = written.and_then(|()| self.queue.store(&self.namespace, key, &slice, options));
        self.note(stored).map_err(|error| error.with_capacity(self.namespace.capacity()))
    }

    /// Retrieves a whole value.
    ///
    /// # Errors
    /// Those of [`Queue::retrieve`]; a value that is larger than the buffer is read again with its true length.
    pub fn retrieve(&mut self, key: &Key) -> Result<Vec<u8>> {
        self.retrieve_with(key, RetrieveOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As above.
    pub fn retrieve_with(&mut self, key: &Key, options: RetrieveOptions) -> Result<Vec<u8>> {
        let mut slice = self.whole(0)?;
        loop {
            let retrieved = self.queue.retrieve(&self.namespace, key, &slice, options);
            let value = retrieved.and_then(|len| {
                let mut value = vec![0; len as usize];
                slice.buffer().read(slice.offset(), &mut value).map(|()| value)
            });
            let need = match self.note(value) {
                Ok(value) => return Ok(value),
                Err(Error::BufferTooSmall { need, .. }) => u64::from(need),
                // Some controllers do not tell how large it is.
                Err(Error::Status { status: Status::INVALID_VALUE_SIZE, .. }) => self.namespace.max_value().0,
                Err(error) => return Err(error),
            };
            let (limit, have) = (self.namespace.max_value().0, u64::from(slice.len()));
            // The place grows with each round, so that the rounds end even if the value is replaced by larger ones.
            if need > limit || need <= have {
                let told = format!("a value of {need} bytes for a buffer of {have}, at most {limit}");
                return protocol(told);
            }
            drop(slice);
            slice = self.whole(need)?;
        }
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// Those of [`Queue::exist`].
    pub fn exist(&mut self, key: &Key) -> Result<bool> {
        self.queue.exist(&self.namespace, key)
    }

    /// Deletes a key and its value.
    ///
    /// # Errors
    /// Those of [`Queue::delete_key`].
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        self.queue.delete_key(&self.namespace, key)
    }

    /// All keys from `start` on, page by page, in the controller's order.
    pub fn list(&mut self, start: Option<Key>) -> Pages<'_> {
        Pages::new(self, start)
    }

    /// Makes durable what was stored.
    ///
    /// # Errors
    /// Those of [`Queue::flush`].
    pub fn flush(&mut self) -> Result<()> {
        self.queue.flush(&self.namespace)
    }

    /// One page of keys, `start` included if it exists.
    pub(crate) fn page(&mut self, start: Option<&Key>) -> Result<Vec<Key>> {
        let slice = self.whole(0)?;
        let listed = self.queue.list(&self.namespace, start, &slice);
        self.note(listed)
    }

    /// Lets go of a buffer that is no more.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::Revoked { .. } | Error::BufferGone | Error::TakenBack)) {
            self.buffer = None;
        }
        result
    }

    /// The whole buffer, of at least `len` bytes, as far as one command can use it.
    fn whole(&mut self, len: u64) -> Result<Slice> {
        let limit = self.namespace.largest_transfer().0;
        let buffer = self.room(len)?;
        buffer.slice(..buffer.len().min(usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// The buffer, made larger if it has less than `len` bytes.
    fn room(&mut self, len: u64) -> Result<Buffer> {
        // A command that was given up may still read or write the buffer: it keeps it, and others get another.
        if self.queue.poisoned() > 0 || self.buffer.as_ref().is_some_and(Buffer::is_late) {
            self.buffer = None;
        }
        if let Some(buffer) = self.buffer.as_ref().filter(|b| b.len() as u64 >= len) {
            return Ok(buffer.clone());
        }
        let limit = self.controller.info()?.max_buffer();
        let rounded = len.max(SMALLEST).next_power_of_two().min(limit).max(len);
        let mut allocated = self.allocate(rounded);
        for len in [rounded, len.max(1)] {
            if !matches!(
                allocated,
                Err(Error::Quota { .. } | Error::MemoryLock { .. } | Error::CmbFull { .. })
            ) {
                break;
            }
            // What is left of the limit may be enough without the old one, or for no more than is needed.
            self.buffer = None;
            allocated = self.allocate(len);
        }
        let buffer = allocated?;
        self.buffer = Some(buffer.clone());
        Ok(buffer)
    }

    fn allocate(&self, len: u64) -> Result<Buffer> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        match self.memory {
            MemoryKind::Coherent => self.controller.alloc(len),
            MemoryKind::Pinned => self.controller.register(Memory::new(len)?),
            MemoryKind::Cmb => self.controller.alloc_cmb(len),
            MemoryKind::Dmabuf => {
                let len = len.next_multiple_of(nvme_kv::PAGE_SIZE);
                let dmabuf = system_dmabuf(len)?;
                self.controller.import(dmabuf.as_fd(), &Import { len, ..Import::default() })
            }
        }
    }
}
