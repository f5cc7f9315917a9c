// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a controller and its namespaces are.

use crate::error::{Error, LimitBy, Result};
use crate::path::Path;
use nvme_kv::{identify, Key};
use std::fmt;
use xio_uapi as uapi;

/// What stands between the device and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iommu {
    /// Nothing: the device reaches all of memory.
    None,
    /// An IOMMU that passes every address through.
    Identity,
    /// An IOMMU that confines the device to what is mapped.
    Translated,
    /// The same, with lazy flushes.
    TranslatedLazy,
    /// Something that this library does not know.
    Other(u32),
}

/// What keeps an IOMMU from confining the device; nothing when it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unconfined(pub u32);

impl Unconfined {
    /// What each bit means, and what to do about it.
    const BITS: [(u32, &'static str, &'static str); 4] = [
        (
            uapi::UNCONFINED_NOT_TRANSLATED,
            "addresses are not translated",
            "boot with intel_iommu=on or amd_iommu=on and without iommu=pt",
        ),
        (
            uapi::UNCONFINED_GROUP,
            "other devices share its IOMMU group",
            "put the controller into another slot",
        ),
        (
            uapi::UNCONFINED_INTERRUPTS,
            "interrupts are not remapped",
            "switch interrupt remapping on, or accept it with the module's unsafe_interrupts=1",
        ),
        (
            uapi::UNCONFINED_RESERVED,
            "the firmware has memory mapped for it",
            "have the firmware let go of it",
        ),
    ];

    fn join(
        self,
        f: &mut fmt::Formatter<'_>,
        each: impl Fn(&(u32, &'static str, &'static str)) -> &'static str,
    ) -> fmt::Result {
        let parts: Vec<_> = Self::BITS.iter().filter(|(bit, ..)| self.0 & bit != 0).map(each).collect();
        f.pad(&parts.join(", "))
    }

    /// What to do about it, to be printed.
    pub fn remedy(self) -> impl fmt::Display {
        struct Remedy(Unconfined);
        impl fmt::Display for Remedy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.join(f, |(_, _, remedy)| remedy)
            }
        }
        Remedy(self)
    }
}

impl fmt::Display for Unconfined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.join(f, |(_, what, _)| what)
    }
}

/// Whether this process may have direct queues at this moment, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// Yes: an IOMMU confines the device.
    Confined,
    /// Yes: the process has CAP_SYS_RAWIO.
    RawIo,
    /// Yes: the module was loaded with `unsafe_direct=1`.
    Unsafe,
    /// No: nothing confines the device.
    Refused,
    /// Something that this library does not know.
    Other(u32),
}

impl Direct {
    /// Whether direct queues can be had.
    pub const fn allowed(self) -> bool {
        matches!(self, Self::Confined | Self::RawIo | Self::Unsafe)
    }
}

impl From<u32> for Iommu {
    fn from(raw: u32) -> Self {
        match raw {
            uapi::IOMMU_NONE => Self::None,
            uapi::IOMMU_IDENTITY => Self::Identity,
            uapi::IOMMU_TRANSLATED => Self::Translated,
            uapi::IOMMU_TRANSLATED_LAZY => Self::TranslatedLazy,
            other => Self::Other(other),
        }
    }
}

impl From<u32> for Direct {
    fn from(raw: u32) -> Self {
        match raw {
            uapi::DIRECT_CONFINED => Self::Confined,
            uapi::DIRECT_RAWIO => Self::RawIo,
            uapi::DIRECT_UNSAFE => Self::Unsafe,
            uapi::DIRECT_REFUSED => Self::Refused,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Iommu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Identity => f.pad("identity"),
            Self::Translated => f.pad("translated"),
            Self::TranslatedLazy => f.pad("translated-lazy"),
            Self::Other(n) => write!(f, "unknown ({n})"),
        }
    }
}

impl fmt::Display for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Confined => f.pad("an IOMMU confines the device"),
            Self::RawIo => f.pad("CAP_SYS_RAWIO"),
            Self::Unsafe => f.pad("unsafe_direct=1"),
            Self::Refused => f.pad("no IOMMU confines the device"),
            Self::Other(n) => write!(f, "unknown ({n})"),
        }
    }
}

/// A controller memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cmb {
    /// Bytes.
    pub size: u64,
    /// Bytes that nobody uses.
    pub free: u64,
    /// Submission queues can be in it.
    pub queues: bool,
    /// Values can be in it.
    pub values: bool,
}

/// A controller.
#[derive(Clone, Debug)]
pub struct Info {
    raw: uapi::GetInfo,
}

impl Info {
    pub(crate) const fn new(raw: uapi::GetInfo) -> Self {
        Self { raw }
    }

    /// All that the module tells, for what has no method here.
    pub const fn raw(&self) -> &uapi::GetInfo {
        &self.raw
    }

    /// Model number.
    pub fn model(&self) -> String {
        identify::ascii(&self.raw.model).collect()
    }

    /// Serial number.
    pub fn serial(&self) -> String {
        identify::ascii(&self.raw.serial).collect()
    }

    /// Firmware revision.
    pub fn firmware(&self) -> String {
        identify::ascii(&self.raw.firmware).collect()
    }

    /// NVM subsystem qualified name.
    pub fn subnqn(&self) -> String {
        identify::ascii(&self.raw.subnqn).collect()
    }

