// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes and what leads to them.

use crate::manifest;
use std::fmt::Write;
use std::io;
use xio::{Error, Key, Status};

/// Something else.
pub const OTHER: u8 = 1;
/// Wrong arguments.
pub const USAGE: u8 = 2;
/// No such key.
pub const NOT_FOUND: u8 = 3;
/// The key exists already.
pub const EXISTS: u8 = 4;
/// The namespace is full.
pub const CAPACITY: u8 = 5;
/// Controller or module do not have it.
pub const UNSUPPORTED: u8 = 6;
/// Not allowed.
pub const PERMISSION: u8 = 7;
/// Something is wrong with the device.
pub const DEVICE: u8 = 8;
/// `xio doctor` found problems.
pub const PROBLEMS: u8 = 9;
/// As a shell shows the end by SIGPIPE.
pub const PIPE: u8 = 141;

const EIO: i32 = 5;
const ETIMEDOUT: i32 = 110;

/// All exit codes.
pub const TABLE: &[(u8, &str)] = &[
    (0, "success"),
    (OTHER, "another error"),
    (USAGE, "wrong arguments, or a key or value beyond the limits"),
    (NOT_FOUND, "no such key"),
    (EXISTS, "the key exists already (--if-absent)"),
    (CAPACITY, "the namespace is full"),
    (UNSUPPORTED, "the controller, the module or the path does not support it"),
    (PERMISSION, "no permission, or direct queues are refused (--path direct)"),
    (DEVICE, "no device or namespace, in use, gone, or no answer in time"),
    (PROBLEMS, "xio doctor found problems"),
    (PIPE, "whoever read the output went away"),
];

/// The table for `--help`.
pub fn help() -> String {
    TABLE.iter().fold("Exit codes:".into(), |mut text, (code, what)| {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {code:>3}  {what}");
        text
    })
}

/// Why the program fails.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The library says so.
    #[error(transparent)]
    Xio(#[from] xio::Error),
    /// A controller is not given to another driver.
    #[error(transparent)]
    Bind(#[from] crate::bind::Error),
    /// A file of the kernel can not be read.
    #[error(transparent)]
    System(#[from] crate::system::Unreadable),
    /// Said already, on standard error or by what was printed.
    #[error("exit code {0}")]
    Told(u8),
    /// A file or standard input can not be read.
    #[error("reading {name}: {source}")]
    Input {
        /// What it is.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A file or standard output can not be written.
    #[error("writing {name}: {source}")]
    Output {
        /// What it is.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// An input of unknown length is too long.
    #[error("key {key}: {name} has more than the {limit} bytes that {by} allows for a value: split it")]
    InputTooLarge {
        /// The key.
        key: Key,
        /// What it is.
        name: String,
        /// The limit in bytes.
        limit: u64,
        /// Whose limit it is.
        by: xio::LimitBy,
    },
    /// A manifest.
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    /// The module's own account can not be read.
    #[error(transparent)]
    Unreadable(#[from] crate::top::Unreadable),
    /// The controller does not keep what it was given.
    #[error("self-test: {0}")]
    SelfTest(String),
}

impl Failure {
    /// What to tell, if anything.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Told(_) => None,
            _ if self.code() == PIPE => None,
            _ => Some(self.to_string()),
        }
    }

    /// Exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Xio(error) => of_library(error),
            Self::Bind(error) => error.code(),
            Self::Told(code) => *code,
            Self::Unreadable(why) => why.code(),
            Self::InputTooLarge { .. } | Self::Manifest(manifest::Error::Line { .. }) => USAGE,
            Self::Output { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => PIPE,
            Self::Manifest(manifest::Error::Input { .. }) => OTHER,
            Self::System(_) | Self::Input { .. } | Self::Output { .. } | Self::SelfTest(_) => OTHER,
        }
    }
}

/// Exit code of an error of the library.
pub fn of_library(error: &Error) -> u8 {
    match error {
        Error::NotFound { .. } => NOT_FOUND,
        Error::Exists { .. } => EXISTS,
        Error::Capacity { .. } => CAPACITY,
        Error::Unsupported { .. }
        | Error::Interface { .. }
        | Error::NoMediated
        | Error::NoState
        | Error::NoCmb { .. }
        | Error::NotPeer => UNSUPPORTED,
        Error::Permission { .. } | Error::DirectRefused { .. } | Error::Refused(_) => PERMISSION,
        Error::ValueTooLarge { .. } | Error::KeyTooLong { .. } => USAGE,
        Error::Status { status: Status::INVALID_VALUE_SIZE, .. } => CAPACITY,
        Error::Status { status: Status::INVALID_KEY_SIZE, .. } => USAGE,
        Error::Status { .. } => DEVICE,
        // How the module tells of a controller that refuses or does not answer.
        Error::Os { source, .. } if matches!(source.raw_os_error(), Some(EIO | ETIMEDOUT)) => DEVICE,
        Error::NoDevice
        | Error::NoNode { .. }
        | Error::Busy
        | Error::Gone
        | Error::Revoked { .. }
        | Error::NotLive { .. }
        | Error::NoQueueLeft
        | Error::TooManyCalls
        | Error::BufferGone
        | Error::NotStarted { .. }
        | Error::NoNamespace { .. }
        | Error::NoNamespaces
        | Error::Timeout { .. }
        | Error::Protocol(_) => DEVICE,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_and_unambiguous() {
        let codes: Vec<u8> = TABLE.iter().map(|(code, _)| *code).collect();
        assert!(codes.windows(2).all(|w| w[0] < w[1]), "{codes:?}");
        assert!(help().contains("\n    3  no such key"));
        for error in [Error::NoDevice, Error::Busy, Error::Loopback(String::new())] {
            assert!(codes.contains(&of_library(&error)));
        }
    }

    #[test]
    fn what_the_controller_says_has_its_code() {
        let status = |status| of_library(&Error::Status { op: "Store", key: None, status });
        assert_eq!(status(Status::INVALID_VALUE_SIZE), CAPACITY);
        assert_eq!(status(Status::INVALID_KEY_SIZE), USAGE);
        assert_eq!(status(Status::INVALID_FIELD), DEVICE);
        let os = |kind: io::Error| of_library(&Error::Os { what: "x", source: kind });
        assert_eq!(
            (os(io::Error::from_raw_os_error(EIO)), os(io::Error::from_raw_os_error(ETIMEDOUT))),
            (8, 8)
        );
        assert_eq!(os(io::ErrorKind::OutOfMemory.into()), OTHER);
    }

    #[test]
    fn a_closed_pipe_is_silent() {
        let source = io::Error::from(io::ErrorKind::BrokenPipe);
        let failure = Failure::Output { name: "standard output".into(), source };
        assert_eq!((failure.code(), failure.message()), (PIPE, None));
    }
}
