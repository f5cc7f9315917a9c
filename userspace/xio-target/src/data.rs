// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data of commands, between host memory and ours.

use crate::host::{DmaFault, HostMemory};
use nvme_kv::prp::{self, Segment};
use nvme_kv::sgl::{self, Descriptor};
use nvme_kv::{DataPointer, Sqe, Status, PAGE_SIZE};
use zerocopy::IntoBytes;

/// Pages that follow each other are copied at once, up to this many bytes: a copy keeps the host from
/// unmapping memory.
const MAX_RUN: usize = 1 << 20;

/// Where a host's buffer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Buffer {
    Prp(DataPointer),
    Sgl(Descriptor),
}

impl Buffer {
    /// That of an I/O command (Base, Figure "Command Dword 0", PSDT).
    pub(crate) fn of(sqe: &Sqe) -> Self {
        match sqe.psdt() {
            0 => Self::Prp(sqe.data()),
            _ => Self::Sgl(sqe.data().into()),
        }
    }
}

/// What a command with a bad address is answered (Base, Figure "Generic Command Status Values").
pub(crate) fn transfer_error(fault: DmaFault) -> Status {
    log::debug!("{fault}");
    Status::DATA_TRANSFER_ERROR
}

/// Reads PRP entries.
pub(crate) fn read_entries(memory: &dyn HostMemory, addr: u64, to: &mut [u64]) -> Result<(), Status> {
    memory.read(addr, to.as_mut_bytes()).map_err(transfer_error)?;
    to.iter_mut().for_each(|entry| *entry = u64::from_le(*entry));
    Ok(())
}

/// Fills `to` from the host.
pub(crate) fn from_host(memory: &dyn HostMemory, buffer: Buffer, to: &mut [u8]) -> Result<(), Status> {
    let len = to.len();
    let mut rest = to;
    runs(memory, buffer, len, len, |run| {
        let (now, after) =
            std::mem::take(&mut rest).split_at_mut_checked(run.len).ok_or(Status::INTERNAL_ERROR)?;
        rest = after;
        memory.read(run.addr, now).map_err(transfer_error)
    })
}

/// Writes all of `from` to the host's buffer of `room` bytes, which decides what PRP2 is and how long an SGL must be.
pub(crate) fn to_host(
    memory: &dyn HostMemory,
    buffer: Buffer,
    room: usize,
    from: &[u8],
) -> Result<(), Status> {
    let mut rest = from;
    runs(memory, buffer, room, from.len(), |run| {
        let (now, after) = rest.split_at_checked(run.len).ok_or(Status::INTERNAL_ERROR)?;
        rest = after;
        memory.write(run.addr, now).map_err(transfer_error)
    })
}

/// Reads SGL descriptors.
fn read_descriptors(memory: &dyn HostMemory, addr: u64, to: &mut [Descriptor]) -> Result<(), Status> {
    memory.read(addr, to.as_mut_bytes()).map_err(transfer_error)
}

/// Walks a transfer of the first `moved` of `len` bytes, in runs: pages that follow each other are joined, and what is
/// longer than a run is split.
fn runs(
    memory: &dyn HostMemory,
    buffer: Buffer,
    len: usize,
    moved: usize,
    mut each: impl FnMut(Segment) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut run: Option<Segment> = None;
    let mut add = |piece: Segment| match &mut run {
        Some(run) if run.len < MAX_RUN && run.addr.checked_add(run.len as u64) == Some(piece.addr) => {
            run.len += piece.len;
            Ok(())
        }
        _ => run.replace(piece).map_or(Ok(()), &mut each),
    };
    match buffer {
        Buffer::Prp(data) => {
            prp::walk_part(data, len, moved, |addr, to| read_entries(memory, addr, to), add)?;
        }
        Buffer::Sgl(first) => {
            let read = |addr, to: &mut [Descriptor]| read_descriptors(memory, addr, to);
            sgl::walk_part(first, len, moved, read, |data| split(data, &mut add))?;
        }
    }
    run.map_or(Ok(()), each)
}

/// Pieces that are no longer than a page.
fn split(data: Segment, mut each: impl FnMut(Segment) -> Result<(), Status>) -> Result<(), Status> {
    (0..data.len).step_by(PAGE_SIZE).try_for_each(|done| {
        each(Segment { addr: data.addr.wrapping_add(done as u64), len: PAGE_SIZE.min(data.len - done) })
    })
}
