// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the present user may do.

use super::Finding;
use crate::exit::Failure;
use crate::output::size;
use crate::system::{System, Unreadable};
use nix::fcntl::{AtFlags, AT_FDCWD};
use nix::sys::resource::{getrlimit, Resource, RLIM_INFINITY};
use nix::unistd::{faccessat, geteuid, AccessFlags, Gid, Group, Uid, User};
use std::io;
use std::os::unix::fs::MetadataExt;
use xio::{Controller, Direct};

/// Where registered memory begins to matter: less holds no sizeable values.
const SMALL_LIMIT: u64 = 64 << 20;

/// Whether a node may be opened.
pub fn node(system: &System, node: &str) -> Result<Finding, Failure> {
    let path = system.path(node);
    let Ok(metadata) = std::fs::metadata(&path) else {
        let remedy = "without udev or devtmpfs: mknod it with the numbers in /sys/class/misc";
        return Ok(Finding::problem("node", format!("{node} does not exist"), remedy));
    };
    let unreadable = |source: nix::Error| Unreadable { path: path.clone(), source: source.into() };
    let group = Group::from_gid(Gid::from_raw(metadata.gid())).map_err(unreadable)?;
    let owner = User::from_uid(Uid::from_raw(metadata.uid())).map_err(unreadable)?;
    let group = group.map_or_else(|| metadata.gid().to_string(), |group| group.name);
    let owner = owner.map_or_else(|| metadata.uid().to_string(), |owner| owner.name);
    let what = format!("{node}: {owner}:{group}, mode {:o}", metadata.mode() & 0o777);
    let flags = AccessFlags::R_OK | AccessFlags::W_OK;
    Ok(match faccessat(AT_FDCWD, &path, flags, AtFlags::AT_EACCESS) {
        Ok(()) if geteuid().is_root() && group == "root" => {
            Finding::note("node", format!("{what}: root alone may open it"), RULE)
        }
        Ok(()) => Finding::ok("node", format!("{what}: this user may open it")),
        Err(nix::errno::Errno::EACCES) if group == "root" => {
            Finding::problem("node", format!("{what}: this user may not open it"), RULE)
        }
        Err(nix::errno::Errno::EACCES) => {
            let remedy = format!("join the group (usermod -aG {group} USER, as root) and log in again");
            Finding::problem("node", format!("{what}: this user is not in group {group}"), remedy)
        }
        Err(error) => return Err(unreadable(error).into()),
    })
}

const RULE: &str = "install kmod/udev/60-rocm-xio.rules in /etc/udev/rules.d, then: udevadm control --reload && udevadm trigger \
     --subsystem-match=misc";

/// Which queues the module gives this user; `None` where the node can not be opened, which is told elsewhere.
pub fn direct(node: &str) -> Option<Finding> {
    let controller = Controller::open(node).ok()?;
    Some(match controller.info() {
        Err(error) => Finding::problem("queues", format!("{node}: {error}"), "`dmesg` may say more"),
        Ok(info) => match info.direct() {
            Direct::Refused => {
                let why = info.unconfined();
                let what = format!("{node}: mediated only, direct queues are refused to this user: {why}");
                Finding::note("queues", what, why.remedy().to_string())
            }
            allowed => Finding::ok("queues", format!("{node}: direct ({allowed}) and mediated")),
        },
    })
}

/// How much memory this user may register.
pub fn locked_memory() -> Result<Finding, Failure> {
    let unreadable =
        |source: nix::Error| Unreadable { path: "RLIMIT_MEMLOCK".into(), source: io::Error::from(source) };
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).map_err(unreadable)?;
    if limit == RLIM_INFINITY || geteuid().is_root() {
        return Ok(Finding::ok("memlock", "no limit on registered memory (--memory pinned)"));
    }
    let what = format!("{} of memory may be registered (--memory pinned)", size(limit));
    Ok(if limit < SMALL_LIMIT {
        let remedy =
            "if more is needed: a memlock line in /etc/security/limits.conf, or LimitMEMLOCK= of the service";
        Finding::note("memlock", what, remedy)
    } else {
        Finding::ok("memlock", what)
    })
}
