// SPDX-License-Identifier: GPL-2.0
//! `/dev/rocm-xioN`: what its file operations do.

use crate::{client::Client, controller::Xio};
pub(crate) use crate::{
    ioctl::ioctl,
    mmap::{fault, mmap},
    state::poll,
    submit::{uring_cancel, uring_submit},
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    task::Kuid,
};

/// A file is opened. No lock is taken: those of all misc devices wait for this.
pub(crate) fn open(xio: Arc<Xio>) -> Result<KBox<Client>> {
    let id = xio.last_client.fetch_add(1, Relaxed) + 1;
    let told = Atomic::new(xio.news.changes());
    let client = KBox::new(Client { xio, id, user: Kuid::current_euid(), told }, GFP_KERNEL)?;
    client.xio.clients.fetch_add(1, Relaxed);
    Ok(client)
}

/// A file is closed for the last time, and so has no mapping any more: everything that it made goes.
pub(crate) fn release(client: KBox<Client>) {
    client.xio.clients.fetch_sub(1, Relaxed);
    client.xio.news.forget(client.id);
    if let Some(hw) = client.xio.inner.lock().hw.as_mut() {
        client.xio.destroy_all(hw, client.id);
    }
    client.xio.settle();
}
