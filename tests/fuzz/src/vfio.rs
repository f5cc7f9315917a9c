// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a vfio-user client: each is answered or refused, once and in order, and the next client is served.

use crate::input::{Input, Seed};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::socket::{sendmsg, ControlMessage, MsgFlags, UnixAddr};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use xio_target::vfio::Server;
use xio_target::Config;

const HEAD: usize = 16;
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const GET_INFO: u16 = 4;
const REGION_WRITE: u16 = 10;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;
/// Bytes of the memory that is shared.
const MEMORY: u64 = 64 << 10;
/// Messages of one input; they all fit into the socket.
const MESSAGES: usize = 48;

fn server() -> &'static Mutex<(Server, File)> {
    static SERVER: OnceLock<Mutex<(Server, File)>> = OnceLock::new();
    SERVER.get_or_init(|| {
        let memory = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).unwrap());
        memory.set_len(MEMORY).unwrap();
        let config = Config { cmb: 2 << 20, max_queues: 3, ..Config::default() };
        Mutex::new((Server::new(config).unwrap(), memory))
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

/// A message with a right size.
fn message(id: u16, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = (HEAD + payload.len()) as u32;
    let head =
        [&id.to_ne_bytes()[..], &command.to_ne_bytes(), &size.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]];
    [&head.concat(), payload].concat()
}

fn send(stream: &UnixStream, bytes: &[u8], file: Option<&File>) {
    let fds = file.map(|file| [file.as_raw_fd()]);
    let rights: Vec<_> = fds.iter().map(|fds| ControlMessage::ScmRights(fds)).collect();
    let sent = sendmsg::<UnixAddr>(
        stream.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
    assert_eq!(sent, Ok(bytes.len()));
}

pub(crate) fn run(data: &[u8]) {
    let mut guard = server().lock().unwrap_or_else(PoisonError::into_inner);
    let (server, memory) = &mut *guard;
    let (client, stream) = UnixStream::pair().unwrap();
    let mut input = Input(data);
    let mut wanted = vec![(0, VERSION)];
    send(&client, &message(0, VERSION, 0, &[0; 4]), None);
    for id in 1..MESSAGES as u16 {
        if input.is_empty() {
            break;
        }
        let (command, flags, len) = (input.u8(), input.u8(), usize::from(input.u8()));
        let with_file = flags & 0x40 != 0;
        let flags = u32::from(flags & 0x3f);
        // Half of them are what there is.
        let command = if command < 0x80 { u16::from(command % 14) } else { input.u16() };
        send(&client, &message(id, command, flags, input.bytes(len)), with_file.then_some(memory));
        if flags & 0xf == 0 && flags & NO_REPLY == 0 {
            wanted.push((id, command));
        }
    }
    send(&client, &message(u16::MAX, GET_INFO, 0, &[16, 0, 0, 0].repeat(4)), None);
    wanted.push((u16::MAX, GET_INFO));
    let (replies, last) = serve(server, client, stream);
    assert_eq!(replies, wanted);
    assert_eq!(last & ERROR, 0, "a client that is not served any more");
    assert!(server.handle().with(|controller| !controller.is_running()), "no power cycle");
}

/// Serves until everything was read; identifier and command of all replies, and flags of the last.
fn serve(server: &mut Server, client: UnixStream, stream: UnixStream) -> (Vec<(u16, u16)>, u32) {
    let (_stop, stopped) = UnixStream::pair().unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        { &client }.read_to_end(&mut all).map(|_| all)
    });
    server.serve(stream, stopped.as_fd()).unwrap();
    let all = reader.join().unwrap().unwrap();
    let (mut rest, mut replies, mut last) = (&all[..], Vec::new(), 0);
    while !rest.is_empty() {
        let (size, flags) = (word(rest, 4) as usize, word(rest, 8));
        assert!((HEAD..=rest.len()).contains(&size), "a message of {size} bytes");
        // Its own commands are requests for memory.
        if flags & 0xf == 1 {
            replies.push((word(rest, 0) as u16, (word(rest, 0) >> 16) as u16));
            last = flags;
        } else {
            assert_eq!(flags & 0xf, 0);
        }
        rest = &rest[size..];
    }
    (replies, last)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let one = |seed: Seed, command: u16, flags: u8, payload: &[u8]| {
        seed.u8(command as u8).u8(flags).u8(payload.len() as u8).bytes(payload)
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let map = |address: u32, size: u32| words(&[32, 3, 0, 0, address, 0, size, 0]);
    let register = |at: u32, value: u32| words(&[at, 0, 0, 4, value]);
    let mut seeds = Vec::new();
    let mapped = || one(Seed::default(), DMA_MAP, 0x40, &map(0, MEMORY as u32));
    // Enabled in memory that is shared, and in memory that is not.
    for seed in [mapped(), one(Seed::default(), DMA_MAP, 0, &map(0, MEMORY as u32))] {
        let writes = [(0x24, 0x000f_000f), (0x28, 0), (0x30, 0x1000), (0x14, 0x0046_0061), (0x1000, 1)];
        let master = one(seed, REGION_WRITE, 0, &words(&[4, 0, 7, 4, 6]));
        let write = |seed, (at, value)| one(seed, REGION_WRITE, 0, &register(at, value));
        seeds.push(writes.into_iter().fold(master, write).0);
    }
    let unmap = words(&[24, 0, 0, 0, MEMORY as u32, 0]);
    seeds.push(one(one(mapped(), 3, 0, &unmap), 3, 0, &words(&[24, 2, 0, 0, 0, 0])).0);
    for index in 0..10 {
        let region = one(Seed::default(), 5, 0, &words(&[64, 0, index, 0, 0, 0, 0, 0]));
        let irqs =
            one(one(region, 7, 0, &words(&[16, 0, index, 0])), 8, 0x40, &words(&[20, 0x24, index, 0, 1]));
        seeds.push(one(one(irqs, 9, 0, &words(&[0, 0, index, 64])), 13, 0, &[]).0);
    }
    seeds.push(
        one(Seed::default(), VERSION, 0, b"\0\0\0\0{\"capabilities\":{\"max_data_xfer_size\":65536}}\0").0,
    );
    seeds
}
