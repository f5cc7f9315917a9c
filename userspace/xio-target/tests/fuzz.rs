// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that send nonsense: never a panic, never a lost message boundary, and the next client is served.

mod common;

use common::client::*;
use common::key;
use common::remote::Manner;
use nvme_kv::kv::Condition;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use xio_target::vfio::Server;
use xio_target::Config;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number as hostile clients like them.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(16),
            1 => u64::MAX - self.below(16),
            2 => 1 << self.below(64),
            3 => (1 << self.below(64)) - 1,
            4 => self.below(0x5000),
            _ => self.next(),
        }
    }
}

/// A message with a good head and a payload that is nearly right.
fn message(random: &mut Random, id: u16) -> (u16, u32, Vec<u8>) {
    let command = match random.below(12) {
        0 => random.next() as u16,
        n => n as u16 + u16::from(n > 5),
    };
    let mut payload: Vec<u8> = Vec::new();
    for _ in 0..random.below(12) {
        let number = random.number();
        match random.below(3) {
            0 => payload.extend((number as u32).to_ne_bytes()),
            1 => payload.extend(number.to_ne_bytes()),
            _ => payload.extend((random.below(10) as u32).to_ne_bytes()),
        }
    }
    // Sometimes an access to registers, which does something.
    if random.below(3) == 0 {
        let offset = if random.below(2) == 0 { random.below(0x80) & !3 } else { random.number() };
        payload = [longs(&[offset]), words(&[[0, 2, 7][random.below(3) as usize], 4])].concat();
        payload.extend((random.number() as u32).to_ne_bytes());
    }
    payload.truncate(random.below(payload.len() as u64 + 1) as usize + payload.len() / 2);
    let flags = if random.below(4) == 0 { random.next() as u32 & 0x3f } else { 0 };
    let _ = id;
    (command, flags, payload)
}

fn serve(mut server: Server) -> (UnixStream, UnixStream, thread::JoinHandle<Server>) {
    let (client, stream) = UnixStream::pair().unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || {
        server.serve(stream, stopped.as_fd()).unwrap();
        server
    });
    (client, stop, thread)
}

#[test]
fn messages_that_are_nearly_right_leave_the_connection_in_step() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut server = Server::new(Config { cmb: 2 << 20, ..Config::default() }).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let mut sent = 0;
    while Instant::now() < end {
        let (stream, stop, thread) = serve(server);
        let mut client = Client::new(stream);
        client.negotiate();
        client.remote.manner =
            [Manner::Good, Manner::Refuse, Manner::Short, Manner::WrongId][random.below(4) as usize];
        for id in 0..400 {
            let (command, flags, payload) = message(&mut random, id);
            client.send(command, flags, &payload, &[]);
            let is_command = flags & 0xf == 0;
            if is_command && flags & NO_REPLY == 0 {
                // An answer or an error, but one that belongs to it.
                let _answer = client.reply();
            }
            sent += 1;
        }
        assert!(client.call(GET_INFO, &words(&[16, 0, 0, 0])).is_ok());
        drop(client);
        server = thread.join().unwrap();
        drop(stop);
    }
    println!("{sent} messages");
    // And then somebody serious.
    let (stream, _stop, _thread) = serve(server);
    let mut client = Client::new(stream);
    client.negotiate();
    assert!(client.call(DEVICE_RESET, &[]).is_ok());
}

#[test]
fn bytes_at_random_end_the_connection_at_worst() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut server = Server::new(Config::default()).unwrap();
    for _ in 0..200 {
        let (mut stream, stop, thread) = serve(server);
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        // It may be closed already.
        let _sent = stream.write_all(&bytes);
        let _answer = stream.read(&mut [0; 100]);
        drop(stream);
        server = thread.join().unwrap();
        drop(stop);
    }
    let (stream, _stop, _thread) = serve(server);
    let mut d = plug(stream);
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.store(1, &key("fine"), b"value", Condition::Always), Ok(0));
}

#[test]
fn a_client_that_reads_no_replies_does_not_stay_for_ever() {
    let (stream, stop, thread) = serve(Server::new(Config::default()).unwrap());
    let mut client = Client::new(stream);
    client.negotiate();
    client.stream.set_nonblocking(true).unwrap();
    // More answers than the socket holds.
    let ask = [words(&[16 | 4 << 16, 32, 0, 0]), words(&[16, 0, 0, 0])].concat();
    let mut full = false;
    for _ in 0..1_000_000 {
        if client.stream.write_all(&ask).is_err() {
            full = true;
            break;
        }
    }
    assert!(full);
    let start = Instant::now();
    drop(stop);
    drop(client);
    thread.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(15));
}
