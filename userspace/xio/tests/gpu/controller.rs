// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controllers of the test's own: answers out of order and late.

use crate::rig::{queue_options, statuses, threads, Rig};
use nvme_kv::{Cqe, Sqe, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xio::gpu::{Builtin, Doorbell, GpuQueueOptions, Kind};
use xio::loopback::Bare;

/// A pseudo-random number.
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Runs `controller` over and over while `work` runs.
pub fn beside<T: Send>(
    bare: &mut Bare,
    mut controller: impl FnMut(&mut Bare) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = Instant::now() + Duration::from_secs(120);
            while !done.load(Ordering::Relaxed) && Instant::now() < end {
                controller(bare);
                std::thread::yield_now();
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// The key's number decides the answer, so that a wrong hand-over is seen.
pub fn answer(bare: &Bare, sqe: &Sqe) -> Cqe {
    let key = sqe.cdw2[0].get().swap_bytes();
    let status = if key % 3 == 0 { Status::SUCCESS } else { Status::KEY_NOT_FOUND };
    Cqe::new(bare.qid(), bare.head(), sqe.cid.get(), status, key)
}

/// Fetches all there is and answers in order, as far as the completion queue has room. `change` may change an answer,
/// or keep it.
pub fn in_order(mut change: impl FnMut(&Bare, &Sqe, Cqe) -> Option<Cqe>) -> impl FnMut(&mut Bare) {
    let mut held = std::collections::VecDeque::new();
    move |bare| {
        while let Some(sqe) = bare.fetch() {
            let cqe = answer(bare, &sqe);
            held.extend(change(bare, &sqe, cqe));
        }
        while held.front().is_some_and(|cqe| bare.post(*cqe)) {
            held.pop_front();
        }
    }
}

fn check(results: &[xio::gpu::abi::TaskResult]) {
    for (n, (status, result)) in (0..).zip(statuses(results).iter().zip(results)) {
        let expected = if n % 3 == 0 { Status::SUCCESS } else { Status::KEY_NOT_FOUND };
        assert_eq!((*status, result.length), (expected.bits().into(), n), "command {n}");
    }
}

/// Holds commands back and answers them in any order.
fn shuffled(seed: u64) -> impl FnMut(&mut Bare) {
    let (mut held, mut state) = (Vec::new(), seed);
    move |bare| {
        while let Some(sqe) = bare.fetch() {
            held.push(sqe);
        }
        for _ in 0..random(&mut state) % 8 {
            if held.is_empty() {
                break;
            }
            let n = random(&mut state) as usize % held.len();
            let cqe = answer(bare, &held[n]);
            if bare.post(cqe) {
                held.swap_remove(n);
            }
        }
    }
}

#[test]
fn answers_out_of_order_reach_who_waits() {
    for (entries, kernel) in
        [(8, Builtin::Exist), (64, Builtin::Exist), (8, Builtin::Batch), (64, Builtin::Batch)]
    {
        let (rig, mut bare) = Rig::new(&queue_options(entries));
        let results =
            beside(&mut bare, shuffled(3 + u64::from(entries)), || rig.exist(kernel, 1000, 4, threads()));
        check(&results);
        let counters = rig.queue.counters().unwrap();
        assert_eq!((counters.submitted, counters.completed, counters.poisoned), (1000, 1000, 0));
    }
}

/// Fetches and answers by fits and starts.
#[test]
fn delayed_answers_reach_who_waits() {
    let (rig, mut bare) = Rig::new(&queue_options(16));
    let mut next = shuffled(99);
    let mut pass = 0u32;
    let slow = move |bare: &mut Bare| {
        pass += 1;
        if pass % 50 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
        next(bare);
    };
    let results = beside(&mut bare, slow, || rig.exist(Builtin::Exist, 300, 2, threads()));
    check(&results);
}

#[test]
fn a_thread_can_carry_doorbells() {
    let options = GpuQueueOptions { doorbell: Some(Doorbell::Proxy), ..queue_options(16) };
    let (rig, mut bare) = Rig::new(&options);
    assert_eq!(rig.queue.doorbell(), Doorbell::Proxy);
    let results = beside(&mut bare, shuffled(5), || rig.exist(Builtin::Batch, 100, 1, threads()));
    check(&results);
}

#[test]
fn the_way_to_the_doorbell_is_told() {
    let (rig, _bare) = Rig::new(&queue_options(16));
    assert_eq!(rig.queue.doorbell(), Doorbell::Memory);
    assert!(rig.queue.refused().is_empty());
    let wrong = GpuQueueOptions { doorbell: Some(Doorbell::HsaLock), ..queue_options(16) };
    let (raw, _bare) = xio::loopback::bare(16).unwrap();
    assert!(xio::gpu::GpuQueue::over(&rig.gpu, raw, rig.gpu.kind() != Kind::Hip, &wrong).is_err());
}
