// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server, spoken to as QEMU does, over a socket pair.

mod common;

use common::{key, pattern, Bus, Driver};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr};
use nvme_kv::kv::Condition;
use nvme_kv::regs::Csts;
use nvme_kv::{DataPointer, Status};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use xio_target::vfio::{Listener, Server};
use xio_target::Config;

const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_INFO: u16 = 4;
const GET_REGION_INFO: u16 = 5;
const GET_IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const DEVICE_RESET: u16 = 13;

const NO_REPLY: u32 = 0x10;
const MEMORY: u64 = 8 << 20;
/// Where the memory is in the machine.
const BASE: u64 = 0x10_0000;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn word(bytes: &[u8], n: usize) -> u32 {
    u32::from_ne_bytes(bytes[n * 4..][..4].try_into().unwrap())
}

/// A client's end of the socket.
struct Client {
    stream: UnixStream,
    id: u16,
    /// Descriptors that came with the last reply.
    fds: Vec<OwnedFd>,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, id: 0, fds: vec![] }
    }

    fn send(&mut self, command: u16, flags: u32, payload: &[u8], fds: &[RawFd]) {
        self.id += 1;
        let head = [u32::from(self.id) | u32::from(command) << 16, 16 + payload.len() as u32, flags, 0];
        let message = [words(&head), payload.to_vec()].concat();
        let rights = [ControlMessage::ScmRights(fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let iov = [IoSlice::new(&message)];
        let sent =
            sendmsg::<UnixAddr>(self.stream.as_raw_fd(), &iov, rights, MsgFlags::empty(), None).unwrap();
        self.stream.write_all(&message[sent..]).unwrap();
    }

    /// The reply to the last message.
    #[allow(unsafe_code)]
    fn reply(&mut self) -> Result<Vec<u8>, Errno> {
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
        assert_eq!(word(&head, 0) as u16, self.id);
        match (word(&head, 2), word(&head, 3)) {
            (1, 0) => Ok(payload),
            (0x21, errno) => Err(Errno::from_raw(errno as i32)),
            other => panic!("reply with flags and error {other:x?}"),
        }
    }

    fn call(&mut self, command: u16, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        self.send(command, 0, payload, &[]);
        self.reply()
    }

    fn negotiate(&mut self) {
        let text = b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":16}}\0";
        let reply = self.call(VERSION, text).unwrap();
        assert_eq!(reply[..4], [0; 4]);
        let json: serde_json::Value = serde_json::from_slice(&reply[4..reply.len() - 1]).unwrap();
        assert_eq!(json["capabilities"]["max_msg_fds"], 16);
    }

    fn map(&mut self, address: u64, offset: u64, size: u64, flags: u32, file: &File) -> Result<(), Errno> {
        let payload = [words(&[32, flags]), longs(&[offset, address, size])].concat();
        self.send(DMA_MAP, 0, &payload, &[file.as_raw_fd()]);
        self.reply().map(drop)
    }

    fn write_config(&mut self, offset: u64, value: u16) {
        let write = [longs(&[offset]), words(&[7, 2]), value.to_le_bytes().to_vec()].concat();
        assert!(self.call(REGION_WRITE, &write).is_ok());
    }

    fn access(offset: usize, len: usize) -> Vec<u8> {
        [longs(&[offset as u64]), words(&[0, len as u32])].concat()
    }
}

/// The client as a bus: registers in messages, doorbells and memory in shared files.
struct Machine {
    client: Client,
    memory: File,
    bar: File,
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
        self.memory.read_exact_at(to, addr - BASE).unwrap();
    }
    fn poke(&mut self, addr: u64, from: &[u8]) {
        self.memory.write_all_at(from, addr - BASE).unwrap();
    }
    fn work(&mut self) {
        thread::sleep(Duration::from_micros(50));
    }
}

fn memory() -> File {
    let memory = File::from(memfd_create(c"memory", MFdFlags::empty()).unwrap());
    memory.set_len(MEMORY).unwrap();
    memory
}

/// Plugs in as QEMU does: version, regions, memory.
fn plug(stream: UnixStream) -> Driver<Machine> {
    let mut client = Client::new(stream);
    client.negotiate();
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
    Driver::new(Machine { client, memory, bar }, BASE)
}

/// A server for one client at a time, and the way to stop it.
struct Serving {
    stop: UnixStream,
    thread: JoinHandle<Server>,
}

impl Serving {
    fn start(mut server: Server) -> (Self, UnixStream) {
        let (client, stream) = UnixStream::pair().unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || {
            server.serve(stream, stopped.as_fd()).unwrap();
            server
        });
        (Self { stop, thread }, client)
    }

    fn stop(mut self) -> Server {
        self.stop.write_all(&[1]).unwrap();
        self.thread.join().unwrap()
    }
}

fn server() -> Server {
    Server::new(Config::default()).unwrap()
}

