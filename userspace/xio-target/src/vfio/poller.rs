// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that runs the controller.

use crate::Controller;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl::set_timerslack;
use nix::time::{clock_gettime, ClockId};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the thread does after having found nothing for a while: first it spins for the lowest latency, then it leaves
/// the processor to others (a virtual machine's own, most likely), then it naps, and at last as long as it takes to cost
/// next to nothing.
const SPIN: Duration = Duration::from_micros(10);
const YIELD: Duration = Duration::from_millis(1);
const SHORT_NAPS: Duration = Duration::from_millis(20);
/// The shortest and the longest nap.
const NAP: Duration = Duration::from_micros(40);
const LONG_NAP: Duration = Duration::from_millis(1);
/// Naps between two looks at what they cost.
const MEASURED: u32 = 64;
/// Between looks at a controller that is not running. Enabling it ends the sleep.
const SLEEP: Duration = Duration::from_secs(1);

struct Shared {
    controller: Mutex<Controller>,
    /// Others that wait for the lock. The thread would otherwise take it again before they get it.
    waiting: AtomicUsize,
    stop: AtomicBool,
    ended: AtomicBool,
    /// The client's socket, to be shut down when the controller vanishes.
    client: Mutex<Option<UnixStream>>,
    /// Can be read when the controller has vanished.
    vanished: EventFd,
}

/// Kept by the thread; tells that it has ended, by a panic too.
struct End {
    shared: Arc<Shared>,
    /// Closed last, which the other end sees.
    _told: UnixStream,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
    }
}

impl Shared {
    fn controller(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The controller has vanished. Ends the connection to the client: the thread that receives from it sees its end, and
    /// closes it. Without a client that thread is told.
    fn hang_up(&self) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(errno) = self.vanished.write(1) {
            log::error!("eventfd: {errno}");
        }
        if let Some(Err(error)) = client.map(|client| client.shutdown(Shutdown::Read)) {
            // It has closed the connection itself.
            log::debug!("shutdown: {error}");
        }
    }

    fn run(&self) {
        // Otherwise naps end up to 50 µs late.
        if let Err(errno) = set_timerslack(1) {
            log::debug!("PR_SET_TIMERSLACK: {errno}");
        }
        // Not only who asks a store is to be woken: a shutdown is asked for by the thread that writes the register.
        let controller = self.controller();
        controller.flights.wake_me();
        let (mut idle, mut naps) = (None, Naps::new(controller.config().idle_cpu));
        drop(controller);
        let (mut sqid, mut done) = (0, 0);
        while !self.stop.load(Ordering::Acquire) {
            if self.waiting.load(Ordering::Acquire) > 0 {
                thread::yield_now();
                continue;
            }
            let mut controller = self.controller();
            let at_end = self.turns(&mut controller, &mut sqid, &mut done);
            let running = controller.is_running();
            let absent = controller.has_vanished();
            drop(controller);
            if absent {
                self.hang_up();
            }
            if !at_end {
                continue;
            }
            let done = std::mem::take(&mut done);
            if !running {
                thread::park_timeout(SLEEP);
                idle = None;
            } else if done > 0 {
                idle = None;
                naps.restart();
            } else {
                back_off(idle.get_or_insert_with(Instant::now).elapsed(), &mut naps);
            }
        }
    }

    /// Goes on with a pass from queue `sqid` on until its end or, queue by queue, until somebody waits for the
    /// controller; whether it was the end.
    fn turns(&self, controller: &mut Controller, sqid: &mut u16, done: &mut usize) -> bool {
        while let Some(completed) = controller.poll_queue(*sqid) {
            *done += completed;
            let Some(next) = sqid.checked_add(1) else { break };
            *sqid = next;
            if self.waiting.load(Ordering::Acquire) > 0 {
                return false;
            }
        }
        *sqid = 0;
        true
    }
}

/// How long to nap. What a nap costs depends on the machine: a microsecond of processor time, or, in a virtual machine,
/// several.
struct Naps {
    /// Percent of a core that they may cost.
    share: u8,
    length: Duration,
    taken: u32,
    /// Processor time of this thread when it began to count.
    since: Option<Duration>,
}

impl Naps {
    const fn new(share: u8) -> Self {
        Self { share, length: NAP, taken: 0, since: None }
    }

    /// How long naps are that cost so much each: a fifth longer than the share needs, since not all is measured.
    fn length(&self, cost: Duration) -> Duration {
        (cost * 120 / u32::from(self.share).max(1)).clamp(NAP, LONG_NAP)
    }

    fn nap(&mut self, idle: Duration) {
        let since = *self.since.get_or_insert_with(processor_time);
        thread::park_timeout(if idle < SHORT_NAPS { NAP } else { self.length });
        self.taken += 1;
        if self.taken == MEASURED {
            self.length = self.length(processor_time().saturating_sub(since) / self.taken);
            self.restart();
        }
    }

