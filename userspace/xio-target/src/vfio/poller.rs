// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that runs the controller.

use crate::Controller;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the thread does after having found nothing for a while: first it spins for the lowest latency, then it leaves
/// the processor to others (a virtual machine's own, most likely), then it sleeps, longer and longer.
const SPIN: Duration = Duration::from_micros(10);
const YIELD: Duration = Duration::from_millis(1);
const NAPS: [(Duration, Duration); 3] = [
    (Duration::from_millis(20), Duration::from_micros(50)),
    (Duration::from_secs(1), Duration::from_micros(200)),
    (Duration::MAX, Duration::from_millis(1)),
];
/// Between looks at a controller that is not running. Enabling it ends the sleep.
const SLEEP: Duration = Duration::from_secs(1);

struct Shared {
    controller: Mutex<Controller>,
    /// Others that wait for the lock. The thread would otherwise take it again before they get it.
    waiting: AtomicUsize,
    stop: AtomicBool,
}

impl Shared {
    fn controller(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut idle: Option<Instant> = None;
        while !self.stop.load(Ordering::Acquire) {
            if self.waiting.load(Ordering::Acquire) > 0 {
                thread::yield_now();
                continue;
            }
            let mut controller = self.controller();
            let (done, running) = (controller.poll(), controller.is_running());
            drop(controller);
            if !running {
                thread::park_timeout(SLEEP);
                idle = None;
            } else if done > 0 {
                idle = None;
            } else {
                back_off(idle.get_or_insert_with(Instant::now).elapsed());
            }
        }
    }
}

fn back_off(idle: Duration) {
    if idle < SPIN {
        std::hint::spin_loop();
    } else if idle < YIELD {
        thread::yield_now();
    } else if let Some((_, nap)) = NAPS.iter().find(|(until, _)| idle < *until) {
        thread::park_timeout(*nap);
    }
}

/// A controller that is running, for an administrator.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Does something with the controller, between two passes.
    pub fn with<T>(&self, work: impl FnOnce(&mut Controller) -> T) -> T {
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        let mut controller = self.0.controller();
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        work(&mut controller)
    }
}

/// A controller that runs by itself until this is dropped.
pub(super) struct Poller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    pub(super) fn start(controller: Controller) -> io::Result<Self> {
        let (waiting, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { controller: Mutex::new(controller), waiting, stop });
        let runner = shared.clone();
        let thread = thread::Builder::new().name("controller".into()).spawn(move || runner.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The controller, between two passes.
    pub(super) fn controller(&self) -> MutexGuard<'_, Controller> {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let controller = self.shared.controller();
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
        controller
    }

    /// For an administrator.
    pub(super) fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    /// Ends a nap.
    pub(super) fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the controller's thread has panicked");
        }
    }
}
