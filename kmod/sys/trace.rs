// SPDX-License-Identifier: GPL-2.0
//! Tracepoints (defined in `trace.h`).

use super::{pci::Address, shim};
use nvme_kv::{Cqe, Sqe};
use zerocopy::IntoBytes;

/// The kernel submitted a command for a client.
pub(crate) fn submitted(device: Address, qid: u16, client: u64, sqe: &[u8; Sqe::SIZE]) {
    // SAFETY: An entry, which is only read.
    unsafe { shim::rocm_xio_trace_submit(device.as_number(), qid, client, sqe.as_ptr()) };
}

/// It was answered, after so many microseconds.
pub(crate) fn completed(device: Address, client: u64, cqe: &Cqe, us: i64) {
    let us = us.unsigned_abs();
    // SAFETY: An entry, which is only read.
    unsafe { shim::rocm_xio_trace_complete(device.as_number(), client, cqe.as_bytes().as_ptr(), us) };
}

/// The state of a controller changed.
pub(crate) fn state(device: Address, state: u32, reset: u32, resets: u32) {
    // SAFETY: Numbers.
    unsafe { shim::rocm_xio_trace_state(device.as_number(), state, reset, resets) };
}
