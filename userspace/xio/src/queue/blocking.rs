// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that submit one command and wait for it; and batches of a direct queue.

use super::{Limit, Queue, FOREVER};
use crate::command::{Completion, Operation, Token};
use crate::error::Result;
use crate::info::Namespace;
use std::collections::VecDeque;
use std::time::Instant;

/// Gives a type that has `execute` the calls that say what became of the command.
macro_rules! blocking_calls {
    ($type:ty) => {
        /// All of them wait as long as was said when it was made, and fail with [`Error::Timeout`] and those of `execute`, and
        /// [`Error::Status`] for what the controller refuses, besides the errors that each names.
        ///
        /// [`Error::Timeout`]: crate::Error::Timeout
        /// [`Error::Status`]: crate::Error::Status
        impl $type {
            /// Stores a value.
            ///
            /// # Errors
            /// [`Exists`](crate::Error::Exists) and [`NotFound`](crate::Error::NotFound) as the condition says,
            /// [`Capacity`](crate::Error::Capacity), [`ValueTooLarge`](crate::Error::ValueTooLarge),
            /// [`KeyTooLong`](crate::Error::KeyTooLong).
            pub fn store(
                &mut self,
                ns: &$crate::Namespace,
                key: &$crate::Key,
                value: &$crate::Slice,
                options: $crate::StoreOptions,
            ) -> $crate::Result<()> {
                let operation = $crate::Operation::Store { key: *key, value: value.clone(), options };
                $crate::command::check(self.execute(ns, operation)?.status, "Store", Some(key))
            }

            /// Retrieves a value; its length in bytes.
            ///
            /// # Errors
            /// [`NotFound`](crate::Error::NotFound); [`BufferTooSmall`](crate::Error::BufferTooSmall) with the true length
            /// when the value does not fit whole.
            pub fn retrieve(
                &mut self,
                ns: &$crate::Namespace,
                key: &$crate::Key,
                into: &$crate::Slice,
                options: $crate::RetrieveOptions,
            ) -> $crate::Result<u32> {
                let operation = $crate::Operation::Retrieve { key: *key, into: into.clone(), options };
                $crate::command::retrieved(&self.execute(ns, operation)?, key, into)
            }

            /// Whether a key exists.
            ///
            /// # Errors
            /// [`KeyTooLong`](crate::Error::KeyTooLong).
            pub fn exist(&mut self, ns: &$crate::Namespace, key: &$crate::Key) -> $crate::Result<bool> {
                match self.execute(ns, $crate::Operation::Exist { key: *key })?.status {
                    $crate::Status::KEY_NOT_FOUND => Ok(false),
                    status => $crate::command::check(status, "Exist", Some(key)).map(|()| true),
                }
            }

            /// Deletes a key and its value.
            ///
            /// # Errors
            /// [`NotFound`](crate::Error::NotFound).
            pub fn delete_key(&mut self, ns: &$crate::Namespace, key: &$crate::Key) -> $crate::Result<()> {
                let done = self.execute(ns, $crate::Operation::Delete { key: *key })?;
                $crate::command::check(done.status, "Delete", Some(key))
            }

            /// Lists keys from `start` on (itself, if it exists) into a slice, as many as fit, in the controller's order.
            ///
            /// # Errors
            /// [`ListTooSmall`](crate::Error::ListTooSmall).
            pub fn list(
                &mut self,
                ns: &$crate::Namespace,
                start: Option<&$crate::Key>,
                into: &$crate::Slice,
            ) -> $crate::Result<Vec<$crate::Key>> {
                // Should the controller write nothing, the list is empty.
                into.buffer().write(into.offset(), &[0; 4][..into.len().min(4) as usize])?;
                let operation = $crate::Operation::List { start: start.copied(), into: into.clone() };
                $crate::command::listed(&self.execute(ns, operation)?, start, into)
            }

            /// Makes durable what was completed before.
            ///
            /// # Errors
            /// [`Unsupported`](crate::Error::Unsupported).
            pub fn flush(&mut self, ns: &$crate::Namespace) -> $crate::Result<()> {
                $crate::command::check(self.execute(ns, $crate::Operation::Flush)?.status, "Flush", None)
            }
        }
    };
}
pub(crate) use blocking_calls;

blocking_calls!(Queue);

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

    /// Submits commands, as many at a time as the queue takes, and waits for all of them; what became of each, in the
    /// order of the operations. The controller carries them out in any order. A failed one does not stop the others.
    pub fn execute_batch(
        &mut self,
        namespace: &Namespace,
        operations: &[Operation],
    ) -> Vec<Result<Completion>> {
        let until = Instant::now() + self.options.timeout.min(FOREVER);
        let mut results = Vec::with_capacity(operations.len());
        let mut pending: VecDeque<(Result<Token>, &'static str)> = VecDeque::new();
        let wait = |queue: &mut Self, (token, what): (Result<Token>, &'static str)| {
            token.and_then(|token| queue.wait_until(token, Limit::At(until), what))
        };
        for operation in operations {
            while self.free() == 0 {
                let Some(first) = pending.pop_front() else { break };
                results.push(wait(self, first));
            }
            pending.push_back((self.submit(namespace, operation.clone()), operation.name()));
        }
        results.extend(pending.into_iter().map(|next| wait(self, next)));
        results
    }
}
