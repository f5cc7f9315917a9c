// SPDX-License-Identifier: MIT OR Apache-2.0
//! `KV_SUBMIT` as io_uring commands.
#![allow(unsafe_code, reason = "io_uring works with memory that stays in place until a command is done")]

use crate::backend::{Calls, Done};
use crate::error::{os, Error, Result};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{opcode, IoUring};
use nix::errno::Errno;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;
use xio_uapi::{KvEntry, KvSubmit, KV_SUBMIT};
use zerocopy::FromZeros;

/// Entries of the ring: more than there are calls at a time.
const ENTRIES: u32 = 32;

/// What the kernel reads, and writes results to, until the call is done.
struct Call {
    /// One; in a place of its own.
    request: Vec<KvSubmit>,
    entries: Vec<KvEntry>,
}

/// Calls in an io_uring.
///
/// # Invariants
///
/// `calls` has each call that the kernel may have and has not completed. They are not touched before.
///
/// Drop order: calls are taken out of the kernel's way (see `drop`) before the ring goes.
pub(crate) struct UringCalls {
    calls: HashMap<u64, Call>,
    ring: IoUring,
    node: File,
}

impl fmt::Debug for UringCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringCalls").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl UringCalls {
    /// Makes a ring for a node.
    pub(crate) fn new(node: &File) -> Result<Self> {
        let ring = IoUring::new(ENTRIES).map_err(|source| Error::NoRing { source })?;
        let node = node.try_clone().map_err(|source| Error::Os { what: "sharing the node", source })?;
        // INVARIANT: there is no call yet.
        Ok(Self { calls: HashMap::new(), ring, node })
    }
}

impl Calls for UringCalls {
    fn start(&mut self, id: u64, mut entries: Vec<KvEntry>) -> Result<()> {
        let mut request = KvSubmit::new_zeroed();
        request.size = KvSubmit::LAYOUT.size as u32;
        (request.entries, request.count) = (entries.as_mut_ptr() as u64, entries.len() as u32);
        // The kernel takes no time limit here but wants one.
        request.timeout_ms = u32::MAX;
        let mut request = vec![request];
        let mut command = [0; 16];
        command[..8].copy_from_slice(&(request.as_mut_ptr() as u64).to_ne_bytes());
        let sqe = opcode::UringCmd16::new(Fd(self.node.as_raw_fd()), KV_SUBMIT).cmd(command);
        // INVARIANT: the kernel may have it from here on. (Moving a vector does not move what is in it.)
        self.calls.insert(id, Call { request, entries });
        // SAFETY: the request and its entries stay where they are, untouched, until the command is completed: by the
        // invariant, and because `drop` leaks those that are not. The node outlives the ring.
        let pushed = unsafe { self.ring.submission().push(&sqe.build().user_data(id)) };
        if pushed.is_err() {
            // Nobody has it; there are fewer calls than entries, so this does not happen.
            self.calls.remove(&id);
            return Err(os("issuing a command", Errno::EAGAIN));
        }
        wait_is_fine(self.ring.submit(), "issuing a command")
    }

    fn take(&mut self) -> Option<Done> {
        loop {
            let cqe = self.ring.completion().next()?;
            // INVARIANT: it is completed.
            let Some(call) = self.calls.remove(&cqe.user_data()) else { continue };
            debug_assert_eq!(call.request.len(), 1);
            let result = match cqe.result() {
                0.. => Ok(()),
                error => Err(Errno::from_raw(error.wrapping_neg())),
            };
            return Some(Done { id: cqe.user_data(), entries: call.entries, result });
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        let limit = Timespec::from(timeout);
        let args = SubmitArgs::new().timespec(&limit);
        wait_is_fine(self.ring.submitter().submit_with_args(1, &args), "waiting for a command")
    }
}

/// Entries that the kernel did not take now stay in the ring, and the next call offers them again.
fn wait_is_fine(done: io::Result<usize>, what: &'static str) -> Result<()> {
    match done {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ETIME | Errno::EINTR | Errno::EAGAIN | Errno::EBUSY) => Ok(()),
            _ => Err(Error::Os { what, source: error }),
        },
    }
}

impl Drop for UringCalls {
    fn drop(&mut self) {
        // The kernel may still write to those that are left.
        self.calls.drain().for_each(std::mem::forget);
    }
}
