// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests may do to the controller, and pretend about its surroundings.

use super::poller::Shared;
use super::Loopback;
use crate::error::{Error, Result};
use crate::state::ResetCause;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Who else uses the controller, and what confines it: what decides about paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Surroundings {
    /// An IOMMU, and nobody else.
    #[default]
    Alone,
    /// No IOMMU: direct queues are refused.
    Unconfined,
    /// Another process has memory: direct queues are not to be had.
    OtherHasMemory,
    /// Another process has direct queues: nothing is to be had.
    OtherHasQueues,
}

/// Holds the controller's thread, for tests of what happens when a controller stalls; resets it and takes it away; and pretends
/// that there are others.
#[derive(Clone, Debug)]
pub struct Hooks {
    shared: Arc<Shared>,
    surroundings: Arc<Mutex<Surroundings>>,
    loopback: Weak<Loopback>,
}

impl Hooks {
    pub(super) fn new(loopback: &Arc<Loopback>) -> Self {
        let (shared, surroundings) = (loopback.shared.clone(), loopback.surroundings.clone());
        Self { shared, surroundings, loopback: Arc::downgrade(loopback) }
    }

    /// When it returns, the controller does nothing until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.shared.pause(true);
    }

    /// Lets the controller go on.
    pub fn resume(&self) {
        self.shared.pause(false);
    }

    /// Resets the controller as the system does: queues and buffers are gone, their memory is revoked, and it is live again when
    /// this returns. What is stored stays.
    ///
    /// # Errors
    /// When it does not come up again, as while it is [paused](Self::pause): then it [has failed](crate::Liveness::Failed). And
    /// [`Error::Gone`].
    pub fn reset(&self) -> Result<()> {
        self.loopback.upgrade().ok_or(Error::Gone)?.restart(ResetCause::System)
    }

    /// The first half of a reset: the controller is stopped, and stays so until [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn stop(&self) -> Result<()> {
        self.loopback.upgrade().ok_or(Error::Gone)?.stop()
    }

    /// As if another user had had direct queues until now: the controller, on which nothing may be, is reset as part of making the
    /// next queue or buffer.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn had_other_user(&self) -> Result<()> {
        self.loopback.upgrade().ok_or(Error::Gone)?.live("pretending")?.life.unclean = true;
        Ok(())
    }

    /// Takes the controller away for good.
    pub fn unplug(&self) {
        if let Some(loopback) = self.loopback.upgrade() {
            loopback.unplug();
        }
    }

    /// From now on it is like this.
    pub fn set_surroundings(&self, surroundings: Surroundings) {
        *self.surroundings.lock().unwrap_or_else(PoisonError::into_inner) = surroundings;
    }
}
