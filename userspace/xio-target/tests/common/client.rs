// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vfio-user client, as QEMU is one.
#![allow(missing_docs)]

use super::remote::{Manner, RemoteMemory};
use super::{Bus, Driver};
use nix::errno::Errno;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const GET_INFO: u16 = 4;
pub const GET_REGION_INFO: u16 = 5;
pub const GET_IRQ_INFO: u16 = 7;
pub const SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const DMA_READ: u16 = 11;
pub const DMA_WRITE: u16 = 12;
pub const DEVICE_RESET: u16 = 13;

pub const NO_REPLY: u32 = 0x10;
pub const MEMORY: u64 = 8 << 20;
/// Where the memory is in the machine.
pub const BASE: u64 = 0x10_0000;

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

pub fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

pub fn word(bytes: &[u8], n: usize) -> u32 {
    u32::from_ne_bytes(bytes[n * 4..][..4].try_into().unwrap())
}

/// A client's end of the socket.
pub struct Client {
    pub stream: UnixStream,
    id: u16,
    /// Descriptors that came with the last reply.
    pub fds: Vec<OwnedFd>,
    /// What the server is given when it asks.
    pub remote: RemoteMemory,
    late: Vec<Vec<u8>>,
}

impl Client {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, id: 0, fds: vec![], remote: RemoteMemory::default(), late: vec![] }
    }

    pub fn send(&mut self, command: u16, flags: u32, payload: &[u8], fds: &[RawFd]) {
        self.id = self.id.wrapping_add(1);
        let head = [u32::from(self.id) | u32::from(command) << 16, 16 + payload.len() as u32, flags, 0];
        let message = [words(&head), payload.to_vec()].concat();
        let rights = [ControlMessage::ScmRights(fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let iov = [IoSlice::new(&message)];
        let sent =
            sendmsg::<UnixAddr>(self.stream.as_raw_fd(), &iov, rights, MsgFlags::empty(), None).unwrap();
        self.stream.write_all(&message[sent..]).unwrap();
    }

    /// The reply to the last message. Requests that come before it are answered.
    pub fn reply(&mut self) -> Result<Vec<u8>, Errno> {
        loop {
            let (head, payload) = self.receive();
            match (word(&head, 2), word(&head, 3)) {
                (0, 0) => self.serve(&head, &payload),
                _ if word(&head, 0) as u16 != self.id => panic!("a reply to something else"),
                (1, 0) => return Ok(payload),
                (0x21, errno) => return Err(Errno::from_raw(errno as i32)),
                other => panic!("reply with flags and error {other:x?}"),
            }
        }
    }

    /// Answers the requests that have come.
    pub fn serve_requests(&mut self) {
        use std::os::fd::AsFd;
        let fd = self.stream.as_fd().try_clone_to_owned().unwrap();
        let mut fds = [nix::poll::PollFd::new(fd.as_fd(), nix::poll::PollFlags::POLLIN)];
        while nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).unwrap() > 0 {
            let (head, payload) = self.receive();
            assert_eq!((word(&head, 2), word(&head, 3)), (0, 0), "nothing but requests");
            self.serve(&head, &payload);
        }
    }

    fn serve(&mut self, head: &[u8], payload: &[u8]) {
        let (id, command) = (word(head, 0) as u16, (word(head, 0) >> 16) as u16);
        let Some(answer) = self.remote.answer(command, payload) else { return };
        let first =
            u32::from(id.wrapping_add(answer.id)) | u32::from(command.wrapping_add(answer.command)) << 16;
        let flags = if answer.error == 0 { 1 } else { 0x21 };
        let head = words(&[first, 16 + answer.payload.len() as u32, flags, answer.error]);
        let message = [head, answer.payload].concat();
        if self.remote.manner == Manner::Late {
            self.late.push(message);
        } else {
            self.stream.write_all(&message).unwrap();
        }
    }

    /// Sends the answers that were held back, and no more is.
    pub fn answer_late(&mut self) {
        self.remote.manner = Manner::Good;
        for message in std::mem::take(&mut self.late) {
            self.stream.write_all(&message).unwrap();
        }
    }

    #[allow(unsafe_code)]
    fn receive(&mut self) -> ([u8; 16], Vec<u8>) {
        let mut head = [0; 16];
        let mut space = nix::cmsg_space!([RawFd; 4]);
        let mut iov = [IoSliceMut::new(&mut head)];
        let flags = MsgFlags::MSG_WAITALL;
        let got = recvmsg::<UnixAddr>(self.stream.as_raw_fd(), &mut iov, Some(&mut space), flags).unwrap();
        assert_eq!(got.bytes, 16, "connection closed");
        self.fds.clear();
        for message in got.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: just received, and ours alone.
                self.fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        let mut payload = vec![0; word(&head, 1) as usize - 16];
        self.stream.read_exact(&mut payload).unwrap();
        (head, payload)
    }

    pub fn call(&mut self, command: u16, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        self.send(command, 0, payload, &[]);
        self.reply()
    }

    pub fn negotiate(&mut self) {
        self.negotiate_with("\"max_msg_fds\":16");
    }

    pub fn negotiate_with(&mut self, capabilities: &str) {
        let text = format!("\0\0\0\0{{\"capabilities\":{{{capabilities}}}}}\0");
        let reply = self.call(VERSION, text.as_bytes()).unwrap();
        assert_eq!(reply[..4], [0; 4]);
        let json: serde_json::Value = serde_json::from_slice(&reply[4..reply.len() - 1]).unwrap();
        assert_eq!(json["capabilities"]["max_msg_fds"], 16);
    }

    pub fn map(
        &mut self,
        address: u64,
        offset: u64,
        size: u64,
        flags: u32,
        file: &File,
    ) -> Result<(), Errno> {
        let payload = [words(&[32, flags]), longs(&[offset, address, size])].concat();
        self.send(DMA_MAP, 0, &payload, &[file.as_raw_fd()]);
        self.reply().map(drop)
    }

    /// Gives the server memory that it has to ask for.
    pub fn map_remote(&mut self, base: u64, len: usize, flags: u32) {
        (self.remote.base, self.remote.bytes) = (base, vec![0; len]);
        let payload = [words(&[32, flags]), longs(&[0, base, len as u64])].concat();
        assert_eq!(self.call(DMA_MAP, &payload), Ok(vec![]));
    }

    pub fn write_config(&mut self, offset: u64, value: u16) {
        let write = [longs(&[offset]), words(&[7, 2]), value.to_le_bytes().to_vec()].concat();
        assert!(self.call(REGION_WRITE, &write).is_ok());
    }

    pub fn access(offset: usize, len: usize) -> Vec<u8> {
        [longs(&[offset as u64]), words(&[0, len as u32])].concat()
    }
}

