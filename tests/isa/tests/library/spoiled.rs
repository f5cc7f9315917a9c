// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong fails: builds whose source is spoiled by the macros that the library offers for it, and machine code that
//! is spoiled after it was built. Where an architecture has the same machine code with and without a macro, that is
//! what is tested, since nothing can fail then.

use crate::common::library;
use crate::common::rig::{item, key, status, Options, Rig, Run};
use nvme_kv::kv::opcode;
use xio_device_abi::device::Item;
use xio_isa::decode::Program;
use xio_isa::mutate::{spoil, Spoil};
use xio_isa::object::CodeObject;
use xio_isa::{check, Arch};

const SEEDS: std::ops::Range<u64> = 0..3;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The controller read too early.
    #[error("{0}")]
    Stale(String),
    /// A command did not succeed.
    #[error("a command ends with {0:#x}")]
    Status(u32),
    /// A value is not what it was.
    #[error("value {0} differs")]
    Value(usize),
    /// The kernel did not come to its end.
    #[error("{0}")]
    Error(String),
}

/// How much there is to do.
#[derive(Clone, Copy)]
struct Work {
    entries: u32,
    blocks: u32,
    threads: u32,
    count: usize,
    /// Ticks that a call waits.
    timeout: u64,
}

/// Enough to see that nothing comes through.
const LITTLE: Work = Work { entries: 16, blocks: 2, threads: 80, count: 40, timeout: 60_000 };
/// Blocks of both dies publish each other's entries.
const MUCH: Work = Work { entries: 128, blocks: 4, threads: 64, count: 250, timeout: 200_000 };

/// Stores and retrieves with several blocks.
fn failure(object: &CodeObject, program: &Program, work: Work, seed: u64) -> Option<Failure> {
    const ROOM: u64 = 1024;
    let Work { entries, blocks, threads, count, timeout } = work;
    let options = Options { seed, entries, timeout, ..Options::default() };
    let mut rig = Rig::with_program(object, program.clone(), &options);
    let run = Run { blocks, threads, batch: 20, ..Run::default() };
    let value = |n: usize| vec![n as u8 + 1; 500 + n];
    let items = |op| -> Vec<Item> {
        (0..count).map(|n| item(op, &key(n), n as u64 * ROOM, value(n).len() as u32)).collect()
    };
    for n in 0..count {
        rig.write(n as u64 * ROOM, &value(n));
    }
    for (kernel, op) in [("xio_kernel_store", opcode::STORE), ("xio_kernel_batch", opcode::RETRIEVE)] {
        let done = match rig.run(kernel, &items(op), &run) {
            Ok(done) => done,
            Err(e) => return Some(Failure::Error(e.to_string())),
        };
        if let Some(stale) = done.outcome.stale.first() {
            return Some(Failure::Stale(stale.to_string()));
        }
        if let Some(result) = done.results.iter().find(|result| status(result) != 0) {
            return Some(Failure::Status(result.status));
        }
        if op == opcode::STORE {
            rig.write(0, &vec![0; count * ROOM as usize]);
        }
    }
    let differs = |n: &usize| rig.read(*n as u64 * ROOM, value(*n).len()) != value(*n);
    (0..count).find(differs).map(Failure::Value)
}

/// Every run with a program must fail, one at least as expected.
fn all_fail(what: &str, object: &CodeObject, program: &Program, expected: impl Fn(&Failure) -> bool) {
    let mut found = false;
    for seed in SEEDS {
        let failure = failure(object, program, LITTLE, seed);
        let text = failure.as_ref().map_or_else(|| "all is right".into(), Failure::to_string);
        println!("{what}, seed {seed}: {text}");
        assert!(failure.is_some(), "{what}, seed {seed}: {text}");
        found |= failure.as_ref().is_some_and(&expected);
    }
    assert!(found, "{what}: fails, but not as expected");
}

fn is_stale(failure: &Failure) -> bool {
    matches!(failure, Failure::Stale(text) if text.contains("reads submission queue"))
}

