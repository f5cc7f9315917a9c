// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that the kernel submits.

use crate::backend::Backend;
use crate::buffer::Slice;
use crate::command::{Completion, Operation, Token};
use crate::error::{os, Error, Result};
use crate::info::Namespace;
use crate::queue::{blocking_calls, FOREVER};
use nix::errno::Errno;
use nvme_kv::Status;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xio_uapi::{self as uapi, KvEntry};

/// For how long calls wait unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Commands by way of the kernel, which checks each and submits it on a queue of its own.
///
/// It has nothing mapped and nothing of its own in the controller: make as many as there are threads. Any number of
/// processes can use it at the same time, with IOMMU or without, and the kernel shares its queue fairly among them. Each
/// call is a system call, which a batch does once for up to 256 commands.
///
/// When a call ends at its deadline or by a signal, commands that were started stay with the controller and may still take
/// effect. Their buffers can be freed (the kernel keeps the memory for as long as the controller may touch it), but are
/// never given out as plain memory ([`Buffer::get_mut`](crate::Buffer::get_mut)) any more.
#[derive(Debug)]
pub struct MediatedQueue {
    backend: Arc<dyn Backend>,
    timeout: Duration,
    sequence: u64,
}

blocking_calls!(MediatedQueue);

impl MediatedQueue {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, timeout: TIMEOUT, sequence: 0 }
    }

    /// How long a call waits.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Runs one command. The status is the caller's to look at.
    ///
    /// # Errors
    /// Errors about keys, sizes and buffers (then nothing was submitted); [`Error::Busy`] while another process has direct
    /// queues, [`Error::NoQueueLeft`], [`Error::TooManyCalls`], [`Error::Timeout`], [`Error::Interrupted`],
    /// [`Error::NotStarted`], [`Error::Gone`], [`Error::BufferGone`], [`Error::TakenBack`]; [`Error::Revoked`] of a command that
    /// a reset ended, [`Error::NotLive`] while the controller takes none.
    pub fn execute(&mut self, namespace: &Namespace, operation: Operation) -> Result<Completion> {
        let mut results = self.execute_batch(namespace, std::slice::from_ref(&operation));
        // As many results as operations.
        results.pop().unwrap_or(Err(Error::NotStarted { what: operation.name() }))
    }

    /// Runs commands, up to 256 in one system call, and waits for all of them; what became of each, in the order of the
    /// operations. The controller carries those of one call out in any order. A failed one does not stop the others; a signal
    /// or the deadline, which is one for all, does.
    pub fn execute_batch(
        &mut self,
        namespace: &Namespace,
        operations: &[Operation],
    ) -> Vec<Result<Completion>> {
        let until = Instant::now() + self.timeout.min(FOREVER);
        let (mut results, mut ended) = (Vec::with_capacity(operations.len()), false);
        for operations in operations.chunks(uapi::MAX_SUBMIT as usize) {
            let left = until.saturating_duration_since(Instant::now());
            if ended || left.is_zero() {
                results.extend(operations.iter().map(|o| Err(Error::NotStarted { what: o.name() })));
                continue;
            }
            let called = self.call(namespace, operations, left);
            ended =
                called.iter().any(|r| matches!(r, Err(Error::Interrupted { .. } | Error::NotStarted { .. })));
            results.extend(called);
        }
        results
    }

    /// One call.
    fn call(
        &mut self,
        namespace: &Namespace,
        operations: &[Operation],
        timeout: Duration,
    ) -> Vec<Result<Completion>> {
        let checked: Vec<Result<KvEntry>> =
            operations.iter().map(|operation| check(&self.backend, namespace, operation)).collect();
        let mut entries: Vec<KvEntry> = checked.iter().flatten().copied().collect();
        let called = match entries.as_mut_slice() {
            [] => Ok(()),
            entries => self.backend.submit(entries, timeout),
        };
        let mut answers = entries.iter();
        let mut results = Vec::with_capacity(operations.len());
        for (operation, checked) in operations.iter().zip(checked) {
            let what = operation.name();
            let result = match (checked, called) {
                (Err(error), _) => Err(error),
                (Ok(_), Err(errno)) => Err(call_error(self.backend.as_ref(), what, errno)),
                // As many answers as entries that were made.
                (Ok(_), Ok(())) => answers.next().map_or(Err(Error::NotStarted { what }), |entry| {
                    self.sequence += 1;
                    let token = Token { slot: 0, sequence: self.sequence };
                    answer(self.backend.as_ref(), (token, what), entry, self.timeout)
                }),
            };
            guard_memory(&result, operation.slice());
            results.push(result);
        }
        results
    }
}

