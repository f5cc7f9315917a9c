// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a client is asked for.

use super::remote::Remote;
use super::socket::{Message, Sender};
use super::wire::{parse, DmaAccess, Header};
use crate::sync::{thread, Arc};

/// What the client has at each address.
const fn byte(addr: u64) -> u8 {
    addr as u8 ^ 0x5a
}

/// Answers everything, until there will be nothing more.
fn client(remote: Arc<Remote>, messages: Sender) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Some((header, payload)) = messages.next() {
            let (access, _): (DmaAccess, _) = parse(&payload).unwrap();
            let mut payload = payload[..16].to_vec();
            payload.extend((0..access.count).map(|n| byte(access.address + n)));
            let header = Header { flags: 1, ..header };
            remote.answered(Message { header, payload, fds: vec![] });
        }
    })
}

/// A byte of the client's; `None` when it can not be had.
fn read(remote: &Remote, addr: u64) -> Option<u8> {
    let mut to = [0];
    remote.read(addr, &mut to).map(|()| to[0])
}

fn start() -> (Arc<Remote>, Sender) {
    let (remote, messages) = (Arc::new(Remote::default()), Sender::default());
    remote.connect(messages.clone());
    (remote, messages)
}

/// Each request gets its own answer.
pub fn answers_belong_to_their_requests() {
    let (remote, messages) = start();
    let client = client(remote.clone(), messages.clone());
    assert_eq!(read(&remote, 1), Some(byte(1)));
    assert_eq!(read(&remote, 2), Some(byte(2)));
    messages.close();
    client.join().unwrap();
}

/// An interruption ends what is under way, and what is asked for afterwards gets its own answer and not the late one.
pub fn interruptions_end_requests_and_spoil_none() {
    let (remote, messages) = start();
    let client = client(remote.clone(), messages.clone());
    let theirs = remote.clone();
    let reader = thread::spawn(move || read(&theirs, 1));
    drop(remote.interrupt());
    assert!(matches!(reader.join().unwrap(), None | Some(0x5b)));
    assert_eq!(read(&remote, 2), Some(byte(2)));
    messages.close();
    client.join().unwrap();
}

/// Nor does one that the client never answers go on.
pub fn interruptions_end_requests_that_nobody_answers() {
    let (remote, _messages) = start();
    let theirs = remote.clone();
    let reader = thread::spawn(move || read(&theirs, 1));
    let interruption = remote.interrupt();
    assert_eq!(reader.join().unwrap(), None);
    drop(interruption);
    assert!(!remote.is_waiting());
}

/// Nobody waits for a client that has left.
pub fn the_end_of_the_client_ends_requests() {
    let (remote, _messages) = start();
    let theirs = remote.clone();
    let reader = thread::spawn(move || read(&theirs, 1));
    remote.disconnect();
    assert_eq!(reader.join().unwrap(), None);
    assert!(!remote.is_waiting());
}
