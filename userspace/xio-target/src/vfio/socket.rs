// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over a Unix socket, with file descriptors.
#![allow(unsafe_code)] // Descriptors arrive as plain numbers.

use super::wire::{Header, MAX_DATA, MAX_FDS};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

/// How long a client may leave a reply unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest message: data behind the largest structure.
const MAX_MESSAGE: usize = MAX_DATA + 256;

/// A message from the client.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// Why no message came.
#[derive(Debug)]
pub(super) enum Ended {
    /// The client closed the connection.
    Closed,
    /// This program is to stop.
    Stopped,
    /// The connection can not be used any more.
    Failed(io::Error),
}

impl<E: Into<io::Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Waits until one of `fds` can be read: the first that can.
pub(super) fn first<const N: usize>(fds: [BorrowedFd<'_>; N]) -> Result<usize, Errno> {
    loop {
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if let Some(at) = fds.iter().position(|fd| fd.any() == Some(true)) {
            return Ok(at);
        }
    }
}

/// Waits until `fd` can be read. `false` when this program is to stop, which either of `stop` tells by being readable.
pub(super) fn wait(fd: BorrowedFd<'_>, stop: [BorrowedFd<'_>; 2]) -> Result<bool, Errno> {
    Ok(first([stop[0], stop[1], fd])? == 2)
}

/// Waits for a while. `false` when this program is to stop.
pub(super) fn pause(time: PollTimeout, stop: [BorrowedFd<'_>; 2]) -> Result<bool, Errno> {
    let mut fds = stop.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, time) {
        Ok(ready) => Ok(ready == 0),
        Err(Errno::EINTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// A connected client.
pub(super) struct Connection<'a> {
    stream: UnixStream,
    sender: Sender,
    stop: [BorrowedFd<'a>; 2],
}

impl<'a> Connection<'a> {
    pub(super) fn new(stream: UnixStream, stop: [BorrowedFd<'a>; 2]) -> io::Result<Self> {
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        let sender = Sender(Arc::new(Mutex::new(stream.try_clone()?)));
        Ok(Self { stream, sender, stop })
    }

    /// The way to the client, which any thread may use.
    pub(super) const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> Result<Message, Ended> {
        let (mut header, mut fds) = (Header::new_zeroed(), Vec::new());
        self.fill(header.as_mut_bytes(), &mut fds)?;
        // Beyond a wrong size nobody knows where the next message starts.
        let size = header.size as usize;
        let len = size.checked_sub(size_of::<Header>()).filter(|_| size <= MAX_MESSAGE);
        let len = len.ok_or_else(|| io::Error::other(format!("a message of {size} bytes")))?;
        let mut payload = vec![0; len];
        self.fill(&mut payload, &mut fds)?;
        Ok(Message { header, payload, fds })
    }

    fn fill(&mut self, mut to: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<(), Ended> {
        while !to.is_empty() {
            if !wait(self.stream.as_fd(), self.stop)? {
                return Err(Ended::Stopped);
            }
            let n = receive_some(&self.stream, to, fds)?;
            if n == 0 {
                return Err(Ended::Closed);
            }
            to = to.get_mut(n..).unwrap_or(&mut []);
        }
        Ok(())
    }
}

/// Sends whole messages, one at a time.
#[derive(Clone, Debug)]
pub(super) struct Sender(Arc<Mutex<UnixStream>>);

impl Sender {
    /// Sends a message, with a file descriptor if there is one.
    pub(super) fn send(&self, header: &Header, payload: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send_all(&mut stream, header, payload, fd).inspect_err(|_| {
            // Nobody knows how much of it went. Whoever receives sees the end.
            if let Err(error) = stream.shutdown(Shutdown::Both) {
                log::debug!("shutdown: {error}");
            }
        })
    }
}

fn send_all(
    stream: &mut UnixStream,
    header: &Header,
    payload: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let message = [header.as_bytes(), payload].concat();
    let raw = fd.map(|fd| [fd.as_raw_fd()]);
    let rights: Vec<_> = raw.iter().map(|fds| ControlMessage::ScmRights(fds)).collect();
    let iov = [IoSlice::new(&message)];
    let sent = sendmsg::<UnixAddr>(stream.as_raw_fd(), &iov, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    stream.write_all(message.get(sent..).unwrap_or(&[]))
}

/// Receives some bytes, and the descriptors that come with them.
fn receive_some(stream: &UnixStream, to: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut iov = [IoSliceMut::new(to)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut iov, Some(&mut space), flags)?;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just made these descriptors for us; nobody else knows them.
            fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    if received.flags.contains(MsgFlags::MSG_CTRUNC) || fds.len() > MAX_FDS {
        return Err(io::Error::other("more file descriptors than negotiated"));
    }
    Ok(received.bytes)
}
