// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: many commands in flight, wraps, several queues and threads, events.

use crate::common::{controller, key, kv, numbered, options, pattern, queue, PATIENCE};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use xio::{
    Buffer, Completion, Controller, Error, Namespace, Operation, Queue, QueueOptions, Status, StoreOptions,
    Token,
};

/// Polls until something comes.
fn next(queue: &mut Queue) -> Completion {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(completion) = queue.poll().unwrap() {
            return completion;
        }
        assert!(Instant::now() < until, "no completion");
        std::thread::yield_now();
    }
}

/// Keys that fit the test, and the length of the value of each.
fn store_lengths(controller: &Controller, count: u64) {
    let mut kv = kv(controller);
    for n in 0..count {
        kv.store(&numbered(n), &pattern(n, n as usize), StoreOptions::default()).unwrap();
    }
}

/// Retrieves, Exists and misses in turn; what each token must answer.
fn operation(buffer: &Buffer, n: u64, place: usize) -> (Operation, Status, u32) {
    let k = numbered(n % 100);
    match n % 3 {
        0 => (Operation::Exist { key: numbered(1 << 40) }, Status::KEY_NOT_FOUND, 0),
        1 => (Operation::Exist { key: k }, Status::SUCCESS, 0),
        _ => {
            let slice = buffer.slice(place * 128..place * 128 + 128).unwrap();
            (Operation::retrieve(k, slice), Status::SUCCESS, (n % 100) as u32)
        }
    }
}

fn run(queue: &mut Queue, ns: &Namespace, buffer: &Buffer, total: u64) {
    let mut expected: HashMap<Token, (Status, u32)> = HashMap::new();
    let (mut submitted, mut done) = (0, 0);
    while done < total {
        while submitted < total && queue.free() > 0 {
            let (operation, status, len) = operation(buffer, submitted, queue.free() - 1);
            let token = queue.submit(ns, operation).unwrap();
            assert!(expected.insert(token, (status, len)).is_none(), "a token was given twice");
            submitted += 1;
        }
        queue.ring();
        let mut completion = next(queue);
        loop {
            let (status, len) = expected.remove(&completion.token).expect("a token of ours");
            assert_eq!(completion.status, status);
            assert!(!matches!(len, 1..) || completion.value_len == len);
            done += 1;
            match queue.poll().unwrap() {
                Some(more) => completion = more,
                None => break,
            }
        }
    }
    assert!(expected.is_empty() && queue.in_flight() == 0 && queue.free() == queue.depth());
}

#[test]
fn a_hundred_thousand_commands_through_a_deep_queue() {
    let controller = controller();
    store_lengths(&controller, 100);
    let (mut queue, ns) = queue(&controller, 1024);
    assert_eq!(queue.depth(), 1023);
    let buffer = controller.alloc(1024 * 128).unwrap();
    let start = Instant::now();
    run(&mut queue, &ns, &buffer, 100_000);
    println!("100,000 commands, depth 1024: {:?}", start.elapsed());
}

#[test]
fn queues_of_every_small_depth_wrap() {
    let controller = controller();
    store_lengths(&controller, 100);
    let buffer = controller.alloc(1024 * 128).unwrap();
    for entries in [2, 3, 4, 5, 7, 8, 33] {
        let (mut queue, ns) = queue(&controller, entries);
        run(&mut queue, &ns, &buffer, 1_000);
        queue.close().unwrap();
    }
}

#[test]
fn a_full_queue_takes_no_more_until_a_completion_is_taken() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let exist = || Operation::Exist { key: key("a") };
    let tokens: Vec<Token> = (0..3).map(|_| queue.submit(&ns, exist()).unwrap()).collect();
    assert!(matches!(queue.submit(&ns, exist()), Err(Error::QueueFull { depth: 3 })));
    let deadline = Instant::now() + PATIENCE;
    assert_eq!(queue.wait(tokens[1], deadline).unwrap().status, Status::KEY_NOT_FOUND);
    let again = queue.submit(&ns, exist()).unwrap();
    assert!(!tokens.contains(&again));
    assert!(matches!(queue.wait(tokens[1], deadline), Err(Error::UnknownToken)));
    for token in [again, tokens[2], tokens[0]] {
        assert_eq!(queue.wait(token, deadline).unwrap().token, token);
    }
    assert!(queue.poll().unwrap().is_none());
}

