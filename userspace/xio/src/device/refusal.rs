// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an errno of the module means, and what can be done.

use super::Device;
use crate::backend::Backend;
use crate::error::{os, Error};
use crate::info::Unconfined;
use nix::errno::Errno;
use nix::sys::resource::{getrlimit, Resource};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use xio_uapi as uapi;

impl Device {
    /// Why a request failed, unless it says more.
    pub(super) fn failed(&self, what: &'static str, errno: Errno) -> Error {
        match errno {
            Errno::ENODEV => self.not_live(what),
            _ => os(what, errno),
        }
    }

    /// Why memory could not be registered.
    pub(super) fn register_error(&self, len: u64, errno: Errno) -> Error {
        match errno {
            Errno::ENOMEM => match getrlimit(Resource::RLIMIT_MEMLOCK) {
                Ok((limit, _)) => Error::MemoryLock { len, limit },
                Err(errno) => os("asking for RLIMIT_MEMLOCK", errno),
            },
            Errno::ENOTTY => Error::Interface {
                path: self.path.clone(),
                reason: "the module does not register memory: update the module".into(),
            },
            errno => self.refused("registering memory", errno),
        }
    }

    /// Why controller memory could not be had, if it was asked for.
    pub(super) fn cmb_error(&self, cmb: bool, what: &'static str, errno: Errno) -> Option<Error> {
        match errno {
            Errno::EOPNOTSUPP if cmb => Some(Error::NoCmb { what }),
            Errno::ENOSPC if cmb => {
                let info = self.info().ok()?;
                let (free, size) = (info.cmb_free, info.cmb_size);
                Some(Error::CmbFull { free, size })
            }
            _ => None,
        }
    }

    /// Why memory could not be imported.
    pub(super) fn import_error(&self, errno: Errno) -> Error {
        match errno {
            Errno::EREMOTEIO => Error::NotPeer,
            Errno::ESTALE => Error::TakenBack,
            errno => self.refused("importing memory", errno),
        }
    }

    /// Why a queue or a buffer could not be had.
    pub(super) fn refused(&self, what: &'static str, errno: Errno) -> Error {
        match errno {
            Errno::EPERM => match self.info() {
                Ok(info) if info.direct == uapi::DIRECT_REFUSED => {
                    let missing = Unconfined(info.unconfined);
                    Error::DirectRefused { iommu: info.iommu.into(), missing }
                }
                Ok(info) => Error::Refused(info.direct.into()),
                Err(error) => error,
            },
            Errno::EDQUOT => match self.info() {
                Ok(info) => Error::Quota {
                    what,
                    client: info.max_client_memory,
                    user: info.max_user_memory,
                    queues: info.max_client_queues,
                },
                Err(error) => error,
            },
            Errno::ENOSPC => Error::NoQueueLeft,
            _ => self.failed(what, errno),
        }
    }
}

/// What this library misses in a module; `None` when nothing. A newer interface is a larger one.
pub(super) fn unfit(info: &uapi::GetInfo) -> Option<String> {
    let (theirs, ours) = (info.abi_version, uapi::ABI_VERSION);
    if theirs < ours {
        return Some(format!(
            "the module speaks interface {theirs}, this program needs {ours}: update the module"
        ));
    }
    let needed = [
        (uapi::FEATURE_DIRECT_QUEUE, "queues mapped into the client"),
        (uapi::FEATURE_BUFFER_TABLE, "buffers with their table of addresses"),
    ];
    let missing = needed.iter().find(|(bit, _)| info.features & bit == 0);
    missing.map(|(_, what)| format!("the module does not offer {what}: update the module"))
}

/// Why a node could not be opened.
pub(super) fn open_error(path: &Path, error: io::Error) -> Error {
    let path = path.to_owned();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => Error::NoNode { path },
        Some(Errno::EACCES | Errno::EPERM) => {
            let gid = std::fs::metadata(&path).map(|m| m.gid());
            let group = gid.map_or_else(|_| "render".into(), group_name);
            Error::Permission { path, group }
        }
        Some(Errno::ENODEV | Errno::ENXIO) => Error::Gone,
        Some(Errno::EBUSY) => Error::Busy,
        _ => Error::Os { what: "opening the controller's node", source: error },
    }
}

/// Name of a group by the group file, so that static programs need no name service; else its number.
fn group_name(gid: u32) -> String {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| gid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn older_modules_are_refused_and_newer_ones_are_not() {
        let mut info = uapi::GetInfo::new_zeroed();
        assert!(unfit(&info).unwrap().contains("interface 0, this program needs 1"));
        (info.abi_version, info.features) = (uapi::ABI_VERSION + 1, uapi::FEATURE_DIRECT_QUEUE);
        assert!(unfit(&info).unwrap().contains("table of addresses"));
        info.features = u64::MAX;
        assert_eq!(unfit(&info), None);
    }

    #[test]
    fn groups_by_name_or_number() {
        assert_eq!(group_name(0), "root");
        assert_eq!(group_name(4_000_000_000), "4000000000");
    }
}
