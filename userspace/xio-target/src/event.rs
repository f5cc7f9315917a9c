// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asynchronous events (Base, section 5.1.2) and the error log behind them.

use nvme_kv::admin::event;
use nvme_kv::log::{self, ErrorEntry};
use nvme_kv::Status;
use std::collections::{BTreeSet, VecDeque};
use zerocopy::FromZeros;

/// Asynchronous Event Requests that may wait at once.
pub(crate) const REQUEST_LIMIT: usize = 4;
/// Entries of the error log.
pub(crate) const LOG_ENTRIES: usize = 16;

/// Requests that wait for an event, and the events that wait for a request.
#[derive(Default)]
pub(crate) struct Events {
    requests: VecDeque<u16>,
    /// Requests that are done: command identifier and outcome.
    done: VecDeque<(u16, Result<u32, Status>)>,
    error: Kind,
    notice: Kind,
    /// Namespaces that changed since the host has read their list.
    changed: BTreeSet<u32>,
}

/// A type of events.
#[derive(Default)]
struct Kind {
    /// The host is to be told.
    due: bool,
    /// The host was told and has not read the log since.
    masked: bool,
}

impl Kind {
    /// Whether to tell the host now.
    fn take(&mut self) -> bool {
        let now = self.due && !self.masked;
        if now {
            (self.due, self.masked) = (false, true);
        }
        now
    }
}

impl Events {
    /// An Asynchronous Event Request came in.
    pub(crate) fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= REQUEST_LIMIT {
            return Err(Status::AER_LIMIT_EXCEEDED);
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Aborts a request; `false` when there is none of that identifier.
    pub(crate) fn abort(&mut self, cid: u16) -> bool {
        let Some(at) = self.requests.iter().position(|c| *c == cid) else { return false };
        self.requests.remove(at);
        self.done.push_back((cid, Err(Status::ABORT_REQUESTED)));
        true
    }

    /// An error happened that no completion tells of.
    pub(crate) fn error(&mut self) {
        self.error.due = true;
    }

    /// A namespace was attached, detached or changed; `tell`: the host wants to know.
    pub(crate) fn namespace_changed(&mut self, nsid: u32, tell: bool) {
        self.changed.insert(nsid);
        self.notice.due |= tell;
    }

    /// Namespaces that changed.
    pub(crate) fn changed(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.changed.iter().copied()
    }

    /// The host has read a log.
    pub(crate) fn acknowledge(&mut self, lid: u8) {
        match lid {
            log::id::ERROR => self.error.masked = false,
            log::id::CHANGED_NAMESPACES => {
                self.notice.masked = false;
                self.changed.clear();
            }
            _ => {}
        }
    }

    /// A request to complete now.
    pub(crate) fn next(&mut self) -> Option<(u16, Result<u32, Status>)> {
        if let Some(cid) = self.requests.front().copied() {
            let error = (event::ERROR, event::INVALID_DOORBELL_VALUE, log::id::ERROR);
            let notice = (event::NOTICE, event::NAMESPACE_CHANGED, log::id::CHANGED_NAMESPACES);
            let kinds = [(&mut self.error, error), (&mut self.notice, notice)];
            let told = kinds.into_iter().find_map(|(kind, what)| kind.take().then_some(what));
            if let Some((kind, information, log)) = told {
                self.requests.pop_front();
                self.done.push_back((cid, Ok(event::dword(kind, information, log))));
            }
        }
        self.done.pop_front()
    }
}

/// The latest errors; they outlive resets.
#[derive(Default)]
pub(crate) struct ErrorLog {
    /// Newest first.
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    /// Errors so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Takes note of an error of queue `sqid` that belongs to no command.
    pub(crate) fn push(&mut self, sqid: u16, status: Status) {
        self.push_command(sqid, ErrorEntry::NO_COMMAND, status);
    }

    /// Takes note of an error of a command.
    pub(crate) fn push_command(&mut self, sqid: u16, cid: u16, status: Status) {
        self.count += 1;
        self.entries.truncate(LOG_ENTRIES - 1);
        self.entries.push_front(ErrorEntry {
            count: self.count.into(),
            sqid: sqid.into(),
            cid: cid.into(),
            status: (status.bits() << 1).into(),
            location: ErrorEntry::NO_FIELD.into(),
            ..ErrorEntry::new_zeroed()
        });
    }

    /// The newest entries, unused ones zero.
    pub(crate) fn entries(&self) -> [ErrorEntry; LOG_ENTRIES] {
        let mut all = [ErrorEntry::new_zeroed(); LOG_ENTRIES];
        for (to, from) in all.iter_mut().zip(&self.entries) {
            *to = *from;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_base_5_1_2_an_event_type_is_masked_until_its_log_is_read() {
        let mut events = Events::default();
        assert_eq!((events.request(1), events.request(2)), (Ok(()), Ok(())));
        assert_eq!(events.next(), None);
        events.error();
        assert_eq!(events.next(), Some((1, Ok(0x0001_0100))));
        events.error();
        assert_eq!(events.next(), None);
        events.acknowledge(log::id::SMART);
        assert_eq!(events.next(), None);
        // Another type is not masked.
        events.namespace_changed(3, false);
        assert_eq!(events.next(), None);
        events.namespace_changed(2, true);
        assert_eq!(events.next(), Some((2, Ok(0x0004_0002))));
        assert_eq!((events.request(3), events.changed().collect::<Vec<_>>()), (Ok(()), vec![2, 3]));
        events.acknowledge(log::id::CHANGED_NAMESPACES);
        assert_eq!(events.changed().len(), 0);
        events.acknowledge(log::id::ERROR);
        assert_eq!(events.next().map(|(cid, _)| cid), Some(3));
        assert_eq!(events.next(), None);
    }

    #[test]
    fn requests_are_limited_and_can_be_aborted() {
        let mut events = Events::default();
        for cid in 0..4 {
            assert_eq!(events.request(cid), Ok(()));
        }
        assert_eq!(events.request(4), Err(Status::AER_LIMIT_EXCEEDED));
        assert!(events.abort(2) && !events.abort(2));
        assert_eq!(events.next(), Some((2, Err(Status::ABORT_REQUESTED))));
    }

    #[test]
    fn the_error_log_keeps_the_newest() {
        let mut log = ErrorLog::default();
        for sqid in 0..20 {
            log.push(sqid, Status::INVALID_FIELD);
        }
        let entries = log.entries();
        assert_eq!((entries[0].count.get(), entries[0].sqid.get()), (20, 19));
        assert_eq!(entries[15].count.get(), 5);
    }
}
