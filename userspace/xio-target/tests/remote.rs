// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the client maps without sharing it: reached by messages, whatever the client makes of them.

mod common;

use common::client::*;
use common::remote::Manner;
use common::{key, pattern, Bus, Driver};
use nix::errno::Errno;
use nvme_kv::admin;
use nvme_kv::kv::{Command, Condition};
use nvme_kv::regs::{offset, Cc, Csts};
use nvme_kv::{DataPointer, Status};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use xio_target::vfio::Server;
use xio_target::Config;

/// Where the memory is that is not shared.
const FAR: u64 = 0x40_0000_0000;
const LEN: usize = 8 << 20;

/// A client with such memory; the server stops when the second is closed or written to.
fn plugged(capabilities: &str) -> (Driver<Machine>, UnixStream) {
    let (client, stream) = UnixStream::pair().unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut server = Server::new(Config { cmb: 2 << 20, ..Config::default() }).unwrap();
        server.serve(stream, stopped.as_fd()).unwrap();
    });
    let mut d = plug_with(client, capabilities);
    d.bus.client.map_remote(FAR, LEN, 3);
    (d, stop)
}

/// Enabled, with queue 1 in shared memory; what is allocated afterwards is not.
fn ready(capabilities: &str) -> (Driver<Machine>, UnixStream) {
    let (mut d, stop) = plugged(capabilities);
    d.enable(16);
    d.create(1, 16);
    d.allocate_from(FAR);
    (d, stop)
}

fn retrieve(prp1: u64) -> Command {
    let data = DataPointer { prp1, prp2: 0 };
    Command::Retrieve { key: key("a"), len: 4096, options: Default::default(), data }
}

fn store(prp1: u64) -> Command {
    let data = DataPointer { prp1, prp2: 0 };
    Command::Store { key: key("b"), len: 4096, options: Default::default(), data }
}

#[test]
fn values_and_lists_go_by_message_in_parts_that_the_client_takes() {
    for (manner, capabilities, max) in [
        (Manner::Good, "\"max_msg_fds\":16", 65536),
        (Manner::Good, "\"max_data_xfer_size\":10000", 10000),
        (Manner::Terse, "\"max_data_xfer_size\":4294967296", 65536),
    ] {
        let (mut d, _stop) = ready(capabilities);
        d.bus.client.remote.manner = manner;
        let value = pattern(1_300_000, 7);
        // In the worst order, with chained lists, and then all of it in one run.
        assert_eq!(d.store(1, &key("a"), &value, Condition::Always), Ok(0));
        assert_eq!(d.retrieve(1, &key("a"), 1_300_000), Ok((value.clone(), 1_300_000)));
        let pages: Vec<u64> = (0..318).map(|n| FAR + (4 << 20) + n * 4096).collect();
        let list = d.alloc(1);
        let bus = &mut d.bus;
        let write = |_, slot: usize, entry: u64| bus.poke(list + slot as u64 * 8, &entry.to_le_bytes());
        let data = nvme_kv::prp::build(&pages, 0, 1_300_000, &[list], write).unwrap();
        d.bus.client.remote.asked.clear();
        let all = Command::Retrieve { key: key("a"), len: 1_300_000, options: Default::default(), data };
        assert_eq!(d.kv(1, all), Ok(1_300_000));
        let mut got = vec![0; 1_300_000];
        d.bus.peek(pages[0], &mut got);
        assert!(got == value);
        let asked = &d.bus.client.remote.asked;
        let largest = asked.iter().map(|(_, _, count)| *count).max();
        assert_eq!((largest, asked[0]), (Some(max), (DMA_READ, list, 317 * 8)));
        assert_eq!(asked.iter().filter(|a| a.0 == DMA_WRITE).map(|a| a.2).sum::<usize>(), 1_300_000);
    }
}

#[test]
fn queues_work_by_message_and_doorbells_stay_registers() {
    let (mut d, _stop) = plugged("\"max_msg_fds\":16");
    d.allocate_from(FAR);
    d.enable(16);
    d.create(1, 16);
    assert_eq!(d.csts(), Csts(1));
    let value = pattern(5000, 3);
    assert_eq!(d.store(1, &key("a"), &value, Condition::Always), Ok(0));
    assert_eq!(d.retrieve(1, &key("a"), 8192), Ok((value, 5000)));
    // The dword with the phase tag comes in a message of its own, after the others.
    let asked = &d.bus.client.remote.asked;
    let posts = asked.windows(2).filter(|w| (w[0].2, w[1].2) == (12, 4) && w[1].1 == w[0].1 + 12).count();
    assert_eq!(posts, asked.iter().filter(|a| a.2 == 4).count());
    assert!(posts >= 4);
    // Looking at doorbells by message all the time is not for anybody.
    let (values, events) = (d.alloc(1), d.alloc(1));
    let config = admin::Command::DoorbellBuffers(DataPointer { prp1: values, prp2: events });
    assert_eq!(d.admin(config), Err(Status::INVALID_FIELD));
    // Idle, nothing is asked.
    let before = d.bus.client.remote.asked.len();
    thread::sleep(Duration::from_millis(20));
    d.bus.client.serve_requests();
    assert_eq!(d.bus.client.remote.asked.len(), before);
}

