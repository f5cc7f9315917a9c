// SPDX-License-Identifier: MIT OR Apache-2.0
//! No command but Store takes memory from the heap, and Store takes the memory that the value is kept in. One test in this
//! program, since it counts for all threads.
#![allow(unsafe_code)] // An allocator that counts.

mod common;

use common::client::plug;
use common::{key, pattern};
use nvme_kv::kv::{Command, StoreOptions};
use nvme_kv::{Key, Sqe, Status};
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use xio_target::vfio::Server;
use xio_target::Config;

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_allocation_for_a_command_but_for_what_a_store_keeps() {
    const ROUNDS: u64 = 500;
    let (client, stream) = UnixStream::pair().unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        Server::new(Config::default()).unwrap().serve(stream, stopped.as_fd()).unwrap();
    });
    let mut d = plug(client);
    d.enable(16);
    d.create(1, 16);
    let buffer = d.buffer(1 << 20);
    d.fill(&buffer, &pattern(1 << 20, 1));
    let store =
        |key: Key, len: u32, data| Command::Store { key, len, options: StoreOptions::default(), data };
    let retrieve =
        |key: Key, len: u32, data| Command::Retrieve { key, len, options: Default::default(), data };
    let data = |len: usize| d.buffer_part(&buffer, len);
    let large = store(key("large"), 1 << 20, data(1 << 20));
    let small = store(key("small"), 64, data(64));
    // Each with what it allocates: the value, and the count of who uses it.
    let commands = [
        (small, 2, Status::SUCCESS),
        // Its memory is used again.
        (large, 1, Status::SUCCESS),
        (retrieve(key("small"), 64, data(64)), 0, Status::SUCCESS),
        (retrieve(key("small"), 4096, data(4096)), 0, Status::SUCCESS),
        (retrieve(key("large"), 1 << 20, data(1 << 20)), 0, Status::SUCCESS),
        (retrieve(key("none"), 64, data(64)), 0, Status::KEY_NOT_FOUND),
        (Command::Exist { key: key("small") }, 0, Status::SUCCESS),
        (Command::Delete { key: key("none") }, 0, Status::KEY_NOT_FOUND),
        (store(key("small"), u32::MAX, data(64)), 0, Status::INVALID_VALUE_SIZE),
    ];
    for (command, allocations, expected) in commands {
        let sqe: Sqe = command.encode(0, 1);
        let mut rounds = |count| {
            for _ in 0..count {
                assert_eq!(d.execute(1, sqe).err().unwrap_or(Status::SUCCESS), expected);
            }
        };
        rounds(10);
        let before = COUNT.load(Ordering::SeqCst);
        rounds(ROUNDS);
        let counted = COUNT.load(Ordering::SeqCst) - before;
        assert_eq!(counted, allocations * ROUNDS, "{command:?}");
    }
}
