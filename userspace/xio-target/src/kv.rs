// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Key Value command set (KV, section 3).

use crate::controller::{Controller, Counters, Outcome};
use crate::host::HostMemory;
use crate::store::Store;
use crate::{data, huge, NamespaceConfig};
use nvme_kv::kv::{Command, Condition};
use nvme_kv::{list, DataPointer, Key, Sqe, Status};

/// Namespace identifier for all namespaces.
pub(crate) const ALL: u32 = 0xffff_ffff;

/// A namespace: its limits and its pairs.
pub(crate) struct Namespace {
    pub(crate) config: NamespaceConfig,
    pub(crate) store: Box<dyn Store>,
}

impl Controller {
    /// Executes an I/O command; the outcome is dword 0 of its completion, or its status.
    pub(crate) fn io(&mut self, sqe: &Sqe) -> Outcome {
        let command = Command::decode(sqe)?;
        let nsid = sqe.nsid.get();
        if command == Command::Flush && nsid == ALL {
            self.namespaces.iter_mut().try_for_each(|ns| ns.store.flush())?;
            return Ok(0);
        }
        let index = (nsid as usize).checked_sub(1).ok_or(Status::INVALID_NAMESPACE)?;
        let namespace = self.namespaces.get_mut(index).ok_or(Status::INVALID_NAMESPACE)?;
        let mut io = Io {
            namespace,
            memory: &*self.host.memory,
            counters: &mut self.counters,
            max_transfer: self.config.max_transfer(),
        };
        io.execute(command)
    }
}

/// What a command works with.
struct Io<'a> {
    namespace: &'a mut Namespace,
    memory: &'a dyn HostMemory,
    counters: &'a mut Counters,
    max_transfer: Option<u64>,
}

impl Io<'_> {
    fn execute(&mut self, command: Command) -> Outcome {
        match command {
            Command::Store { key, len, options, data } => {
                self.check_key(&key)?;
                self.store(key, len, options.condition, data)
            }
            Command::Retrieve { key, len, data, .. } => {
                self.check_key(&key)?;
                self.retrieve(&key, len, data)
            }
            Command::List { start, len, data } => {
                start.as_ref().map_or(Ok(()), |key| self.check_key(key))?;
                self.list(start.as_ref(), len, data)
            }
            Command::Delete { key } => {
                self.check_key(&key)?;
                self.check_writable()?;
                self.namespace.store.delete(&key).map(|()| 0)
            }
            Command::Exist { key } => {
                self.check_key(&key)?;
                match self.namespace.store.exists(&key)? {
                    true => Ok(0),
                    false => Err(Status::KEY_NOT_FOUND),
                }
            }
            Command::Flush => self.namespace.store.flush().map(|()| 0),
        }
    }

    /// Store (KV, section 3.2.6). The value is read straight into the memory that it is kept in.
    fn store(&mut self, key: Key, len: u32, condition: Condition, from: DataPointer) -> Outcome {
        self.check_writable()?;
        if len > self.namespace.config.max_value {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        self.check_transfer(len)?;
        self.namespace.store.admit(&key, len as usize, condition)?;
        let mut value = huge::zeros(len as usize);
        data::from_host(self.memory, from, &mut value)?;
        self.counters.wrote(value.len());
        self.namespace.store.put(key, value, condition).map(|()| 0)
    }

    /// Retrieve (KV, section 3.2.5): dword 0 is the length of the value, however much of it fits.
    fn retrieve(&mut self, key: &Key, len: u32, to: DataPointer) -> Outcome {
        self.check_transfer(len)?;
        let value = self.namespace.store.get(key)?;
        let part = value.get(..len as usize).unwrap_or(&value);
        data::to_host(self.memory, to, len as usize, part)?;
        self.counters.read(part.len());
        u32::try_from(value.len()).map_err(|_| Status::INTERNAL_ERROR)
    }

    /// List (KV, section 3.2.4).
    fn list(&mut self, start: Option<&Key>, len: u32, to: DataPointer) -> Outcome {
        self.check_transfer(len)?;
        // No more than the keys take, whatever the host's buffer.
        let mut room = list::EMPTY_LEN;
        let mut fits = |key: &Key| {
            room += list::entry_len(key.as_bytes().len());
            room <= len as usize
        };
        self.namespace.store.list(start, &mut fits)?;
        let mut buffer = vec![0; room.min(len as usize)];
        let mut list = list::Builder::new(&mut buffer).ok_or(Status::INVALID_FIELD)?;
        self.namespace.store.list(start, &mut |key| list.push(key))?;
        let used = list.len();
        let part = buffer.get(..used).ok_or(Status::INTERNAL_ERROR)?;
        data::to_host(self.memory, to, len as usize, part)?;
        self.counters.read(part.len());
        Ok(0)
    }

    fn check_key(&self, key: &Key) -> Result<(), Status> {
        if u16::from(key.len()) > self.namespace.config.max_key {
            return Err(Status::INVALID_KEY_SIZE);
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), Status> {
        if self.namespace.config.read_only {
            return Err(Status::WRITE_PROTECTED);
        }
        Ok(())
    }

    /// Base, Figure "Identify Controller Data Structure", MDTS.
    fn check_transfer(&self, len: u32) -> Result<(), Status> {
        match self.max_transfer {
            Some(max) if u64::from(len) > max => Err(Status::INVALID_FIELD),
            _ => Ok(()),
        }
    }
}
