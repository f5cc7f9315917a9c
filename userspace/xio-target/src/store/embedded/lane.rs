// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work for threads.

use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::collections::VecDeque;
use std::io;

struct Inner<T> {
    jobs: VecDeque<T>,
    closed: bool,
}

/// A queue that threads take jobs from, first come, first served.
pub(super) struct Lane<T> {
    inner: Mutex<Inner<T>>,
    more: Condvar,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { jobs: VecDeque::new(), closed: false }), more: Condvar::new() }
    }
}

impl<T> Lane<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: T) {
        self.lock().jobs.push_back(job);
        self.more.notify_one();
    }

    /// Waits for jobs and passes them on: what is there, at most `limit.0` of them and about `limit.1` in weight. `false`
    /// when there will never be one again.
    pub(super) fn take(
        &self,
        limit: (usize, usize),
        weight: impl Fn(&T) -> usize,
        work: &mut dyn FnMut(&mut Vec<T>),
    ) -> bool {
        let mut inner = self.lock();
        while inner.jobs.is_empty() {
            if inner.closed {
                return false;
            }
            inner = self.more.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut batch, mut total) = (Vec::new(), 0usize);
        while batch.len() < limit.0 && (batch.is_empty() || total < limit.1) {
            let Some(job) = inner.jobs.pop_front() else { break };
            total = total.saturating_add(weight(&job));
            batch.push(job);
        }
        drop(inner);
        work(&mut batch);
        true
    }

    fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }
}

type Close = Box<dyn Fn() + Send + Sync>;

/// Threads that work off lanes. They end, after the last job, when this is dropped.
#[derive(Default)]
pub(super) struct Workers(Vec<(Close, JoinHandle<()>)>);

impl Workers {
    pub(super) fn start<T: Send + 'static>(
        &mut self,
        name: &str,
        lane: &Arc<Lane<T>>,
        run: impl FnOnce(&Lane<T>) + Send + 'static,
    ) -> io::Result<()> {
        let (theirs, ours) = (lane.clone(), lane.clone());
        let thread = Builder::new().name(name.to_owned()).spawn(move || run(&theirs))?;
        self.0.push((Box::new(move || ours.close()), thread));
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.iter().for_each(|(close, _)| close());
        for (_, thread) in self.0.drain(..) {
            if thread.join().is_err() {
                log::error!("a thread of a store has panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_limited_and_everything_is_done_before_the_end() {
        let lane = Arc::new(Lane::default());
        for n in 0..10usize {
            lane.push(n);
        }
        let done = Arc::new(Mutex::new(Vec::new()));
        let (mut workers, theirs) = (Workers::default(), done.clone());
        let run = move |lane: &Lane<usize>| {
            while lane.take((4, 9), |n| *n, &mut |batch| theirs.lock().unwrap().push(std::mem::take(batch))) {
            }
        };
        workers.start("test", &lane, run).unwrap();
        drop(workers);
        let expected: Vec<Vec<usize>> = vec![vec![0, 1, 2, 3], vec![4, 5], vec![6, 7], vec![8, 9]];
        assert_eq!(*done.lock().unwrap(), expected);
    }
}
