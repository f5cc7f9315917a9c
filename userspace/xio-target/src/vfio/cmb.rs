// SPDX-License-Identifier: MIT OR Apache-2.0
//! BAR 2: the Controller Memory Buffer, which the client maps as a whole.

use super::mapping::Mapping;
use crate::host::{DmaFault, HostMemory};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nvme_kv::Cqe;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::IntoBytes;

/// The memory of the buffer, by offset.
pub(super) struct CmbMemory {
    file: File,
    memory: Mapping,
    len: usize,
}

impl CmbMemory {
    /// A buffer of `len` bytes, in a BAR of a size that is a power of two.
    pub(super) fn new(len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"xio-target-cmb", flags)?);
        let bar = len.next_power_of_two();
        file.set_len(bar as u64)?;
        // As with BAR 0.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let memory = Mapping::new(file.as_fd(), 0, bar, true)?;
        Ok(Self { file, memory, len })
    }

    /// Bytes of the BAR.
    pub(super) const fn bar_len(&self) -> usize {
        self.memory.len()
    }

    /// The file that the client maps.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn inside(&self, at: u64, len: usize, write: bool) -> Result<usize, DmaFault> {
        let fault = DmaFault { addr: at, len, write };
        let at = usize::try_from(at).map_err(|_| fault)?;
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(at),
            _ => Err(fault),
        }
    }
}

impl HostMemory for CmbMemory {
    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let place = self.inside(at, to.len(), false)?;
        self.memory.read(place, to).ok_or(DmaFault { addr: at, len: to.len(), write: false })
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), DmaFault> {
        let place = self.inside(at, from.len(), true)?;
        self.memory.write(place, from).ok_or(DmaFault { addr: at, len: from.len(), write: true })
    }

    fn post(&self, at: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        let place = self.inside(at, Cqe::SIZE, true)?;
        let (first, last) = cqe.as_bytes().split_at(Cqe::SIZE - 4);
        let mut dword = [0; 4];
        dword.copy_from_slice(last);
        let written = self
            .memory
            .write(place, first)
            .and_then(|()| self.memory.store(place + first.len(), u32::from_le_bytes(dword)));
        written.ok_or(DmaFault { addr: at, len: Cqe::SIZE, write: true })
    }
}
