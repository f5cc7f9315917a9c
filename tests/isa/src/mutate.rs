// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine code that is spoiled on purpose, to see that its runs fail. Beside builds whose source is spoiled, since
//! compilers may put right by chance what the source has wrong.

use crate::arch::{Arch, Scope};
use crate::decode::{Cache, Operation, Program, Scalar, Wait};

/// How to spoil.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoil {
    /// Write-backs at system scope are left out.
    NoWriteBack,
    /// Write-backs at system scope are done at device scope.
    DeviceScope,
    /// Nothing waits for write-backs; where there are none, for stores.
    NoWait,
    /// Invalidations at system scope are left out.
    NoInvalidate,
    /// Write-backs at device scope, which dies need of each other, are left out.
    NoDeviceWriteBack,
}

impl Spoil {
    /// Those that keep the controller and the device apart.
    pub const SYSTEM: [Self; 4] = [Self::NoWriteBack, Self::DeviceScope, Self::NoWait, Self::NoInvalidate];
}

/// Spoils a program; how many instructions that concerns.
pub fn spoil(program: &mut Program, how: Spoil) -> usize {
    let arch = program.arch;
    let mut changed = 0;
    let mut behind_write_back = false;
    for instruction in &mut program.instructions {
        let operation = &mut instruction.operation;
        let new = match (how, &*operation) {
            (Spoil::NoWriteBack, Operation::Cache(Cache::WriteBack(Scope::System))) => Some(nothing()),
            (Spoil::NoDeviceWriteBack, Operation::Cache(Cache::WriteBack(Scope::Agent))) => Some(nothing()),
            (Spoil::DeviceScope, Operation::Cache(Cache::WriteBack(Scope::System))) => {
                Some(Operation::Cache(Cache::WriteBack(Scope::Agent)))
            }
            (Spoil::NoInvalidate, Operation::Cache(cache)) if reaches_system(arch, *cache) => Some(nothing()),
            (Spoil::NoWait, Operation::Scalar(Scalar::Wait(wait)))
                if behind_write_back || !arch.writes_back() =>
            {
                without_stores(arch, *wait).map(|wait| Operation::Scalar(Scalar::Wait(wait)))
            }
            _ => None,
        };
        // Until something else than a wait comes.
        behind_write_back = match operation {
            Operation::Cache(Cache::WriteBack(Scope::System)) => true,
            Operation::Scalar(Scalar::Wait(_) | Scalar::Nothing) => behind_write_back,
            _ => false,
        };
        if let Some(new) = new {
            *operation = new;
            changed += 1;
        }
    }
    changed
}

const fn nothing() -> Operation {
    Operation::Scalar(Scalar::Nothing)
}

const fn reaches_system(arch: Arch, cache: Cache) -> bool {
    match arch {
        Arch::Gfx90a => matches!(cache, Cache::InvalidateSecond),
        Arch::Gfx1100 => matches!(cache, Cache::InvalidateMiddle),
        _ => matches!(cache, Cache::Invalidate(Scope::System)),
    }
}

/// A wait without its part for stores; `None` when it has none.
fn without_stores(arch: Arch, wait: Wait) -> Option<Wait> {
    let stores = if arch.counts_stores_as_loads() { wait.loads } else { wait.stores };
    stores.map(|_| {
        if arch.counts_stores_as_loads() {
            Wait { loads: None, ..wait }
        } else {
            Wait { stores: None, ..wait }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn what_is_spoiled_is_found() {
        let lines = [
            "global_store_dwordx4 v0, v[2:5], s[8:9]",
            "buffer_wbl2 sc0 sc1",
            "s_waitcnt vmcnt(0)",
            "global_store_dword v0, v1, s[10:11] sc0 sc1",
            "buffer_inv sc0 sc1",
            "s_endpgm",
        ];
        let line = |(n, text): (usize, &&str)| format!("\t{text} // {:012X}: 00000000\n", 0x1000 + 4 * n);
        let text: String = lines.iter().enumerate().map(line).collect();
        let program = Program::parse(Arch::Gfx942, &format!("0000000000001000 <kernel>:\n{text}")).unwrap();
        // Write-backs, doorbells behind them, invalidations, what is not waited for.
        for (how, found) in [
            (Spoil::NoWriteBack, [0, 0, 1, 0]),
            (Spoil::DeviceScope, [0, 0, 1, 0]),
            (Spoil::NoWait, [1, 0, 1, 2]),
            (Spoil::NoInvalidate, [1, 1, 0, 0]),
        ] {
            let mut program = program.clone();
            assert_eq!(spoil(&mut program, how), 1, "{how:?}");
            let report = check::function(&program, "kernel").unwrap();
            let got = [report.write_backs, report.doorbells, report.invalidations, report.problems.len()];
            assert_eq!(got, found, "{how:?}");
            assert_eq!(spoil(&mut program, how), 0, "{how:?}");
        }
    }
}