    /// PCI address, as in `0000:01:00.0`.
    pub fn pci_address(&self) -> String {
        let r = &self.raw;
        format!("{:04x}:{:02x}:{:02x}.{:x}", r.pci_domain, r.pci_bus, r.pci_device, r.pci_function)
    }

    /// Version of NVMe, as in `2.1.0`.
    pub fn nvme_version(&self) -> String {
        let vs = nvme_kv::regs::Vs(self.raw.nvme_version);
        format!("{}.{}.{}", vs.major(), vs.minor(), vs.tertiary())
    }

    /// What confines the device.
    pub fn iommu(&self) -> Iommu {
        self.raw.iommu.into()
    }

    /// What keeps the IOMMU from confining it.
    pub const fn unconfined(&self) -> Unconfined {
        Unconfined(self.raw.unconfined)
    }

    /// Whether this process may have direct queues, and why.
    pub fn direct(&self) -> Direct {
        self.raw.direct.into()
    }

    /// Whether the kernel submits commands for this process.
    pub const fn mediated(&self) -> bool {
        self.raw.queue_kinds & uapi::QUEUE_KIND_MEDIATED != 0
    }

    /// Commands of all processes that the kernel's queue holds at a time.
    pub const fn mediated_depth(&self) -> u32 {
        self.raw.mediated_depth
    }

    /// What [`Path::Auto`] tries first at this moment.
    pub fn preferred_path(&self) -> Path {
        if self.direct().allowed() {
            Path::Direct
        } else {
            Path::Mediated
        }
    }

    /// Deepest queue in entries.
    pub const fn max_queue_entries(&self) -> u32 {
        self.raw.max_queue_entries
    }

    /// Queues that all clients can have together.
    pub const fn max_queues(&self) -> u32 {
        self.raw.max_queues
    }

    /// Bytes that one command can move, `None` when the controller states no limit.
    pub fn max_transfer(&self) -> Option<u64> {
        (self.raw.max_transfer != 0).then_some(self.raw.max_transfer)
    }

    /// The controller memory buffer, if it has one that can be used.
    pub fn cmb(&self) -> Option<Cmb> {
        let raw = &self.raw;
        (raw.cmb_size != 0).then_some(Cmb {
            size: raw.cmb_size,
            free: raw.cmb_free,
            queues: raw.cmb & uapi::CMB_SQ != 0,
            values: raw.cmb & uapi::CMB_DATA != 0,
        })
    }

    /// Largest buffer in bytes.
    pub const fn max_buffer(&self) -> u64 {
        self.raw.max_buffer
    }
}

/// A Key Value namespace and its limits, as they were when it was asked for.
#[derive(Clone, Debug)]
pub struct Namespace {
    raw: uapi::GetNamespace,
    max_transfer: Option<u64>,
    max_buffer: u64,
}

impl Namespace {
    pub(crate) fn new(raw: uapi::GetNamespace, info: &Info) -> Self {
        Self { raw, max_transfer: info.max_transfer(), max_buffer: info.max_buffer() }
    }

    /// All that the module tells, for what has no method here.
    pub const fn raw(&self) -> &uapi::GetNamespace {
        &self.raw
    }

    /// Identifier.
    pub const fn nsid(&self) -> u32 {
        self.raw.nsid
    }

    /// Capacity in bytes.
    pub const fn capacity(&self) -> u64 {
        self.raw.capacity
    }

    /// Bytes in use when this was asked for.
    pub const fn used(&self) -> u64 {
        self.raw.used
    }

    /// Longest key in bytes.
    pub const fn max_key(&self) -> u16 {
        self.raw.max_key
    }

    /// Number of keys that fit, `None` when no limit is stated.
    pub fn max_keys(&self) -> Option<u32> {
        (self.raw.max_keys != 0).then_some(self.raw.max_keys)
    }

    /// Longest value in bytes that a command can store or retrieve, and whose limit that is.
    pub fn max_value(&self) -> (u64, LimitBy) {
        let namespace = (u64::from(self.raw.max_value), LimitBy::Namespace);
        let (limit, by) = self.largest_transfer();
        if limit < namespace.0 {
            (limit, by)
        } else {
            namespace
        }
    }

    /// Bytes that a command of any kind can move, and whose limit that is.
    pub(crate) fn largest_transfer(&self) -> (u64, LimitBy) {
        let limits = [
            (u64::from(u32::MAX), LimitBy::Command),
            (self.max_transfer.unwrap_or(u64::MAX), LimitBy::Controller),
            (self.max_buffer, LimitBy::Buffer),
        ];
        limits.into_iter().min_by_key(|(limit, _)| *limit).unwrap_or(limits[0])
    }

    /// Checks a key.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`].
    pub fn check_key(&self, key: &Key) -> Result<()> {
        let limit = self.max_key();
        if u16::from(key.len()) > limit {
            return Err(Error::KeyTooLong { key: *key, limit });
        }
        Ok(())
    }

    /// Checks whether a value of `len` bytes can be stored; nothing is sent.
    ///
    /// # Errors
    /// [`Error::ValueTooLarge`].
    pub fn check_value(&self, key: &Key, len: u64) -> Result<()> {
        let (limit, by) = self.max_value();
        if len > limit {
            return Err(Error::ValueTooLarge { key: *key, len, limit, by });
        }
        Ok(())
    }
}
