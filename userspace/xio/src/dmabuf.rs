// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory shared with other devices, as dma-bufs.
#![allow(unsafe_code, reason = "ioctl takes a pointer")]

use crate::error::{os, Error, Result};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nvme_kv::PAGE_SIZE;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What to import of a dma-buf: see [`Controller::import`](crate::Controller::import).
#[derive(Clone, Copy, Debug, Default)]
pub struct Import {
    /// Where in the dma-buf the buffer begins, a multiple of 4096.
    pub offset: u64,
    /// Bytes, a multiple of 4096.
    pub len: usize,
    /// The controller may only read it.
    pub read_only: bool,
    /// Refuse memory that is not reached from device to device: video memory that its driver would move to the system's.
    pub require_peer: bool,
}

/// A part of a queue that can be exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePart {
    /// The submission queue.
    Sq,
    /// The completion queue.
    Cq,
    /// The page with the submission queue's tail doorbell.
    SqDoorbell,
    /// The page with the completion queue's head doorbell.
    CqDoorbell,
}

impl QueuePart {
    pub(crate) const fn raw(self) -> u32 {
        match self {
            Self::Sq => xio_uapi::QUEUE_PART_SQ,
            Self::Cq => xio_uapi::QUEUE_PART_CQ,
            Self::SqDoorbell => xio_uapi::QUEUE_PART_SQ_DOORBELL,
            Self::CqDoorbell => xio_uapi::QUEUE_PART_CQ_DOORBELL,
        }
    }
}

/// A part of a queue as a dma-buf, for the driver of another device to import. It is revoked when the queue goes.
#[derive(Debug)]
pub struct Exported {
    /// The dma-buf.
    pub dmabuf: OwnedFd,
    /// Its bytes.
    pub len: u64,
    /// Where a doorbell is in it; 0 for a queue.
    pub at: u32,
}

/// `UDMABUF_CREATE` of `linux/udmabuf.h`.
#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

const UDMABUF_FLAGS_CLOEXEC: u32 = 1;
const UDMABUF_CREATE: u64 = nix::request_code_write!(b'u', 0x42, size_of::<UdmabufCreate>());

/// Makes a dma-buf of the system's memory, by `/dev/udmabuf`, which the process must be allowed to open: what a program has
/// that has no other device, and what the path of dma-bufs can be tried with.
///
/// # Errors
/// When the kernel has no udmabuf, or refuses.
pub fn system_dmabuf(len: usize) -> Result<OwnedFd> {
    let len = len.next_multiple_of(PAGE_SIZE);
    dmabuf_of(&sealed_memory(len)?, len)
}

/// A file in memory of so many bytes, whole pages, that can not shrink: `/dev/udmabuf` takes no other.
pub(crate) fn sealed_memory(len: usize) -> Result<File> {
    let failed = |what| move |errno| os(what, errno);
    let memory = memfd_create(c"xio", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
        .map_err(failed("making memory for a dma-buf"))?;
    let memory = File::from(memory);
    let sized = memory.set_len(len as u64);
    sized.map_err(|source| Error::Os { what: "making memory for a dma-buf", source })?;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).map_err(failed("sealing memory"))?;
    Ok(memory)
}

/// A dma-buf of a [sealed file in memory](sealed_memory).
pub(crate) fn dmabuf_of(memory: &File, len: usize) -> Result<OwnedFd> {
    let udmabuf = File::options().read(true).write(true).open("/dev/udmabuf");
    let what = "opening /dev/udmabuf (modprobe udmabuf; its group may open it)";
    let udmabuf = udmabuf.map_err(|source| Error::Os { what, source })?;
    let create = UdmabufCreate {
        memfd: memory.as_raw_fd() as u32,
        flags: UDMABUF_FLAGS_CLOEXEC,
        offset: 0,
        size: len as u64,
    };
    // SAFETY: the request carries the size of the structure, which it only reads.
    let fd = unsafe { libc::ioctl(udmabuf.as_raw_fd(), UDMABUF_CREATE, &raw const create) };
    let fd = nix::errno::Errno::result(fd)
        .map_err(|e| os("making a dma-buf (udmabuf.size_limit_mb limits it)", e))?;
    // SAFETY: a file descriptor that was just made and that nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
