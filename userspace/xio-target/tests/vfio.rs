// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server, spoken to as QEMU does, over a socket pair.

mod common;

use common::client::*;
use common::{key, pattern, Bus};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nvme_kv::kv::Condition;
use nvme_kv::regs::{offset, Cmbloc, Cmbsz, Csts};
use nvme_kv::{DataPointer, Status};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use xio_target::store::{Answer, Later, MemStore, Promise, Request, Store};
use xio_target::vfio::{Listener, Server};
use xio_target::{Config, NamespaceConfig};

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
fn spec_base_8_2_1_everything_in_the_controller_memory_buffer() {
    const SIZE: u64 = 4 << 20;
    const AT: u64 = 0x12_3460_0000;
    let (serving, stream) = Serving::start(Server::new(Config { cmb: SIZE, ..Config::default() }).unwrap());
    let mut d = plug(stream);
    assert_eq!((d.cap().cmbs(), d.register(offset::CMBSZ), d.register(offset::CMBLOC)), (1, 0, 0));
    let (size, file) = d.bus.map_region(2);
    assert_eq!(size, SIZE);
    d.bus.cmb = Some((AT, file));
    d.bus.write_register(offset::CMBMSC, &(AT | 3).to_le_bytes());
    let cmbsz = Cmbsz(d.register(offset::CMBSZ));
    let cmbloc = Cmbloc(d.register(offset::CMBLOC));
    assert_eq!((cmbsz.bytes(), cmbloc.bir(), cmbloc.ofst()), (Some(SIZE), 2, 0));
    assert_eq!((cmbsz.sqs(), cmbsz.cqs(), cmbsz.lists(), cmbsz.rds(), cmbsz.wds()), (1, 1, 1, 1, 1));
    assert_eq!(d.register(offset::CMBSTS), 0);
    // Admin queues in memory of the machine, then all else in the buffer: queues, lists and values.
    d.enable(16);
    d.create(1, 16);
    d.allocate_from(AT);
    d.create(2, 16);
    let value = pattern(1 << 20, 5);
    assert_eq!(d.store(2, &key("a"), &value, Condition::Always), Ok(0));
    assert_eq!(d.retrieve(2, &key("a"), 1 << 20), Ok((value.clone(), 1 << 20)));
    // From one to the other.
    assert_eq!(d.retrieve(1, &key("a"), 1 << 20), Ok((value, 1 << 20)));
    // Controller resets leave it as it is.
    d.disable();
    d.enable(16);
    assert_eq!(d.csts(), Csts(1));
    // Behind its end, and when it is closed, there is nothing.
    let at = |prp1| nvme_kv::kv::Command::Retrieve {
        key: key("a"),
        len: 4096,
        options: Default::default(),
        data: DataPointer { prp1, prp2: 0 },
    };
    d.allocate_from(BASE + (4 << 20));
    d.create(1, 16);
    assert_eq!(d.kv(1, at(AT + SIZE - 4096)), Ok(1 << 20));
    assert_eq!(d.kv(1, at(AT + SIZE)), Err(Status::DATA_TRANSFER_ERROR));
    d.bus.write_register(offset::CMBMSC, &1u64.to_le_bytes());
    assert_eq!(d.register(offset::CMBMSC), 1);
    assert_eq!(d.kv(1, at(AT)), Err(Status::DATA_TRANSFER_ERROR));
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

/// A medium that never answers.
#[derive(Default)]
struct Stuck(Mutex<Vec<Promise>>);

impl Store for Stuck {
    fn start(&self, _: Request, later: &Later<'_>) -> Option<Answer> {
        self.0.lock().unwrap().push(later.promise());
        None
    }
    fn usage(&self) -> u64 {
        0
    }
    fn pairs(&self) -> u64 {
        0
    }
}

#[test]
fn a_store_that_never_answers_holds_up_no_message() {
    let config = Config { namespaces: vec![NamespaceConfig::default(); 2], ..Config::default() };
    let stores: Vec<Arc<dyn Store>> =
        vec![Arc::new(Stuck::default()), Arc::new(MemStore::new(&config.namespaces[1]))];
    let (serving, stream) = Serving::start(Server::with_stores(config, stores).unwrap());
    let mut d = plug(stream);
    d.enable(16);
    d.create(1, 16);
    d.create(2, 16);
    let exist = |nsid| nvme_kv::kv::Command::Exist { key: key("a") }.encode(0, nsid);
    for _ in 0..10 {
        d.push(1, exist(1)).unwrap();
    }
    d.ring(1);
    // Another queue, the admin queue, registers, and at last a reset.
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(d.execute(2, exist(2)), Err(Status::KEY_NOT_FOUND));
        assert!(d.identify(1, 0, 0).is_ok());
        assert_eq!((d.csts(), d.pop(1)), (Csts(1), None));
    }
    d.disable();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
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

fn folder(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("xio-target-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn who_comes_while_a_client_is_connected_is_turned_away() {
    let dir = folder("second");
    let path = dir.join("socket");
    let mut listener = Listener::bind(&path).unwrap();
    let (mut stop, stopped) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || server().run(&mut listener, stopped.as_fd()).unwrap());
    for _ in 0..20 {
        let mut first = Client::new(UnixStream::connect(&path).unwrap());
        first.negotiate();
        let mut second = Client::new(UnixStream::connect(&path).unwrap());
        // VERSION
        assert_eq!(second.call(1, &words(&[0])), Err(Errno::EBUSY));
        // DEVICE_GET_INFO
        assert!(first.call(4, &words(&[16, 0, 0, 0])).is_ok());
    }
    stop.write_all(&[1]).unwrap();
    server.join().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = folder("stale");
    let path = dir.join("socket");
    // Dropped without being removed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut listener = Listener::bind(&path).unwrap();
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
    server().run(&mut listener, fd).unwrap();
    client.join().unwrap();
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(Listener::bind(&path).is_err());
    std::fs::remove_dir_all(&dir).unwrap();
}
