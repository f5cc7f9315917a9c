// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses that were issued, and not waited for yet.
//!
//! An access is *performed* at some time after it was issued: when it is due, which is a matter of chance, or at the
//! latest when the wave waits for it. It stays in its queue until a wait says that it has come so far: before, its
//! results must not be used, and using them is an error even if they happen to be there.

use super::action::{delay, lds, Action, Order};
use super::{Context, Wave};
use crate::decode::{Registers, Wait};
use crate::error::Violation;
use std::collections::VecDeque;

/// What counts outstanding accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counter {
    Loads,
    Stores,
    Lds,
    Scalar,
}

/// An access.
#[derive(Debug)]
pub(super) struct Entry {
    action: Action,
    /// Order of issue.
    number: u64,
    /// When it is performed at the latest.
    due: u64,
    /// Registers whose values are not there before it was waited for.
    vectors: Option<(u16, u16)>,
    scalars: Option<(u8, u8)>,
    /// Whether it comes back in order, and with what.
    order: Order,
}

/// The queues of a wave.
#[derive(Debug, Default)]
pub(super) struct Pending {
    queues: [VecDeque<Entry>; 4],
    next: u64,
    /// When something is due.
    due: Option<u64>,
}

/// Most accesses that a counter counts; more make the wave wait.
const MOST: usize = 63;

impl Pending {
    /// Whether an instruction uses a register that was not waited for.
    pub(super) fn check(&self, registers: &Registers) -> Result<(), Violation> {
        for entry in self.queues.iter().flatten() {
            if let Some((first, count)) = entry.vectors {
                let hit = |(r, n): &&(u16, u16)| *r < first + count && first < r + n;
                if let Some((r, _)) = registers.vector.iter().find(hit) {
                    return Err(Violation::NotWaited(format!("v{}", (*r).max(first))));
                }
            }
            if let Some((first, count)) = entry.scalars {
                let hit = |(r, n): &&(u8, u8)| *r < first + count && first < r + n;
                if let Some((r, _)) = registers.scalar.iter().find(hit) {
                    return Err(Violation::NotWaited(format!("s{}", (*r).max(first))));
                }
            }
        }
        Ok(())
    }

    /// When something is due.
    pub(super) const fn due(&self) -> Option<u64> {
        self.due
    }
}

impl Wave {
    /// When an access that was issued is performed at the latest.
    pub fn due(&self) -> Option<u64> {
        self.pending.due()
    }

    fn queue(&self, counter: Counter) -> usize {
        match counter {
            Counter::Loads => 0,
            Counter::Stores if self.arch.counts_stores_as_loads() => 0,
            Counter::Stores => 1,
            Counter::Lds => 2,
            Counter::Scalar if self.arch.counts_scalar_as_lds() => 2,
            Counter::Scalar => 3,
        }
    }

    /// Issues an access.
    pub(super) fn start(&mut self, counter: Counter, action: Action, context: &mut Context) {
        self.start_flat(counter, action, false, context);
    }

    /// Issues an access, which may count as one to LDS besides.
    pub(super) fn start_flat(&mut self, counter: Counter, action: Action, flat: bool, context: &mut Context) {
        let due = context.now + delay(&action, context);
        let number = self.pending.next;
        self.pending.next += 1;
        let (vectors, scalars, order) = (action.vectors(), action.scalars(), action.order());
        let (queue, lds) = (self.queue(counter), self.queue(Counter::Lds));
        let entry = Entry { action, number, due, vectors, scalars, order };
        let done = Action::Done;
        // The counter of LDS says that a flat access does not concern LDS, not that memory was reached.
        let second = Entry { action: done, number, due, vectors, scalars, order: Order::Lds };
        if let Some(queue) = self.pending.queues.get_mut(queue) {
            queue.push_back(entry);
        }
        if flat {
            if let Some(queue) = self.pending.queues.get_mut(lds) {
                queue.push_back(second);
            }
        }
        self.pending.due = Some(self.pending.due.map_or(due, |d| d.min(due)));
    }

    /// Performs what is due.
    pub fn perform_due(&mut self, context: &mut Context) -> Result<(), Violation> {
        let mut next = None;
        for queue in 0..4 {
            let mut at = 0;
            while let Some(entry) = self.pending.queues.get(queue).and_then(|q| q.get(at)) {
                match (&entry.action, entry.due) {
                    (Action::Done, _) => {}
                    (_, due) if due <= context.now => self.perform(queue, at, context)?,
                    (_, due) => next = Some(next.map_or(due, |n: u64| n.min(due))),
                }
                at += 1;
            }
        }
        self.pending.due = next;
        Ok(())
    }

