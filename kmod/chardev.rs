// SPDX-License-Identifier: GPL-2.0
//! `/dev/rocm-xioN`: what its file operations do.

use crate::{client::Client, controller::Xio, sys::lock};
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

/// A process that closes a file, or is killed, waits no longer for who waits for the controller.
const PATIENCE_MS: u32 = 1000;

/// A file is closed for the last time, and so has no mapping any more: everything that it made goes, at once or soon.
pub(crate) fn release(client: KBox<Client>) {
    client.xio.clients.fetch_sub(1, Relaxed);
    client.xio.news.forget(client.id);
    let xio = &client.xio;
    let inner = match lock::within(&xio.inner, PATIENCE_MS) {
        Some(inner) => Some(inner),
        None if xio.departed.lock().push(client.id, GFP_KERNEL).is_ok() => None,
        None => Some(xio.inner.lock()),
    };
    let Some(mut inner) = inner else { return xio.clone().give_back_soon() };
    if let Some(hw) = inner.hw.as_mut() {
        xio.destroy_all(hw, client.id);
    }
    drop(inner);
    xio.settle();
}
