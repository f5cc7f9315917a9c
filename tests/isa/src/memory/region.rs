// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of memory.

use super::event::Event;
use std::collections::HashMap;

/// What a piece of memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Memory that waves and the controller read and write.
    Shared,
    /// Memory that is only read.
    Constant,
    /// Registers of the controller: stores get there at once.
    Registers,
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) base: u64,
    pub(super) kind: Kind,
    /// What everybody sees who knows of nothing newer.
    pub(super) data: Vec<u8>,
    /// What was written since, by dword; oldest first.
    events: HashMap<u32, Vec<Event>>,
    /// Bit for each dword that has events.
    touched: Vec<u64>,
}

impl Region {
    pub(super) fn new(name: &str, base: u64, len: usize, kind: Kind) -> Self {
        let len = len.next_multiple_of(4);
        Self {
            name: name.into(),
            base,
            kind,
            data: vec![0; len],
            events: HashMap::new(),
            touched: vec![0; len.div_ceil(256)],
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.data.len() as u64
    }

    /// A dword as everybody sees it who knows of nothing newer.
    pub(super) fn base_value(&self, dword: u32) -> u32 {
        let at = 4 * dword as usize;
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.data.get(at..at + 4).unwrap_or(&[0; 4]));
        u32::from_le_bytes(bytes)
    }

    /// What was written since, oldest first.
    pub(super) fn events(&self, dword: u32) -> &[Event] {
        let touched = self.touched.get(dword as usize / 64).is_some_and(|word| word >> (dword % 64) & 1 == 1);
        if touched {
            self.events.get(&dword).map_or(&[], Vec::as_slice)
        } else {
            &[]
        }
    }

    pub(super) fn events_mut(&mut self, dword: u32) -> &mut Vec<Event> {
        if let Some(word) = self.touched.get_mut(dword as usize / 64) {
            *word |= 1 << (dword % 64);
        }
        self.events.entry(dword).or_default()
    }

    /// Makes everything that was written known to everybody.
    pub(super) fn settle(&mut self) {
        for (dword, events) in self.events.drain() {
            let at = 4 * dword as usize;
            let Some(bytes) = self.data.get_mut(at..at + 4) else { continue };
            let mut value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            for event in events {
                value = event.over(value);
            }
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        self.touched.fill(0);
    }
}
