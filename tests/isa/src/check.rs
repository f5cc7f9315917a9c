// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be told of memory order without running anything.
//!
//! A walk over all paths through a function keeps account of what becomes of the wave's stores:
//! *dirty* (issued), *written back* (a write-back of the second level cache at system scope was issued behind
//! them), *clean* (that was waited for). Then
//!
//! * nothing is stored, and the function does not end, while a write-back is not waited for: this is the wait that LLVM
//!   up to 22 drops;
//! * 32-bit stores at system scope, which is how doorbells are written, are told apart by whether they are reached clean
//!   on every path. Tail doorbells must be; head doorbells, behind which the controller reads nothing, need not.
//!
//! | architecture | write-back | wait | doorbell | poll | invalidation |
//! |---|---|---|---|---|---|
//! | gfx90a | `buffer_wbl2` | `vmcnt(0)` | not to be told from other stores | `glc` | `buffer_invl2`, `buffer_wbinvl1_vol` |
//! | gfx942, gfx950 | `buffer_wbl2 sc0 sc1` | `vmcnt(0)` | `sc0 sc1` | `sc0 sc1` | `buffer_inv sc0 sc1` |
//! | gfx1100 | none: the cache writes through | `vscnt` 0 | not to be told from other stores | `glc` | `buffer_gl1_inv`, `buffer_gl0_inv` |
//! | gfx1201 | `global_wb scope:SCOPE_SYS` | `storecnt` 0 | `scope:SCOPE_SYS` | `scope:SCOPE_SYS` | `global_inv scope:SCOPE_SYS` |
//!
//! Where doorbells can not be told from other stores, a 32-bit store that is reached clean is taken for one.

use crate::arch::{Arch, Scope};
use crate::decode::{Access, Cache, Condition, Instruction, Operation, Program, Scalar, Wait};
use std::collections::BTreeSet;
use std::fmt;

/// What was found in a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Write-backs at system scope; on RDNA 3, waits for stores.
    pub write_backs: usize,
    /// Doorbells that are reached clean.
    pub doorbells: usize,
    /// Other 32-bit stores at system scope; none where those can not be told from other stores.
    pub others: usize,
    /// 32-bit loads at system scope.
    pub polls: usize,
    /// Invalidations at system scope.
    pub invalidations: usize,
    /// Instructions that are reached while a write-back is not waited for.
    pub problems: Vec<NotWaited>,
}

/// Something is stored, or the function ends, while a write-back is not waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotWaited {
    /// Address.
    pub addr: u64,
    /// Instruction.
    pub text: String,
}

impl fmt::Display for NotWaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x} is reached while a write-back was not waited for", self.text, self.addr)
    }
}

/// What became of the wave's stores; of two paths the worse counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    Dirty,
    WrittenBack,
    Clean,
}

/// Whether a write-back may be outstanding, beside the worse state of all paths.
type Flow = (State, bool);

/// Looks at a function by its symbol; `None` when there is no such function.
pub fn function(program: &Program, name: &str) -> Option<Report> {
    let all = &program.instructions;
    let first = all.iter().position(|i| i.line.function == name)?;
    let count = all.iter().skip(first).take_while(|i| i.line.function == name).count();
    let body = all.get(first..first + count)?;
    let checker = Checker { arch: program.arch, body };
    Some(checker.report(&checker.flow()))
}

/// All functions of a program that have instructions of their own.
pub fn functions(program: &Program) -> BTreeSet<String> {
    program.instructions.iter().map(|i| i.line.function.clone()).collect()
}

struct Checker<'a> {
    arch: Arch,
    body: &'a [Instruction],
}

