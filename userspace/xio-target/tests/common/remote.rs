// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a client that it does not share: it copies when it is asked to, well or badly.

use super::client::{longs, DMA_READ, DMA_WRITE};
use std::ops::Range;

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Manner {
    /// As the protocol says.
    #[default]
    Good,
    /// As QEMU: a write without payload.
    Terse,
    /// With an error.
    Refuse,
    /// With another identifier, command, address, count; with less data, and with more.
    WrongId,
    WrongCommand,
    WrongAddress,
    WrongCount,
    Short,
    Long,
    Empty,
    /// Well, but not before the client is told to.
    Late,
    /// Not at all.
    Silent,
}

/// Bytes at `base`, and what was asked.
#[derive(Default)]
pub struct RemoteMemory {
    pub base: u64,
    pub bytes: Vec<u8>,
    pub manner: Manner,
    /// Commands, addresses, counts.
    pub asked: Vec<(u16, u64, usize)>,
}

/// A reply: identifier and command are changed by these, error, payload.
pub struct Answer {
    pub id: u16,
    pub command: u16,
    pub error: u32,
    pub payload: Vec<u8>,
}

impl RemoteMemory {
    pub fn range(&self, addr: u64, len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start..end)
    }

    /// Does what a request asks for; `None` when it is not answered.
    pub fn answer(&mut self, command: u16, payload: &[u8]) -> Option<Answer> {
        assert!(command == DMA_READ || command == DMA_WRITE, "{command}");
        let long = |n: usize| u64::from_ne_bytes(payload[n * 8..][..8].try_into().unwrap());
        let (addr, count) = (long(0), long(1) as usize);
        self.asked.push((command, addr, count));
        let mut answer = Answer { id: 0, command: 0, error: 0, payload: longs(&[addr, count as u64]) };
        match (self.range(addr, count), command) {
            (None, _) => answer.error = 19,
            (Some(range), DMA_READ) => answer.payload.extend(&self.bytes[range]),
            (Some(range), _) if self.manner != Manner::Refuse => {
                self.bytes[range].copy_from_slice(&payload[16..])
            }
            _ => {}
        }
        let len = answer.payload.len();
        match self.manner {
            Manner::Good | Manner::Late => {}
            Manner::Terse if command == DMA_WRITE => answer.payload.clear(),
            Manner::Terse => {}
            Manner::Refuse => answer.error = 14,
            Manner::WrongId => answer.id = 1,
            Manner::WrongCommand => answer.command = 1,
            Manner::WrongAddress => answer.payload[0] ^= 1,
            Manner::WrongCount => answer.payload[8] ^= 1,
            Manner::Short => answer.payload.truncate(if command == DMA_READ { len - 1 } else { 11 }),
            Manner::Long if command == DMA_READ => answer.payload.push(0),
            Manner::Long => answer.error = 7,
            Manner::Empty if command == DMA_READ => answer.payload.clear(),
            Manner::Empty => answer.payload.truncate(1),
            Manner::Silent => return None,
        }
        if answer.error != 0 {
            answer.payload.clear();
        }
        Some(answer)
    }
}
