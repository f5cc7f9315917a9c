// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller that does not answer, and one that answers what it should not.

use crate::common::{key, options, pattern, PATIENCE};
use std::time::{Duration, Instant};
use xio::loopback::{self, Config, Hooks};
use xio::{Controller, Error, Kv, Namespace, Operation, Queue, QueueOptions, Status, StoreOptions};

fn stalled(entries: u32) -> (Controller, Hooks, Queue, Namespace) {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    let queue = controller.queue(options(entries)).unwrap();
    let namespace = controller.first_namespace().unwrap();
    hooks.pause();
    (controller, hooks, queue, namespace)
}

#[test]
fn a_deadline_passes_and_the_place_stays_taken_until_the_answer() {
    let (controller, hooks, mut queue, ns) = stalled(3);
    let mut buffer = controller.alloc(4096).unwrap();
    let store = Operation::store(key("late"), buffer.slice(..100).unwrap());
    let token = queue.submit(&ns, store).unwrap();
    let (start, timeout) = (Instant::now(), Duration::from_millis(30));
    let error = queue.wait(token, start + timeout).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && start.elapsed() >= timeout, "{error}");
    assert_eq!((queue.poisoned(), queue.in_flight(), queue.free()), (1, 1, 1));
    assert!(matches!(queue.wait(token, Instant::now() + timeout), Err(Error::UnknownToken)));
    assert!(buffer.get_mut().is_none(), "the controller may still read it");
    // The queue goes on with the place that is left.
    queue.set_timeout(timeout);
    assert!(matches!(queue.exist(&ns, &key("a")), Err(Error::Timeout { what: "Exist", .. })));
    assert!(matches!(queue.exist(&ns, &key("a")), Err(Error::QueueFull { depth: 2 })));
    assert_eq!(queue.poisoned(), 2);
    hooks.resume();
    let until = Instant::now() + PATIENCE;
    while queue.poisoned() > 0 {
        assert!(queue.poll().unwrap().is_none(), "a late completion is not given out");
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    assert!(buffer.get_mut().is_some());
    queue.set_timeout(PATIENCE);
    assert!(queue.exist(&ns, &key("late")).unwrap());
}

/// A controller that is held, and values in it.
fn stalled_kv() -> (Hooks, Kv) {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    // Not only what passes at once while the controller is held: later calls have as long, too.
    let options = QueueOptions { timeout: Duration::from_secs(2), ..options(8) };
    let mut kv = Kv::with_options(&controller, None, options).unwrap();
    kv.store(&key("one"), &pattern(0, 5000), StoreOptions::default()).unwrap();
    hooks.pause();
    (hooks, kv)
}

/// Goes on with `call` while the controller is held, which ends soon.
fn while_held<T>(hooks: &Hooks, call: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            hooks.resume();
        });
        call()
    })
}

#[test]
fn a_late_store_takes_nothing_of_the_next_value() {
    let (hooks, mut kv) = stalled_kv();
    let (one, two) = (pattern(1, 3000), pattern(2, 4000));
    let late = kv.store(&key("one"), &one, StoreOptions::default());
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    while_held(&hooks, || kv.store(&key("two"), &two, StoreOptions::default())).unwrap();
    assert_eq!(kv.retrieve(&key("one")).unwrap(), one);
    assert_eq!(kv.retrieve(&key("two")).unwrap(), two);
}

#[test]
fn a_late_retrieve_puts_nothing_into_the_next_value() {
    let (hooks, mut kv) = stalled_kv();
    let two = pattern(2, 4000);
    let late = kv.retrieve(&key("one"));
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    while_held(&hooks, || kv.store(&key("two"), &two, StoreOptions::default())).unwrap();
    assert_eq!(kv.retrieve(&key("two")).unwrap(), two);
    assert_eq!(kv.retrieve(&key("one")).unwrap(), pattern(0, 5000));
}