    /// Waits until no more than that many accesses are outstanding.
    pub(super) fn wait(&mut self, wait: &Wait, context: &mut Context) -> Result<(), Violation> {
        let counters = [
            (Counter::Loads, wait.loads),
            (Counter::Stores, wait.stores),
            (Counter::Lds, wait.lds),
            (Counter::Scalar, wait.scalar),
        ];
        for (counter, most) in counters {
            if let Some(most) = most {
                self.wait_queue(self.queue(counter), most as usize, context)?;
            }
        }
        Ok(())
    }

    fn wait_queue(&mut self, queue: usize, most: usize, context: &mut Context) -> Result<(), Violation> {
        let Some(entries) = self.pending.queues.get(queue) else { return Ok(()) };
        // Of what comes back in any order, only waiting for all of it says anything.
        let mut orders = entries.iter().map(|entry| entry.order);
        let first = orders.next().unwrap_or(Order::None);
        if most > 0 && (first == Order::None || orders.any(|order| order != first)) {
            return Ok(());
        }
        while self.pending.queues.get(queue).is_some_and(|q| q.len() > most) {
            self.perform(queue, 0, context)?;
            if let Some(queue) = self.pending.queues.get_mut(queue) {
                queue.pop_front();
            }
        }
        Ok(())
    }

    /// Keeps a counter within what it can count.
    pub(super) fn make_room(&mut self, context: &mut Context) -> Result<(), Violation> {
        for queue in 0..4 {
            self.wait_queue(queue, MOST, context)?;
        }
        Ok(())
    }

    /// Performs everything at the end of a wave.
    pub(super) fn finish(&mut self, context: &mut Context) -> Result<(), Violation> {
        for queue in 0..4 {
            self.wait_queue(queue, 0, context)?;
        }
        Ok(())
    }

    /// Stores reach the second level cache before those that other waves of the block issue behind a barrier: the
    /// first level cache that they share keeps them in order, and compilers count on it.
    pub fn order_stores(&mut self, context: &mut Context) -> Result<(), Violation> {
        for queue in 0..2 {
            let count = self.pending.queues.get(queue).map_or(0, VecDeque::len);
            for at in 0..count {
                let entry = self.pending.queues.get(queue).and_then(|q| q.get(at));
                if entry.is_some_and(|e| matches!(e.action, Action::Store { .. } | Action::Atomic { .. })) {
                    self.perform(queue, at, context)?;
                }
            }
        }
        Ok(())
    }

    /// Before an access to a range is issued: performs outstanding ones that would see what it does, or whose writes
    /// it must see.
    pub(super) fn order(
        &mut self,
        range: (u64, u64),
        writes: bool,
        context: &mut Context,
    ) -> Result<(), Violation> {
        for queue in 0..2 {
            let count = self.pending.queues.get(queue).map_or(0, VecDeque::len);
            for at in 0..count {
                let entry = self.pending.queues.get(queue).and_then(|q| q.get(at));
                let conflicts = entry.is_some_and(|entry| {
                    let concerned = matches!(entry.action, Action::Atomic { .. })
                        || writes && matches!(entry.action, Action::Load { .. });
                    let (first, end) = entry.action.range();
                    concerned && first < range.1 && range.0 < end
                });
                if conflicts {
                    self.perform(queue, at, context)?;
                }
            }
        }
        Ok(())
    }

    /// Performs an access, and before it what comes before it in any case.
    fn perform(&mut self, queue: usize, at: usize, context: &mut Context) -> Result<(), Violation> {
        let Some(entry) = self.pending.queues.get(queue).and_then(|q| q.get(at)) else { return Ok(()) };
        let number = entry.number;
        match entry.action {
            Action::Done => return Ok(()),
            // Reads come back in order.
            Action::Load { .. } | Action::Atomic { .. } => {
                self.perform_before(number, Action::is_read_later, context)?
            }
            // The cache is written back behind the stores that were issued before.
            Action::WriteBack { .. } => {
                let stores = |a: &Action| matches!(a, Action::Store { .. } | Action::Atomic { .. });
                self.perform_before(number, stores, context)?;
            }
            // LDS works in order.
            _ if entry.order == Order::Lds => self.perform_before(number, lds, context)?,
            _ => {}
        }
        let entry = self.pending.queues.get_mut(queue).and_then(|q| q.get_mut(at));
        if let Some(entry) = entry {
            let action = std::mem::replace(&mut entry.action, Action::Done);
            self.act(action, context)?;
        }
        Ok(())
    }

    fn perform_before(
        &mut self,
        number: u64,
        which: impl Fn(&Action) -> bool,
        context: &mut Context,
    ) -> Result<(), Violation> {
        for queue in 0..3 {
            let count = self.pending.queues.get(queue).map_or(0, VecDeque::len);
            for at in 0..count {
                let entry = self.pending.queues.get_mut(queue).and_then(|q| q.get_mut(at));
                if let Some(entry) = entry {
                    if entry.number < number && which(&entry.action) {
                        let action = std::mem::replace(&mut entry.action, Action::Done);
                        self.act(action, context)?;
                    }
                }
            }
        }
        Ok(())
    }
}
