// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions of any kind, as a hostile controller writes them, and what the library makes of them. A model beside it says
//! what that must be.
#![allow(unsafe_code, reason = "the completion queue is written as a device does")]

use crate::input::{Input, Seed};
use nvme_kv::ring::SqProducer;
use nvme_kv::{Cqe, Sqe, Status};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, OnceLock, PoisonError};
use xio::loopback::{start, Config, Hooks};
use xio::{Completion, Controller, Error, Namespace, Operation, Queue, QueueOptions, Token};
use zerocopy::{FromBytes, IntoBytes};

const ENTRIES: u32 = 8;
const SUBMIT: u8 = 0;
const COMPLETE: u8 = 1;
const POLL: u8 = 2;
const ABANDON: u8 = 3;
const KINDS: u8 = 4;

fn controller() -> &'static Mutex<(Controller, Hooks, Namespace)> {
    static CONTROLLER: OnceLock<Mutex<(Controller, Hooks, Namespace)>> = OnceLock::new();
    CONTROLLER.get_or_init(|| {
        let (controller, hooks) = start(Config { max_queues: 2, ..Config::default() }).unwrap();
        let namespace = controller.first_namespace().unwrap();
        Mutex::new((controller, hooks, namespace))
    })
}

/// What the queue must be like.
struct Model {
    sq: SqProducer,
    /// Commands in flight by identifier: token, and whether it was given up.
    flight: HashMap<u16, (Token, bool)>,
    /// Written and not seen.
    unread: VecDeque<Cqe>,
    /// Seen and not taken.
    ready: VecDeque<(Token, Cqe)>,
    broken: bool,
    /// The device's place in the completion queue.
    slot: u32,
    phase: bool,
}

impl Model {
    fn free(&self) -> usize {
        ENTRIES as usize - 1 - self.flight.len() - self.ready.len()
    }

    /// The library looks at what was written; whether the rules were kept.
    fn reap(&mut self, qid: u16) -> bool {
        while let Some(cqe) = self.unread.pop_front() {
            let good = cqe.sqid.get() == qid && self.sq.update_head(cqe.sqhd.get());
            match self.flight.remove(&cqe.cid.get()).filter(|_| good) {
                Some((_, true)) => {}
                Some((token, false)) => self.ready.push_back((token, cqe)),
                None => {
                    self.broken = true;
                    return false;
                }
            }
        }
        true
    }
}

pub(crate) fn completions(data: &[u8]) {
    let guard = controller().lock().unwrap_or_else(PoisonError::into_inner);
    let (controller, hooks, namespace) = &*guard;
    hooks.resume();
    let mut queue = controller.queue(QueueOptions { entries: ENTRIES, ..Default::default() }).unwrap();
    hooks.pause();
    let sq = SqProducer::new(ENTRIES).unwrap();
    let mut model = Model {
        sq,
        flight: HashMap::new(),
        unread: VecDeque::new(),
        ready: VecDeque::new(),
        broken: false,
        slot: 0,
        phase: true,
    };
    let mut input = Input(data);
    while !input.is_empty() {
        match input.u8() % KINDS {
            SUBMIT => submit(&mut queue, &mut model, namespace),
            COMPLETE if model.unread.len() + 1 < ENTRIES as usize => {
                let cqe = invent(&mut input, &queue, &model);
                write(&queue, &mut model, cqe);
            }
            COMPLETE | POLL => poll(&mut queue, &mut model),
            _ => {
                let cid = u16::from(input.u8()) % ENTRIES as u16;
                if let Some((token, given_up)) = model.flight.get_mut(&cid) {
                    assert_eq!(queue.abandon(*token).is_ok(), !*given_up);
                    *given_up = true;
                }
            }
        }
        // A broken queue stays as it was when it broke, but for the command that broke it.
        if !model.broken {
            assert_eq!((queue.free(), queue.in_flight()), (model.free(), model.flight.len()));
            assert_eq!(queue.poisoned(), model.flight.values().filter(|(_, given_up)| *given_up).count());
        }
    }
    hooks.resume();
    queue.close().unwrap();
}