/// Instructions of a program, as text.
fn text(program: &Program) -> Vec<String> {
    program.instructions.iter().map(|instruction| instruction.line.text()).collect()
}

fn report(object: &CodeObject) -> check::Report {
    check::function(&object.program, "xio_kernel_store").unwrap()
}

#[test]
fn builds_without_a_fence() {
    for arch in Arch::ALL {
        let object = library(arch, &["XIO_TEST_NO_FENCE"]);
        let found = report(&object);
        // On RDNA 3 other fences have the same wait.
        assert!(found.doorbells == 0 && (found.write_backs == 0) == arch.writes_back(), "{arch}: {found:?}");
        all_fail(&format!("no fence on {arch}"), &object, &object.program, is_stale);
    }
}

#[test]
fn builds_with_device_scope() {
    for arch in Arch::ALL {
        let (object, right) = (library(arch, &["XIO_TEST_AGENT_SCOPE"]), library(arch, &[]));
        if arch == Arch::Gfx1100 {
            assert_eq!(text(&object.program), text(&right.program), "{arch} has no scopes");
            continue;
        }
        let found = report(&object);
        assert_eq!((found.write_backs, found.doorbells, found.invalidations), (0, 0, 0), "{arch}");
        let told = arch.stores_have_scope();
        assert!(!told || found.others == 0 && found.polls < report(&right).polls, "{arch}: {found:?}");
        // With scopes, not even the doorbell comes through, and the first call waits in vain.
        all_fail(&format!("device scope on {arch}"), &object, &object.program, |failure| {
            is_stale(failure) || told && matches!(failure, Failure::Status(0x8001_0000))
        });
    }
}

#[test]
fn builds_without_the_wait() {
    for arch in Arch::ALL {
        let (object, right) = (library(arch, &["XIO_TEST_NO_WAIT"]), library(arch, &[]));
        if !arch.is_cdna() {
            assert_eq!(text(&object.program), text(&right.program), "{arch} needs no explicit wait");
            continue;
        }
        let found = report(&object);
        assert!(found.doorbells == 0 && !found.problems.is_empty(), "{arch}: {found:?}");
        all_fail(&format!("no wait on {arch}"), &object, &object.program, is_stale);
    }
}

#[test]
fn machine_code_without_what_it_needs() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        assert!(
            SEEDS.into_iter().all(|seed| failure(&object, &object.program, LITTLE, seed).is_none()),
            "{arch}"
        );
        for how in Spoil::SYSTEM {
            let mut program = object.program.clone();
            let changed = spoil(&mut program, how);
            if matches!(how, Spoil::NoWriteBack | Spoil::DeviceScope) && !arch.writes_back() {
                assert_eq!(changed, 0, "{arch} has no write-back");
                continue;
            }
            assert!(changed > 0, "{arch} {how:?}");
            all_fail(&format!("{how:?} on {arch}"), &object, &program, |failure| match how {
                // What was in the completion queue before is taken for an answer, or in the buffer for a value.
                Spoil::NoInvalidate => matches!(failure, Failure::Status(_) | Failure::Value(_)),
                _ => is_stale(failure),
            });
        }
    }
}

#[test]
fn dies_that_do_not_write_back_for_each_other() {
    for arch in Arch::ALL {
        let object = library(arch, &[]);
        let mut program = object.program.clone();
        let changed = spoil(&mut program, Spoil::NoDeviceWriteBack);
        assert_eq!(changed > 0, arch.second_level_caches() > 1, "{arch}");
        assert!(
            SEEDS.into_iter().all(|seed| failure(&object, &object.program, MUCH, seed).is_none()),
            "{arch}"
        );
        // It takes a wave that publishes entries of the other die.
        let wrong = |seed| failure(&object, &program, MUCH, seed).is_some_and(|failure| is_stale(&failure));
        assert!(changed == 0 || (0..12).any(wrong), "{arch}: nobody missed the write-backs");
    }
}
