// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which path is taken, what the mediated one is like, and memory of this process' own.

use crate::common::{controller, key, numbered, options, pattern, queue, PATIENCE};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use xio::loopback::{self, Config, Surroundings};
use xio::{
    Condition, Controller, Error, Import, Kv, KvOptions, LimitBy, Memory, MemoryKind, Namespace, Operation,
    Path, Result, RetrieveOptions, Status, StoreOptions,
};

fn open(controller: &Controller, path: Path) -> Result<Kv> {
    Kv::with_options(controller, None, KvOptions { path, queue: options(4), ..KvOptions::default() })
}

#[test]
fn auto_takes_what_can_be_had() {
    let cases = [
        (Surroundings::Alone, Some(Path::Direct), Some(Path::Direct)),
        (Surroundings::Unconfined, Some(Path::Mediated), None),
        (Surroundings::OtherHasMemory, Some(Path::Mediated), None),
        (Surroundings::OtherHasQueues, None, None),
    ];
    for (surroundings, auto, direct) in cases {
        let (controller, hooks) = loopback::start(Config::default()).unwrap();
        hooks.set_surroundings(surroundings);
        assert_eq!(open(&controller, Path::Auto).ok().map(|kv| kv.path()), auto, "{surroundings:?}");
        assert_eq!(open(&controller, Path::Direct).ok().map(|kv| kv.path()), direct, "{surroundings:?}");
        let mediated = open(&controller, Path::Mediated);
        match surroundings {
            Surroundings::OtherHasQueues => assert!(matches!(mediated, Err(Error::Busy))),
            _ => assert_eq!(mediated.unwrap().path(), Path::Mediated),
        }
    }
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    hooks.set_surroundings(Surroundings::Unconfined);
    let info = controller.info().unwrap();
    assert!(info.mediated() && !info.direct().allowed() && info.preferred_path() == Path::Mediated);
    let error = open(&controller, Path::Direct).unwrap_err().to_string();
    assert!(error.contains("CAP_SYS_RAWIO") && error.contains("intel_iommu=on"), "{error}");
}

#[test]
fn auto_goes_on_when_the_controller_has_no_queue_left() {
    let controller = Controller::loopback(Config { max_queues: 2, ..Config::default() }).unwrap();
    // The kernel's queue is one of the two from its first command on.
    let mut kernels = open(&controller, Path::Mediated).unwrap();
    assert!(!kernels.exist(&key("k")).unwrap());
    let first = open(&controller, Path::Auto).unwrap();
    let mut second = open(&controller, Path::Auto).unwrap();
    assert_eq!((first.path(), second.path()), (Path::Direct, Path::Mediated));
    second.store(&key("k"), b"v", StoreOptions::default()).unwrap();
    assert!(kernels.exist(&key("k")).unwrap());
    // Without any, the first mediated command says so.
    let controller = Controller::loopback(Config { max_queues: 1, ..Config::default() }).unwrap();
    let _direct = open(&controller, Path::Direct).unwrap();
    let mut mediated = open(&controller, Path::Auto).unwrap();
    assert!(matches!(mediated.exist(&key("k")), Err(Error::NoQueueLeft)));
}

/// Operations whose results are known, none of which changes what another finds.
fn mixed(controller: &Controller, ns: &Namespace) -> (Vec<Operation>, Vec<Status>) {
    let buffer = controller.alloc(64 << 10).unwrap();
    buffer.write(0, &pattern(1, 300)).unwrap();
    let store = |key, options| Operation::Store { key, value: buffer.slice(..300).unwrap(), options };
    let if_absent = StoreOptions { condition: Condition::IfAbsent, ..StoreOptions::default() };
    let mut setup = controller.mediated_queue().unwrap();
    setup.store(ns, &key("there"), &buffer.slice(..300).unwrap(), if_absent).unwrap();
    let mut all = Vec::new();
    for n in 0..150 {
        all.push((store(numbered(n), if_absent), Status::SUCCESS));
        all.push((store(key("there"), if_absent), Status::KEY_EXISTS));
        all.push((Operation::Exist { key: key("missing") }, Status::KEY_NOT_FOUND));
        all.push((Operation::retrieve(key("there"), buffer.slice(4096..4196).unwrap()), Status::SUCCESS));
    }
    all.into_iter().unzip()
}

#[test]
fn batches_of_both_paths_tell_what_became_of_each() {
    let direct = controller();
    let (mut queue, ns) = queue(&direct, 8);
    let (operations, expected) = mixed(&direct, &ns);
    check_batch(&operations, &queue.execute_batch(&ns, &operations), &expected);
    let mediated = controller();
    let ns = mediated.first_namespace().unwrap();
    let (operations, expected) = mixed(&mediated, &ns);
    // More than one call takes.
    assert!(operations.len() > 2 * 256);
    let mut kernels = mediated.mediated_queue().unwrap();
    check_batch(&operations, &kernels.execute_batch(&ns, &operations), &expected);
    assert!(kernels.execute_batch(&ns, &[]).is_empty());
}

