// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory order with a kernel of its own and the simplest of controllers: what is right runs, what is not fails.

mod common;

use common::{arguments, own, seeds, Arena};
use xio_isa::decode::Program;
use xio_isa::machine::{Device, Grid, Machine, Outcome, SharedMemory};
use xio_isa::memory::Kind;
use xio_isa::mutate::{spoil, Spoil};
use xio_isa::object::CodeObject;
use xio_isa::{Arch, Result};

const ENTRIES: u32 = 16;
const COUNT: u32 = 40;

/// Answers word 1 of an entry with one more. Looks at the doorbell the moment it is written.
struct Echo {
    memory: SharedMemory,
    sq: u64,
    cq: u64,
    doorbells: u64,
    head: u32,
    done: u32,
}

impl Device for Echo {
    fn poll(&mut self, _: u64, _: bool) -> Result<Option<u64>> {
        let mut memory = self.memory.lock();
        let tail = memory.register(self.doorbells).unwrap();
        while self.head != tail {
            let mut entry = [0; 64];
            memory.controller_read(self.sq + u64::from(self.head) * 64, &mut entry).unwrap();
            let word = |n: usize| u32::from_le_bytes(entry[4 * n..4 * n + 4].try_into().unwrap());
            self.head = (self.head + 1) % ENTRIES;
            let phase = u32::from(self.done / ENTRIES % 2 == 0) << 16;
            let completion = [word(1).wrapping_add(1), 0, self.head, phase | word(0) >> 16];
            let bytes: Vec<u8> = completion.iter().flat_map(|word| word.to_le_bytes()).collect();
            let at = self.cq + u64::from(self.done % ENTRIES) * 16;
            memory.controller_post(at, &bytes.try_into().unwrap()).unwrap();
            self.done += 1;
        }
        Ok(None)
    }
}

/// What came of a run: the outcome, and whether the results are right.
fn run(machine: &mut Machine) -> (Result<Outcome>, bool) {
    let mut arena = Arena::new(machine);
    let (sq, cq) = (arena.add("submission queue", 64 * 16), arena.add("completion queue", 16 * 16));
    let doorbells = arena.add_kind("doorbells", 8, Kind::Registers);
    let results = arena.add("results", 4 * (COUNT as usize + 1));
    let mut echo = Echo { memory: machine.memory.clone(), sq, cq, doorbells, head: 0, done: 0 };
    let args = arguments(&[sq, cq, doorbells, doorbells + 4, results, 2000], &[ENTRIES - 1, COUNT]);
    let outcome = machine.run("ring", Grid { blocks: 2, threads: 64 }, &args, &mut echo);
    let mut want: Vec<u32> = (0..COUNT).map(|n| (n * 0x0101_0101).wrapping_add(1)).collect();
    want.push(0);
    let right = arena.read(results, want.len()) == want;
    (outcome, right)
}

/// Whether a run with these instructions is right.
fn is_right(object: &CodeObject, program: &Program, seed: u64) -> bool {
    let (outcome, right) = run(&mut Machine::with_program(object, program.clone(), seed).unwrap());
    let outcome = outcome.unwrap_or_else(|e| panic!("{} seed {seed}: {e}", object.arch));
    println!("{} seed {seed}: {outcome}, right: {right}", object.arch);
    right && outcome.stale.is_empty()
}

#[test]
fn a_kernel_with_fences_and_waits_is_right() {
    for arch in Arch::ALL {
        let object = own("ring", arch, &[]);
        assert!(seeds(10).all(|seed| is_right(&object, &object.program, seed)), "{arch}");
    }
}

#[test]
fn without_the_fence_it_is_wrong() {
    for arch in Arch::ALL {
        let object = own("ring", arch, &["XIO_TEST_NO_FENCE"]);
        assert!(!(0..3).any(|seed| is_right(&object, &object.program, seed)), "{arch}");
    }
}

#[test]
fn at_device_scope_it_is_wrong() {
    for arch in Arch::ALL {
        let object = own("ring", arch, &["XIO_TEST_AGENT_SCOPE"]);
        // RDNA 3 has the same machine code for both scopes.
        let right = (0..3).any(|seed| is_right(&object, &object.program, seed));
        assert_eq!(right, arch == Arch::Gfx1100, "{arch}");
    }
}

#[test]
fn without_the_wait_it_is_wrong_where_the_compiler_drops_its_own() {
    for arch in Arch::ALL {
        let object = own("ring", arch, &["XIO_TEST_NO_WAIT"]);
        let right = (0..3).any(|seed| is_right(&object, &object.program, seed));
        assert_eq!(right, !arch.is_cdna(), "{arch}");
    }
}

#[test]
fn a_completion_that_is_read_at_once_is_torn() {
    for arch in Arch::ALL {
        let object = own("ring", arch, &["TORN"]);
        assert!(!(0..3).any(|seed| is_right(&object, &object.program, seed)), "{arch}");
    }
}

#[test]
fn machine_code_without_what_it_needs_is_wrong() {
    for arch in Arch::ALL {
        let object = own("ring", arch, &[]);
        for how in Spoil::SYSTEM {
            let mut program = object.program.clone();
            let changed = spoil(&mut program, how);
            let right = (0..3).any(|seed| is_right(&object, &program, seed));
            assert_eq!(right, changed == 0, "{arch} {how:?}");
            assert!(changed > 0 || !arch.writes_back(), "{arch} {how:?}");
        }
    }
}
