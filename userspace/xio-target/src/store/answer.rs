// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that come later.

use super::Answer;
use nvme_kv::Status;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

#[derive(Default)]
struct Inner {
    ready: Vec<(u64, Answer)>,
    /// Who asked last and perhaps sleeps.
    asker: Option<Thread>,
}

/// Where the answers of requests arrive that could not be answered at once.
#[derive(Default)]
pub struct Answers {
    inner: Mutex<Inner>,
    /// There is something in `ready`.
    any: AtomicBool,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("any", &self.any).finish_non_exhaustive()
    }
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all that arrived since, in `to`, which is empty.
    pub fn take(&self, to: &mut Vec<(u64, Answer)>) {
        if self.any.load(Ordering::Acquire) {
            let mut inner = self.lock();
            self.any.store(false, Ordering::Relaxed);
            std::mem::swap(&mut inner.ready, to);
        }
    }

    fn push(&self, id: u64, answer: Answer) {
        let mut inner = self.lock();
        inner.ready.push((id, answer));
        self.any.store(true, Ordering::Release);
        if let Some(asker) = &inner.asker {
            asker.unpark();
        }
    }
}

/// The right to answer a request later.
#[derive(Debug)]
pub struct Later<'a> {
    id: u64,
    answers: &'a Arc<Answers>,
}

impl<'a> Later<'a> {
    /// An answer will be found in `answers` under `id`.
    pub const fn new(id: u64, answers: &'a Arc<Answers>) -> Self {
        Self { id, answers }
    }

    /// Promises an answer. The calling thread is woken when it is there.
    pub fn promise(&self) -> Promise {
        self.answers.lock().asker = Some(thread::current());
        Promise { id: self.id, answers: Some(self.answers.clone()) }
    }
}

/// A request that is to be answered. Dropped without an answer, it is answered with an internal error.
#[derive(Debug)]
pub struct Promise {
    id: u64,
    answers: Option<Arc<Answers>>,
}

impl Promise {
    /// Answers.
    pub fn answer(mut self, answer: Answer) {
        if let Some(answers) = self.answers.take() {
            answers.push(self.id, answer);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(answers) = self.answers.take() {
            answers.push(self.id, Err(Status::INTERNAL_ERROR));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reply;
    use super::*;

    #[test]
    fn every_promise_is_answered_once() {
        let answers = Arc::new(Answers::default());
        let (kept, broken) = (Later::new(1, &answers).promise(), Later::new(2, &answers).promise());
        let mut got = Vec::new();
        answers.take(&mut got);
        assert!(got.is_empty());
        kept.answer(Ok(Reply::Done));
        drop(broken);
        answers.take(&mut got);
        assert!(matches!(got[..], [(1, Ok(Reply::Done)), (2, Err(Status::INTERNAL_ERROR))]));
        got.clear();
        answers.take(&mut got);
        assert!(got.is_empty());
    }
}
