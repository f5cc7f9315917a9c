// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that writes.

use super::super::mem::{check, cost};
use super::super::{Answer, Reply, Request};
use super::database::{status, Change, Database};
use super::{Job, Usage};
use nvme_kv::Status;
use std::sync::Arc;

/// Requests of one transaction, and about as many bytes.
pub(super) const BATCH: (usize, usize) = (256, 64 << 20);

/// Bytes that a request has to write.
pub(super) fn weight(request: &Request) -> usize {
    match request {
        Request::Put { value, .. } => value.len(),
        _ => 0,
    }
}

/// Changes the database.
pub(super) struct Writer {
    database: Arc<Database>,
    usage: Arc<Usage>,
}

/// Bytes and pairs in use.
#[derive(Clone, Copy)]
struct Used {
    bytes: u64,
    pairs: u64,
}

impl Writer {
    pub(super) const fn new(database: Arc<Database>, usage: Arc<Usage>) -> Self {
        Self { database, usage }
    }

    /// Does what is asked for, in one transaction if that is possible, and answers.
    pub(super) fn run(&self, batch: &mut Vec<Job>) {
        if batch.len() > 1 {
            if let Ok(answers) = self.change(batch) {
                for ((_, promise), answer) in batch.drain(..).zip(answers) {
                    promise.answer(answer);
                }
                return;
            }
            // One of them is to blame; the others must not fail for it.
        }
        for (request, promise) in batch.drain(..) {
            let job = [(request, promise)];
            let answer = match self.change(&job) {
                Ok(mut answers) => answers.pop().unwrap_or(Err(Status::INTERNAL_ERROR)),
                Err(error) => Err(status(&error)),
            };
            let [(_, promise)] = job;
            promise.answer(answer);
        }
    }

    /// One transaction. An error means that nothing has changed.
    fn change(&self, batch: &[Job]) -> heed::Result<Vec<Answer>> {
        let mut change = self.database.change()?;
        let mut used = Used { bytes: self.usage.bytes.used(), pairs: self.usage.pairs.used() };
        let mut answers = Vec::with_capacity(batch.len());
        for (request, _) in batch {
            answers.push(self.apply(&mut change, &mut used, request)?);
        }
        change.commit()?;
        self.usage.bytes.set(used.bytes);
        self.usage.pairs.set(used.pairs);
        Ok(answers)
    }

    fn apply(&self, change: &mut Change<'_>, used: &mut Used, request: &Request) -> heed::Result<Answer> {
        Ok(match request {
            Request::Put { key, value, condition } => {
                let old = change.len(key)?;
                let freed = old.map_or(0, |len| u64::from(key.len()) + len);
                let after = Used {
                    bytes: used.bytes - freed + cost(key, value.len()),
                    pairs: used.pairs + u64::from(old.is_none()),
                };
                if let Err(status) = check(*condition, old.is_some()) {
                    return Ok(Err(status));
                }
                let grows = after.bytes > used.bytes && after.bytes > self.usage.bytes.limit();
                if grows || old.is_none() && after.pairs > self.usage.pairs.limit() {
                    return Ok(Err(Status::CAPACITY_EXCEEDED));
                }
                change.put(key, value, old)?;
                *used = after;
                Ok(Reply::Done)
            }
            Request::Delete { key } => match change.len(key)? {
                Some(old) => {
                    change.delete(key, old)?;
                    used.bytes -= u64::from(key.len()) + old;
                    used.pairs -= 1;
                    Ok(Reply::Done)
                }
                None => Err(Status::KEY_NOT_FOUND),
            },
            _ => Err(Status::INTERNAL_ERROR),
        })
    }
}
