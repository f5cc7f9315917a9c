// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over a Unix socket, with file descriptors.
#![allow(unsafe_code)] // Descriptors arrive as plain numbers.

use super::wire::{Header, MAX_DATA, MAX_FDS};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
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

/// Whether `fd` can be read now.
fn is_ready(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
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
    /// Where others come. They are turned away: one that waited might hold up the client's own end (QEMU, when it is told to plug a
    /// device in while it takes the old one away).
    others: Option<UnixListener>,
    /// The thread that turns one away.
    turning: Option<JoinHandle<()>>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        stream: UnixStream,
        stop: [BorrowedFd<'a>; 2],
        others: Option<UnixListener>,
    ) -> io::Result<Self> {
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        let sender = Sender(Arc::new(Mutex::new(stream.try_clone()?)));
        Ok(Self { stream, sender, stop, others, turning: None })
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

    /// Waits until something can be received.
    fn wait(&mut self) -> Result<(), Ended> {
        let stream = self.stream.as_fd();
        loop {
            let others = self.others.as_ref().map_or(stream, AsFd::as_fd);
            match first([self.stop[0], self.stop[1], stream, others])? {
                0 | 1 => return Err(Ended::Stopped),
                2 => return Ok(()),
                _ => {}
            }
            // Somebody who came when the client had gone is not turned away, so the client is looked at once more.
            if is_ready(stream)? {
                return Ok(());
            }
            if let Some(others) = &self.others {
                let (other, _) = others.accept()?;
                log::warn!("another client came while one is connected, and is turned away");
                // One at a time is enough for whoever waits for an answer.
                if self.turning.as_ref().is_none_or(JoinHandle::is_finished) {
                    self.turning = Some(thread::spawn(move || {
                        if let Err(error) = turn_away(other) {
                            log::debug!("turning a client away: {error}");
                        }
                    }));
                }
            }
        }
    }

    fn fill(&mut self, mut to: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<(), Ended> {
        while !to.is_empty() {
            self.wait()?;
            let n = receive_some(&self.stream, to, fds)?;
            if n == 0 {
                return Err(Ended::Closed);
            }
            to = to.get_mut(n..).unwrap_or(&mut []);
        }
        Ok(())
    }
}

/// Answers what a client says first with an error, and waits until it has gone. (QEMU 11.1 ends itself when the connection ends
/// instead.)
fn turn_away(mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(SEND_TIMEOUT))?;
    let mut header = Header::new_zeroed();
    stream.read_exact(header.as_mut_bytes())?;
    let len = u64::from(header.size).saturating_sub(size_of::<Header>() as u64).min(MAX_MESSAGE as u64);
    io::copy(&mut (&stream).take(len), &mut io::sink())?;
    send_all(&mut stream, &header.error(Errno::EBUSY), &[], None)?;
    io::copy(&mut stream.take(MAX_MESSAGE as u64), &mut io::sink()).map(drop)
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
