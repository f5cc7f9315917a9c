// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands as users state them, and what comes back.

use crate::buffer::Slice;
use crate::error::{protocol, Error, Result};
use crate::info::Namespace;
use nvme_kv::kv::{Command, RetrieveOptions, StoreOptions};
use nvme_kv::{list, Key, Status};

/// An operation on a namespace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Stores the bytes of a slice as the value of a key.
    Store {
        /// Key.
        key: Key,
        /// Value; it may be empty.
        value: Slice,
        /// Options.
        options: StoreOptions,
    },
    /// Retrieves the value of a key into a slice. [`Completion::value_len`] is the true length, also when it is
    /// more than fits.
    Retrieve {
        /// Key.
        key: Key,
        /// Where the value goes.
        into: Slice,
        /// Options.
        options: RetrieveOptions,
    },
    /// Lists keys in the controller's order, read with [`nvme_kv::list::Keys`].
    List {
        /// First key, or the one that follows if it does not exist; `None` starts at the beginning.
        start: Option<Key>,
        /// Where the list goes, at least [`nvme_kv::list::MIN_LEN`] bytes.
        into: Slice,
    },
    /// Deletes a key and its value.
    Delete {
        /// Key.
        key: Key,
    },
    /// Asks whether a key exists.
    Exist {
        /// Key.
        key: Key,
    },
    /// Makes durable what was completed before.
    Flush,
}

impl Operation {
    /// The operation with default options: [`Operation::Store`].
    pub fn store(key: Key, value: Slice) -> Self {
        Self::Store { key, value, options: StoreOptions::default() }
    }

    /// The operation with default options: [`Operation::Retrieve`].
    pub fn retrieve(key: Key, into: Slice) -> Self {
        Self::Retrieve { key, into, options: RetrieveOptions::default() }
    }

    /// Name of the command in the specification.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Store { .. } => "Store",
            Self::Retrieve { .. } => "Retrieve",
            Self::List { .. } => "List",
            Self::Delete { .. } => "Delete",
            Self::Exist { .. } => "Exist",
            Self::Flush => "Flush",
        }
    }

    /// Checks the operation against the namespace's limits and splits it into what goes over the wire and
    /// what must stay until it is done.
    pub(crate) fn prepare(self, namespace: &Namespace) -> Result<(Command, Option<Slice>)> {
        if let Some(key) = self.key() {
            namespace.check_key(key)?;
        }
        let command = match &self {
            Self::Store { key, value, options } => {
                namespace.check_value(key, value.len().into())?;
                Command::Store { key: *key, len: value.len(), options: *options, data: value.data_pointer() }
            }
            Self::Retrieve { key, into, options } => {
                Command::Retrieve { key: *key, len: into.len(), options: *options, data: into.data_pointer() }
            }
            Self::List { start, into } => {
                let (need, have) = (list::MIN_LEN, into.len() as usize);
                if have < need {
                    return Err(Error::ListTooSmall { need, have });
                }
                Command::List { start: *start, len: into.len(), data: into.data_pointer() }
            }
            Self::Delete { key } => Command::Delete { key: *key },
            Self::Exist { key } => Command::Exist { key: *key },
            Self::Flush => Command::Flush,
        };
        let slice = self.into_slice();
        let (limit, by) = namespace.largest_transfer();
        match &slice {
            Some(slice) if u64::from(slice.len()) > limit => {
                Err(Error::TransferTooLarge { op: command.name(), len: slice.len().into(), limit, by })
            }
            _ => Ok((command, slice)),
        }
    }

    const fn key(&self) -> Option<&Key> {
        match self {
            Self::Store { key, .. }
            | Self::Retrieve { key, .. }
            | Self::Delete { key }
            | Self::Exist { key } => Some(key),
            Self::List { start, .. } => start.as_ref(),
            Self::Flush => None,
        }
    }

    fn into_slice(self) -> Option<Slice> {
        match self {
            Self::Store { value: slice, .. }
            | Self::Retrieve { into: slice, .. }
            | Self::List { into: slice, .. } => Some(slice),
            _ => None,
        }
    }
}

/// Stands for a submitted command until its completion is taken; never the same twice in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    pub(crate) slot: u16,
    pub(crate) sequence: u64,
}

/// A completed command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The command.
    pub token: Token,
    /// How it ended.
    pub status: Status,
    /// Whether the same command would fail again (DNR).
    pub do_not_retry: bool,
    /// Of Retrieve: true length of the stored value in bytes, also when it is more than the slice holds. It is
    /// meaningless unless `status` is success.
    pub value_len: u32,
}

/// The error that a status stands for.
pub(crate) fn check(status: Status, op: &'static str, key: Option<&Key>) -> Result<()> {
    if status.is_success() {
        return Ok(());
    }
    Err(match (status, key) {
        (Status::KEY_NOT_FOUND, Some(key)) => Error::NotFound { key: *key },
        (Status::KEY_EXISTS, Some(key)) => Error::Exists { key: *key },
        (Status::CAPACITY_EXCEEDED, Some(key)) => Error::Capacity { key: *key, capacity: None },
        (Status::INVALID_OPCODE, _) => Error::Unsupported { op },
        _ => Error::Status { op, key: key.copied(), status },
    })
}

/// Keys of a list that a controller returned.
pub(crate) fn keys(list: &[u8]) -> Result<Vec<Key>> {
    let keys = list::Keys::new(list).and_then(Iterator::collect);
    keys.or_else(|e| protocol(e.to_string()))
}
