// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values in ordinary memory: a queue, a buffer that grows, and copies in between.

use crate::buffer::{Buffer, Slice};
use crate::controller::Controller;
use crate::error::{protocol, Error, Result};
use crate::info::Namespace;
use crate::list::Pages;
use crate::queue::{Queue, QueueOptions};
use nvme_kv::kv::{RetrieveOptions, StoreOptions};
use nvme_kv::{Key, Status};

/// Smallest buffer: most values fit, and a list has many keys.
const SMALLEST: u64 = 64 << 10;

/// Values by key in one namespace, one call at a time.
///
/// Drop order: the queue, then the buffer that it works in.
#[derive(Debug)]
pub struct Kv {
    queue: Queue,
    buffer: Option<Buffer>,
    namespace: Namespace,
    controller: Controller,
}

impl Kv {
    /// Opens a namespace, the first one unless `nsid` names one.
    ///
    /// # Errors
    /// Those of [`Controller::namespace`] and [`Controller::queue`].
    pub fn open(controller: &Controller, nsid: Option<u32>) -> Result<Self> {
        let limit = controller.info()?.max_queue_entries();
        Self::with_options(
            controller,
            nsid,
            QueueOptions { entries: limit.min(4), ..QueueOptions::default() },
        )
    }

    /// The same, with a queue of the caller's choice.
    ///
    /// # Errors
    /// Those of [`Controller::namespace`] and [`Controller::queue`].
    pub fn with_options(controller: &Controller, nsid: Option<u32>, options: QueueOptions) -> Result<Self> {
        let namespace = match nsid {
            Some(nsid) => controller.namespace(nsid)?,
            None => controller.first_namespace()?,
        };
        let queue = controller.queue(options)?;
        Ok(Self { queue, buffer: None, namespace, controller: controller.clone() })
    }

    /// The namespace, as it was when it was opened.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The controller.
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The queue.
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Stores a value of any length up to the limits, 0 included.
    ///
    /// # Errors
    /// Those of [`Queue::store`].
    pub fn store(&mut self, key: &Key, value: &[u8], options: StoreOptions) -> Result<()> {
        self.namespace.check_key(key)?;
        self.namespace.check_value(key, value.len() as u64)?;
        let slice = self.room(value.len() as u64)?.slice(..value.len())?;
        slice.buffer().write(0, value)?;
        let stored = self.queue.store(&self.namespace, key, &slice, options);
        stored.map_err(|error| error.with_capacity(self.namespace.capacity()))
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
            let need = match self.queue.retrieve(&self.namespace, key, &slice, options) {
                Ok(len) => {
                    let mut value = vec![0; len as usize];
                    slice.buffer().read(slice.offset(), &mut value)?;
                    return Ok(value);
                }
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
        self.queue.list(&self.namespace, start, &slice)
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
        if self.queue.poisoned() > 0 {
            self.buffer = None;
        }
        if let Some(buffer) = self.buffer.as_ref().filter(|b| b.len() as u64 >= len) {
            return Ok(buffer.clone());
        }
        // The old one first: there is a limit on both together.
        self.buffer = None;
        let limit = self.controller.info()?.max_buffer();
        let rounded = len.max(SMALLEST).next_power_of_two().min(limit).max(len);
        let allocate = |len: u64| self.controller.alloc(usize::try_from(len).unwrap_or(usize::MAX));
        let buffer = match allocate(rounded) {
            // What is left of the limit may be enough.
            Err(Error::Quota { .. }) => allocate(len.max(1))?,
            allocated => allocated?,
        };
        self.buffer = Some(buffer.clone());
        Ok(buffer)
    }
}