#[test]
fn a_client_stores_and_the_next_one_retrieves() {
    let value = pattern(1 << 20, 1);
    let (serving, stream) = Serving::start(server());
    let mut d = plug(stream);
    d.enable(16);
    assert_eq!(d.csts(), Csts(1));
    d.create(1, 64);
    assert_eq!(d.store(1, &key("kept"), &value, Condition::Always), Ok(0));
    // Leaving while enabled.
    drop(d);
    let (serving, stream) = Serving::start(serving.thread.join().unwrap());
    let mut d = plug(stream);
    assert_eq!(d.csts(), Csts(0));
    d.enable(16);
    d.create(1, 64);
    assert_eq!(d.retrieve(1, &key("kept"), 1 << 20), Ok((value, 1 << 20)));
    drop(serving.stop());
}

#[test]
fn memory_that_is_unmapped_or_read_only_is_out_of_reach() {
    let (serving, stream) = Serving::start(server());
    let mut d = plug(stream);
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.store(1, &key("a"), &[1; 4096], Condition::Always), Ok(0));
    let other = memory();
    let far = 1 << 40;
    d.bus.client.map(far, 0, 4096, 1, &other).unwrap();
    let retrieve = |prp1| nvme_kv::kv::Command::Retrieve {
        key: key("a"),
        len: 4096,
        options: Default::default(),
        data: DataPointer { prp1, prp2: 0 },
    };
    assert_eq!(d.kv(1, retrieve(far)), Err(Status::DATA_TRANSFER_ERROR));
    let unmap = [words(&[24, 0]), longs(&[far, 4096])].concat();
    assert_eq!(d.bus.client.call(DMA_UNMAP, &unmap), Ok(unmap.clone()));
    d.bus.client.map(far, 0, 4096, 3, &other).unwrap();
    assert_eq!(d.kv(1, retrieve(far)), Ok(4096));
    assert_eq!(d.bus.client.call(DMA_UNMAP, &unmap), Ok(unmap.clone()));
    d.bus.client.map(far, 0, 4096, 2, &other).unwrap();
    let store = nvme_kv::kv::Command::Store {
        key: key("b"),
        len: 4096,
        options: Default::default(),
        data: DataPointer { prp1: far, prp2: 0 },
    };
    assert_eq!(d.kv(1, store), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(d.kv(1, retrieve(far)), Ok(4096));
    let all = [words(&[24, 2]), longs(&[0, 0])].concat();
    assert_eq!(d.bus.client.call(DMA_UNMAP, &all), Ok(all));
    // Now even the queues are gone.
    d.push(1, retrieve(far).encode(0, 1));
    d.ring(1);
    d.wait_for_failure();
    drop(serving.stop());
}

#[test]
fn completions_raise_interrupts() {
    let (serving, stream) = Serving::start(server());
    let mut d = plug(stream);
    let client = &mut d.bus.client;
    let msix = words(&[16, 9, 2, 32]);
    assert_eq!(client.call(GET_IRQ_INFO, &words(&[16, 0, 2, 0])), Ok(msix));
    let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).unwrap();
    let fd = event.as_fd().as_raw_fd();
    client.send(SET_IRQS, 0, &words(&[20, 0x24, 2, 0, 2]), &[fd, fd]);
    assert_eq!(client.reply(), Ok(vec![]));
    d.enable(16);
    assert!(d.identify(1, 0, 0).is_ok());
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while event.read().is_err() {
        assert!(std::time::Instant::now() < end, "no interrupt");
    }
    let client = &mut d.bus.client;
    assert_eq!(client.call(SET_IRQS, &words(&[20, 0x21, 2, 0, 0])), Ok(vec![]));
    // Loopback: the client raises a vector itself; it is kept while there is no eventfd.
    assert_eq!(client.call(SET_IRQS, &words(&[20, 0x21, 2, 1, 1])), Ok(vec![]));
    client.send(SET_IRQS, 0, &words(&[20, 0x24, 2, 1, 1]), &[fd]);
    assert_eq!((client.reply(), event.read()), (Ok(vec![]), Ok(1)));
    // The next client starts without it.
    drop(d);
    let (serving, stream) = Serving::start(serving.thread.join().unwrap());
    let mut d = plug(stream);
    while event.read().is_ok() {}
    assert_eq!(d.bus.client.call(SET_IRQS, &words(&[20, 0x21, 2, 0, 2])), Ok(vec![]));
    d.enable(16);
    assert!(d.identify(1, 0, 0).is_ok());
    assert!(event.read().is_err(), "the eventfd of the client before");
    drop(serving.stop());
}

#[test]
fn resets_disable_the_controller() {
    let (serving, stream) = Serving::start(server());
    let mut d = plug(stream);
    for by_message in [true, false] {
        d.enable(16);
        assert_eq!(d.csts(), Csts(1));
        let client = &mut d.bus.client;
        if by_message {
            assert_eq!(client.call(DEVICE_RESET, &[]), Ok(vec![]));
        } else {
            // Function level reset, in Device Control of the PCI Express capability.
            client.write_config(0x48, 0x8000);
        }
        assert_eq!(d.csts(), Csts(0));
        // It is no bus master any more, and so can not reach its queues.
        d.enable(16);
        d.push(0, nvme_kv::Sqe::default());
        d.ring(0);
        d.wait_for_failure();
        d.disable();
        d.bus.client.write_config(4, 6);
    }
    drop(serving.stop());
}