#[test]
fn accesses_cross_from_shared_memory_and_respect_rights() {
    let (mut d, _stop) = ready("\"max_msg_fds\":16");
    assert_eq!(d.store(1, &key("a"), &pattern(4096, 1), Condition::Always), Ok(0));
    let unmap = |base: u64, len: usize| [words(&[24, 0]), longs(&[base, len as u64])].concat();
    let gone = unmap(FAR, LEN);
    assert_eq!(d.bus.client.call(DMA_UNMAP, &gone), Ok(gone.clone()));
    assert_eq!(d.kv(1, retrieve(FAR)), Err(Status::DATA_TRANSFER_ERROR));
    // Right behind the shared memory: one page of either in one run.
    let end = BASE + MEMORY;
    d.bus.client.map_remote(end, 8192, 3);
    let data = DataPointer { prp1: end - 2048, prp2: end };
    let across = Command::Retrieve { key: key("a"), len: 4096, options: Default::default(), data };
    assert_eq!(d.kv(1, across), Ok(4096));
    let mut got = [0; 2048];
    d.bus.peek(end, &mut got);
    assert_eq!(got, pattern(4096, 1)[2048..]);
    d.bus.peek(end - 2048, &mut got);
    assert_eq!(got, pattern(4096, 1)[..2048]);
    for (flags, read, write) in [(1, false, true), (2, true, false)] {
        let gone = unmap(end, 8192);
        assert_eq!(d.bus.client.call(DMA_UNMAP, &gone), Ok(gone.clone()));
        d.bus.client.map_remote(end, 8192, flags);
        assert_eq!(d.kv(1, retrieve(end)).is_ok(), read);
        assert_eq!(d.kv(1, store(end)).is_ok(), write);
        assert!(!d.bus.client.remote.asked.is_empty());
    }
    // At the end of all addresses.
    let last = u64::MAX - 8191;
    d.bus.client.map_remote(last, 8192, 3);
    assert_eq!(d.kv(1, retrieve(last + 4096)), Ok(4096));
}

#[test]
fn bad_answers_are_data_transfer_errors_and_the_next_good_one_counts() {
    let (mut d, _stop) = ready("\"max_msg_fds\":16");
    let near = BASE + (4 << 20);
    assert_eq!(d.store(1, &key("a"), &[1; 4096], Condition::Always), Ok(0));
    for manner in
        [Manner::Refuse, Manner::WrongAddress, Manner::WrongCount, Manner::Short, Manner::Long, Manner::Empty]
    {
        d.bus.client.remote.manner = manner;
        assert_eq!(d.kv(1, retrieve(FAR)), Err(Status::DATA_TRANSFER_ERROR), "{manner:?}");
        assert_eq!(d.kv(1, store(FAR)), Err(Status::DATA_TRANSFER_ERROR), "{manner:?}");
        // A list of entries likewise.
        let data = DataPointer { prp1: near, prp2: FAR };
        let long = Command::Store { key: key("b"), len: 12288, options: Default::default(), data };
        assert_eq!(d.kv(1, long), Err(Status::DATA_TRANSFER_ERROR), "{manner:?}");
        d.bus.client.remote.manner = Manner::Good;
        assert_eq!(d.kv(1, retrieve(FAR)), Ok(4096), "{manner:?}");
        // Nothing was stored.
        assert_eq!(d.kv(1, Command::Exist { key: key("b") }), Err(Status::KEY_NOT_FOUND));
    }
    // Behind what the client really has.
    d.bus.client.remote.bytes.truncate(4096);
    assert_eq!(d.kv(1, retrieve(FAR + 4096)), Err(Status::DATA_TRANSFER_ERROR));
}

