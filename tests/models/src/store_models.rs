// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers and limits.

use super::answer::{Answers, Later};
use super::budget::Budget;
use super::Reply;
use crate::sync::{thread, Arc};
use nvme_kv::Status;

/// Takes answers until there are so many, and sleeps in between, as the controller's thread does.
fn take(answers: &Answers, wanted: usize) -> Vec<u64> {
    let (mut all, mut some) = (Vec::new(), Vec::new());
    loop {
        answers.take(&mut some);
        all.extend(some.drain(..).map(|(id, _)| id));
        if all.len() >= wanted {
            all.sort_unstable();
            return all;
        }
        thread::park();
    }
}

/// Two stores answer, one of them by breaking its promise: the thread that takes answers misses neither.
pub fn answers_wake_who_takes_them() {
    let answers = Arc::new(Answers::default());
    answers.wake_me();
    for id in 0..2 {
        let promise = Later::new(id, &answers).promise();
        thread::spawn(move || match id {
            0 => promise.answer(Ok(Reply::Done)),
            _ => drop(promise),
        });
    }
    assert_eq!(take(&answers, 2), [0, 1]);
}

/// A thread that never takes answers asks, as the one that writes the shutdown register does.
pub fn answers_wake_who_takes_them_when_another_asked() {
    let answers = Arc::new(Answers::default());
    answers.wake_me();
    let theirs = answers.clone();
    let asker = thread::spawn(move || {
        let promise = Later::new(7, &theirs).promise();
        thread::spawn(move || promise.answer(Err(Status::INTERNAL_ERROR)));
    });
    assert_eq!(take(&answers, 1), [7]);
    asker.join().unwrap();
}

/// Takers and givers of one limit: it is never exceeded, and what is left at the end is what was taken.
pub fn budgets_are_never_exceeded() {
    let budget = Arc::new(Budget::new(10));
    let threads: Vec<_> = [(0, 6), (0, 5)]
        .map(|(less, more)| {
            let budget = budget.clone();
            thread::spawn(move || {
                let taken = budget.exchange(less, more);
                assert!(budget.used() <= 10);
                // Replaced by something smaller, then given back.
                if taken && more == 5 {
                    assert!(budget.exchange(5, 1));
                    budget.give_back(1);
                    return 0;
                }
                u64::from(taken) * more
            })
        })
        .into_iter()
        .collect();
    let left: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(budget.used(), left);
}
