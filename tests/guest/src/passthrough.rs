// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes of the kernel's own nvme driver, which pass commands on.
#![allow(unsafe_code)] // ioctls, and memory for the kernel

use anyhow::{Context, Result};
use nix::errno::Errno;
use nvme_kv::{kv::Command, Status};
use std::fs::File;
use std::os::fd::AsRawFd;
use zerocopy::IntoBytes as _;
use zerocopy_derive::{Immutable, IntoBytes};

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default, IntoBytes, Immutable)]
struct PassthroughCommand {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: [u32; 2],
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

impl PassthroughCommand {
    fn new(command: &Command, data: &mut [u8]) -> Self {
        let sqe = command.encode(0, 1);
        Self {
            opcode: sqe.opcode,
            nsid: 1,
            cdw2: sqe.cdw2.map(|d| d.get()),
            addr: data.as_mut_ptr() as u64,
            data_len: data.len() as u32,
            cdw10: sqe.cdw10.map(|d| d.get()),
            ..Default::default()
        }
    }
}

/// A command as an io_uring command of the nvme driver: status and dword 0.
pub fn by_uring(node: &File, command: &Command, data: &mut [u8]) -> Result<(Status, u32)> {
    const URING_CMD_IO: u32 = 0xc048_4e80;
    let argument = PassthroughCommand::new(command, data);
    let mut bytes = [0u8; 80];
    bytes[..size_of::<PassthroughCommand>()].copy_from_slice(argument.as_bytes());
    let mut ring = io_uring::IoUring::<io_uring::squeue::Entry128, io_uring::cqueue::Entry32>::builder()
        .build(2)
        .context("io_uring_setup")?;
    let entry = io_uring::opcode::UringCmd80::new(io_uring::types::Fd(node.as_raw_fd()), URING_CMD_IO);
    // SAFETY: The kernel reads the command now; the data is ours until the completion is there.
    unsafe { ring.submission().push(&entry.cmd(bytes).build()) }.context("a full ring")?;
    ring.submit_and_wait(1).context("io_uring_enter")?;
    let done = ring.completion().next().context("no completion")?;
    // As with the ioctl.
    if done.result() < 0 {
        return Err(Errno::from_raw(-done.result())).with_context(|| format!("io_uring {}", command.name()));
    }
    Ok((Status::from_bits(done.result() as u16), done.big_cqe()[0] as u32))
}

/// The namespace of a node of the nvme driver (NVME_IOCTL_ID).
pub fn namespace(node: &File) -> Result<u32> {
    const ID: u32 = 0x4e40;
    // SAFETY: The ioctl has no argument.
    let result = unsafe { libc::ioctl(node.as_raw_fd(), libc::Ioctl::from(ID)) };
    Ok(Errno::result(result).context("NVME_IOCTL_ID")? as u32)
}

/// A command through the nvme driver's passthrough ioctl: status and dword 0.
pub fn by_ioctl(node: &File, command: &Command, data: &mut [u8]) -> Result<(Status, u32)> {
    const IO_CMD: u32 = 0xc048_4e43;
    let mut argument = PassthroughCommand::new(command, data);
    // SAFETY: The structure is the ioctl's; the data is ours for the call.
    let result = unsafe { libc::ioctl(node.as_raw_fd(), libc::Ioctl::from(IO_CMD), &raw mut argument) };
    // A negative result is an error of the kernel, a positive one the NVMe status.
    let status = Errno::result(result).with_context(|| format!("passthrough of {}", command.name()))?;
    Ok((Status::from_bits(status as u16), argument.result))
}