/// Checks an operation and makes an entry of it.
pub(crate) fn check(
    backend: &Arc<dyn Backend>,
    namespace: &Namespace,
    operation: &Operation,
) -> Result<KvEntry> {
    if operation.slice().is_some_and(|slice| !slice.buffer().belongs_to(backend)) {
        return Err(Error::ForeignBuffer);
    }
    let mut entry = operation.entry(namespace)?;
    // What the kernel did not touch was not started.
    entry.error = -(Errno::ECANCELED as i32);
    Ok(entry)
}

/// What an entry tells of its command.
pub(crate) fn answer(
    backend: &dyn Backend,
    (token, what): (Token, &'static str),
    entry: &KvEntry,
    after: Duration,
) -> Result<Completion> {
    match Errno::from_raw(entry.error.wrapping_neg()) {
        _ if entry.error == 0 => {
            let do_not_retry = entry.status & uapi::KV_STATUS_DNR != 0;
            let status = Status::from_bits((entry.status & !uapi::KV_STATUS_DNR) as u16);
            Ok(Completion { token, status, do_not_retry, value_len: entry.value_len })
        }
        Errno::ECANCELED => Err(Error::NotStarted { what }),
        Errno::ETIMEDOUT => Err(backend.timeout(what, after)),
        Errno::EINTR => Err(Error::Interrupted { what }),
        Errno::EACCES => Err(Error::ReadOnly),
        Errno::ENOENT => Err(Error::BufferGone),
        Errno::ESTALE => Err(Error::TakenBack),
        Errno::ENODEV => Err(backend.lost(what)),
        errno => Err(os(what, errno)),
    }
}

/// Keeps memory from being given out as plain memory when the controller may still work in it: then nobody tells when it
/// is done.
pub(crate) fn guard_memory(result: &Result<Completion>, memory: Option<&Slice>) {
    let may_go_on = matches!(
        result,
        Err(Error::Timeout { .. }
            | Error::Interrupted { .. }
            | Error::Gone
            | Error::Revoked { .. }
            | Error::Os { .. })
    );
    if let Some(slice) = memory.filter(|_| may_go_on) {
        slice.buffer().keep_from_users();
    }
}

/// Why a whole call failed.
pub(crate) fn call_error(backend: &dyn Backend, what: &'static str, errno: Errno) -> Error {
    match errno {
        Errno::ENODEV => backend.not_live(what),
        Errno::ENOTTY => Error::NoMediated,
        Errno::ENOSPC => Error::NoQueueLeft,
        Errno::EAGAIN => Error::TooManyCalls,
        // The kernel could not make its queue; nothing was submitted.
        Errno::ETIMEDOUT | Errno::EINTR => Error::NotStarted { what },
        errno => os(what, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback;

    #[test]
    fn errors_of_a_call_say_what_to_do() {
        let (backend, hooks) = loopback::backend(loopback::Config::default()).unwrap();
        let call_error = |what, errno| call_error(backend.as_ref(), what, errno);
        let text = |errno| call_error("Store", errno).to_string();
        assert!(text(Errno::EBUSY).contains("use the mediated path in all of them"));
        assert!(text(Errno::EAGAIN).contains("put more into each"));
        assert!(text(Errno::ENOTTY).contains("update it"));
        assert!(text(Errno::ETIMEDOUT).contains("can be tried again"));
        assert!(text(Errno::ENODEV).contains("not live") && text(Errno::ENODEV).contains("try again"));
        hooks.unplug();
        assert!(matches!(call_error("Store", Errno::ENODEV), Error::Gone));
        assert!(matches!(call_error("Store", Errno::ENOSPC), Error::NoQueueLeft));
        assert!(matches!(call_error("Store", Errno::ENOMEM), Error::Os { what: "Store", .. }));
    }
}
