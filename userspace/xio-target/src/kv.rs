// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Key Value command set (KV, section 3).

use crate::controller::{Controller, Outcome};
use crate::data::{self, Buffer};
use crate::flight::{Finish, Flight, Load};
use crate::store::{Answer, Reply, Request, Store, Value};
use crate::{huge, NamespaceConfig};
use nvme_kv::kv::Command;
use nvme_kv::{list, Key, Sqe, Status};
use std::sync::Arc;

/// Namespace identifier for all namespaces.
pub(crate) const ALL: u32 = 0xffff_ffff;

/// A namespace: its limits and its pairs.
pub(crate) struct Namespace {
    pub(crate) config: NamespaceConfig,
    pub(crate) store: Arc<dyn Store>,
    load: Arc<Load>,
}

/// How far a command got.
pub(crate) enum Step {
    /// To its end.
    Done(Outcome),
    /// Into the store, which answers later.
    Started,
    /// Nowhere: its namespace has too much under way. It is to be tried again.
    Held,
    /// Nowhere as far as the host can see: it was put away, or the controller has failed (module [`crate::fault`]).
    Away,
}

impl From<Outcome> for Step {
    fn from(outcome: Outcome) -> Self {
        Self::Done(outcome)
    }
}

impl Namespace {
    pub(crate) fn new(config: NamespaceConfig, store: Arc<dyn Store>) -> Self {
        Self { config, store, load: Arc::default() }
    }

    fn check_key(&self, key: &Key) -> Result<(), Status> {
        if u16::from(key.len()) > self.config.max_key {
            return Err(Status::INVALID_KEY_SIZE);
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), Status> {
        if self.config.read_only {
            return Err(Status::WRITE_PROTECTED);
        }
        Ok(())
    }

    /// What can be refused before anything is moved. `max_transfer`: Base, Figure "Identify Controller Data
    /// Structure", MDTS.
    fn check(&self, command: &Command, max_transfer: Option<u64>) -> Result<(), Status> {
        let transfer = |len: u32| match max_transfer {
            Some(max) if u64::from(len) > max => Err(Status::INVALID_FIELD),
            _ => Ok(()),
        };
        match command {
            Command::Store { key, len, options, .. } => {
                self.check_key(key)?;
                self.check_writable()?;
                if *len > self.config.max_value {
                    return Err(Status::INVALID_VALUE_SIZE);
                }
                transfer(*len)?;
                self.store.admit(key, *len as usize, options.condition)
            }
            Command::Retrieve { key, len, .. } => {
                self.check_key(key)?;
                transfer(*len)
            }
            Command::List { start, len, .. } => {
                start.as_ref().map_or(Ok(()), |key| self.check_key(key))?;
                transfer(*len)?;
                // Not even the number of keys.
                if (*len as usize) < list::EMPTY_LEN {
                    return Err(Status::INVALID_FIELD);
                }
                Ok(())
            }
            Command::Delete { key } => {
                self.check_key(key)?;
                self.check_writable()
            }
            Command::Exist { key } => self.check_key(key),
            Command::Flush => Ok(()),
        }
    }

    /// Bytes of memory that a command needs while it is under way.
    fn need(&self, command: &Command) -> usize {
        match command {
            Command::Store { len, .. } | Command::List { len, .. } => *len as usize,
            Command::Retrieve { len, .. } => (*len).min(self.config.max_value) as usize,
            Command::Delete { .. } | Command::Exist { .. } | Command::Flush => 0,
        }
    }
}

impl Controller {
    /// Executes or starts an I/O command.
    pub(crate) fn io(&mut self, sqid: u16, sqe: &Sqe) -> Step {
        let command = match Command::decode(sqe) {
            Ok(command) => command,
            Err(status) => return Step::Done(Err(status)),
        };
        let (nsid, cid) = (sqe.nsid.get(), sqe.cid.get());
        if command == Command::Flush && nsid == ALL {
            return self.flush_all(sqid, cid, false);
        }
        match self.start(sqid, sqe, command) {
            Ok(step) => step,
            Err(status) => Step::Done(Err(status)),
        }
    }