fn submit(queue: &mut Queue, model: &mut Model, namespace: &Namespace) {
    let operation = Operation::Exist { key: "k".parse().unwrap() };
    let submitted = queue.submit(namespace, operation);
    if model.broken || model.free() == 0 && !model.reap(queue.qid()) {
        assert!(matches!(submitted, Err(Error::Protocol(_))), "{submitted:?}");
        return;
    }
    let slot = if model.free() == 0 { None } else { model.sq.push() };
    let Some(slot) = slot else {
        assert!(matches!(submitted, Err(Error::QueueFull { .. })), "{submitted:?}");
        return;
    };
    let mut sqe = [0; Sqe::SIZE];
    // SAFETY: an entry of the mapped queue, which only this thread writes while the controller is held.
    unsafe { queue.raw().sq_ptr().add(slot as usize * Sqe::SIZE).copy_to(sqe.as_mut_ptr(), Sqe::SIZE) };
    let cid = Sqe::read_from_bytes(&sqe).unwrap().cid.get();
    let before = model.flight.insert(cid, (submitted.unwrap(), false));
    assert!(before.is_none() && u32::from(cid) < ENTRIES, "identifier {cid} used twice");
}

/// A completion that is right, but for what the input spoils.
fn invent(input: &mut Input<'_>, queue: &Queue, model: &Model) -> Cqe {
    let spoil = input.u8();
    let mut cids: Vec<u16> = model.flight.keys().copied().collect();
    cids.sort_unstable();
    let cid = cids.get(usize::from(spoil >> 3) % cids.len().max(1)).copied().unwrap_or(0);
    let cid = if spoil & 1 == 0 { cid } else { input.u16() % (2 * ENTRIES as u16) };
    let sqid = if spoil & 2 == 0 { queue.qid() } else { input.u16() };
    let head = if spoil & 4 == 0 { model.sq.tail() as u16 } else { input.u16() % (2 * ENTRIES as u16) };
    Cqe::new(sqid, head, cid, Status::from_bits(input.u16()), input.u32())
}

fn write(queue: &Queue, model: &mut Model, cqe: Cqe) {
    let cqe = cqe.with_phase(model.phase);
    let at = model.slot as usize * Cqe::SIZE;
    // SAFETY: an entry of the mapped queue, which nobody else touches while the controller is held.
    unsafe { queue.raw().cq_ptr().add(at).copy_from(cqe.as_bytes().as_ptr(), Cqe::SIZE) };
    model.slot = (model.slot + 1) % ENTRIES;
    model.phase ^= model.slot == 0;
    model.unread.push_back(cqe);
}

fn poll(queue: &mut Queue, model: &mut Model) {
    let polled = queue.poll();
    if model.ready.is_empty() && (model.broken || !model.reap(queue.qid())) {
        assert!(matches!(polled, Err(Error::Protocol(_))), "{polled:?}");
        return;
    }
    let expected = model.ready.pop_front().map(|(token, cqe)| Completion {
        token,
        status: cqe.status(),
        do_not_retry: cqe.dnr(),
        value_len: cqe.dw0.get(),
    });
    assert_eq!(polled.unwrap(), expected);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let complete = |seed: Seed, spoil: u8| seed.u8(COMPLETE).u8(spoil).bytes(&[3, 0, 7, 0, 0x87, 0, 0, 0]);
    let two = || Seed::default().bytes(&[SUBMIT, SUBMIT]);
    let mut seeds: Vec<_> = (1..8).map(|spoil| complete(two(), spoil).bytes(&[POLL, POLL]).0).collect();
    let round = |seed: Seed| seed.u8(SUBMIT).u8(COMPLETE).u8(0).u16(0).u32(9).u8(POLL);
    seeds.push((0..20).fold(Seed::default(), |seed, _| round(seed)).0);
    seeds.push(two().bytes(&[ABANDON, 0, COMPLETE, 0, 0, 0, 0, 0, 0, 0, POLL]).bytes(&[SUBMIT; 9]).0);
    seeds
}
