// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller that is reset, stopped and taken away while it is in use.

use crate::common::{key, options, pattern, Way, PATIENCE, WAYS};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use xio::loopback::{self, Config, Hooks};
use xio::{
    Controller, Error, Kv, KvOptions, Liveness, Memory, Namespace, Operation, Queue, QueueOptions,
    ResetCause, RetrieveOptions, StoreOptions,
};

fn start() -> (Controller, Hooks, Namespace) {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    let namespace = controller.first_namespace().unwrap();
    (controller, hooks, namespace)
}

/// After how many resets the error says that it was lost.
fn resets<T: std::fmt::Debug>(result: Result<T, Error>) -> u32 {
    match result {
        Err(Error::Revoked { state: Some(state), .. }) => {
            assert!(state.is_live() && state.last_reset == Some(ResetCause::System));
            state.resets
        }
        other => panic!("{other:?}"),
    }
}

fn exchange(controller: &Controller, queue: &mut Queue, ns: &Namespace) {
    let buffer = controller.alloc(4096).unwrap();
    let slice = buffer.slice(..3000).unwrap();
    buffer.write(0, &pattern(3, 3000)).unwrap();
    queue.store(ns, &key("exchange"), &slice, StoreOptions::default()).unwrap();
    buffer.write(0, &[0; 3000]).unwrap();
    queue.retrieve(ns, &key("exchange"), &slice, RetrieveOptions::default()).unwrap();
    assert_eq!(slice.to_vec().unwrap(), pattern(3, 3000));
    buffer.intact().unwrap();
}

#[test]
fn after_a_reset_the_same_controller_goes_on() {
    let (controller, hooks, ns) = start();
    let (mut old, mut buffer) = (controller.queue(options(8)).unwrap(), controller.alloc(8192).unwrap());
    exchange(&controller, &mut old, &ns);
    let token = old.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    assert_eq!(controller.state().unwrap().resets, 0);
    for n in 1..4 {
        hooks.reset().unwrap();
        assert_eq!(controller.state().unwrap().resets, n);
        assert_eq!(resets(old.poll()), n);
        assert_eq!(resets(old.wait(token, Instant::now() + PATIENCE)), n);
        assert_eq!(resets(old.submit(&ns, Operation::Flush)), n);
        assert_eq!(resets(old.raw().intact()), n);
        // Nothing passes for data.
        assert!(buffer.get_mut().is_none() && buffer.get().is_none());
        assert_eq!(resets(buffer.read(0, &mut [0; 4])), n);
        assert_eq!(resets(buffer.write(0, &[0; 4])), n);
        assert_eq!(resets(buffer.slice(..).unwrap().to_vec()), n);
        assert_eq!(resets(buffer.intact()), n);
        let mut queue = controller.queue(options(8)).unwrap();
        assert!(queue.exist(&ns, &key("exchange")).unwrap(), "what was stored stays");
        exchange(&controller, &mut queue, &ns);
        let stale = queue.submit(&ns, Operation::store(key("b"), buffer.slice(..100).unwrap()));
        assert!(matches!(stale, Err(Error::BufferGone)), "{stale:?}");
    }
    old.close().unwrap();
}

#[test]
fn zeros_of_a_revoked_queue_are_no_completions() {
    let (controller, hooks, ns) = start();
    // After so many commands, a phase tag of 0 is awaited.
    for commands in [4, 5, 6, 7] {
        let mut queue = controller.queue(options(4)).unwrap();
        for _ in 0..commands {
            queue.exist(&ns, &key("a")).unwrap();
        }
        let token = queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
        hooks.reset().unwrap();
        let revoked = queue.wait(token, Instant::now() + PATIENCE);
        assert!(matches!(revoked, Err(Error::Revoked { .. })), "{revoked:?}");
    }
}

#[test]
fn completions_from_before_a_reset_are_given_out() {
    let (controller, hooks, ns) = start();
    let mut queue = controller.queue(options(8)).unwrap();
    let first = queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    let second = queue.submit(&ns, Operation::Exist { key: key("b") }).unwrap();
    queue.wait(second, Instant::now() + PATIENCE).unwrap();
    hooks.reset().unwrap();
    queue.wait(first, Instant::now()).unwrap();
    assert_eq!(resets(queue.poll()), 1);
}