    /// There was something to do, which counts for nothing.
    fn restart(&mut self) {
        (self.taken, self.since) = (0, None);
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn back_off(idle: Duration, naps: &mut Naps) {
    if idle < SPIN {
        std::hint::spin_loop();
    } else if idle < YIELD {
        thread::yield_now();
    } else {
        naps.nap(idle);
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
        let done = work(&mut controller);
        let absent = controller.has_vanished();
        drop(controller);
        if absent {
            self.0.hang_up();
        }
        done
    }
}

/// A controller that runs by itself until this is dropped.
pub(super) struct Poller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Can be read when the thread has ended.
    end: UnixStream,
}

impl Poller {
    pub(super) fn start(controller: Controller) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            controller: Mutex::new(controller),
            waiting: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            client: Mutex::new(None),
            vanished: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        });
        let (end, told) = UnixStream::pair()?;
        let runner = End { shared: shared.clone(), _told: told };
        let thread = thread::Builder::new().name("controller".into()).spawn(move || {
            // All of it, not only the field that is used.
            let runner = runner;
            runner.shared.run();
        })?;
        Ok(Self { shared, thread: Some(thread), end })
    }

    /// A client has come by this socket; `None`: it is gone.
    pub(super) fn set_client(&self, client: Option<UnixStream>) {
        *self.shared.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        if self.is_absent() {
            self.shared.hang_up();
        }
    }

    /// Can be read when the controller has vanished since this was asked last.
    pub(super) fn vanished(&self) -> BorrowedFd<'_> {
        match self.shared.vanished.read() {
            // It has not.
            Ok(_) | Err(Errno::EAGAIN) => {}
            Err(errno) => log::error!("eventfd: {errno}"),
        }
        self.shared.vanished.as_fd()
    }

    /// Whether the controller has vanished.
    pub(super) fn is_absent(&self) -> bool {
        self.controller().is_absent()
    }

    /// Can be read when the controller's thread has ended.
    pub(super) fn end(&self) -> io::Result<OwnedFd> {
        self.end.as_fd().try_clone_to_owned()
    }

    /// Whether the controller's thread has ended, which it should not.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// The controller, between two passes.
    pub(super) fn controller(&self) -> MutexGuard<'_, Controller> {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let controller = self.shared.controller();
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
        controller
    }

    /// The controller, between two passes, unless a condition is met before.
    pub(super) fn controller_unless(
        &self,
        given_up: impl Fn() -> bool,
    ) -> Option<MutexGuard<'_, Controller>> {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let controller = loop {
            match self.shared.controller.try_lock() {
                Ok(controller) => break Some(controller),
                Err(TryLockError::Poisoned(error)) => break Some(error.into_inner()),
                Err(TryLockError::WouldBlock) if given_up() => break None,
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        };
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

#[cfg(test)]
mod tests {
    use super::super::dma::DmaTable;
    use super::super::interrupts::Vectors;
    use super::*;
    use crate::host::Doorbells;
    use crate::{Config, Host};
    use nvme_kv::regs::{offset, Aqa, Cc};
    use std::io::Read;

    /// Breaks the thread that looks at it.
    struct Broken;

    impl Doorbells for Broken {
        fn load(&self, _: usize) -> u32 {
            panic!("a test of what follows a panic")
        }
        fn clear(&self, _: usize) {}
    }

    #[test]
    fn naps_are_as_long_as_their_cost_demands() {
        let length = |share, micros| Naps::new(share).length(Duration::from_micros(micros)).as_micros();
        assert_eq!((length(2, 6), length(2, 1), length(20, 6)), (360, 60, 40));
        assert_eq!((length(2, 0), length(1, 100), length(100, 1)), (40, 1000, 40));
    }

    #[test]
    fn the_end_of_the_thread_is_told() {
        let interrupts = Arc::new(Vectors::new(Config::default().vectors()));
        let host = Host { memory: Arc::new(DmaTable::default()), doorbells: Arc::new(Broken), interrupts };
        let poller = Poller::start(Controller::new(Config::default(), host).unwrap()).unwrap();
        let mut end = UnixStream::from(poller.end().unwrap());
        assert!(!poller.has_ended());
        let mut controller = poller.controller();
        controller.write_register(offset::AQA, &Aqa(0).with_asqs(3).with_acqs(3).0.to_le_bytes());
        controller.write_register(offset::CC, &Cc::KV_ENABLE.0.to_le_bytes());
        drop(controller);
        poller.wake();
        end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(end.read(&mut [0]).unwrap(), 0);
        assert!(poller.has_ended());
    }
}
