// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mediated commands with many in flight.

use crate::common::{controller, key, numbered, pattern, PATIENCE};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use xio::loopback::{self, Config, Surroundings};
use xio::{Error, Memory, Operation, Status};

#[test]
fn thousands_of_commands_come_back_with_their_tokens() {
    let controller = controller();
    let ns = controller.first_namespace().unwrap();
    // More than the kernel's queue, a call, and all calls together.
    let (depth, total) = (6000, 12_000usize);
    let mut ring = controller.mediated_ring(depth).unwrap();
    let buffer = controller.alloc(depth * 64).unwrap();
    let mut places: Vec<usize> = (0..depth).collect();
    let mut expected = HashMap::new();
    let (mut submitted, mut done) = (0, 0);
    while done < total {
        while submitted < total && ring.free() > 0 {
            let (n, place) = (submitted as u64, places.pop().unwrap());
            let slice = buffer.slice(place * 64..place * 64 + 40).unwrap();
            let operation = match n % 3 {
                0 => Operation::Exist { key: key("missing") },
                _ => {
                    buffer.write(place * 64, &pattern(n, 40)).unwrap();
                    Operation::store(numbered(n), slice)
                }
            };
            assert!(expected.insert(ring.submit(&ns, operation).unwrap(), (n, place)).is_none());
            submitted += 1;
        }
        assert!(ring.wait_any(PATIENCE).unwrap(), "nothing comes");
        while let Some((token, result)) = ring.poll().unwrap() {
            let (n, place) = expected.remove(&token).unwrap();
            let status = if n % 3 == 0 { Status::KEY_NOT_FOUND } else { Status::SUCCESS };
            assert_eq!(result.unwrap().status, status, "{n}");
            places.push(place);
            done += 1;
        }
    }
    assert!(expected.is_empty() && ring.in_flight() == 0 && ring.free() == depth);
    let mut kv = crate::common::kv(&controller);
    for n in (1..total as u64).filter(|n| n % 3 != 0).step_by(97) {
        assert!(kv.retrieve(&numbered(n)).unwrap() == pattern(n, 40), "{n}");
    }
}

#[test]
fn nothing_is_issued_before_it_is_rung_and_results_wait_for_their_token() {
    let controller = controller();
    let ns = controller.first_namespace().unwrap();
    let mut ring = controller.mediated_ring(3).unwrap();
    let tokens = ["a", "b", "c"].map(|k| ring.submit(&ns, Operation::Exist { key: key(k) }).unwrap());
    let full = ring.submit(&ns, Operation::Exist { key: key("d") });
    assert!(matches!(full, Err(Error::QueueFull { depth: 3 })));
    std::thread::sleep(Duration::from_millis(20));
    assert!(ring.poll().unwrap().is_none() && ring.in_flight() == 3);
    let deadline = Instant::now() + PATIENCE;
    assert_eq!(ring.wait(tokens[1], deadline).unwrap().token, tokens[1]);
    assert!(matches!(ring.wait(tokens[1], deadline), Err(Error::UnknownToken)));
    assert_eq!(ring.wait(tokens[2], deadline).unwrap().status, Status::KEY_NOT_FOUND);
    assert_eq!(ring.poll().unwrap().unwrap().0, tokens[0]);
    assert!(ring.poll().unwrap().is_none() && ring.free() == 3);
    let flush = ring.submit(&ns, Operation::Flush).unwrap();
    assert!(ring.wait(flush, deadline).unwrap().status.is_success());
}

#[test]
fn a_command_that_is_given_up_keeps_its_memory_until_it_is_done() {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    let ns = controller.first_namespace().unwrap();
    let mut ring = controller.mediated_ring(4).unwrap();
    let mut buffer = controller.register(Memory::new(4096).unwrap()).unwrap();
    // The kernel's queue is made for the first command.
    let first = ring.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    ring.wait(first, Instant::now() + PATIENCE).unwrap();
    hooks.pause();
    let store = Operation::store(key("late"), buffer.slice(..100).unwrap());
    let token = ring.submit(&ns, store).unwrap();
    let start = Instant::now();
    let error = ring.wait(token, start + Duration::from_millis(20)).unwrap_err();
    assert!(
        matches!(error, Error::Timeout { .. }) && start.elapsed() >= Duration::from_millis(20),
        "{error}"
    );
    assert!(matches!(ring.wait(token, Instant::now() + PATIENCE), Err(Error::UnknownToken)));
    assert!(buffer.get_mut().is_none() && ring.in_flight() == 1);
    hooks.resume();
    let until = Instant::now() + PATIENCE;
    while ring.in_flight() > 0 {
        assert!(ring.poll().unwrap().is_none(), "a late result is not given out");
        assert!(Instant::now() < until);
    }
    assert!(buffer.get_mut().is_some());
    // Dropped with a command under way: it is waited for.
    let retrieve = Operation::retrieve(key("late"), buffer.slice(..).unwrap());
    ring.submit(&ns, retrieve).unwrap();
    ring.ring().unwrap();
    drop(ring);
    assert!(buffer.get_mut().is_some());
}

#[test]
fn an_error_of_a_call_is_one_of_each_of_its_commands() {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    let ns = controller.first_namespace().unwrap();
    let mut ring = controller.mediated_ring(8).unwrap();
    hooks.set_surroundings(Surroundings::OtherHasQueues);
    for k in ["a", "b"] {
        ring.submit(&ns, Operation::Exist { key: key(k) }).unwrap();
    }
    assert!(ring.wait_any(PATIENCE).unwrap());
    for _ in 0..2 {
        assert!(matches!(ring.poll().unwrap(), Some((_, Err(Error::Busy)))));
    }
    assert!(ring.poll().unwrap().is_none() && ring.free() == 8);
    hooks.set_surroundings(Surroundings::Unconfined);
    let token = ring.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    assert_eq!(ring.wait(token, Instant::now() + PATIENCE).unwrap().status, Status::KEY_NOT_FOUND);
}