#[test]
fn registered_memory_stays_and_is_refused_until_it_is_registered_anew() {
    let (controller, hooks, ns) = start();
    let mut old = controller.queue(options(8)).unwrap();
    let buffer = controller.register(Memory::new(4096).unwrap()).unwrap();
    buffer.write(0, b"mine").unwrap();
    hooks.reset().unwrap();
    buffer.intact().unwrap();
    assert_eq!(buffer.slice(..4).unwrap().to_vec().unwrap(), b"mine");
    let store = || Operation::store(key("a"), buffer.slice(..4).unwrap());
    let mut queue = controller.queue(options(8)).unwrap();
    assert!(matches!(queue.execute(&ns, store()), Err(Error::BufferGone)));
    let mut mediated = controller.mediated_queue().unwrap();
    assert!(matches!(mediated.execute(&ns, store()), Err(Error::BufferGone)));
    // A new buffer in an old queue is the queue's matter.
    let fresh = controller.alloc(4096).unwrap();
    assert_eq!(resets(old.execute(&ns, Operation::store(key("a"), fresh.slice(..4).unwrap()))), 1);
}

#[test]
fn a_reset_that_making_something_brings_is_none_to_its_maker() {
    for queue_first in [false, true] {
        let (controller, hooks, ns) = start();
        hooks.had_other_user().unwrap();
        let make_queue = || controller.queue(options(8)).unwrap();
        let first = queue_first.then(make_queue);
        let buffer = controller.alloc(4096).unwrap();
        let own = controller.register(Memory::new(4096).unwrap()).unwrap();
        let mut queue = first.unwrap_or_else(make_queue);
        let state = controller.state().unwrap();
        assert_eq!((state.resets, state.last_reset), (1, Some(ResetCause::User)));
        for buffer in [&buffer, &own] {
            buffer.write(0, b"here").unwrap();
            let slice = buffer.slice(..4).unwrap();
            queue.store(&ns, &key("a"), &slice, StoreOptions::default()).unwrap();
            queue.retrieve(&ns, &key("a"), &slice, RetrieveOptions::default()).unwrap();
        }
    }
}

/// Calls while the controller is held, and does something to it meanwhile.
fn meanwhile<T>(hooks: &Hooks, call: impl FnOnce() -> T, then: impl FnOnce(&Hooks) + Send) -> T {
    hooks.pause();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            then(hooks);
            hooks.resume();
        });
        call()
    })
}

#[test]
fn whoever_waits_is_told() {
    let (controller, hooks, ns) = start();
    let patient = QueueOptions { timeout: Duration::MAX, event: true, ..options(4) };
    let stop = |hooks: &Hooks| hooks.stop().unwrap();
    let exist = || Operation::Exist { key: key("a") };
    let stopped = |error: Option<Error>| match error {
        Some(Error::Revoked { state: Some(state), .. }) => assert_eq!(state.liveness, Liveness::Stopped),
        other => panic!("{other:?}"),
    };
    let mut queue = controller.queue(patient.clone()).unwrap();
    stopped(meanwhile(&hooks, || queue.exist(&ns, &key("a")).err(), stop));
    hooks.reset().unwrap();
    let mut queue = controller.queue(patient.clone()).unwrap();
    queue.submit(&ns, exist()).unwrap();
    stopped(meanwhile(&hooks, || queue.wait_event(Duration::MAX).err(), stop));
    hooks.reset().unwrap();
    let mut mediated = controller.mediated_queue().unwrap();
    mediated.set_timeout(Duration::MAX);
    // So that it has its queue before the controller is held.
    assert!(!mediated.exist(&ns, &key("a")).unwrap());
    stopped(meanwhile(&hooks, || mediated.exist(&ns, &key("a")).err(), stop));
    hooks.reset().unwrap();
    assert!(!mediated.exist(&ns, &key("a")).unwrap(), "the mediated path goes on");
    let mut ring = controller.mediated_ring(4).unwrap();
    let token = ring.submit(&ns, exist()).unwrap();
    stopped(meanwhile(&hooks, || ring.wait(token, Instant::now() + PATIENCE).err(), stop));
    hooks.reset().unwrap();
    let mut queue = controller.queue(patient).unwrap();
    let gone = meanwhile(&hooks, || queue.exist(&ns, &key("a")), Hooks::unplug);
    assert!(matches!(gone, Err(Error::Gone)), "{gone:?}");
}

