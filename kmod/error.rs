// SPDX-License-Identifier: GPL-2.0
//! From what the controller answers to errno values. (The ioctl table is in `xio_uapi`.)

use kernel::prelude::*;
use nvme_kv::Status;

/// Why an admin command did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AdminError {
    /// The controller refused it.
    Status(Status),
    /// The controller did not answer in time; what it still does is not known, so it must be reset.
    Timeout,
    /// A completion came for no command of ours: somebody else rang the admin doorbell, and the controller's idea of
    /// the queue is not ours any more. It must be reset.
    OutOfStep,
    /// The controller is gone or has failed.
    Gone,
    /// A resource of the kernel.
    Kernel(Error),
}

impl AdminError {
    /// Whether only a reset makes the controller usable again.
    pub(crate) fn needs_reset(self) -> bool {
        matches!(self, Self::Timeout | Self::OutOfStep | Self::Gone)
    }
}

impl From<AdminError> for Error {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Status(_) | AdminError::OutOfStep => EIO,
            AdminError::Timeout => ETIMEDOUT,
            AdminError::Gone => ENODEV,
            AdminError::Kernel(e) => e,
        }
    }
}

impl From<Error> for AdminError {
    fn from(error: Error) -> Self {
        Self::Kernel(error)
    }
}