#[test]
fn hostile_messages_get_errors() {
    let (serving, stream) = Serving::start(server());
    let mut client = Client::new(stream);
    let invalid = Err(Errno::EINVAL);
    // Nothing before the version, and only a good one.
    assert_eq!(client.call(GET_INFO, &words(&[16, 0, 0, 0])), invalid);
    assert_eq!(client.call(VERSION, &[0]), invalid);
    assert_eq!(client.call(VERSION, &[9, 0, 0, 0]), invalid);
    assert_eq!(client.call(VERSION, b"\0\0\0\0{\"capabilities\":"), invalid);
    client.negotiate();
    for command in [0, 6, 11, 12, 14, 999, u16::MAX] {
        assert_eq!(client.call(command, &[]), Err(Errno::EOPNOTSUPP));
    }
    // Too short for their structures.
    for command in 1..=10 {
        let short = client.call(command, &[1; 3]);
        assert!(matches!(short, Err(Errno::EINVAL | Errno::EOPNOTSUPP)), "{command}: {short:?}");
    }
    let access = |offset: u64, region, count| [longs(&[offset]), words(&[region, count])].concat();
    for bad in [
        access(0x4000, 0, 1),
        access(u64::MAX, 0, 4),
        access(0, 0, u32::MAX),
        access(0, 1, 4),
        access(4095, 7, 2),
        access(0, 99, 0),
    ] {
        assert_eq!(client.call(REGION_READ, &bad), invalid);
        assert_eq!(client.call(REGION_WRITE, &bad), invalid);
    }
    // Less data than stated.
    assert_eq!(client.call(REGION_WRITE, &access(0x14, 0, 4)), invalid);
    // Odd places of the BAR read as zeros.
    for offset in [0xffe, 0x1ffe, 0x2000, 0x3ff8] {
        assert!(client.call(REGION_READ, &access(offset, 0, 8)).is_ok());
    }
    for bad in [
        words(&[20, 0x24, 2, 31, 2]),
        words(&[20, 0x24, 2, u32::MAX, u32::MAX]),
        words(&[20, 0x04, 2, 0, 1]),
        words(&[20, 0x28, 2, 0, 1]),
        words(&[20, 0x24, 0, 0, 1]),
        words(&[20, 0x24, 9, 0, 1]),
    ] {
        assert_eq!(client.call(SET_IRQS, &bad), invalid, "{bad:?}");
    }
    assert_eq!(client.call(GET_REGION_INFO, &[words(&[64, 0, 9, 0]), longs(&[0, 0])].concat()), invalid);
    assert_eq!(client.call(GET_IRQ_INFO, &words(&[16, 0, 5, 0])), invalid);
    let file = memory();
    assert_eq!(client.map(0, MEMORY - 4096, 8192, 3, &file), Err(Errno::EINVAL));
    let two = [file.as_raw_fd(), file.as_raw_fd()];
    client.send(DMA_MAP, 0, &[words(&[32, 3]), longs(&[0, 0, 4096])].concat(), &two);
    assert_eq!(client.reply(), invalid);
    // Errors of commands without reply, and replies to nothing, are swallowed.
    client.send(999, NO_REPLY, &[], &[]);
    client.send(REGION_READ, 1, &[1, 2, 3], &[]);
    assert!(client.call(GET_INFO, &words(&[16, 0, 0, 0])).is_ok());
    drop(serving.stop());
}

#[test]
fn sizes_that_can_not_be_end_the_connection() {
    let mut server = server();
    for size in [0, 15, u32::MAX] {
        let (serving, mut stream) = Serving::start(server);
        stream.write_all(&words(&[1 << 16, size, 0, 0])).unwrap();
        server = serving.thread.join().unwrap();
    }
    // Half a header, then nothing.
    let (serving, mut stream) = Serving::start(server);
    stream.write_all(&[1, 2, 3]).unwrap();
    drop(stream);
    drop(serving.thread.join().unwrap());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = std::env::temp_dir().join(format!("xio-target-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("socket");
    // Dropped without being removed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::bind(&path).unwrap();
    assert!(Listener::bind(&path).is_err());
    let (mut stop, stopped) = UnixStream::pair().unwrap();
    let client = {
        let path = path.clone();
        thread::spawn(move || {
            for _ in 0..3 {
                let mut client = Client::new(UnixStream::connect(&path).unwrap());
                client.negotiate();
            }
            stop.write_all(&[1]).unwrap();
        })
    };
    let fd: BorrowedFd<'_> = stopped.as_fd();
    server().run(&listener, fd).unwrap();
    client.join().unwrap();
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(Listener::bind(&path).is_err());
    std::fs::remove_dir_all(&dir).unwrap();
}
