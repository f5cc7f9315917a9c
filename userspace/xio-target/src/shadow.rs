// SPDX-License-Identifier: MIT OR Apache-2.0
//! Doorbells in host memory (Base, section 8.2.6), which spare a virtual machine the register.
//!
//! The controller looks at them all the time. So it needs to be told of nothing; it says where it is all the same.

use crate::host::{DmaFault, Host};
use nvme_kv::regs::offset::DOORBELLS;
use nvme_kv::{DataPointer, Status, PAGE_SIZE};
use std::sync::atomic::{fence, Ordering};

/// Two pages, laid out like the doorbell registers.
pub(crate) struct Shadow {
    /// What the host writes.
    values: u64,
    /// From which value on the host also rings the register.
    events: u64,
}

impl Shadow {
    pub(crate) fn new(buffers: DataPointer, host: &Host) -> Result<Self, Status> {
        let usable = |page: u64| page % PAGE_SIZE as u64 == 0 && host.memory.is_direct(page, PAGE_SIZE);
        if !usable(buffers.prp1) || !usable(buffers.prp2) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Self { values: buffers.prp1, events: buffers.prp2 })
    }

    /// Whether the doorbell at an offset of BAR 0 is in the page.
    pub(crate) const fn has(at: usize) -> bool {
        at - DOORBELLS < PAGE_SIZE
    }

    pub(crate) fn load(&self, at: usize, host: &Host) -> Result<u32, DmaFault> {
        let mut value = [0; 4];
        host.memory.read(place(self.values, at), &mut value)?;
        // What the host wrote before is read after.
        fence(Ordering::Acquire);
        Ok(u32::from_le_bytes(value))
    }

    /// Sets a doorbell that is in the page.
    pub(crate) fn store(&self, at: usize, value: u32, host: &Host) -> Result<(), DmaFault> {
        if Self::has(at) {
            host.memory.write(place(self.values, at), &value.to_le_bytes())?;
        }
        Ok(())
    }

    /// Asks to be told by the register when the doorbell goes beyond `value`.
    pub(crate) fn tell_from(&self, at: usize, value: u32, host: &Host) -> Result<(), DmaFault> {
        if Self::has(at) {
            host.memory.write(place(self.events, at), &value.to_le_bytes())?;
        }
        Ok(())
    }
}

const fn place(page: u64, at: usize) -> u64 {
    page.wrapping_add((at - DOORBELLS) as u64)
}
