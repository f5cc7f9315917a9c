// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapped devices, as those of LVM and dm-crypt are.
#![allow(unsafe_code)] // an ioctl

use anyhow::{Context, Result};
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;

/// `struct dm_ioctl` of linux/dm-ioctl.h, and where its fields are.
const HEADER: usize = 312;
const NAME: usize = 48;
const UUID: usize = 176;
/// The structure with room for a table of one target.
const ROOM: usize = 1024;

const CREATE: u32 = 3;
const REMOVE: u32 = 4;
const SUSPEND: u32 = 6;
const LOAD: u32 = 9;

/// A mapped device. It is removed by [`Mapped::remove`].
pub struct Mapped {
    control: File,
    name: &'static str,
}

impl Mapped {
    /// Maps all of a device, given by its numbers and its length in sectors.
    pub fn new(name: &'static str, uuid: &str, device: &str, sectors: u64) -> Result<Self> {
        let control = File::options()
            .read(true)
            .write(true)
            .open("/dev/mapper/control")
            .context("/dev/mapper/control")?;
        let mapped = Self { control, name };
        mapped.call(CREATE, |request| request[UUID..UUID + uuid.len()].copy_from_slice(uuid.as_bytes()))?;
        mapped.call(LOAD, |request| {
            request[20..24].copy_from_slice(&1u32.to_ne_bytes());
            let target = &mut request[HEADER..];
            target[8..16].copy_from_slice(&sectors.to_ne_bytes());
            target[24..30].copy_from_slice(b"linear");
            let where_to = format!("{device} 0");
            target[40..40 + where_to.len()].copy_from_slice(where_to.as_bytes());
        })?;
        // Without its flag it is a resume.
        mapped.call(SUSPEND, |_| {})?;
        Ok(mapped)
    }

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        self.call(REMOVE, |_| {})
    }

    fn call(&self, number: u32, fill: impl FnOnce(&mut [u8; ROOM])) -> Result<()> {
        let mut request = [0; ROOM];
        request[..4].copy_from_slice(&4u32.to_ne_bytes());
        request[12..16].copy_from_slice(&(ROOM as u32).to_ne_bytes());
        request[16..20].copy_from_slice(&(HEADER as u32).to_ne_bytes());
        request[NAME..NAME + self.name.len()].copy_from_slice(self.name.as_bytes());
        fill(&mut request);
        let code = 0xc138_fd00 | number;
        // SAFETY: The structure is the ioctl's, and says how long it is.
        let result =
            unsafe { libc::ioctl(self.control.as_raw_fd(), libc::Ioctl::from(code), request.as_mut_ptr()) };
        Errno::result(result).with_context(|| format!("device mapper request {number}")).map(drop)
    }
}
