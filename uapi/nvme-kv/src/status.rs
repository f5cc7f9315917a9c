// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status of a completed command (Base, section 4.2.3; KV, section 3.1.2).

use core::fmt;

/// Status Code Type and Status Code: an open set, vendors and later specifications add to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($( $(#[doc = $doc:literal])* $name:ident = $sct:literal, $sc:literal; )*) => {
        impl Status {
            $( $(#[doc = $doc])* pub const $name: Self = Self::new($sct, $sc); )*

            /// The first sentence of the specification about the status, when it is known.
            pub const fn describe(self) -> Option<&'static str> {
                match self {
                    $( Self::$name => Some(concat!($($doc),*)), )*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// success
    SUCCESS = 0, 0x00;
    /// invalid command opcode
    INVALID_OPCODE = 0, 0x01;
    /// invalid field in command
    INVALID_FIELD = 0, 0x02;
    /// command identifier conflict
    COMMAND_ID_CONFLICT = 0, 0x03;
    /// data transfer error
    DATA_TRANSFER_ERROR = 0, 0x04;
    /// commands aborted due to power loss notification
    ABORTED_POWER_LOSS = 0, 0x05;
    /// internal error
    INTERNAL_ERROR = 0, 0x06;
    /// command abort requested
    ABORT_REQUESTED = 0, 0x07;
    /// command aborted due to submission queue deletion
    ABORTED_SQ_DELETION = 0, 0x08;
    /// invalid namespace or format
    INVALID_NAMESPACE = 0, 0x0b;
    /// command sequence error
    COMMAND_SEQUENCE_ERROR = 0, 0x0c;
    /// invalid SGL segment descriptor
    INVALID_SGL_SEGMENT = 0, 0x0d;
    /// invalid number of SGL descriptors
    INVALID_SGL_COUNT = 0, 0x0e;
    /// data SGL length invalid
    SGL_DATA_LENGTH = 0, 0x0f;
    /// SGL descriptor type invalid
    SGL_TYPE = 0, 0x11;
    /// PRP offset invalid
    PRP_OFFSET_INVALID = 0, 0x13;
    /// namespace is write protected
    WRITE_PROTECTED = 0, 0x20;
    /// command interrupted
    COMMAND_INTERRUPTED = 0, 0x21;
    /// transient transport error
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22;
    /// capacity exceeded
    CAPACITY_EXCEEDED = 0, 0x81;
    /// namespace not ready
    NAMESPACE_NOT_READY = 0, 0x82;
    /// reservation conflict
    RESERVATION_CONFLICT = 0, 0x83;
    /// format in progress
    FORMAT_IN_PROGRESS = 0, 0x84;
    /// invalid value size
    INVALID_VALUE_SIZE = 0, 0x85;
    /// invalid key size
    INVALID_KEY_SIZE = 0, 0x86;
    /// KV key does not exist
    KEY_NOT_FOUND = 0, 0x87;
    /// unrecovered error
    UNRECOVERED_ERROR = 0, 0x88;
    /// key exists
    KEY_EXISTS = 0, 0x89;
    /// completion queue invalid
    COMPLETION_QUEUE_INVALID = 1, 0x00;
    /// invalid queue identifier
    INVALID_QUEUE_ID = 1, 0x01;
    /// invalid queue size
    INVALID_QUEUE_SIZE = 1, 0x02;
    /// abort command limit exceeded
    ABORT_LIMIT_EXCEEDED = 1, 0x03;
    /// asynchronous event request limit exceeded
    AER_LIMIT_EXCEEDED = 1, 0x05;
    /// invalid interrupt vector
    INVALID_INTERRUPT_VECTOR = 1, 0x08;
    /// invalid log page
    INVALID_LOG_PAGE = 1, 0x09;
    /// invalid queue deletion
    INVALID_QUEUE_DELETION = 1, 0x0c;
    /// feature identifier not saveable
    FEATURE_NOT_SAVEABLE = 1, 0x0d;
    /// feature not changeable
    FEATURE_NOT_CHANGEABLE = 1, 0x0e;
    /// feature not namespace specific
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f;
    /// I/O command set not supported
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29;
    /// I/O command set not enabled
    COMMAND_SET_NOT_ENABLED = 1, 0x2a;
    /// I/O command set combination rejected
    COMMAND_SET_COMBINATION_REJECTED = 1, 0x2b;
    /// invalid I/O command set
    COMMAND_SET_INVALID = 1, 0x2c;
    /// attempted write to read only range
    WRITE_TO_READ_ONLY = 1, 0x82;
}

impl Status {
    /// Status code type (3 bits) and code.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }

    /// From SCT and SC as bits 10:0, the way Linux returns them from its passthrough ioctl.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7ff)
    }

    /// SCT and SC as bits 10:0.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status Code Type.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Status Code.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Some(text) => write!(f, "{} (status {:#05x})", text.trim_start(), self.0),
            None => write!(f, "status code type {:#x}, status code {:#04x}", self.sct(), self.sc()),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn spec_kv_3_1_2_names() {
        assert_eq!(Status::KEY_NOT_FOUND.bits(), 0x87);
        assert_eq!(format!("{}", Status::KEY_EXISTS), "key exists (status 0x089)");
        assert_eq!(format!("{}", Status::new(7, 0x55)), "status code type 0x7, status code 0x55");
        assert_eq!(Status::from_bits(0x4187), Status::new(1, 0x87));
    }
}
