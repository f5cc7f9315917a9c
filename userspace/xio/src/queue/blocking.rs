// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that submit one command and wait for it.

use super::{Limit, Queue};
use crate::buffer::Slice;
use crate::command::{check, Completion, Operation};
use crate::error::{Error, Result};
use crate::info::Namespace;
use nvme_kv::kv::{RetrieveOptions, StoreOptions};
use nvme_kv::{Key, Status};

/// All of them wait as the queue's options say, and fail with [`Error::Timeout`], [`Error::QueueFull`],
/// [`Error::Protocol`], and [`Error::Status`] for what the controller refuses, besides the errors that each names.
impl Queue {
    /// Submits a command, rings, and waits for it. The status is the caller's to look at.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit) and [`wait`](Self::wait).
    pub fn execute(&mut self, namespace: &Namespace, operation: Operation) -> Result<Completion> {
        let what = operation.name();
        let token = self.submit(namespace, operation)?;
        self.wait_until(token, Limit::After(self.options.timeout), what)
    }

    /// Stores a value.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NotFound`] as the condition says, [`Error::Capacity`], [`Error::ValueTooLarge`],
    /// [`Error::KeyTooLong`].
    pub fn store(&mut self, ns: &Namespace, key: &Key, value: &Slice, options: StoreOptions) -> Result<()> {
        let done = self.execute(ns, Operation::Store { key: *key, value: value.clone(), options })?;
        check(done.status, "Store", Some(key))
    }

    /// Retrieves a value; its length in bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::BufferTooSmall`] with the true length when the value does not fit whole.
    pub fn retrieve(
        &mut self,
        ns: &Namespace,
        key: &Key,
        into: &Slice,
        options: RetrieveOptions,
    ) -> Result<u32> {
        let done = self.execute(ns, Operation::Retrieve { key: *key, into: into.clone(), options })?;
        check(done.status, "Retrieve", Some(key))?;
        if done.value_len > into.len() {
            return Err(Error::BufferTooSmall { key: *key, need: done.value_len, have: into.len() });
        }
        Ok(done.value_len)
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`].
    pub fn exist(&mut self, ns: &Namespace, key: &Key) -> Result<bool> {
        match self.execute(ns, Operation::Exist { key: *key })?.status {
            Status::KEY_NOT_FOUND => Ok(false),
            status => check(status, "Exist", Some(key)).map(|()| true),
        }
    }

    /// Deletes a key and its value.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn delete_key(&mut self, ns: &Namespace, key: &Key) -> Result<()> {
        check(self.execute(ns, Operation::Delete { key: *key })?.status, "Delete", Some(key))
    }

    /// Lists keys from `start` on (itself, if it exists) into a slice, as many as fit, in the controller's order.
    ///
    /// # Errors
    /// [`Error::ListTooSmall`].
    pub fn list(&mut self, ns: &Namespace, start: Option<&Key>, into: &Slice) -> Result<Vec<Key>> {
        // Should the controller write nothing, the list is empty.
        into.buffer().write(into.offset(), &[0; 4][..into.len().min(4) as usize])?;
        let operation = Operation::List { start: start.copied(), into: into.clone() };
        match self.execute(ns, operation)?.status {
            // Some controllers say so when no key follows.
            Status::KEY_NOT_FOUND => Ok(Vec::new()),
            status => {
                check(status, "List", start)?;
                crate::command::keys(&into.to_vec())
            }
        }
    }

    /// Makes durable what was completed before.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn flush(&mut self, ns: &Namespace) -> Result<()> {
        check(self.execute(ns, Operation::Flush)?.status, "Flush", None)
    }
}
