// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue index arithmetic (Base, section 3.3.1): the host's side and the controller's side of a submission
//! and of a completion queue. Entries themselves are read and written by the caller.

/// Next index in a queue of `size` entries.
#[inline]
const fn next(index: u32, size: u32) -> u32 {
    if index + 1 >= size {
        0
    } else {
        index + 1
    }
}

/// Host side of a submission queue: produces at the tail.
///
/// # Invariants
///
/// `2 <= size <= 65536`, `tail < size`, `head < size`.
#[derive(Clone, Debug)]
pub struct SqProducer {
    size: u32,
    tail: u32,
    head: u32,
}

impl SqProducer {
    /// An empty queue; `None` unless it has 2 to 65536 entries.
    pub const fn new(size: u32) -> Option<Self> {
        if size < 2 || size > 65536 {
            return None;
        }
        Some(Self { size, tail: 0, head: 0 })
    }

    /// Entries.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Commands that the controller has not been seen to fetch.
    pub const fn used(&self) -> u32 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.size - self.head + self.tail
        }
    }

    /// Commands that can be submitted now. One slot always stays free (Base, section 3.3.1.4: a full queue has
    /// its tail one behind its head).
    pub const fn free(&self) -> u32 {
        self.size - 1 - self.used()
    }

    /// Takes the slot for the next command; `None` when the queue is full. Ring [`Self::tail`] afterwards.
    #[inline]
    pub fn push(&mut self) -> Option<u32> {
        if self.free() == 0 {
            return None;
        }
        let slot = self.tail;
        self.tail = next(self.tail, self.size);
        Some(slot)
    }

    /// Value for the tail doorbell.
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// Takes note of SQHD from a completion; `false` (and no change) when it is no index of this queue or
    /// lies beyond the tail, as only a broken controller says.
    #[inline]
    #[must_use]
    pub fn update_head(&mut self, sqhd: u16) -> bool {
        let head = sqhd as u32;
        if head >= self.size {
            return false;
        }
        let old = self.used();
        let moved = if head >= self.head { head - self.head } else { self.size - self.head + head };
        if moved > old {
            return false;
        }
        self.head = head;
        true
    }
}

/// Host side of a completion queue: consumes at the head, tells new entries by their phase tag.
///
/// # Invariants
///
/// `2 <= size <= 65536`, `head < size`.
#[derive(Clone, Debug)]
pub struct CqConsumer {
    size: u32,
    head: u32,
    phase: bool,
}

impl CqConsumer {
    /// A queue whose memory is all zeros; `None` unless it has 2 to 65536 entries.
    pub const fn new(size: u32) -> Option<Self> {
        if size < 2 || size > 65536 {
            return None;
        }
        Some(Self { size, head: 0, phase: true })
    }

    /// Slot to look at, and value for the head doorbell.
    pub const fn head(&self) -> u32 {
        self.head
    }

    /// Phase tag of a new entry at the head (Base, section 4.2.4: inverted on each pass).
    pub const fn phase(&self) -> bool {
        self.phase
    }

    /// Consumes the entry at the head.
    #[inline]
    pub fn pop(&mut self) {
        self.head = next(self.head, self.size);
        if self.head == 0 {
            self.phase = !self.phase;
        }
    }
}

/// A doorbell value that is no index of the queue (Base, Asynchronous Event "Invalid Doorbell Write Value").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidDoorbell(pub u32);

/// Controller side of a submission queue: consumes up to the tail doorbell.
///
/// # Invariants
///
/// `head < size`.
#[derive(Clone, Debug)]
pub struct SqConsumer {
    size: u32,
    head: u32,
}

impl SqConsumer {
    /// An empty queue of `size` entries; `None` unless it has 2 to 65536.
    pub const fn new(size: u32) -> Option<Self> {
        if size < 2 || size > 65536 {
            return None;
        }
        Some(Self { size, head: 0 })
    }

    /// Slot of the next command when the tail doorbell reads `tail`.
    #[inline]
    pub fn pop(&mut self, tail: u32) -> Result<Option<u32>, InvalidDoorbell> {
        if tail >= self.size {
            return Err(InvalidDoorbell(tail));
        }
        if self.head == tail {
            return Ok(None);
        }
        let slot = self.head;
        self.head = next(self.head, self.size);
        Ok(Some(slot))
    }

    /// SQHD for completions.
    pub const fn head(&self) -> u16 {
        self.head as u16
    }
}

/// Controller side of a completion queue: produces at the tail, with the phase tag.
///
/// # Invariants
///
/// `tail < size`.
#[derive(Clone, Debug)]
pub struct CqProducer {
    size: u32,
    tail: u32,
    phase: bool,
}

impl CqProducer {
    /// An empty queue of `size` entries; `None` unless it has 2 to 65536.
    pub const fn new(size: u32) -> Option<Self> {
        if size < 2 || size > 65536 {
            return None;
        }
        Some(Self { size, tail: 0, phase: true })
    }

