// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resets, and the end: what the module does to its clients then.

use super::poller::set;
use super::{Driver, Loopback, State};
use crate::error::{Error, Result};
use crate::state::{ControllerState, Liveness, ResetCause};
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

/// What the controller is, for its client.
#[derive(Debug)]
pub(super) struct Life {
    /// Gone for good.
    pub gone: bool,
    pub state: ControllerState,
    /// Another user had direct queues.
    pub unclean: bool,
    /// The client's eventfd for changes.
    pub event: Option<OwnedFd>,
}

impl Life {
    pub(super) const fn new() -> Self {
        let state = ControllerState { liveness: Liveness::Live, resets: 0, last_reset: None };
        Self { gone: false, state, unclean: false, event: None }
    }

    fn tell(&self) {
        if let Some(event) = &self.event {
            set(event);
        }
    }
}

impl Loopback {
    /// Stops the controller and takes everything from its client.
    pub(super) fn stop(&self) -> Result<()> {
        let mut state = self.state()?;
        self.take_all(&mut state);
        state.life.state.liveness = Liveness::Stopped;
        state.life.tell();
        Ok(())
    }

    /// Resets the controller and brings it up again.
    pub(super) fn restart(&self, cause: ResetCause) -> Result<()> {
        self.reset(&mut *self.state()?, cause)
    }

    /// Makes an idle controller forget what another user's queues may have left, before this one has anything.
    pub(super) fn cleanse(&self, state: &mut State) -> Result<()> {
        match std::mem::take(&mut state.life.unclean) {
            true => self.reset(state, ResetCause::User),
            false => Ok(()),
        }
    }

    fn reset(&self, state: &mut State, cause: ResetCause) -> Result<()> {
        self.take_all(state);
        let started = Driver::start(self.shared.clone(), &self.arena).and_then(|mut driver| {
            driver.request_queues(self.info.max_queues)?;
            Ok(driver)
        });
        let life = &mut state.life.state;
        (life.resets, life.last_reset) = (life.resets + 1, Some(cause));
        life.liveness = if started.is_ok() { Liveness::Live } else { Liveness::Failed };
        let started = started.map(|driver| state.driver = driver);
        state.life.tell();
        started
    }

    /// Takes the controller from its client for good.
    pub(super) fn unplug(&self) {
        // One that is gone already has nothing any more.
        if let Ok(mut state) = self.state() {
            self.lose(&mut state);
        }
    }

    pub(super) fn lose(&self, state: &mut State) {
        self.take_all(state);
        state.life.gone = true;
        state.life.tell();
    }

    /// The controller touches nothing any more, and the client's queues and buffers are gone.
    fn take_all(&self, state: &mut State) {
        self.shared.reset();
        for queue in state.queues.values() {
            queue.revoke();
        }
        for allocation in state.buffers.values().filter(|allocation| allocation.is_ours()) {
            allocation.data().revoke();
        }
        state.queues.values().for_each(|queue| self.events.end(queue.qid));
        state.queues.clear();
        state.buffers.clear();
        (state.memory, state.mediated) = (0, None);
        *self.mediated.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The error of a request that is not served now.
    pub(super) const fn not_served(life: &Life, what: &'static str) -> Error {
        match life.gone {
            true => Error::Gone,
            false => Error::NotLive { what, state: life.state },
        }
    }
}
