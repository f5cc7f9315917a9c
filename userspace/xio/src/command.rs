// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands as users state them, and what comes back.

use crate::buffer::Slice;
use crate::error::{protocol, Error, Result};
use crate::info::Namespace;
use nvme_kv::kv::{Command, Condition, RetrieveOptions, StoreOptions};
use nvme_kv::{list, Key, Status};
use xio_uapi::{self as uapi, KvEntry};
use zerocopy::FromZeros;

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

    /// Checks the operation against the limits of the namespace and of its buffer.
    fn check(&self, namespace: &Namespace) -> Result<()> {
        if let Some(key) = self.key() {
            namespace.check_key(key)?;
        }
        match self {
            Self::Store { key, value, .. } => namespace.check_value(key, value.len().into())?,
            Self::Retrieve { into, .. } | Self::List { into, .. } if into.buffer().is_read_only() => {
                return Err(Error::ReadOnly);
            }
            Self::List { into, .. } => {
                let (need, have) = (list::MIN_LEN, into.len() as usize);
                if have < need {
                    return Err(Error::ListTooSmall { need, have });
                }
            }
            _ => {}
        }
        let (limit, by) = namespace.largest_transfer();
        match self.slice() {
            Some(slice) if u64::from(slice.len()) > limit => {
                Err(Error::TransferTooLarge { op: self.name(), len: slice.len().into(), limit, by })
            }
            _ => Ok(()),
        }
    }

    /// Checks the operation and splits it into what goes over the wire and what must stay until it is done.
    pub(crate) fn prepare(self, namespace: &Namespace) -> Result<(Command, Option<Slice>)> {
        self.check(namespace)?;
        let pointer = |slice: &Slice| slice.data_pointer().ok_or(Error::NoAddresses);
        let command = match &self {
            Self::Store { key, value, options } => {
                Command::Store { key: *key, len: value.len(), options: *options, data: pointer(value)? }
            }
            Self::Retrieve { key, into, options } => {
                Command::Retrieve { key: *key, len: into.len(), options: *options, data: pointer(into)? }
            }
            Self::List { start, into } => {
                Command::List { start: *start, len: into.len(), data: pointer(into)? }
            }
            Self::Delete { key } => Command::Delete { key: *key },
            Self::Exist { key } => Command::Exist { key: *key },
            Self::Flush => Command::Flush,
        };
        Ok((command, self.into_slice()))
    }

    /// Checks the operation and makes an entry for the kernel of it.
    pub(crate) fn entry(&self, namespace: &Namespace) -> Result<KvEntry> {
        self.check(namespace)?;
        let (op, options) = match self {
            Self::Store { options, .. } => (uapi::KV_STORE, store_options(*options)),
            Self::Retrieve { options, .. } => {
                (uapi::KV_RETRIEVE, if options.raw { uapi::KV_RETRIEVE_RAW } else { 0 })
            }
            Self::List { .. } => (uapi::KV_LIST, 0),
            Self::Delete { .. } => (uapi::KV_DELETE, 0),
            Self::Exist { .. } => (uapi::KV_EXIST, 0),
            Self::Flush => (uapi::KV_FLUSH, 0),
        };
        let mut entry = KvEntry::new_zeroed();
        // Both fit: they are bits and codes of one byte each.
        (entry.op, entry.options, entry.nsid) = (op as u8, options as u8, namespace.nsid());
        if let Some(key) = self.key() {
            entry.key_len = key.len();
            entry.key[..usize::from(key.len())].copy_from_slice(key.as_bytes());
        }
        if let Some(slice) = self.slice() {
            entry.buffer = slice.buffer().handle();
            (entry.offset, entry.len) = (slice.offset() as u64, slice.len());
        }
        Ok(entry)
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

    /// The memory that it uses.
    pub(crate) const fn slice(&self) -> Option<&Slice> {
        match self {
            Self::Store { value: slice, .. }
            | Self::Retrieve { into: slice, .. }
            | Self::List { into: slice, .. } => Some(slice),
            _ => None,
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

fn store_options(options: StoreOptions) -> u32 {
    let condition = match options.condition {
        Condition::Always => 0,
        Condition::IfExists => uapi::KV_STORE_IF_EXISTS,
        Condition::IfAbsent => uapi::KV_STORE_IF_ABSENT,
    };
    condition | if options.no_compress { uapi::KV_STORE_NO_COMPRESS } else { 0 }
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

/// What a Retrieve brought: the length of the value, which must be there whole.
pub(crate) fn retrieved(done: &Completion, key: &Key, into: &Slice) -> Result<u32> {
    check(done.status, "Retrieve", Some(key))?;
    if done.value_len > into.len() {
        return Err(Error::BufferTooSmall { key: *key, need: done.value_len, have: into.len() });
    }
    Ok(done.value_len)
}

/// Keys that a List brought.
pub(crate) fn listed(done: &Completion, start: Option<&Key>, into: &Slice) -> Result<Vec<Key>> {
    match done.status {
        // Some controllers say so when no key follows.
        Status::KEY_NOT_FOUND => return Ok(Vec::new()),
        status => check(status, "List", start)?,
    }
    let keys = list::Keys::new(&into.to_vec()?).and_then(Iterator::collect);
    keys.or_else(|e| protocol(e.to_string()))
}