#[test]
fn no_answer_ends_commands_but_never_holds_up_messages() {
    let (mut d, mut stop) = ready("\"max_msg_fds\":16");
    assert_eq!(d.store(1, &key("a"), &[1; 4096], Condition::Always), Ok(0));
    for manner in [Manner::Silent, Manner::WrongId, Manner::WrongCommand] {
        d.bus.client.remote.manner = manner;
        let start = Instant::now();
        d.push(1, retrieve(FAR).encode(0, 1)).unwrap();
        d.ring(1);
        // Registers, configuration space, memory: all as ever while the controller waits.
        while d.bus.client.remote.asked.last() != Some(&(DMA_WRITE, FAR, 4096)) {
            d.bus.client.serve_requests();
        }
        let asked = Instant::now();
        for _ in 0..20 {
            assert_eq!(d.csts(), Csts(1));
            assert_eq!(d.register(offset::CC), Cc::KV_ENABLE.0);
            d.set_register(offset::INTMS, 1);
            d.bus.client.write_config(4, 6);
        }
        assert!(d.bus.client.call(DMA_MAP, &[words(&[32, 3]), longs(&[0, 1 << 50, 4096])].concat()).is_ok());
        let unmap = [words(&[24, 0]), longs(&[1 << 50, 4096])].concat();
        assert!(d.bus.client.call(DMA_UNMAP, &unmap).is_ok());
        // Each of them would wait for two seconds.
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        assert_eq!(d.wait(1).status(), Status::DATA_TRANSFER_ERROR);
        assert!(start.elapsed() > Duration::from_secs(1));
        // Now it is known to be silent: others fail at once, and in shared memory all is well.
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(d.kv(1, retrieve(FAR)), Err(Status::DATA_TRANSFER_ERROR));
        }
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(d.kv(1, retrieve(BASE + (4 << 20))), Ok(4096));
        // And after a while it gets another chance.
        d.bus.client.remote.manner = Manner::Good;
        d.bus.client.remote.asked.clear();
        let end = Instant::now() + Duration::from_secs(20);
        while d.kv(1, retrieve(FAR)) != Ok(4096) {
            assert!(Instant::now() < end);
        }
    }
    // A stop does not wait for the answer either.
    d.bus.client.remote.manner = Manner::Silent;
    d.push(1, retrieve(FAR).encode(0, 1)).unwrap();
    d.ring(1);
    let start = Instant::now();
    stop.write_all(&[1]).unwrap();
    d.bus.client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    let _ended = std::io::Read::read_to_end(&mut d.bus.client.stream, &mut rest);
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

#[test]
fn resets_do_not_wait_for_the_client() {
    let (mut d, _stop) = ready("\"max_msg_fds\":16");
    for how in 0..4 {
        d.disable();
        d.allocate_from(BASE + (4 << 20));
        d.enable(16);
        d.create(1, 16);
        assert_eq!(d.store(1, &key("a"), &[1; 4096], Condition::Always), Ok(0));
        d.bus.client.remote.manner = Manner::Late;
        d.bus.client.remote.asked.clear();
        d.push(1, retrieve(FAR).encode(0, 1)).unwrap();
        d.ring(1);
        while d.bus.client.remote.asked.is_empty() {
            d.bus.client.serve_requests();
        }
        let start = Instant::now();
        match how {
            0 => d.disable(),
            1 => d.set_register(offset::CC, Cc::KV_ENABLE.with_shn(Cc::SHN_NORMAL).0),
            2 => assert_eq!(d.bus.client.call(DEVICE_RESET, &[]), Ok(vec![])),
            _ => d.bus.client.write_config(0x48, 0x8000),
        }
        let expected = if how == 1 { Csts::SHST_COMPLETE } else { Csts::SHST_NORMAL };
        assert_eq!((d.csts().shst(), d.csts().cfs()), (expected, 0));
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
        // Nothing else is asked before what was asked then is answered.
        d.disable();
        d.bus.client.write_config(4, 6);
        d.allocate_from(FAR + (1 << 20));
        d.enable(16);
        d.push(0, admin::Command::KeepAlive.encode(0)).unwrap();
        d.ring(0);
        thread::sleep(Duration::from_millis(5));
        d.bus.client.serve_requests();
        assert_eq!(d.bus.client.remote.asked.len(), 1);
        d.bus.client.answer_late();
        assert_eq!(d.wait(0).status(), Status::INVALID_OPCODE);
        d.create(1, 16);
        assert_eq!(d.kv(1, retrieve(FAR)), Ok(4096));
    }
}

#[test]
fn a_client_that_takes_next_to_nothing_is_refused() {
    let (client, stream) = UnixStream::pair().unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        Server::new(Config::default()).unwrap().serve(stream, stopped.as_fd()).unwrap();
    });
    let mut client = Client::new(client);
    for max in ["0", "4095"] {
        let text = format!("\0\0\0\0{{\"capabilities\":{{\"max_data_xfer_size\":{max}}}}}\0");
        assert_eq!(client.call(VERSION, text.as_bytes()), Err(Errno::EINVAL));
    }
    client.negotiate_with("\"max_data_xfer_size\":4096,\"max_msg_fds\":16");
}
