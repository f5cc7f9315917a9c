// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading debugfs, which is root's.

use super::model::Controller;
use crate::exit::{self, Failure};
use std::io;
use std::path::{Path, PathBuf};

const MOUNTS: &str = "/proc/self/mounts";
const PREFIX: &str = "rocm-xio";

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// No debugfs.
    #[error("debugfs is not mounted: mount -t debugfs none /sys/kernel/debug (as root)")]
    NotMounted,
    /// Not for this user.
    #[error("{} may be read by root alone: run it as root (sudo xio top)", path.display())]
    Permission {
        /// What.
        path: PathBuf,
    },
    /// The software controller.
    #[error("a software controller inside this process is not in debugfs: leave --loopback out")]
    Loopback,
}

impl Unreadable {
    /// Exit code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::NotMounted => exit::UNSUPPORTED,
            Self::Permission { .. } => exit::PERMISSION,
            Self::Loopback => exit::USAGE,
        }
    }
}

/// Where to read, and about whom.
#[derive(Debug)]
pub struct Source {
    root: PathBuf,
    /// Names of nodes; nothing for all there are.
    names: Vec<String>,
}

impl Source {
    /// Finds debugfs. Controllers are named by their nodes.
    pub fn new(devices: &[PathBuf]) -> Result<Self, Failure> {
        let input = |name: &str| {
            let name = name.to_owned();
            move |source| Failure::Input { name, source }
        };
        let mounts = std::fs::read_to_string(MOUNTS).map_err(input(MOUNTS))?;
        let root = find_debugfs(&mounts).ok_or(Unreadable::NotMounted)?;
        let name = |path: &PathBuf| {
            let path = path.clone();
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            name.ok_or(Failure::Xio(xio::Error::NoNode { path }))
        };
        Ok(Self { root, names: devices.iter().map(name).collect::<Result<_, _>>()? })
    }

    /// How all are at this moment.
    pub fn read(&self) -> Result<Vec<Controller>, Failure> {
        let names = if self.names.is_empty() { self.all()? } else { self.names.clone() };
        let mut controllers = Vec::new();
        for name in names {
            match self.controller(&name)? {
                Some(controller) => controllers.push(controller),
                // One that was asked for must be there, others may go between two looks.
                None if !self.names.is_empty() => {
                    return Err(xio::Error::NoNode { path: Path::new("/dev").join(name) }.into());
                }
                None => {}
            }
        }
        Ok(controllers)
    }

    fn all(&self) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        let failed = |error| failed(&self.root, error);
        for entry in std::fs::read_dir(&self.root).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
            found.extend(number);
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|number| format!("{PREFIX}{number}")).collect())
    }

    /// A controller, if there is one of this name.
    fn controller(&self, name: &str) -> Result<Option<Controller>, Failure> {
        let read = |file: &str| {
            let path = self.root.join(name).join(file);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed(&path, error)),
            }
        };
        let Some(counters) = read("counters")? else { return Ok(None) };
        // Older modules have no such file.
        let objects = read("objects")?.unwrap_or_default();
        Ok(Some(Controller::new(name.to_owned(), pci_address(name), &counters, &objects)))
    }
}

fn failed(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Unreadable::Permission { path: path.to_owned() }.into(),
        _ => Failure::Input { name: path.display().to_string(), source: error },
    }
}

/// Where debugfs is mounted.
fn find_debugfs(mounts: &str) -> Option<PathBuf> {
    let place = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "debugfs").then(|| PathBuf::from(place))
    };
    mounts.lines().find_map(place)
}

/// Address of a node's device.
fn pci_address(name: &str) -> Option<String> {
    let link = std::fs::read_link(Path::new("/sys/class/misc").join(name).join("device")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugfs_is_found_where_it_is_mounted() {
        let mounts = "sysfs /sys sysfs rw 0 0\nnone /sys/kernel/debug debugfs rw,relatime 0 0\n";
        assert_eq!(find_debugfs(mounts).as_deref(), Some(Path::new("/sys/kernel/debug")));
        assert_eq!(find_debugfs("debugfs /x tmpfs rw 0 0\n\nbroken"), None);
    }

    #[test]
    fn controllers_are_read_in_order_and_named_ones_must_be_there() {
        let root = std::env::temp_dir().join(format!("xio-top-{}", std::process::id()));
        for name in ["rocm-xio10", "rocm-xio2", "rocm-xio", "kvm"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
            std::fs::write(root.join(name).join("counters"), "clients 3\n").unwrap();
        }
        std::fs::create_dir_all(root.join("rocm-xio3")).unwrap();
        let source = |names: &[&str]| Source {
            root: root.clone(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let names: Vec<_> = source(&[]).read().unwrap().into_iter().map(|c| c.device).collect();
        assert_eq!(names, ["rocm-xio2", "rocm-xio10"], "one is going away");
        assert_eq!(source(&["rocm-xio10"]).read().unwrap()[0].counter("clients"), 3);
        let missing = source(&["rocm-xio7"]).read().unwrap_err();
        assert!(missing.to_string().contains("/dev/rocm-xio7 does not exist"), "{missing}");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn remedies_and_codes() {
        let path = PathBuf::from("/sys/kernel/debug");
        let denied = failed(&path, io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied.code(), exit::PERMISSION);
        assert!(denied.to_string().contains("sudo xio top"), "{denied}");
        let none: Failure = Unreadable::NotMounted.into();
        assert!(none.code() == exit::UNSUPPORTED && none.to_string().contains("mount -t debugfs"));
    }
}
