// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was written to a dword, and who knows of it since when.

/// Not yet.
pub(super) const NEVER: u64 = u64::MAX;

/// A dword.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) region: u32,
    pub(super) dword: u32,
}

/// A store that was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    pub(super) place: Place,
    pub(super) id: u64,
}

/// Which instruction of which wave wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// Block.
    pub block: u32,
    /// Wave of the block.
    pub wave: u32,
    /// Address of the instruction.
    pub addr: u64,
}

/// Who wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writer {
    /// The controller. Parts of a completion that are not its last dword are there, but hidden until whoever saw the
    /// last dword acquired; then `torn` numbers the completion.
    Controller { torn: Option<u32>, last_of: Option<u32> },
    /// A wave behind these caches, of this block.
    Wave { domain: u32, group: u32, second: u32, origin: Origin },
}

/// A write to some bits of a dword.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) id: u64,
    pub(super) value: u32,
    /// Bits that are written.
    pub(super) mask: u32,
    pub(super) by: Writer,
    /// When it reached the second level cache.
    pub(super) performed: u64,
    /// When the device could see it.
    pub(super) device: u64,
    /// When the system could see it.
    pub(super) system: u64,
}

impl Event {
    /// The value behind the write, of the value before it.
    pub(super) const fn over(&self, value: u32) -> u32 {
        value & !self.mask | self.value & self.mask
    }

    pub(super) fn is_of_domain(&self, of: u32) -> bool {
        matches!(self.by, Writer::Wave { domain, .. } if domain == of)
    }

    pub(super) const fn is_controllers(&self) -> bool {
        matches!(self.by, Writer::Controller { .. })
    }
}

/// The newest value of a dword that is visible: `events` oldest first, over `base`.
pub(super) fn newest(base: u32, events: &[Event], mut visible: impl FnMut(&Event) -> bool) -> u32 {
    let (mut value, mut open) = (0, u32::MAX);
    for event in events.iter().rev() {
        if event.mask & open != 0 && visible(event) {
            value |= event.value & event.mask & open;
            open &= !event.mask;
            if open == 0 {
                return value;
            }
        }
    }
    value | base & open
}