#[test]
fn nothing_is_sent_before_the_doorbell_rings() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 8);
    let token = queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(queue.poll().unwrap().is_none() && queue.in_flight() == 1);
    queue.ring();
    assert_eq!(next(&mut queue).token, token);
}

#[test]
fn several_threads_with_a_queue_each() {
    let controller = controller();
    let worker = |thread: u64| {
        let (mut queue, ns) = queue(&controller, 16);
        let buffer = controller.alloc(16 * 8192).unwrap();
        for round in 0..60u64 {
            let mut stores = Vec::new();
            for n in 0..15 {
                let (k, at) = (numbered(thread << 32 | n), n as usize * 8192);
                let value = pattern(thread << 32 | round << 8 | n, 5000 + n as usize);
                buffer.write(at, &value).unwrap();
                let slice = buffer.slice(at..at + value.len()).unwrap();
                stores.push((
                    queue.submit(&ns, Operation::store(k, slice.clone())).unwrap(),
                    k,
                    slice,
                    value,
                ));
            }
            for (token, k, slice, value) in stores {
                assert_eq!(queue.wait(token, Instant::now() + PATIENCE).unwrap().status, Status::SUCCESS);
                buffer.write(slice.offset(), &vec![0; value.len()]).unwrap();
                let len = queue.retrieve(&ns, &k, &slice, Default::default()).unwrap();
                assert_eq!(len as usize, value.len());
                assert!(slice.to_vec().unwrap() == value);
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || worker(thread));
        }
    });
}

#[test]
fn an_event_wakes_a_sleeping_thread() {
    let controller = controller();
    let ns = controller.first_namespace().unwrap();
    let mut queue = controller.queue(QueueOptions { event: true, ..options(16) }).unwrap();
    assert!(queue.event_fd().is_some());
    assert!(!queue.wait_event(Duration::from_millis(5)).unwrap());
    for round in 0..200u32 {
        let count = 1 + round % 7;
        for _ in 0..count {
            queue.submit(&ns, Operation::Exist { key: key("a") }).unwrap();
        }
        let mut done = 0;
        while done < count {
            assert!(queue.wait_event(PATIENCE).unwrap(), "no event");
            while queue.poll().unwrap().is_some() {
                done += 1;
            }
        }
    }
    let mut without = controller.queue(options(4)).unwrap();
    assert!(without.event_fd().is_none());
    assert!(matches!(without.wait_event(Duration::ZERO), Err(Error::NoEvent)));
}

#[test]
fn memory_of_a_command_stays_until_it_is_answered() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.alloc(4096).unwrap();
    buffer.write(0, b"kept").unwrap();
    let token = queue.submit(&ns, Operation::store(key("k"), buffer.slice(..4).unwrap())).unwrap();
    drop(buffer);
    queue.ring();
    assert_eq!(queue.wait(token, Instant::now() + PATIENCE).unwrap().status, Status::SUCCESS);
    assert_eq!(kv(&controller).retrieve(&key("k")).unwrap(), b"kept");
}

#[test]
fn handles_can_go_to_other_threads() {
    const fn check<T: Send + Sync>() {}
    check::<Controller>();
    check::<Queue>();
    check::<Buffer>();
    check::<xio::Kv>();
    check::<xio::RawQueue>();
    check::<xio::MediatedQueue>();
    check::<xio::MediatedRing>();
}

#[test]
fn everything_outlives_the_controller_handle() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let mut buffer = controller.alloc(4096).unwrap();
    drop(controller);
    assert!(!queue.exist(&ns, &key("k")).unwrap());
    drop(queue);
    buffer.get_mut().unwrap().fill(1);
}
