// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller: registers, and what enabling, disabling and shutting down do.

use crate::{Config, ConfigError, Host};

/// An NVMe Key Value controller plugged into a [`Host`].
pub struct Controller {
    config: Config,
    host: Host,
}

impl Controller {
    /// A controller that was just powered on.
    pub fn new(config: Config, host: Host) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, host })
    }

    /// Reads registers, BAR 0 below the doorbells. What is not there reads as zeros.
    pub fn read_register(&self, _offset: usize, to: &mut [u8]) {
        to.fill(0);
    }

    /// Writes registers, BAR 0 below the doorbells.
    pub fn write_register(&mut self, _offset: usize, _from: &[u8]) {}

    /// One pass over all queues; the number of commands that were completed. Never waits.
    pub fn poll(&mut self) -> usize {
        let _ = (&self.config, &self.host);
        0
    }

    /// Function level reset: all registers and queues as after power on. What is stored stays.
    pub fn reset(&mut self) {}
}
