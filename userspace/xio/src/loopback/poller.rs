// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that is the software controller.

use crate::error::{Error, Result};
use crate::mapping::Region;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use xio_target::host::Interrupts;

/// Idle passes before the thread yields, and before it sleeps between passes.
const SPINS: u32 = 2_000;
const YIELDS: u32 = 20_000;
const NAP: Duration = Duration::from_micros(50);

/// What the driver and the controller's thread share.
pub(super) struct Shared {
    controller: Mutex<xio_target::Controller>,
    /// BAR 0, of which only the doorbells are used.
    pub doorbells: Arc<Region>,
    paused: AtomicBool,
    stop: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("paused", &self.paused).field("stop", &self.stop).finish()
    }
}

impl Shared {
    pub(super) fn new(controller: xio_target::Controller, doorbells: Arc<Region>) -> Self {
        let (paused, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { controller: Mutex::new(controller), doorbells, paused, stop }
    }

    fn lock(&self) -> MutexGuard<'_, xio_target::Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read32(&self, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        self.lock().read_register(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(super) fn read64(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.lock().read_register(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub(super) fn write32(&self, offset: usize, value: u32) {
        self.lock().write_register(offset, &value.to_le_bytes());
    }

    pub(super) fn write64(&self, offset: usize, value: u64) {
        self.lock().write_register(offset, &value.to_le_bytes());
    }

    /// Resets the controller: from then on it touches no memory.
    pub(super) fn reset(&self) {
        self.lock().reset();
    }

    /// When it returns with `true` the controller does nothing until it is called with `false`.
    pub(super) fn pause(&self, paused: bool) {
        // Under the lock, so that no pass is under way afterwards.
        let controller = self.lock();
        self.paused.store(paused, Ordering::Relaxed);
        drop(controller);
    }

    /// One pass; how many commands were completed.
    fn pass(&self) -> usize {
        let mut controller = self.lock();
        if self.paused.load(Ordering::Relaxed) {
            return 0;
        }
        controller.poll()
    }

    fn run(&self) {
        let mut idle = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            if self.pass() > 0 {
                idle = 0;
                continue;
            }
            idle = idle.saturating_add(1);
            match idle {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Poller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self> {
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("xio-loopback".into()).spawn(move || theirs.run());
        let thread = thread.map_err(|source| Error::Os { what: "starting a thread", source })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok() || std::thread::panicking(), "the software controller panicked");
        }
    }
}

/// eventfds by interrupt vector and queue.
#[derive(Debug, Default)]
pub(super) struct Events {
    queues: Mutex<HashMap<u16, (u16, OwnedFd)>>,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, HashMap<u16, (u16, OwnedFd)>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The eventfd of a queue is signalled with `vector`.
    pub(super) fn insert(&self, qid: u16, vector: u16, event: OwnedFd) {
        self.lock().insert(qid, (vector, event));
    }

    /// The queue is no more, and whoever sleeps on its eventfd is woken.
    pub(super) fn end(&self, qid: u16) {
        if let Some((_, event)) = self.lock().remove(&qid) {
            set(&event);
        }
    }

    /// The queue is no more.
    pub(super) fn remove(&self, qid: u16) {
        self.lock().remove(&qid);
    }
}

impl Interrupts for Events {
    fn raise(&self, vector: u16) {
        for (_, event) in self.lock().values().filter(|(v, _)| *v == vector) {
            set(event);
        }
    }
}

/// Sets an eventfd.
pub(super) fn set(event: &OwnedFd) {
    // It fails only when the counter is at its end, and then the event is set.
    let _ = nix::unistd::write(event, &1u64.to_ne_bytes());
}