#[test]
fn endless_waits_have_no_end_that_overflows() {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    let options = QueueOptions { timeout: Duration::MAX, event: true, ..options(4) };
    let mut queue = controller.queue(options).unwrap();
    let ns = controller.first_namespace().unwrap();
    // Long enough for the clock to be looked at.
    hooks.pause();
    assert!(!while_held(&hooks, || queue.exist(&ns, &key("a"))).unwrap());
    hooks.pause();
    queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    assert!(while_held(&hooks, || queue.wait_event(Duration::MAX)).unwrap());
}

#[test]
fn a_command_can_be_given_up() {
    let (_controller, hooks, mut queue, ns) = stalled(4);
    let token = queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    queue.abandon(token).unwrap();
    assert!(matches!(queue.abandon(token), Err(Error::UnknownToken)));
    hooks.resume();
    assert!(!queue.exist(&ns, &key("b")).unwrap());
    assert_eq!(queue.poisoned(), 0);
}

#[test]
fn dropping_the_queue_frees_the_memory_of_unanswered_commands() {
    let (controller, hooks, mut queue, ns) = stalled(4);
    let mut buffer = controller.alloc(4096).unwrap();
    queue.submit(&ns, Operation::retrieve(key("a"), buffer.slice(..).unwrap())).unwrap();
    assert!(buffer.get_mut().is_none());
    hooks.resume();
    drop(queue);
    assert!(buffer.get_mut().is_some());
}

#[test]
fn a_controller_that_deletes_no_queue_is_reset_and_gone() {
    let (controller, _hooks, mut queue, ns) = stalled(4);
    let buffer = controller.alloc(4096).unwrap();
    queue.submit(&ns, Operation::store(key("a"), buffer.slice(..).unwrap())).unwrap();
    queue.ring();
    queue.close().unwrap();
    assert!(matches!(controller.info(), Err(Error::Gone)));
    assert!(matches!(controller.alloc(1), Err(Error::Gone)));
}

/// Puts a completion into a queue that the controller did not post.
#[allow(unsafe_code, reason = "writes what no controller should")]
fn forge(raw: &xio::RawQueue, slot: usize, cqe: nvme_kv::Cqe) {
    let bytes: [u8; 16] = zerocopy::transmute!(cqe.with_phase(true));
    // SAFETY: an entry of a mapped queue, which the paused controller does not touch.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), raw.cq_ptr().add(slot * 16), 16) };
}

#[test]
fn forged_completions_break_the_queue_and_are_never_ignored() {
    let cqe = |sqid, sqhd, cid| nvme_kv::Cqe::new(sqid, sqhd, cid, Status::SUCCESS, 0);
    let forgeries = [
        (cqe(1, 1, 1), "command 1, which is not in flight"),
        (cqe(1, 1, 0xffff), "command 65535, which is not in flight"),
        (cqe(2, 1, 0), "queue 1 got a completion of queue 2"),
        (cqe(1, 3, 0), "beyond its tail"),
        (cqe(1, 4, 0), "beyond its tail"),
    ];
    for (forgery, text) in forgeries {
        let (_controller, hooks, mut queue, ns) = stalled(4);
        let token = queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
        assert!(queue.poll().unwrap().is_none());
        forge(queue.raw(), 0, forgery);
        for _ in 0..2 {
            let error = queue.poll().unwrap_err();
            assert!(matches!(error, Error::Protocol(_)) && error.to_string().contains(text), "{error}");
        }
        let again = queue.submit(&ns, Operation::Exist { key: key("a") });
        assert!(matches!(again, Err(Error::Protocol(_))));
        assert!(matches!(queue.wait(token, Instant::now() + PATIENCE), Err(Error::Protocol(_))));
        hooks.resume();
    }
}

#[test]
fn the_same_completion_twice_is_an_error() {
    let (_controller, hooks, mut queue, ns) = stalled(4);
    let token = queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    hooks.resume();
    queue.wait(token, Instant::now() + PATIENCE).unwrap();
    hooks.pause();
    forge(queue.raw(), 1, nvme_kv::Cqe::new(1, 1, 0, Status::SUCCESS, 0));
    let error = queue.poll().unwrap_err();
    assert!(error.to_string().contains("command 0, which is not in flight"), "{error}");
    hooks.resume();
}
