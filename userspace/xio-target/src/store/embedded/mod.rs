// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs in a folder, kept by LMDB.
//!
//! A thread writes: it commits in one transaction whatever was asked for while the last one was being committed, and
//! answers when that is on the medium. So a completed Store outlives the program, and a Flush has nothing to do.
//! Other threads read, each from a snapshot of its own, and never wait for the writer.

mod database;
mod lane;
mod writer;

use super::budget::Budget;
use super::mem::max_pairs;
use super::{Answer, Later, Promise, Reply, Request, Store};
use crate::NamespaceConfig;
use database::Database;
use lane::{Lane, Workers};
use nvme_kv::kv::Condition;
use nvme_kv::{Key, Status};
use std::io;
use std::path::Path;
use std::sync::Arc;
use writer::Writer;

/// Threads that read.
const READERS: usize = 2;

/// What a request waits with.
type Job = (Request, Promise);

/// Keeps pairs in a folder of the file system.
///
/// # Invariants
///
/// Drop order: the threads end, with everything done that was asked for, before the database is closed.
pub struct EmbeddedStore {
    _workers: Workers,
    writes: Arc<Lane<Job>>,
    reads: Arc<Lane<Job>>,
    usage: Arc<Usage>,
}

/// Written by the writing thread alone.
#[derive(Debug)]
struct Usage {
    bytes: Budget,
    pairs: Budget,
}

impl EmbeddedStore {
    /// Opens the pairs in `folder`, which is made if it is not there. Fails when another store has it open.
    pub fn open(folder: &Path, config: &NamespaceConfig) -> io::Result<Self> {
        let database = Arc::new(Database::open(folder, config.capacity)?);
        let (bytes, pairs) = database.count()?;
        log::info!("{}: {pairs} pairs, {bytes} bytes", folder.display());
        let usage = Usage {
            bytes: Budget::starting_at(bytes, config.capacity),
            pairs: Budget::starting_at(pairs, max_pairs(config)),
        };
        let usage = Arc::new(usage);
        let (writes, reads) = (Arc::new(Lane::default()), Arc::new(Lane::default()));
        let mut workers = Workers::default();
        let writer = Writer::new(database.clone(), usage.clone());
        workers.start("store-write", &writes, move |lane| {
            while lane
                .take(writer::BATCH, |(request, _)| writer::weight(request), &mut |batch| writer.run(batch))
            {
            }
        })?;
        for _ in 0..READERS {
            let database = database.clone();
            workers.start("store-read", &reads, move |lane| {
                while lane.take((1, 1), |_| 0, &mut |batch| read(&database, batch)) {}
            })?;
        }
        Ok(Self { _workers: workers, writes, reads, usage })
    }
}

fn read(database: &Database, batch: &mut Vec<Job>) {
    for (request, promise) in batch.drain(..) {
        promise.answer(match request {
            Request::Get { key, offset, len } => database.get(&key, offset, len),
            Request::Exist { key } => database.exists(&key),
            Request::List { start, room } => database.list(start.as_ref(), room),
            Request::Put { .. } | Request::Delete { .. } | Request::Flush => Err(Status::INTERNAL_ERROR),
        });
    }
}

impl Store for EmbeddedStore {
    fn admit(&self, key: &Key, len: usize, _condition: Condition) -> Result<(), Status> {
        // Whether there is a value to be replaced is not known without waiting.
        if super::mem::cost(key, len) > self.usage.bytes.limit() {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        Ok(())
    }

    fn start(&self, request: Request, later: &Later<'_>) -> Option<Answer> {
        match request {
            Request::Flush => return Some(Ok(Reply::Done)),
            Request::Put { .. } | Request::Delete { .. } => self.writes.push((request, later.promise())),
            Request::Get { .. } | Request::Exist { .. } | Request::List { .. } => {
                self.reads.push((request, later.promise()));
            }
        }
        None
    }

    fn usage(&self) -> u64 {
        self.usage.bytes.used()
    }

    fn pairs(&self) -> u64 {
        self.usage.pairs.used()
    }
}

#[cfg(test)]
mod tests;
