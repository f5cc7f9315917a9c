// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening what the options name.

use crate::args::Global;
use crate::exit::Failure;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use xio::{Controller, Error, Kv, Namespace, QueueOptions, Wait};

/// Pause between two tries to get the direct queues.
const RETRY: Duration = Duration::from_millis(50);

/// Opens the controller.
pub fn controller(global: &Global, device: Option<&PathBuf>) -> Result<Controller, Failure> {
    if global.loopback {
        return Ok(Controller::loopback(xio::loopback::Config::default())?);
    }
    Ok(match device.or(global.device.as_ref()) {
        Some(path) => Controller::open(path)?,
        None => Controller::open_default()?,
    })
}

/// The namespace.
pub fn namespace(global: &Global, controller: &Controller) -> Result<Namespace, Failure> {
    Ok(match global.nsid {
        Some(nsid) => controller.namespace(nsid)?,
        None => controller.first_namespace()?,
    })
}

/// Gets the direct queues, waiting for another process to end.
pub fn kv(global: &Global, controller: &Controller) -> Result<Kv, Failure> {
    let entries = controller.info()?.max_queue_entries().min(4);
    let options =
        QueueOptions { entries, wait: Wait::Yield, timeout: global.timeout, ..QueueOptions::default() };
    retry(global, || Kv::with_options(controller, global.nsid, options.clone()))
}

/// Tries again while another process owns the direct queues, for as long as the options say.
pub fn retry<T>(global: &Global, mut get: impl FnMut() -> xio::Result<T>) -> Result<T, Failure> {
    let until = Instant::now() + global.wait;
    loop {
        match get() {
            Err(Error::Busy) if Instant::now() < until => std::thread::sleep(RETRY),
            got => return Ok(got?),
        }
    }
}