fn check_batch(operations: &[Operation], results: &[Result<xio::Completion>], expected: &[Status]) {
    assert_eq!(results.len(), expected.len());
    for ((operation, result), expected) in operations.iter().zip(results).zip(expected) {
        let done = result.as_ref().unwrap();
        assert_eq!(done.status, *expected, "{operation:?}");
        if matches!(operation, Operation::Retrieve { .. }) {
            assert_eq!(done.value_len, 300, "the true length of a value that does not fit");
        }
    }
}

#[test]
fn a_wrong_operation_of_a_batch_does_not_stop_the_others() {
    let (mine, other) = (controller(), controller());
    let ns = mine.first_namespace().unwrap();
    let (buffer, foreign) = (mine.alloc(4096).unwrap(), other.alloc(4096).unwrap());
    let operations = [
        Operation::store(key("a"), buffer.slice(..10).unwrap()),
        Operation::store(key("b"), foreign.slice(..).unwrap()),
        Operation::List { start: None, into: buffer.slice(..8).unwrap() },
        Operation::Flush,
        Operation::Exist { key: key("missing") },
    ];
    let mut queue = mine.mediated_queue().unwrap();
    let results = queue.execute_batch(&ns, &operations);
    assert!(results[0].as_ref().unwrap().status.is_success());
    assert!(matches!(results[1], Err(Error::ForeignBuffer)));
    assert!(matches!(results[2], Err(Error::ListTooSmall { .. })));
    assert!(results[3].as_ref().unwrap().status.is_success());
    assert_eq!(results[4].as_ref().unwrap().status, Status::KEY_NOT_FOUND);
}

#[test]
fn a_mediated_deadline_leaves_commands_under_way_and_says_which() {
    let (controller, hooks) = loopback::start(Config { max_queue_entries: 4, ..Config::default() }).unwrap();
    let ns = controller.first_namespace().unwrap();
    let mut buffer = controller.alloc(4096).unwrap();
    let mut queue = controller.mediated_queue().unwrap();
    assert!(!queue.exist(&ns, &key("k")).unwrap());
    hooks.pause();
    queue.set_timeout(Duration::from_millis(30));
    let store = || Operation::store(key("late"), buffer.slice(..100).unwrap());
    let operations: Vec<Operation> = (0..5).map(|_| store()).collect();
    let start = Instant::now();
    let results = queue.execute_batch(&ns, &operations);
    assert!(start.elapsed() >= Duration::from_millis(30));
    // The queue has room for three.
    assert!(
        results[..3].iter().all(|r| matches!(r, Err(Error::Timeout { what: "Store", .. }))),
        "{results:?}"
    );
    assert!(
        results[3..].iter().all(|r| matches!(r, Err(Error::NotStarted { what: "Store" }))),
        "{results:?}"
    );
    // Further calls are not made.
    let many: Vec<Operation> = (0..600).map(|_| store()).collect();
    let results = queue.execute_batch(&ns, &many);
    assert!(results.len() == 600 && results.iter().all(|r| matches!(r, Err(Error::NotStarted { .. }))));
    drop((operations, many));
    assert!(buffer.get_mut().is_none(), "the controller may still read it");
    // The memory goes, for this process; for the controller it stays until it has answered.
    drop(buffer);
    hooks.resume();
    queue.set_timeout(PATIENCE);
    let until = Instant::now() + PATIENCE;
    while !queue.exist(&ns, &key("late")).unwrap() {
        assert!(Instant::now() < until);
    }
    let mut fresh = controller.alloc(4096).unwrap();
    let len = queue.retrieve(&ns, &key("late"), &fresh.slice(..).unwrap(), RetrieveOptions::default());
    assert_eq!(len.unwrap(), 100);
    assert!(fresh.get_mut().is_some());
}

#[test]
fn threads_share_the_kernels_queue() {
    let controller = Controller::loopback(Config { max_queue_entries: 8, ..Config::default() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let controller = &controller;
            scope.spawn(move || {
                let mut kv = open(controller, Path::Mediated).unwrap();
                for n in 0..100u64 {
                    let (key, value) = (numbered(thread << 32 | n), pattern(thread << 32 | n, 5000));
                    kv.store(&key, &value, StoreOptions::default()).unwrap();
                    assert!(kv.retrieve(&key).unwrap() == value);
                }
            });
        }
    });
}

#[test]
fn without_direct_queues_there_are_no_addresses() {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    hooks.set_surroundings(Surroundings::Unconfined);
    let buffer = controller.alloc(8192).unwrap();
    assert!(buffer.pages().is_empty());
    let slice = buffer.slice(..).unwrap();
    assert!(slice.data_pointer().is_none());
    assert!(matches!(buffer.slice(1..8), Err(Error::Range { .. })));
    // Should direct queues be allowed afterwards, the buffer is not taken for one at address 0.
    hooks.set_surroundings(Surroundings::Alone);
    let (mut queue, ns) = queue(&controller, 4);
    assert!(matches!(queue.submit(&ns, Operation::store(key("k"), slice)), Err(Error::NoAddresses)));
}