/// The client as a bus: registers in messages, doorbells and memory in shared files.
pub struct Machine {
    pub client: Client,
    memory: File,
    pub bar: File,
    /// Memory of the controller: first address and file.
    pub cmb: Option<(u64, File)>,
}

impl Machine {
    /// The file that an address is in, and the place there.
    fn place(&self, addr: u64) -> (&File, u64) {
        match &self.cmb {
            Some((base, file)) if addr >= *base => (file, addr - base),
            _ => (&self.memory, addr - BASE),
        }
    }

    /// Maps a region that can be mapped as a whole: its size and file.
    pub fn map_region(&mut self, index: u32) -> (u64, File) {
        let ask = [words(&[64, 0, index, 0]), longs(&[0, 0])].concat();
        let info = self.client.call(GET_REGION_INFO, &ask).unwrap();
        assert_eq!((word(&info, 0), word(&info, 1), word(&info, 2)), (64, 0b1111, index));
        let size = u64::from_ne_bytes(info[16..24].try_into().unwrap());
        assert_eq!(info[32..], [words(&[0x0001_0001, 0, 1, 0]), longs(&[0, size])].concat());
        (size, File::from(self.client.fds.pop().unwrap()))
    }
}

impl Bus for Machine {
    fn read_register(&mut self, offset: usize, to: &mut [u8]) {
        let reply = self.client.call(REGION_READ, &Client::access(offset, to.len())).unwrap();
        to.copy_from_slice(&reply[16..]);
    }
    fn write_register(&mut self, offset: usize, from: &[u8]) {
        let payload = [&Client::access(offset, from.len()), from].concat();
        // Posted, as QEMU may.
        self.client.send(REGION_WRITE, NO_REPLY, &payload, &[]);
    }
    fn ring(&mut self, offset: usize, value: u32) {
        self.bar.write_all_at(&value.to_le_bytes(), offset as u64).unwrap();
    }
    fn peek(&self, addr: u64, to: &mut [u8]) {
        if let Some(range) = self.client.remote.range(addr, to.len()) {
            return to.copy_from_slice(&self.client.remote.bytes[range]);
        }
        let (file, at) = self.place(addr);
        file.read_exact_at(to, at).unwrap();
    }
    fn poke(&mut self, addr: u64, from: &[u8]) {
        if let Some(range) = self.client.remote.range(addr, from.len()) {
            return self.client.remote.bytes[range].copy_from_slice(from);
        }
        let (file, at) = self.place(addr);
        file.write_all_at(from, at).unwrap();
    }
    fn work(&mut self) {
        self.client.serve_requests();
        thread::sleep(Duration::from_micros(50));
    }
}

pub fn memory() -> File {
    let memory = File::from(memfd_create(c"memory", MFdFlags::empty()).unwrap());
    memory.set_len(MEMORY).unwrap();
    memory
}

/// Plugs in as QEMU does: version, regions, memory.
pub fn plug(stream: UnixStream) -> Driver<Machine> {
    plug_with(stream, "\"max_msg_fds\":16")
}

/// With capabilities of one's own.
pub fn plug_with(stream: UnixStream, capabilities: &str) -> Driver<Machine> {
    let mut client = Client::new(stream);
    client.negotiate_with(capabilities);
    assert_eq!(client.call(GET_INFO, &words(&[16, 0, 0, 0])), Ok(words(&[16, 3, 9, 5])));
    let ask = |argsz| [words(&[argsz, 0, 0, 0]), longs(&[0, 0])].concat();
    let short = client.call(GET_REGION_INFO, &ask(32)).unwrap();
    assert_eq!((short.len(), word(&short, 0), client.fds.len()), (32, 64, 0));
    let info = client.call(GET_REGION_INFO, &ask(64)).unwrap();
    assert_eq!((word(&info, 0), word(&info, 1), word(&info, 3)), (64, 0b1111, 32));
    assert_eq!(info[32..], [words(&[0x0001_0001, 0, 1, 0]), longs(&[0x1000, 0x1000])].concat());
    let bar = File::from(client.fds.pop().unwrap());
    // A client can not take it from under the server.
    assert!(bar.set_len(0).is_err() && bar.set_len(1 << 20).is_err());
    let memory = memory();
    client.map(BASE, 0, MEMORY, 3, &memory).unwrap();
    client.write_config(4, 6);
    Driver::new(Machine { client, memory, bar, cmb: None }, BASE)
}

/// Plugs in as soon as somebody listens at a socket, and sets the controller up with a queue of 64 entries.
pub fn plug_at(socket: &Path, limit: Duration) -> Driver<Machine> {
    let end = Instant::now() + limit;
    let stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut driver = plug(stream);
    driver.enable(32);
    driver.create(1, 64);
    driver
}
