// SPDX-License-Identifier: MIT OR Apache-2.0
//! Back ends: where the pairs of a namespace are kept.
//!
//! A [`Store`] is asked with a [`Request`] and answers at once, or later and from any thread through a
//! [`Promise`]. Many requests can be under way. What changes one key is done in the order in which it was asked.

mod answer;
mod budget;
mod embedded;
mod mem;
mod rados;

pub use answer::{Answers, Later, Promise};
pub use embedded::EmbeddedStore;
pub use mem::MemStore;
pub use rados::{RadosConfig, RadosStore};

use nvme_kv::kv::Condition;
use nvme_kv::{Key, Status};
use std::ops::Range;
use std::sync::Arc;

/// What a store is asked for.
#[derive(Debug)]
pub enum Request {
    /// A part of a value: at most `len` bytes from `offset` on. Answered with [`Reply::Value`].
    Get {
        /// Key.
        key: Key,
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// To store a pair in one step, if `condition` is met at that moment.
    Put {
        /// Key.
        key: Key,
        /// Value.
        value: Vec<u8>,
        /// When to store.
        condition: Condition,
    },
    /// To delete a pair.
    Delete {
        /// Key.
        key: Key,
    },
    /// Whether there is a pair.
    Exist {
        /// Key.
        key: Key,
    },
    /// The keys, in ascending order, that fit a list of `room` bytes ([`nvme_kv::list`]). Answered with
    /// [`Reply::Keys`].
    List {
        /// Key to start at (it or the next one), or from the beginning.
        start: Option<Key>,
        /// Bytes of the list.
        room: usize,
    },
    /// To make durable whatever was answered before.
    Flush,
}

/// What a store answers when it did what it was asked for.
#[derive(Debug)]
pub enum Reply {
    /// Stored, deleted, flushed, or there.
    Done,
    /// A value.
    Value(Value),
    /// Keys.
    Keys(Vec<Key>),
}

/// A reply, or the status of the host's command. What fails has changed nothing.
pub type Answer = Result<Reply, Status>;

/// A part of a value.
#[derive(Clone, Debug)]
pub struct Value {
    bytes: Arc<Vec<u8>>,
    // INVARIANT: inside `bytes`.
    part: Range<usize>,
    len: usize,
}

impl Value {
    /// At most `len` bytes from `offset` on of a value that is kept anyway.
    pub fn shared(bytes: Arc<Vec<u8>>, offset: usize, len: usize) -> Self {
        let start = offset.min(bytes.len());
        let end = start.saturating_add(len).min(bytes.len());
        Self { len: bytes.len(), part: start..end, bytes }
    }

    /// A part of a value of `len` bytes in all.
    pub fn part(bytes: Vec<u8>, len: usize) -> Self {
        Self { part: 0..bytes.len(), bytes: Arc::new(bytes), len }
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.part.clone()).unwrap_or(&[])
    }

    /// Length of the whole value.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the whole value has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The pairs of one namespace, shared by all controllers that have it attached.
pub trait Store: Send + Sync {
    /// Whether a Store of `len` bytes would be refused, as far as that is known without waiting and without the
    /// value. Spares the host the transfer of a value in vain.
    fn admit(&self, key: &Key, len: usize, condition: Condition) -> Result<(), Status> {
        let _ = (key, len, condition);
        Ok(())
    }

    /// Does what is asked for. Never waits: a store that has to takes a promise of `later` and returns `None`.
    fn start(&self, request: Request, later: &Later<'_>) -> Option<Answer>;

    /// Bytes in use, never more than the namespace's capacity.
    fn usage(&self) -> u64;

    /// Number of pairs.
    fn pairs(&self) -> u64;

    /// Whether the medium can be reached.
    fn is_ready(&self) -> bool {
        true
    }
}