#[test]
fn a_stopped_controller_says_so() {
    let (controller, hooks, ns) = start();
    let mut mediated = controller.mediated_queue().unwrap();
    hooks.stop().unwrap();
    let not_live = |error: Error| match error {
        Error::NotLive { state, .. } => assert_eq!(state.liveness, Liveness::Stopped),
        other => panic!("{other:?}"),
    };
    not_live(controller.alloc(4096).unwrap_err());
    not_live(controller.queue(options(4)).unwrap_err());
    not_live(controller.first_namespace().unwrap_err());
    not_live(mediated.exist(&ns, &key("a")).unwrap_err());
    assert_eq!(controller.state().unwrap().liveness, Liveness::Stopped);
    hooks.reset().unwrap();
    assert!(!mediated.exist(&ns, &key("a")).unwrap());
    // One that does not come up again.
    hooks.pause();
    assert!(hooks.reset().is_err());
    hooks.resume();
    assert_eq!(controller.state().unwrap().liveness, Liveness::Failed);
    let error = controller.alloc(4096).unwrap_err().to_string();
    assert!(error.contains("not live (failed") && error.contains("an administrator"), "{error}");
}

#[test]
fn events_tell_of_each_change_and_of_the_end() {
    let (controller, hooks, _) = start();
    let events = controller.events().unwrap();
    assert!(matches!(controller.clone().events(), Err(Error::EventsTaken)));
    let readable = || {
        let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    };
    assert!(!readable() && events.wait(Duration::from_millis(5)).unwrap().is_none());
    hooks.stop().unwrap();
    // Others who ask take nothing away.
    assert_eq!(controller.state().unwrap().liveness, Liveness::Stopped);
    assert!(readable());
    assert_eq!(events.wait(PATIENCE).unwrap().unwrap().liveness, Liveness::Stopped);
    assert!(!readable());
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            hooks.reset().unwrap();
        });
        events.wait(Duration::MAX).unwrap().unwrap()
    });
    assert_eq!((told.is_live(), told.resets, told.last_reset), (true, 1, Some(ResetCause::System)));
    drop(events);
    let events = controller.events().unwrap();
    hooks.unplug();
    assert!(matches!(events.wait(PATIENCE), Err(Error::Gone)));
    drop(events);
    assert!(matches!(controller.events(), Err(Error::Gone)));
    assert!(matches!(controller.events(), Err(Error::Gone)), "nobody has them");
}

/// A value through `Kv`, in each kind of memory.
#[test]
fn values_go_on_over_the_mediated_path_and_need_another_queue_on_the_direct_one() {
    for way @ Way(path, memory) in WAYS {
        let (controller, hooks, _) = start();
        let options = || KvOptions { path, memory, queue: options(8) };
        let mut kv = Kv::with_options(&controller, None, options()).unwrap();
        kv.store(&key("a"), &pattern(1, 5000), StoreOptions::default()).unwrap();
        hooks.reset().unwrap();
        let lost = kv.retrieve(&key("a"));
        assert!(
            matches!(lost, Err(Error::Revoked { .. } | Error::BufferGone)),
            "{path} in {memory}: {lost:?}"
        );
        if path == xio::Path::Direct {
            assert!(matches!(kv.exist(&key("a")), Err(Error::Revoked { .. })), "{way:?}");
            kv = Kv::with_options(&controller, None, options()).unwrap();
        }
        assert_eq!(kv.retrieve(&key("a")).unwrap(), pattern(1, 5000));
        kv.store(&key("b"), &pattern(2, 9000), StoreOptions::default()).unwrap();
        assert_eq!(kv.retrieve(&key("b")).unwrap(), pattern(2, 9000));
        hooks.unplug();
        let gone = kv.store(&key("b"), &[1; 3], StoreOptions::default());
        assert!(matches!(gone, Err(Error::Gone)), "{path} in {memory}: {gone:?}");
    }
}
