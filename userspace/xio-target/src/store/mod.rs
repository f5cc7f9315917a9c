// SPDX-License-Identifier: MIT OR Apache-2.0
//! Back ends: where the pairs of a namespace are kept.

mod mem;

pub use mem::MemStore;

use nvme_kv::kv::Condition;
use nvme_kv::{Key, Status};
use std::borrow::Cow;

/// The pairs of one namespace. Its errors are what the host gets as the status of its command.
///
/// A method that fails has changed nothing.
pub trait Store: Send {
    /// Whether [`put`](Self::put) of a value of `len` bytes would be refused, as far as that is known without
    /// the value. Spares the host the transfer of a value in vain.
    fn admit(&self, key: &Key, len: usize, condition: Condition) -> Result<(), Status>;

    /// Stores a pair in one step, if `condition` is met at that moment.
    fn put(&mut self, key: Key, value: Vec<u8>, condition: Condition) -> Result<(), Status>;

    /// The value of a key, or [`Status::KEY_NOT_FOUND`].
    fn get(&self, key: &Key) -> Result<Cow<'_, [u8]>, Status>;

    /// Whether a key exists.
    fn exists(&self, key: &Key) -> Result<bool, Status>;

    /// Deletes a pair, or [`Status::KEY_NOT_FOUND`].
    fn delete(&mut self, key: &Key) -> Result<(), Status>;

    /// Passes keys in the store's own order, from `start` (or the one that would follow it) or the first, until
    /// `each` returns `false`.
    fn list(&self, start: Option<&Key>, each: &mut dyn FnMut(&Key) -> bool) -> Result<(), Status>;

    /// Makes everything that was stored before durable, as far as this store can.
    fn flush(&mut self) -> Result<(), Status>;

    /// Bytes in use, never more than the namespace's capacity.
    fn usage(&self) -> u64;
}
