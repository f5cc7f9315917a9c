// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software controller: commands of any kind, and a host that changes memory, doorbells and registers under it.

use crate::input::{Input, Seed};
use crate::rig::{Rig, DATA, ENTRIES, MEMORY};
use nvme_kv::{kv, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

const ADMIN: u8 = 0;
const IO: u8 = 1;
const MEMORY_WRITE: u8 = 2;
const REGISTER: u8 = 3;
const DOORBELL: u8 = 4;
const RESTART: u8 = 5;
const KINDS: u8 = 6;

pub(crate) fn run(data: &[u8]) {
    let (mut input, mut rig) = (Input(data), Rig::new());
    while !input.is_empty() {
        match input.u8() % KINDS {
            kind @ (ADMIN | IO) => {
                let sqe = Sqe::read_from_bytes(&input.array::<64>()).unwrap();
                rig.submit(usize::from(kind), &sqe);
            }
            MEMORY_WRITE => {
                let (at, len) = (input.below(MEMORY), usize::from(input.u8()));
                let bytes = input.bytes(len.min(MEMORY - at));
                rig.host.memory.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
            }
            REGISTER => {
                let (at, value) = (usize::from(input.u8()) * 4, input.u32());
                rig.controller.write_register(at, &value.to_le_bytes());
                rig.controller.read_register(at, &mut [0; 8]);
            }
            DOORBELL => {
                let (n, value) = (usize::from(input.u8()), input.u32());
                rig.ring(n, value % (2 * ENTRIES));
            }
            _ => {
                rig.controller.reset();
                rig.start();
            }
        }
        rig.work();
    }
    rig.end();
    answered(data);
}

/// A single command that reaches no queue gets one answer, under its identifier, and a refused one does not succeed.
fn answered(data: &[u8]) {
    let mut rig = Rig::new();
    let mut sqe = Sqe::read_from_bytes(&Input(data.get(1..).unwrap_or(&[])).array::<64>()).unwrap();
    (sqe.prp1, sqe.prp2) = (DATA.into(), (DATA + 4096).into());
    sqe.flags &= 3;
    // What it transfers has room in two pages.
    let len = sqe.cdw10[0].get() % 8193;
    sqe.cdw10[0] = len.into();
    rig.submit(1, &sqe);
    let completions = rig.completions();
    assert!(completions[0].phase(), "no answer");
    assert!(!completions[1].phase(), "more than one answer");
    assert_eq!((completions[0].cid, completions[0].sqid.get(), completions[0].sqhd.get()), (sqe.cid, 1, 1));
    if let Err(refused) = kv::Command::decode(&sqe) {
        assert_eq!(completions[0].status(), refused);
    }
    assert_ne!(completions[0].status(), Status::INTERNAL_ERROR);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let command = |seed: Seed, kind: u8, sqe: &[u8]| seed.u8(kind).bytes(sqe);
    let all = crate::wire::sqe_seeds();
    let (io, admin) = all.split_at(7);
    let mut seeds: Vec<_> = io.iter().map(|sqe| command(Seed::default(), IO, sqe).0).collect();
    seeds.extend(admin.iter().map(|sqe| command(Seed::default(), ADMIN, sqe).0));
    let run = Rig::commands().iter().fold(Seed::default(), |seed, sqe| command(seed, IO, sqe.as_bytes()));
    // Doorbells in memory; then a controller that is shut down, and started anew.
    let shadow = run.bytes(&[ADMIN]).bytes(&admin[11]).u8(MEMORY_WRITE).u32(0x9008).u8(4).u32(3);
    let off = shadow.u8(REGISTER).u8(5).u32(0x0046_4061).u8(DOORBELL).u8(2).u32(7).u8(RESTART);
    seeds.push(off.0);
    seeds
}
