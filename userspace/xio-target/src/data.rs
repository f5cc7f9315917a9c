// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data of commands, between host memory and ours.

use crate::host::{DmaFault, HostMemory};
use nvme_kv::prp::{self, Segment};
use nvme_kv::{DataPointer, Status};
use zerocopy::IntoBytes;

/// Pages that follow each other are copied at once, up to this many bytes: a copy keeps the host from
/// unmapping memory.
const MAX_RUN: usize = 1 << 20;

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
pub(crate) fn from_host(memory: &dyn HostMemory, data: DataPointer, to: &mut [u8]) -> Result<(), Status> {
    let len = to.len();
    let mut rest = to;
    runs(memory, data, len, len, |run| {
        let (now, after) =
            std::mem::take(&mut rest).split_at_mut_checked(run.len).ok_or(Status::INTERNAL_ERROR)?;
        rest = after;
        memory.read(run.addr, now).map_err(transfer_error)
    })
}

/// Writes all of `from` to the host's buffer of `room` bytes, which decides what PRP2 is.
pub(crate) fn to_host(
    memory: &dyn HostMemory,
    data: DataPointer,
    room: usize,
    from: &[u8],
) -> Result<(), Status> {
    let mut rest = from;
    runs(memory, data, room, from.len(), |run| {
        let (now, after) = rest.split_at_checked(run.len).ok_or(Status::INTERNAL_ERROR)?;
        rest = after;
        memory.write(run.addr, now).map_err(transfer_error)
    })
}

/// Walks a transfer of the first `moved` of `len` bytes, pages that follow each other joined.
fn runs(
    memory: &dyn HostMemory,
    data: DataPointer,
    len: usize,
    moved: usize,
    mut each: impl FnMut(Segment) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut run: Option<Segment> = None;
    let read = |addr, to: &mut [u64]| read_entries(memory, addr, to);
    prp::walk_part(data, len, moved, read, |page| match &mut run {
        Some(run) if run.len < MAX_RUN && run.addr.checked_add(run.len as u64) == Some(page.addr) => {
            run.len += page.len;
            Ok(())
        }
        _ => run.replace(page).map_or(Ok(()), &mut each),
    })?;
    run.map_or(Ok(()), each)
}