#[test]
fn memory_of_this_process_is_stored_from_and_retrieved_into() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let mut memory = Memory::new(3 << 20).unwrap();
    memory.as_mut_slice().unwrap().copy_from_slice(&pattern(5, 3 << 20));
    let mut buffer = controller.register(memory.into_read_only().unwrap()).unwrap();
    let slice = buffer.slice(400..(3 << 20) - 4).unwrap();
    queue.store(&ns, &key("k"), &slice, StoreOptions::default()).unwrap();
    // Nothing goes into it by any path.
    let mut mediated = controller.mediated_queue().unwrap();
    for operation in
        [Operation::retrieve(key("k"), slice.clone()), Operation::List { start: None, into: slice.clone() }]
    {
        assert!(matches!(queue.execute(&ns, operation.clone()), Err(Error::ReadOnly)));
        assert!(matches!(mediated.execute(&ns, operation), Err(Error::ReadOnly)));
    }
    assert!(matches!(buffer.write(0, b"x"), Err(Error::ReadOnly)));
    drop(slice);
    assert!(buffer.is_read_only() && buffer.get_mut().is_none());
    assert!(buffer.get().unwrap() == pattern(5, 3 << 20));
    let mut into = controller.register(Memory::new(3 << 20).unwrap()).unwrap();
    let whole = into.slice(..).unwrap();
    let len = mediated.retrieve(&ns, &key("k"), &whole, RetrieveOptions::default()).unwrap() as usize;
    drop(whole);
    assert!(into.get_mut().unwrap()[..len] == pattern(5, 3 << 20)[400..(3 << 20) - 4]);
}

#[test]
fn registered_memory_has_the_limits_of_buffers() {
    let (controller, hooks) = loopback::start(Config { mdts: 1, ..Config::default() }).unwrap();
    let largest = controller.info().unwrap().max_buffer() as usize;
    let error = controller.register(Memory::new(largest + 1).unwrap()).unwrap_err();
    assert!(matches!(error, Error::BufferSize { .. }));
    hooks.set_surroundings(Surroundings::OtherHasQueues);
    assert!(matches!(controller.register(Memory::new(1).unwrap()), Err(Error::Busy)));
    hooks.set_surroundings(Surroundings::Alone);
    let pinned = KvOptions { path: Path::Mediated, memory: MemoryKind::Pinned, ..KvOptions::default() };
    let mut kv = Kv::with_options(&controller, None, pinned).unwrap();
    let error = kv.store(&key("k"), &[0; 8193], StoreOptions::default()).unwrap_err();
    assert!(matches!(error, Error::ValueTooLarge { by: LimitBy::Controller, .. }));
}

/// A file in memory stands for the dma-buf here: what matters is what the buffer is like.
#[test]
fn imported_memory_is_a_buffer_that_the_file_shows() {
    let (controller, _) = loopback::start(Config::default()).unwrap();
    let file = nix::sys::memfd::memfd_create(c"shared", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let mut file = std::fs::File::from(file);
    file.write_all(&pattern(3, 16 << 10)).unwrap();
    let import = Import { offset: 4096, len: 8192, ..Import::default() };
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.import(file.as_fd(), &import).unwrap();
    assert!(buffer.is_mapped() && !buffer.is_read_only() && buffer.len() == 8192);
    queue.store(&ns, &key("k"), &buffer.slice(4..5000).unwrap(), StoreOptions::default()).unwrap();
    let back = queue.retrieve(&ns, &key("k"), &buffer.slice(0..).unwrap(), RetrieveOptions::default());
    assert_eq!(back.unwrap(), 4996);
    let mut seen = vec![0; 16 << 10];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen[4096..4096 + 4996], pattern(3, 16 << 10)[4100..4100 + 4996]);
    assert_eq!(seen[..4096], pattern(3, 16 << 10)[..4096]);
    let fixed = controller.import(file.as_fd(), &Import { read_only: true, ..import }).unwrap();
    assert!(matches!(fixed.write(0, &[1]), Err(Error::ReadOnly)));
    let none = controller.import(file.as_fd(), &Import { len: 0, ..import });
    assert!(matches!(none, Err(Error::BufferSize { .. })));
}

#[test]
fn no_controller_memory_buffer_says_so() {
    let (controller, _) = loopback::start(Config::default()).unwrap();
    assert_eq!(controller.info().unwrap().cmb(), None);
    let error = controller.alloc_cmb(4096).unwrap_err();
    assert!(matches!(error, Error::NoCmb { .. }) && error.to_string().contains("values"), "{error}");
    let error = controller.queue(xio::QueueOptions { cmb: true, ..options(4) }).unwrap_err();
    assert!(error.to_string().contains("submission queues"), "{error}");
}