impl Checker<'_> {
    /// What holds before each instruction, `None` for those that are never reached.
    fn flow(&self) -> Vec<Option<Flow>> {
        let mut before = vec![None; self.body.len()];
        let mut todo = vec![(0, (State::Dirty, false))];
        while let Some((at, new)) = todo.pop() {
            let Some(slot) = before.get_mut(at) else { continue };
            let merged = slot.map_or(new, |old: Flow| (old.0.min(new.0), old.1 || new.1));
            if *slot == Some(merged) {
                continue;
            }
            *slot = Some(merged);
            let Some(instruction) = self.body.get(at) else { continue };
            let after = self.after(instruction, merged);
            todo.extend(self.successors(at, instruction).into_iter().map(|next| (next, after)));
        }
        before
    }

    fn successors(&self, at: usize, instruction: &Instruction) -> Vec<usize> {
        let Operation::Scalar(scalar) = &instruction.operation else { return vec![at + 1] };
        match scalar {
            Scalar::End | Scalar::Trap => Vec::new(),
            // A return; a call comes back.
            Scalar::Jump { link: crate::decode::Operand::Null, .. } => Vec::new(),
            Scalar::Branch { condition, distance, .. } => {
                let from = instruction.line.addr + instruction.line.size;
                let to = from.wrapping_add_signed(4 * i64::from(*distance));
                let mut next: Vec<_> = self.body.iter().position(|i| i.line.addr == to).into_iter().collect();
                if *condition != Condition::Always {
                    next.push(at + 1);
                }
                next
            }
            _ => vec![at + 1],
        }
    }

    /// What holds behind an instruction.
    fn after(&self, instruction: &Instruction, (state, outstanding): Flow) -> Flow {
        match &instruction.operation {
            Operation::Cache(Cache::WriteBack(Scope::System)) => (State::WrittenBack, true),
            Operation::Scalar(Scalar::Wait(wait)) if self.waits_for_stores(wait) => {
                let clean = state >= State::WrittenBack || !self.arch.writes_back();
                (if clean { State::Clean } else { state }, false)
            }
            Operation::Memory(memory) if !matches!(memory.access, Access::Load) => {
                (State::Dirty, outstanding)
            }
            Operation::Scalar(Scalar::Jump { .. }) => (State::Dirty, false),
            _ => (state, outstanding),
        }
    }

    fn waits_for_stores(&self, wait: &Wait) -> bool {
        if self.arch.counts_stores_as_loads() {
            wait.loads == Some(0)
        } else {
            wait.stores == Some(0)
        }
    }

    fn report(&self, before: &[Option<Flow>]) -> Report {
        let mut report = Report::default();
        for (instruction, flow) in self.body.iter().zip(before) {
            let Some((state, outstanding)) = *flow else { continue };
            let mut not_waited = || {
                report
                    .problems
                    .push(NotWaited { addr: instruction.line.addr, text: instruction.line.text() });
            };
            match &instruction.operation {
                Operation::Cache(Cache::WriteBack(Scope::System)) => report.write_backs += 1,
                Operation::Cache(cache) if self.invalidates_system(*cache) => report.invalidations += 1,
                Operation::Scalar(Scalar::Wait(wait))
                    if !self.arch.writes_back() && self.waits_for_stores(wait) =>
                {
                    report.write_backs += 1;
                }
                Operation::Scalar(Scalar::End | Scalar::Jump { .. }) if outstanding => not_waited(),
                Operation::Memory(memory) => {
                    let word = memory.element.bytes == 4;
                    let system = word && memory.scope == Scope::System;
                    match memory.access {
                        Access::Load => report.polls += usize::from(system),
                        _ if outstanding => not_waited(),
                        Access::Store
                            if word
                                && state == State::Clean
                                && (system || !self.arch.stores_have_scope()) =>
                        {
                            report.doorbells += 1;
                        }
                        Access::Store => report.others += usize::from(system),
                        Access::Atomic { .. } => {}
                    }
                }
                _ => {}
            }
        }
        report
    }

    /// Whether what the controller wrote can be seen behind it.
    fn invalidates_system(&self, cache: Cache) -> bool {
        match self.arch {
            Arch::Gfx90a => cache == Cache::InvalidateSecond,
            Arch::Gfx1100 => cache == Cache::InvalidateMiddle,
            _ => cache == Cache::Invalidate(Scope::System),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(arch: Arch, lines: &[&str]) -> Report {
        let line = |(n, text): (usize, &&str)| format!("\t{text} // {:012X}: 00000000\n", 0x1000 + 4 * n);
        let text: String = lines.iter().enumerate().map(line).collect();
        let program = Program::parse(arch, &format!("0000000000001000 <kernel>:\n{text}")).unwrap();
        assert_eq!(functions(&program).into_iter().collect::<Vec<_>>(), ["kernel"]);
        assert!(function(&program, "other").is_none());
        function(&program, "kernel").unwrap()
    }

    /// Write-backs, doorbells, other stores like them, what is not waited for.
    fn found(arch: Arch, lines: &[&str]) -> [usize; 4] {
        let report = report(arch, lines);
        [report.write_backs, report.doorbells, report.others, report.problems.len()]
    }

    const SQE: &str = "global_store_dwordx4 v0, v[2:5], s[8:9]";
    const BACK: &str = "buffer_wbl2 sc0 sc1";
    const WAIT: &str = "s_waitcnt vmcnt(0)";
    const DOORBELL: &str = "global_store_dword v0, v1, s[10:11] sc0 sc1";

    #[test]
    fn a_doorbell_behind_write_back_and_wait() {
        assert_eq!(found(Arch::Gfx942, &[SQE, BACK, WAIT, DOORBELL, "s_endpgm"]), [1, 1, 0, 0]);
        assert_eq!(found(Arch::Gfx942, &[SQE, BACK, DOORBELL, "s_endpgm"]), [1, 0, 0, 2]);
        assert_eq!(found(Arch::Gfx942, &[SQE, "buffer_wbl2 sc1", WAIT, DOORBELL, "s_endpgm"]), [0, 0, 1, 0]);
        assert_eq!(found(Arch::Gfx942, &[SQE, DOORBELL, "s_endpgm"]), [0, 0, 1, 0]);
        assert_eq!(found(Arch::Gfx942, &[BACK, WAIT, SQE, DOORBELL, "s_endpgm"]), [1, 0, 1, 0]);
    }

    #[test]
    fn every_path_counts() {
        // The branch goes past write-back and wait.
        let past = [SQE, "s_cbranch_scc0 2", BACK, WAIT, DOORBELL, "s_endpgm"];
        assert_eq!(found(Arch::Gfx942, &past), [1, 0, 1, 0]);
        // Around in a loop, the stores of the round before.
        let round = [BACK, WAIT, DOORBELL, SQE, BACK, WAIT, "s_cbranch_scc0 65531", "s_endpgm"];
        assert_eq!(found(Arch::Gfx942, &round), [2, 1, 0, 0]);
    }

    #[test]
    fn other_architectures() {
        let lines = [
            "global_store_b128 v0, v[2:5], s[8:9]",
            "global_wb scope:SCOPE_SYS",
            "s_wait_storecnt 0x0",
            "global_store_b32 v0, v1, s[10:11] scope:SCOPE_SYS",
            "global_load_b32 v0, v1, s[10:11] scope:SCOPE_SYS",
            "global_inv scope:SCOPE_SYS",
            "s_endpgm",
        ];
        let all = report(Arch::Gfx1201, &lines);
        assert_eq!((all.write_backs, all.doorbells, all.polls, all.invalidations), (1, 1, 1, 1));
        let lines =
            ["global_store_b32 v0, v1, off", "s_waitcnt_vscnt null, 0x0", "global_store_b32 v0, v1, off"];
        assert_eq!(found(Arch::Gfx1100, &lines), [1, 1, 0, 0]);
        assert_eq!(found(Arch::Gfx90a, &[SQE, "buffer_wbl2", "s_setpc_b64 s[30:31]"]), [1, 0, 0, 1]);
    }
}