    /// Whether [`push`](Self::push) would give a slot.
    pub const fn has_room(&self, head: u32) -> Result<bool, InvalidDoorbell> {
        if head >= self.size {
            return Err(InvalidDoorbell(head));
        }
        Ok(next(self.tail, self.size) != head)
    }

    /// How many completions [`push`](Self::push) would take in a row.
    pub const fn room(&self, head: u32) -> Result<u32, InvalidDoorbell> {
        if head >= self.size {
            return Err(InvalidDoorbell(head));
        }
        let used = if self.tail >= head { self.tail - head } else { self.size - head + self.tail };
        Ok(self.size - 1 - used)
    }

    /// Slot and phase tag for the next completion when the head doorbell reads `head`; `Ok(None)` when the
    /// queue is full.
    #[inline]
    pub fn push(&mut self, head: u32) -> Result<Option<(u32, bool)>, InvalidDoorbell> {
        if !self.has_room(head)? {
            return Ok(None);
        }
        let after = next(self.tail, self.size);
        let at = (self.tail, self.phase);
        self.tail = after;
        if after == 0 {
            self.phase = !self.phase;
        }
        Ok(Some(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn spec_base_3_3_1_full_ring_keeps_one_slot() {
        let mut sq = SqProducer::new(2).unwrap();
        assert_eq!((sq.push(), sq.push(), sq.tail()), (Some(0), None, 1));
        assert!(sq.update_head(1));
        assert_eq!((sq.push(), sq.push(), sq.tail()), (Some(1), None, 0));
        let mut cq = CqProducer::new(2).unwrap();
        assert_eq!(cq.push(0), Ok(Some((0, true))));
        assert_eq!((cq.push(0), cq.has_room(0), cq.has_room(1)), (Ok(None), Ok(false), Ok(true)));
        assert_eq!((cq.room(0), cq.room(1), cq.room(2).is_err()), (Ok(0), Ok(1), true));
        assert_eq!(cq.push(1), Ok(Some((1, true))));
        assert_eq!(cq.push(0), Ok(Some((0, false))));
    }

    #[test]
    fn sizes_and_doorbells_out_of_range_are_refused() {
        for size in [0, 1, 65537] {
            assert!(SqProducer::new(size).is_none() && CqConsumer::new(size).is_none());
            assert!(SqConsumer::new(size).is_none() && CqProducer::new(size).is_none());
        }
        assert_eq!(SqConsumer::new(4).unwrap().pop(4), Err(InvalidDoorbell(4)));
        assert_eq!(CqProducer::new(4).unwrap().push(9), Err(InvalidDoorbell(9)));
    }

    #[test]
    fn a_head_beyond_the_tail_is_refused() {
        let mut sq = SqProducer::new(8).unwrap();
        sq.push();
        sq.push();
        assert!(!sq.update_head(3) && !sq.update_head(8) && sq.update_head(2) && !sq.update_head(1));
        assert_eq!(sq.free(), 7);
    }

    #[test]
    fn largest_queue_wraps() {
        let mut sq = SqProducer::new(65536).unwrap();
        let mut dev = SqConsumer::new(65536).unwrap();
        for i in 0..200_000u32 {
            assert_eq!(sq.push(), Some(i % 65536));
            assert_eq!(dev.pop(sq.tail()), Ok(Some(i % 65536)));
            assert!(sq.update_head(dev.head()));
        }
    }

    proptest! {
        /// Host and controller exchange commands over shared "memory" in random bursts: nothing is lost,
        /// doubled or reordered, over many wraps.
        #[test]
        fn queues_carry_everything_in_order(size in 2u32..20, bursts in proptest::collection::vec((0u8..30, 0u8..30, 0u8..30), 1..200)) {
            let mut sq = SqProducer::new(size).unwrap();
            let mut cq = CqConsumer::new(size).unwrap();
            let mut dsq = SqConsumer::new(size).unwrap();
            let mut dcq = CqProducer::new(size).unwrap();
            let mut sqm = std::vec![0u64; size as usize];
            let mut cqm = std::vec![(0u64, 0u16, false); size as usize];
            let (mut sent, mut got) = (0u64, 0u64);
            let mut waiting = VecDeque::new();
            for (submit, fetch, reap) in bursts {
                for _ in 0..submit {
                    prop_assert!(sq.used() < size);
                    let Some(slot) = sq.push() else { break };
                    sqm[slot as usize] = sent;
                    sent += 1;
                }
                for _ in 0..fetch {
                    match dsq.pop(sq.tail()).unwrap() {
                        Some(slot) => waiting.push_back(sqm[slot as usize]),
                        None => break,
                    }
                }
                while let Some(command) = waiting.front() {
                    let Some((slot, phase)) = dcq.push(cq.head()).unwrap() else { break };
                    cqm[slot as usize] = (*command, dsq.head(), phase);
                    waiting.pop_front();
                }
                for _ in 0..reap {
                    let (command, sqhd, phase) = cqm[cq.head() as usize];
                    if phase != cq.phase() {
                        break;
                    }
                    prop_assert_eq!(command, got);
                    prop_assert!(sq.update_head(sqhd));
                    got += 1;
                    cq.pop();
                }
            }
        }
    }
}
