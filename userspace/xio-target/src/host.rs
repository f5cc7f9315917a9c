// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a controller needs of the host it is plugged into: memory, doorbells, interrupts.

use nvme_kv::Cqe;
use std::sync::Arc;

/// An access to host memory that is not allowed: nothing is mapped there, or only for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} {len} bytes at address {addr:#x} is not allowed", if *write { "writing" } else { "reading" })]
pub struct DmaFault {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// Direction, seen from the controller.
    pub write: bool,
}

/// Host memory, by the addresses that the host puts into commands. Other agents change it at any time.
pub trait HostMemory: Send + Sync {
    /// Copies from host memory.
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault>;
    /// Copies to host memory.
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault>;
    /// Writes a completion queue entry, its last dword (with the phase tag) last and with release ordering.
    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault>;
    /// Whether memory can be looked at all the time, which is not so where each access is a message to somebody. What is
    /// not there at all may be either.
    fn is_direct(&self, addr: u64, len: usize) -> bool {
        let _ = (addr, len);
        true
    }
}

/// The doorbell registers, by their offset in BAR 0.
pub trait Doorbells: Send + Sync {
    /// Value of a doorbell, with acquire ordering.
    fn load(&self, offset: usize) -> u32;
    /// Sets a doorbell to zero, as creating a queue does.
    fn clear(&self, offset: usize);
}

/// Interrupts towards the host.
pub trait Interrupts: Send + Sync {
    /// Signals a vector.
    fn raise(&self, vector: u16);
}

/// A host.
#[derive(Clone)]
pub struct Host {
    /// Memory.
    pub memory: Arc<dyn HostMemory>,
    /// Doorbells.
    pub doorbells: Arc<dyn Doorbells>,
    /// Interrupts.
    pub interrupts: Arc<dyn Interrupts>,
}
