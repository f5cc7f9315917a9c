// SPDX-License-Identifier: GPL-2.0
//! A client: one open file.

use crate::controller::Xio;
use kernel::{
    sync::{atomic::Atomic, Arc},
    task::Kuid,
};

/// An open file.
pub(crate) struct Client {
    pub(crate) xio: Arc<Xio>,
    /// Number of the client on its controller, never used twice.
    pub(crate) id: u64,
    /// Who opened it.
    pub(crate) user: Kuid,
    /// Changes of the controller's state that it was told of.
    pub(crate) told: Atomic<u32>,
}
