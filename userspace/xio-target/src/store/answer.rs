// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that come later.

use super::Answer;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use nvme_kv::Status;
use std::fmt;

#[derive(Default)]
struct Inner {
    ready: Vec<(u64, Answer)>,
    /// Who takes answers and perhaps sleeps.
    taker: Option<Thread>,
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

    /// From now on the calling thread is woken by each answer. (Whoever asks may be another one.)
    pub fn wake_me(&self) {
        self.lock().taker = Some(thread::current());
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
        if let Some(taker) = &inner.taker {
            taker.unpark();
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

    /// Promises an answer.
    pub fn promise(&self) -> Promise {
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
    use std::time::{Duration, Instant};

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

    #[test]
    fn who_takes_is_woken_whoever_asked() {
        let answers = Arc::new(Answers::default());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let theirs = answers.clone();
        let taker = std::thread::spawn(move || {
            theirs.wake_me();
            ready.send(()).unwrap();
            let (start, mut got) = (Instant::now(), Vec::new());
            while got.is_empty() && start.elapsed() < Duration::from_secs(20) {
                std::thread::park_timeout(Duration::from_secs(20));
                theirs.take(&mut got);
            }
            start.elapsed()
        });
        is_ready.recv().unwrap();
        Later::new(1, &answers).promise().answer(Ok(Reply::Done));
        assert!(taker.join().unwrap() < Duration::from_secs(20));
    }
}
