// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controllers that do not answer, answer too late, or break the protocol.

use crate::controller::{beside, in_order};
use crate::rig::{queue_options, statuses, threads, Rig, TIMED_OUT};
use nvme_kv::{Cqe, Status};
use std::time::Duration;
use xio::gpu::abi::device;
use xio::gpu::{Builtin, GpuQueueOptions};
use xio::loopback::Bare;

fn impatient(entries: u32) -> GpuQueueOptions {
    GpuQueueOptions { timeout: Duration::from_millis(300), ..queue_options(entries) }
}

/// Key of the commands that get no answer.
const LOST: u32 = 5;

#[test]
fn a_lost_command_times_out_and_its_slot_is_not_used_again() {
    for kernel in [Builtin::Exist, Builtin::Batch] {
        let (rig, mut bare) = Rig::new(&impatient(16));
        let mut kept = None;
        // Everything is answered but that one command.
        let loses = in_order(|_, _, cqe| {
            let lost = cqe.dw0.get() == LOST && kept.is_none();
            if lost {
                kept = Some(cqe);
            }
            (!lost).then_some(cqe)
        });
        let results = beside(&mut bare, loses, || rig.exist(kernel, 10, 1, threads()));
        let kept = kept.expect("no command was lost");
        for (n, status) in (0..).zip(statuses(&results)) {
            assert_eq!(status == TIMED_OUT, n == LOST, "command {n}: {status:#x}");
        }
        assert_eq!(rig.queue.counters().unwrap().poisoned, 1);
        // Many laps with the poisoned place: its identifier does not come again, a filler goes there.
        let (mut seen, mut fillers) = (0, 0);
        let watch = in_order(|_, sqe, cqe| {
            seen += u32::from(sqe.cid == kept.cid);
            fillers += u32::from(sqe.cid.get() >= 16);
            Some(cqe)
        });
        let results = beside(&mut bare, watch, || rig.exist(kernel, 200, 1, threads()));
        assert!(statuses(&results).iter().all(|s| *s != TIMED_OUT));
        assert!(seen == 0 && fillers > 8, "{seen} times the identifier, {fillers} fillers");
        let counters = rig.queue.counters().unwrap();
        assert_eq!((counters.poisoned, counters.broken), (1, 0));
        // The answer at last: nobody is there any more, and nothing else is disturbed.
        bare.post(Cqe::new(bare.qid(), bare.head(), kept.cid.get(), Status::SUCCESS, 0));
        let results =
            beside(&mut bare, in_order(|_, _, cqe| Some(cqe)), || rig.exist(kernel, 50, 1, threads()));
        for (n, (status, result)) in (0..).zip(statuses(&results).iter().zip(&results)) {
            assert_eq!((*status != 0, result.length), (n % 3 != 0, n));
        }
        assert_eq!(rig.queue.counters().unwrap().late, 1);
    }
}

#[test]
fn a_controller_that_fetches_nothing_fills_the_ring() {
    let (rig, _bare) = Rig::new(&impatient(4));
    let results = rig.exist(Builtin::Exist, 8, 8, 1);
    let statuses = statuses(&results);
    let count = |status| statuses.iter().filter(|s| **s == status).count();
    // Three are in the ring, the others never got there.
    assert_eq!(count(TIMED_OUT), 3, "{statuses:x?}");
    assert_eq!(count(device::STATUS_FULL), 5, "{statuses:x?}");
    let counters = rig.queue.counters().unwrap();
    assert_eq!((counters.submitted, counters.poisoned), (3, 3));
    // In a batch likewise.
    let (rig, _bare) = Rig::new(&impatient(4));
    let results = crate::rig::statuses(&rig.exist(Builtin::Batch, 6, 1, threads()));
    assert_eq!(results, [[TIMED_OUT; 3], [device::STATUS_FULL; 3]].concat());
}

/// Makes an answer wrong.
type Spoil = fn(&Bare, Cqe) -> Cqe;

#[test]
fn a_controller_that_breaks_the_protocol_breaks_the_queue() {
    let wrong: [(u32, Spoil); 4] = [
        (device::BROKEN_QUEUE_ID, |bare, mut cqe| {
            cqe.sqid = (bare.qid() + 1).into();
            cqe
        }),
        (device::BROKEN_COMMAND_ID, |_, mut cqe| {
            cqe.cid = 0xfff0.into();
            cqe
        }),
        (device::BROKEN_COMMAND_ID, |_, mut cqe| {
            cqe.cid = ((cqe.cid.get() + 8) % 16).into();
            cqe
        }),
        (device::BROKEN_HEAD, |bare, mut cqe| {
            cqe.sqhd = ((bare.head() + 5) % 16).into();
            cqe
        }),
    ];
    for (reason, spoil) in wrong {
        let (rig, mut bare) = Rig::new(&queue_options(16));
        let bad = in_order(|bare, _, cqe| Some(spoil(bare, cqe)));
        let results = beside(&mut bare, bad, || rig.exist(Builtin::Exist, 1, 1, 1));
        assert_eq!(rig.queue.counters().unwrap().broken, reason);
        let first = statuses(&results)[0];
        assert!(
            first == device::STATUS_BROKEN || (reason == device::BROKEN_HEAD && first == 0),
            "{first:#x}"
        );
        // And takes no more commands.
        let results = rig.exist(Builtin::Batch, 20, 1, threads());
        assert!(statuses(&results).iter().all(|s| *s == device::STATUS_BROKEN));
    }
}

#[test]
fn items_that_are_no_command_are_refused_by_the_kernel() {
    for kernel in [Builtin::Exist, Builtin::Batch] {
        let (rig, mut bare) = Rig::new(&queue_options(16));
        let mut items = Rig::items(20);
        items[3].key_len = 0;
        items[7].key_len = 17;
        let results =
            beside(&mut bare, in_order(|_, _, cqe| Some(cqe)), || rig.run(kernel, &items, 1, threads()));
        for (n, status) in statuses(&results).into_iter().enumerate() {
            assert_eq!(status == device::STATUS_INVALID, n == 3 || n == 7, "item {n}: {status:#x}");
        }
    }
}
