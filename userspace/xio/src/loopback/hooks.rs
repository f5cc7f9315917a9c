// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests may do to the controller, and pretend about its surroundings.

use super::poller::Shared;
use std::sync::{Arc, Mutex, PoisonError};

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

/// Holds the controller's thread, for tests of what happens when a controller stalls, and pretends that there are others.
#[derive(Clone, Debug)]
pub struct Hooks {
    shared: Arc<Shared>,
    surroundings: Arc<Mutex<Surroundings>>,
}

impl Hooks {
    pub(super) const fn new(shared: Arc<Shared>, surroundings: Arc<Mutex<Surroundings>>) -> Self {
        Self { shared, surroundings }
    }

    /// When it returns, the controller does nothing until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.shared.pause(true);
    }

    /// Lets the controller go on.
    pub fn resume(&self) {
        self.shared.pause(false);
    }

    /// From now on it is like this.
    pub fn set_surroundings(&self, surroundings: Surroundings) {
        *self.surroundings.lock().unwrap_or_else(PoisonError::into_inner) = surroundings;
    }
}
