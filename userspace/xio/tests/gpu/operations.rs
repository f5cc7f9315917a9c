// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations, by each kernel that carries them out.

use crate::common::{key, numbered, pattern};
use crate::rig::{self, kv};
use xio::gpu::{Builtin, Task};
use xio::{Condition, Error, Status, StoreOptions};

fn code(status: Status) -> u32 {
    status.bits().into()
}

#[test]
fn a_value_lives_and_dies_by_kernels() {
    let mut kv = kv(64, 8);
    let buffer = kv.buffer(1 << 20).unwrap();
    let value = pattern(7, 10_000);
    buffer.buffer().write(4, &value).unwrap();
    let (key, missing) = (code(Status::SUCCESS), code(Status::KEY_NOT_FOUND));
    let name = "a".parse().unwrap();
    let mut one = |kernel, task: Task| kv.run_as(kernel, &buffer, &[task]).unwrap().0[0];
    assert_eq!(one(Builtin::Exist, Task::exist(name)).code, missing);
    assert_eq!(one(Builtin::Retrieve, Task::retrieve(name, 0, 4096)).code, missing);
    assert_eq!(one(Builtin::Delete, Task::delete(name)).code, missing);
    assert_eq!(one(Builtin::Store, Task::store(name, 4, 10_000)).code, key);
    assert_eq!(one(Builtin::Exist, Task::exist(name)).code, key);
    let got = one(Builtin::Retrieve, Task::retrieve(name, 65536, 20_000));
    assert_eq!((got.code, got.length), (key, 10_000));
    let mut back = vec![0; 10_000];
    buffer.buffer().read(65536, &mut back).unwrap();
    assert!(back == value);
    // The true length of a value that is cut.
    let cut = one(Builtin::Retrieve, Task::retrieve(name, 131_072, 100));
    assert_eq!((cut.code, cut.length), (key, 10_000));
    assert_eq!(one(Builtin::Delete, Task::delete(name)).code, key);
    assert_eq!(one(Builtin::Exist, Task::exist(name)).code, missing);
}

#[test]
fn conditions_are_kept() {
    let mut kv = kv(16, 1);
    let buffer = kv.buffer(4096).unwrap();
    let store = |condition| {
        let options = StoreOptions { condition, no_compress: true };
        Task::store_with(key("c"), 0, 10, options)
    };
    let mut codes = vec![];
    for condition in [Condition::IfExists, Condition::IfAbsent, Condition::IfAbsent, Condition::IfExists] {
        codes.push(kv.run(&buffer, &[store(condition)]).unwrap()[0].code);
    }
    let [ok, missing, exists] = [Status::SUCCESS, Status::KEY_NOT_FOUND, Status::KEY_EXISTS].map(code);
    assert_eq!(codes, [missing, ok, exists, ok]);
}

#[test]
fn lists_are_those_of_the_library() {
    let controller = crate::common::controller();
    let mut gpu = rig::kv_on(&controller, rig::options(32, 16));
    let buffer = gpu.buffer(65536).unwrap();
    let tasks: Vec<Task> = (0..100).map(|n| Task::store(numbered(n), 0, 8)).collect();
    gpu.run(&buffer, &tasks).unwrap();
    let outcome = gpu.run_as(Builtin::List, &buffer, &[Task::list(numbered(40), 4096, 8192)]).unwrap().0;
    assert_eq!(outcome[0].code, 0);
    let mut bytes = vec![0; 8192];
    buffer.buffer().read(4096, &mut bytes).unwrap();
    let keys: Result<Vec<_>, _> = xio::Keys::new(&bytes).unwrap().collect();
    assert_eq!(keys.unwrap(), (40..100).map(numbered).collect::<Vec<_>>());
}

#[test]
fn tables_mix_operations_in_batches_of_every_size() {
    let entries = 16;
    for batch in 1..=2 * entries {
        let mut kv = kv(entries, batch);
        let buffer = kv.buffer(64 * 64).unwrap();
        for n in 0..32 {
            buffer.buffer().write(n * 64, &pattern(n as u64, 60)).unwrap();
        }
        let store: Vec<Task> = (0..32).map(|n| Task::store(numbered(n), n as usize * 64, 60)).collect();
        assert!(kv.run(&buffer, &store).unwrap().iter().all(|o| o.code == 0), "batch {batch}");
        let mixed: Vec<Task> = (0..32)
            .map(|n| match n % 4 {
                0 => Task::retrieve(numbered(n), (n as usize + 32) * 64, 64),
                1 => Task::exist(numbered(n)),
                2 => Task::delete(numbered(n)),
                _ => Task::retrieve(numbered(n + 1000), (n as usize + 32) * 64, 64),
            })
            .collect();
        let outcomes = kv.run(&buffer, &mixed).unwrap();
        for (n, outcome) in outcomes.iter().enumerate() {
            let expected = if n % 4 == 3 { Status::KEY_NOT_FOUND } else { Status::SUCCESS };
            assert_eq!(outcome.status(), Some(expected), "batch {batch}, item {n}");
            if n % 4 == 0 {
                let mut back = vec![0; 60];
                buffer.buffer().read((n + 32) * 64, &mut back).unwrap();
                assert_eq!((outcome.length, back), (60, pattern(n as u64, 60)), "batch {batch}, item {n}");
            }
        }
    }
}

#[test]
fn outcomes_become_the_errors_of_the_library() {
    let mut kv = kv(16, 4);
    let buffer = kv.buffer(4096).unwrap();
    let tasks = [Task::retrieve(key("nothing"), 0, 100), Task::exist(key("nothing"))];
    for (outcome, task) in kv.run(&buffer, &tasks).unwrap().iter().zip(&tasks) {
        assert!(matches!(outcome.check(task, kv.timeout()), Err(Error::NotFound { .. })));
    }
    let outside = kv.run(&buffer, &[Task::retrieve(key("x"), 4096, 4)]);
    assert!(matches!(outside, Err(Error::Range { .. })), "{outside:?}");
    let foreign = crate::rig::kv(16, 4).buffer(4096).unwrap();
    assert!(matches!(kv.run(&foreign, &tasks), Err(Error::ForeignBuffer)));
    assert_eq!(kv.run(&buffer, &[]).unwrap(), []);
}
