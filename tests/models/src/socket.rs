// SPDX-License-Identifier: MIT OR Apache-2.0
//! In the place of a Unix socket: messages to a client that is another thread.

use super::wire::Header;
use crate::sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A message of the client.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

#[derive(Default)]
struct Sent {
    messages: VecDeque<(Header, Vec<u8>)>,
    closed: bool,
}

/// The way to the client.
#[derive(Clone, Default)]
pub(super) struct Sender(Arc<(Mutex<Sent>, Condvar)>);

impl Sender {
    pub(super) fn send(
        &self,
        header: &Header,
        payload: &[u8],
        _fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.0 .0.lock().unwrap().messages.push_back((*header, payload.to_vec()));
        self.0 .1.notify_all();
        Ok(())
    }

    /// The client's side: the next message, or `None` when there will be none.
    pub(super) fn next(&self) -> Option<(Header, Vec<u8>)> {
        let mut sent = self.0 .0.lock().unwrap();
        loop {
            match sent.messages.pop_front() {
                Some(message) => return Some(message),
                None if sent.closed => return None,
                None => sent = self.0 .1.wait(sent).unwrap(),
            }
        }
    }

    /// No messages will come.
    pub(super) fn close(&self) {
        self.0 .0.lock().unwrap().closed = true;
        self.0 .1.notify_all();
    }
}
