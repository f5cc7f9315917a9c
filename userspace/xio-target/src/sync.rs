// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks, atomics and threads of what hands work from one thread to another. `tests/models` compiles the same sources with
//! those of a checker in their place.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

pub(crate) mod thread {
    pub(crate) use std::thread::{current, Builder, JoinHandle, Thread};
}
