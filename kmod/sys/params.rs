// SPDX-License-Identifier: GPL-2.0
//! Module parameters (defined in `shim.c`).

use super::shim;
use kernel::{error::to_result, prelude::*};

/// Refuses values that mean nothing.
pub(crate) fn check() -> Result {
    // SAFETY: Only reads the parameter.
    let claim = unsafe { shim::rocm_xio_claim() };
    to_result(claim).inspect_err(|_| pr_err!("parameter claim: use auto or override\n"))
}

/// Whether only devices given by driver_override are claimed.
pub(crate) fn claim_override() -> bool {
    // SAFETY: Only reads the parameter.
    unsafe { shim::rocm_xio_claim() == shim::CLAIM_OVERRIDE }
}

/// Whether everybody may have direct queues.
pub(crate) fn unsafe_direct() -> bool {
    // SAFETY: Only reads the parameter.
    unsafe { shim::rocm_xio_unsafe_direct() }
}

/// How long a command that the kernel submitted may take.
pub(crate) fn command_timeout_ms() -> i64 {
    // SAFETY: Only reads the parameter.
    let seconds = unsafe { shim::rocm_xio_command_timeout_s() };
    i64::from(seconds.max(1)) * 1000
}

/// Limit on the queues of one client.
pub(crate) fn max_client_queues() -> u32 {
    // SAFETY: Only reads the parameter.
    unsafe { shim::rocm_xio_max_client_queues() }
}

/// Limit on the memory of all clients of one user in bytes.
pub(crate) fn max_user_memory() -> u64 {
    // SAFETY: Only reads the parameter.
    let mb = unsafe { shim::rocm_xio_max_user_mb() };
    u64::from(mb) << 20
}

/// Limit on the memory of one client in bytes.
pub(crate) fn max_client_memory() -> u64 {
    // SAFETY: Only reads the parameter.
    let mb = unsafe { shim::rocm_xio_max_client_mb() };
    u64::from(mb) << 20
}
