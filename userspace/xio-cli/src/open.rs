// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening what the options name, by the path that they allow.

use crate::args::Global;
use crate::exit::Failure;
use crate::output;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use xio::{Controller, Error, Kv, KvOptions, Namespace, QueueOptions, Wait};

/// Pause between two tries to get in.
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

/// Takes a path, waiting for another process that excludes this one.
pub fn kv(global: &Global, controller: &Controller) -> Result<Kv, Failure> {
    let entries = controller.info()?.max_queue_entries().min(4);
    let queue =
        QueueOptions { entries, wait: Wait::Yield, timeout: global.timeout, ..QueueOptions::default() };
    let options = KvOptions { path: global.path.into(), memory: global.memory.into(), queue };
    let kv = retry(global, || Kv::with_options(controller, global.nsid, options.clone()))?;
    if global.verbose {
        output::message(&format!("xio: path: {}, memory: {}", kv.path(), options.memory));
    }
    Ok(kv)
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
