// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a controller is not given to another driver.

use super::uses::Use;
use crate::exit;
use crate::system::{Address, Unreadable};
use std::io;
use std::path::PathBuf;

/// Why nothing was bound or unbound.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such function.
    #[error("{address}: there is no such PCI function{}", others(elsewhere))]
    NoFunction {
        /// The address.
        address: Address,
        /// The same place in other domains.
        elsewhere: Vec<Address>,
    },
    /// It is something else.
    #[error("{address} is no NVMe controller: its class is {class}, not 0x010802")]
    NotNvme {
        /// The address.
        address: Address,
        /// Its class.
        class: String,
    },
    /// The module is not there.
    #[error("the module is not loaded: insmod rocm_xio.ko claim=override")]
    NoModule,
    /// Unbinding what the module does not have.
    #[error("{address} is not with rocm_xio: {}", with(driver.as_ref()))]
    NotOurs {
        /// The address.
        address: Address,
        /// The driver that has it.
        driver: Option<String>,
    },
    /// The user is not root.
    #[error("only root may give a controller to another driver: run this with sudo")]
    NotRoot,
    /// It is in use.
    #[error("{address} is in use, and stays with its driver:{}", list(uses))]
    InUse {
        /// The address.
        address: Address,
        /// By what.
        uses: Vec<Use>,
    },
    /// Whether it is in use can not be told.
    #[error("whether it is in use can not be told, so it stays with its driver: {0}")]
    Unknown(#[source] Unreadable),
    /// A file of the kernel can not be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The kernel refuses a step.
    #[error("writing {}: {source}", path.display())]
    Write {
        /// The file of sysfs.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A driver did not take the controller.
    #[error("{address}: {driver} did not take it ({source}); {after}{}", told(messages))]
    Refused {
        /// The address.
        address: Address,
        /// The driver.
        driver: &'static str,
        /// Its error.
        source: io::Error,
        /// What the kernel said.
        messages: Vec<String>,
        /// How things are now.
        after: String,
    },
}

impl Error {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::NotNvme { .. } => exit::UNSUPPORTED,
            // How the module says that it is no controller for Key Value.
            Self::Refused { source, .. }
                if source.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32) =>
            {
                exit::UNSUPPORTED
            }
            Self::NotRoot => exit::PERMISSION,
            Self::Write { source, .. }
            | Self::Unreadable(Unreadable { source, .. })
            | Self::Unknown(Unreadable { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                exit::PERMISSION
            }
            Self::Unreadable(_) | Self::Unknown(_) | Self::Write { .. } => exit::OTHER,
            Self::NoFunction { .. }
            | Self::NoModule
            | Self::NotOurs { .. }
            | Self::InUse { .. }
            | Self::Refused { .. } => exit::DEVICE,
        }
    }
}

/// Lines below a message.
fn list(lines: &[impl ToString]) -> String {
    lines.iter().map(|line| format!("\n  {}", line.to_string())).collect()
}

/// What the kernel said.
fn told(messages: &[String]) -> String {
    if messages.is_empty() {
        return String::new();
    }
    format!(". The kernel's messages:{}", list(messages))
}

/// What else could have been meant.
fn others(elsewhere: &[Address]) -> String {
    match elsewhere {
        [] => ": lspci -D -d ::0108 lists those of class NVMe".into(),
        found => {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            format!("; in other domains there is {}", found.join(", "))
        }
    }
}

/// Who has a function.
pub fn with(driver: Option<&String>) -> String {
    driver.map_or("no driver has it".into(), |driver| format!("{driver} has it"))
}
