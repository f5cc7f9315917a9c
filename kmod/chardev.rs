// SPDX-License-Identifier: GPL-2.0
//! `/dev/rocm-xioN`: what its file operations do.

use crate::{client::Client, controller::Xio};
pub(crate) use crate::{
    ioctl::ioctl,
    mmap::{fault, mmap},
    submit::{uring_cancel, uring_submit},
};
use kernel::{prelude::*, sync::Arc, task::Kuid};

/// A file is opened.
pub(crate) fn open(xio: Arc<Xio>) -> Result<KBox<Client>> {
    let (id, bar0) = {
        let mut inner = xio.inner.lock();
        let bar0 = inner.hw.as_ref().ok_or(ENODEV)?.place.bar0;
        inner.last_client += 1;
        inner.clients += 1;
        (inner.last_client, bar0)
    };
    let counted = xio.clone();
    KBox::new(Client { xio, id, user: Kuid::current_euid(), bar0 }, GFP_KERNEL).map_err(|e| {
        counted.inner.lock().clients -= 1;
        e.into()
    })
}

/// A file is closed for the last time, and so has no mapping any more: everything that it made goes.
pub(crate) fn release(client: KBox<Client>) {
    let mut inner = client.xio.inner.lock();
    inner.clients -= 1;
    if let Some(hw) = inner.hw.as_mut() {
        client.xio.destroy_all(hw, client.id);
    }
}
