// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that many threads keep.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A count that never exceeds a limit.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self { used: AtomicU64::new(0), limit }
    }

    /// With something in use already, perhaps more than the limit is now.
    pub(super) fn starting_at(used: u64, limit: u64) -> Self {
        Self { used: AtomicU64::new(used), limit }
    }

    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// For the one who alone changes it.
    pub(super) fn set(&self, used: u64) {
        self.used.store(used, Ordering::Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `more` after having given back `less`, in one step; `false` and no change when that is too much.
    #[must_use]
    pub(super) fn exchange(&self, less: u64, more: u64) -> bool {
        let change =
            |used: u64| Some(used.checked_sub(less)?.checked_add(more)?).filter(|n| *n <= self.limit);
        // What shrinks is possible whatever the limit.
        let shrink = |used: u64| used.checked_sub(less - more);
        let changed = if more <= less {
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrink)
        } else {
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
        };
        changed.is_ok()
    }

    /// Whether an exchange would be possible now.
    pub(super) fn allows(&self, less: u64, more: u64) -> bool {
        more <= less || self.used().saturating_sub(less).saturating_add(more) <= self.limit
    }

    pub(super) fn give_back(&self, less: u64) {
        self.used.fetch_sub(less, Ordering::Relaxed);
    }
}