    fn start(&mut self, sqid: u16, sqe: &Sqe, command: Command) -> Result<Step, Status> {
        let (nsid, cid, buffer) = (sqe.nsid.get(), sqe.cid.get(), Buffer::of(sqe));
        let index = (nsid as usize).checked_sub(1).ok_or(Status::INVALID_NAMESPACE)?;
        let namespace = self.namespaces.get(index).ok_or(Status::INVALID_NAMESPACE)?;
        // Base, section 3.2.1.5: one that is not attached.
        let namespace = namespace.as_ref().ok_or(Status::INVALID_FIELD)?;
        namespace.check(&command, self.config.max_transfer())?;
        let need = namespace.need(&command);
        if !namespace.load.has_room(need) {
            return Ok(Step::Held);
        }
        let (request, finish) = match command {
            Command::Store { key, len, options, .. } => {
                // The value is read straight into the memory that it is kept in.
                let mut value = huge::memory(len as usize);
                data::from_host(&*self.host.memory, buffer, &mut value)?;
                self.moved += u64::from(len);
                let request = Request::Put { key, value, condition: options.condition };
                (request, Finish::Store { len: len as usize })
            }
            Command::Retrieve { key, len, .. } => {
                let len = len as usize;
                (Request::Get { key, offset: 0, len }, Finish::Retrieve { len, buffer })
            }
            Command::List { start, len, .. } => {
                (Request::List { start, room: len as usize }, Finish::List { len: len as usize, buffer })
            }
            Command::Delete { key } => {
                let must_find = self.features.delete_must_find(nsid);
                (Request::Delete { key }, Finish::Delete { must_find })
            }
            Command::Exist { key } => (Request::Exist { key }, Finish::Plain),
            Command::Flush => (Request::Flush, Finish::Plain),
        };
        match namespace.store.start(request, &self.flights.later()) {
            Some(answer) => Ok(Step::Done(self.finish(finish, answer))),
            None => {
                self.flights.add(Flight::new(sqid, cid, finish).with_load(&namespace.load, need));
                Ok(Step::Started)
            }
        }
    }

    /// Flushes all namespaces: for a command, or for a shutdown.
    pub(crate) fn flush_all(&mut self, sqid: u16, cid: u16, shutdown: bool) -> Step {
        let (mut left, mut worst) = (0, Ok(()));
        let group = self.flights.add(Flight::new(sqid, cid, Finish::Group { left, worst, shutdown }));
        for namespace in self.namespaces.iter().flatten() {
            match namespace.store.start(Request::Flush, &self.flights.later()) {
                Some(answer) => worst = worst.and(answer.map(drop)),
                None => {
                    let flight = Flight::new(sqid, cid, Finish::Member { group });
                    self.flights.add(flight.with_load(&namespace.load, 0));
                    left += 1;
                }
            }
        }
        if left > 0 {
            if let Some(flight) = self.flights.get_mut(group) {
                flight.finish = Finish::Group { left, worst, shutdown };
            }
            return Step::Started;
        }
        drop(self.flights.remove(group));
        Step::Done(worst.map(|()| 0))
    }

    /// A store has answered: the command that is done now, if the host waits for it, and whether it is the flush of
    /// a shutdown.
    pub(crate) fn land(&mut self, id: u64, answer: Answer) -> Option<(Flight, Outcome, bool)> {
        let flight = self.flights.remove(id)?;
        let Finish::Member { group } = flight.finish else {
            let outcome = self.finish(flight.finish, answer);
            return Some((flight, outcome, false));
        };
        let Finish::Group { left, worst, shutdown } = &mut self.flights.get_mut(group)?.finish else {
            return None;
        };
        *left -= 1;
        *worst = worst.and(answer.map(drop));
        if *left > 0 {
            return None;
        }
        let (outcome, shutdown) = (worst.map(|()| 0), *shutdown);
        Some((self.flights.remove(group)?, outcome, shutdown))
    }

    /// What is left to do with a store's answer.
    fn finish(&mut self, finish: Finish, answer: Answer) -> Outcome {
        if matches!((finish, &answer), (Finish::Delete { must_find: false }, Err(Status::KEY_NOT_FOUND))) {
            return Ok(0);
        }
        match (finish, answer?) {
            (Finish::Retrieve { len, buffer }, Reply::Value(value)) => self.give_value(len, buffer, &value),
            (Finish::List { len, buffer }, Reply::Keys(keys)) => self.give_keys(len, buffer, &keys),
            (Finish::Store { len }, Reply::Done) => {
                self.counters.wrote(len);
                Ok(0)
            }
            (Finish::Plain | Finish::Delete { .. }, Reply::Done) => Ok(0),
            (finish, reply) => {
                log::error!("a store has answered {reply:?} when asked for {finish:?}");
                Err(Status::INTERNAL_ERROR)
            }
        }
    }

    /// Retrieve (KV, section 3.2.5): dword 0 is the length of the value, however much of it fits.
    fn give_value(&mut self, room: usize, to: Buffer, value: &Value) -> Outcome {
        let bytes = value.bytes();
        data::to_host(&*self.host.memory, to, room, bytes)?;
        self.moved += bytes.len() as u64;
        self.counters.read(bytes.len());
        u32::try_from(value.len()).map_err(|_| Status::INTERNAL_ERROR)
    }

    /// List (KV, section 3.2.4). No more is written than the keys take, whatever the host's buffer.
    fn give_keys(&mut self, room: usize, to: Buffer, keys: &[Key]) -> Outcome {
        let entries = keys.iter().map(|key| list::entry_len(key.len().into()));
        let mut buffer = vec![0; room.min(list::EMPTY_LEN + entries.sum::<usize>())];
        let mut list = list::Builder::new(&mut buffer).ok_or(Status::INVALID_FIELD)?;
        let _all = keys.iter().all(|key| list.push(key));
        let used = list.len();
        let part = buffer.get(..used).ok_or(Status::INTERNAL_ERROR)?;
        data::to_host(&*self.host.memory, to, room, part)?;
        self.moved += part.len() as u64;
        self.counters.read(part.len());
        Ok(0)
    }
}
