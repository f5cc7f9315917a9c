// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identify data structures (Base, section 5.1.13; KV, section 4.1.5).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of every Identify data structure.
pub const SIZE: usize = 4096;

/// CNS values (Base, Figure "CNS Values").
pub mod cns {
    /// Namespace, NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptor list.
    pub const DESCRIPTORS: u8 = 0x03;
    /// I/O command set specific namespace.
    pub const CSI_NAMESPACE: u8 = 0x05;
    /// I/O command set specific controller.
    pub const CSI_CONTROLLER: u8 = 0x06;
    /// I/O command set specific active namespace list.
    pub const CSI_ACTIVE_NAMESPACES: u8 = 0x07;
    /// I/O command set independent namespace.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// I/O command set combinations of a controller.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Identify Controller (Base, Figure "Identify Controller Data Structure"): the fields in use here.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Controller {
    /// PCI Vendor ID.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number.
    pub sn: [u8; 20],
    /// Model Number.
    pub mn: [u8; 40],
    /// Firmware Revision.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst.
    pub rab: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// Multi-path and namespace sharing.
    pub cmic: u8,
    /// Maximum Data Transfer Size: 2 ^ n pages of CAP.MPSMIN, 0 for no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: U16,
    /// Version.
    pub ver: U32,
    /// RTD3 Resume and Entry Latency.
    pub rtd3: [U32; 2],
    /// Optional Asynchronous Events Supported.
    pub oaes: U32,
    /// Controller Attributes.
    pub ctratt: U32,
    /// Bytes 100 to 110.
    pub reserved0: [u8; 11],
    /// Controller Type: 1 for an I/O controller.
    pub cntrltype: u8,
    /// FRU GUID.
    pub fguid: [u8; 16],
    /// Bytes 128 to 255.
    pub reserved1: [u8; 128],
    /// Optional Admin Command Support.
    pub oacs: U16,
    /// Abort Command Limit, 0's based.
    pub acl: u8,
    /// Asynchronous Event Request Limit, 0's based.
    pub aerl: u8,
    /// Firmware Updates.
    pub frmw: u8,
    /// Log Page Attributes.
    pub lpa: u8,
    /// Error Log Page Entries, 0's based.
    pub elpe: u8,
    /// Bytes 263 to 511.
    pub reserved2: [u8; 249],
    /// Submission Queue Entry Size.
    pub sqes: u8,
    /// Completion Queue Entry Size.
    pub cqes: u8,
    /// Maximum Outstanding Commands.
    pub maxcmd: U16,
    /// Number of Namespaces.
    pub nn: U32,
    /// Optional NVM Command Support.
    pub oncs: U16,
    /// Fused Operation Support.
    pub fuses: U16,
    /// Format NVM Attributes.
    pub fna: u8,
    /// Volatile Write Cache.
    pub vwc: u8,
    /// Bytes 526 to 535.
    pub reserved3: [u8; 10],
    /// SGL Support (SGLS), see [`Controller::SGLS_ANY`] and [`Controller::SGLS_LONGER`].
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces.
    pub mnan: U32,
    /// Bytes 544 to 767.
    pub reserved4: [u8; 224],
    /// NVM Subsystem NVMe Qualified Name.
    pub subnqn: [u8; 256],
    /// Bytes 1024 to 4095.
    pub reserved5: [[u8; 1024]; 3],
}

const _: () = {
    use core::mem::offset_of;
    assert!(core::mem::size_of::<Controller>() == SIZE);
    assert!(offset_of!(Controller, mdts) == 77);
    assert!(offset_of!(Controller, cntlid) == 78);
    assert!(offset_of!(Controller, oaes) == 92);
    assert!(offset_of!(Controller, cntrltype) == 111);
    assert!(offset_of!(Controller, oacs) == 256);
    assert!(offset_of!(Controller, lpa) == 261);
    assert!(offset_of!(Controller, sqes) == 512);
    assert!(offset_of!(Controller, nn) == 516);
    assert!(offset_of!(Controller, vwc) == 525);
    assert!(offset_of!(Controller, sgls) == 536);
    assert!(offset_of!(Controller, subnqn) == 768);
};

impl Controller {
    /// `lpa`: the Commands Supported and Effects log page is there.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// `lpa`: Get Log Page takes offset and upper length.
    pub const LPA_EXTENDED: u8 = 1 << 2;
    /// `sgls`: SGLs, whatever the alignment.
    pub const SGLS_ANY: u32 = 1 << 0;
    /// `sgls`: also those that are longer than the transfer.
    pub const SGLS_LONGER: u32 = 1 << 18;
    /// `oacs`: Doorbell Buffer Config.
    pub const OACS_DOORBELL_BUFFERS: u16 = 1 << 8;
    /// `oaes`: Namespace Attribute Notices.
    pub const OAES_NAMESPACE: u32 = 1 << 8;
    /// `vwc`: bits 2:1, Flush takes the namespace identifier FFFFFFFFh.
    pub const VWC_FLUSH_ALL: u8 = 0b11 << 1;
    /// `cntrltype`: I/O controller.
    pub const TYPE_IO: u8 = 1;

    /// Largest transfer in bytes for a minimum page of 4 KiB; `None` when there is no limit, or one that no
    /// command could state.
    pub const fn max_transfer(&self) -> Option<u64> {
        match self.mdts {
            0 | 52.. => None,
            n => Some(4096u64 << n),
        }
    }
}

/// Namespace identifiers in ascending order, ended by 0 (Base, Figure "Namespace List Format").
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct NamespaceList {
    /// Identifiers.
    pub nsid: [U32; 1024],
}

const _: () = assert!(core::mem::size_of::<NamespaceList>() == SIZE);

impl NamespaceList {
    /// The identifiers.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid.iter().map(|n| n.get()).take_while(|n| *n != 0)
    }
}

/// I/O command set combinations (Base, Figure "Identify I/O Command Set"): one bit for each CSI.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CommandSets {
    /// Combinations; the first that is zero ends them.
    pub vector: [U64; 512],
}

const _: () = assert!(core::mem::size_of::<CommandSets>() == SIZE);

impl CommandSets {
    /// Index of the first combination with the Key Value command set, preferring one that is Key Value alone.
    pub fn find_kv(&self) -> Option<u16> {
        let kv = 1 << crate::csi::KV;
        let sets = || self.vector.iter().map(|v| v.get()).take_while(|v| *v != 0);
        let found = sets().position(|v| v == kv).or_else(|| sets().position(|v| v & kv != 0));
        found.and_then(|index| u16::try_from(index).ok())
    }
}

/// Types of namespace identification descriptors (Base, Figure "Namespace Identification Descriptor").
pub mod nidt {
    /// IEEE extended unique identifier, 8 bytes.
    pub const EUI64: u8 = 1;
    /// Namespace GUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// Namespace UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command Set Identifier, 1 byte.
    pub const CSI: u8 = 4;
}

/// Reads a namespace identification descriptor list: type and bytes of each.
pub fn descriptors(list: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = list;
    core::iter::from_fn(move || {
        let (header, after) = rest.split_at_checked(4)?;
        let (nidt, len) = (header[0], usize::from(header[1]));
        if len == 0 {
            return None;
        }
        let (value, after) = after.split_at_checked(len)?;
        rest = after;
        Some((nidt, value))
    })
}

/// Writes a namespace identification descriptor list; `false` when it does not fit.
#[must_use]
pub fn write_descriptors(list: &mut [u8], descriptors: &[(u8, &[u8])]) -> bool {
    list.fill(0);
    let mut at = 0;
    for (nidt, value) in descriptors {
        let (Ok(len), Some(to)) = (u8::try_from(value.len()), list.get_mut(at..at + 4 + value.len())) else {
            return false;
        };
        to[0] = *nidt;
        to[1] = len;
        to[4..].copy_from_slice(value);
        at += 4 + value.len();
    }
    true
}

/// I/O command set independent namespace (Base, Figure "I/O Command Set Independent Identify Namespace").
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IndependentNamespace {
    /// Common Namespace Features.
    pub nsfeat: u8,
    /// Namespace sharing.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Namespace Attributes: bit 0 is write protected.
    pub nsattr: u8,
    /// Reserved.
    pub reserved0: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Status: bit 0 is ready.
    pub nstat: u8,
    /// Reserved.
    pub reserved: [u8; 4081],
}

const _: () = {
    assert!(core::mem::size_of::<IndependentNamespace>() == SIZE);
    assert!(core::mem::offset_of!(IndependentNamespace, nstat) == 14);
};

/// A format of a Key Value namespace (KV, Figure "KV Format Data Structure").
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct KvFormat {
    /// Maximum key length in bytes (KVKML).
    pub kvkml: U16,
    /// Reserved.
    pub reserved0: u8,
    /// Additional Format Options (AFO).
    pub afo: u8,
    /// Maximum value length in bytes (KVVML).
    pub kvvml: U32,
    /// Maximum number of keys (MNKS), 0 when no limit is stated.
    pub mnks: U32,
    /// Reserved.
    pub reserved: U32,
}

/// Identify Namespace for the Key Value command set (KV, section 4.1.5.1).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct KvNamespace {
    /// Namespace size in bytes (NSZE).
    pub nsze: U64,
    /// Reserved.
    pub reserved0: U64,
    /// Namespace utilization in bytes (NUSE).
    pub nuse: U64,
    /// Namespace features.
    pub nsfeat: u8,
    /// Number of formats, 0's based.
    pub nkvf: u8,
    /// Namespace sharing.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Format in use: index into `kvf` in bits 3:0.
    pub kvfc: u8,
    /// Reserved.
    pub reserved1: [u8; 2],
    /// Namespace optimal value granularity.
    pub novg: U32,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Reserved.
    pub reserved2: [u8; 3],
    /// Namespace Attributes.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace GUID.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier.
    pub eui64: [u8; 8],
    /// Formats.
    pub kvf: [KvFormat; 16],
    /// Reserved.
    pub reserved3: [[u8; 8]; 439],
    /// Vendor specific.
    pub vendor: [u8; 256],
}

const _: () = {
    use core::mem::offset_of;
    assert!(core::mem::size_of::<KvFormat>() == 16);
    assert!(core::mem::size_of::<KvNamespace>() == SIZE);
    assert!(offset_of!(KvNamespace, nsfeat) == 24);
    assert!(offset_of!(KvNamespace, kvfc) == 29);
    assert!(offset_of!(KvNamespace, novg) == 32);
    assert!(offset_of!(KvNamespace, nsattr) == 43);
    assert!(offset_of!(KvNamespace, nguid) == 48);
    assert!(offset_of!(KvNamespace, kvf) == 72);
    assert!(offset_of!(KvNamespace, vendor) == 3840);
};

/// Identify Controller for the Key Value command set (CNS 06h).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct KvController {
    /// Version of the command set, in the format of the VS register.
    pub ver: U32,
    /// Reserved.
    pub reserved: [[u8; 4]; 1023],
}

const _: () = assert!(core::mem::size_of::<KvController>() == SIZE);

impl KvNamespace {
    /// The format in use and its index; `None` when the controller names one that it does not have.
    pub fn format(&self) -> Option<(u8, KvFormat)> {
        let index = self.kvfc & 15;
        if index > self.nkvf {
            return None;
        }
        self.kvf.get(usize::from(index)).map(|f| (index, *f))
    }
}

/// Text of an ASCII field without its padding; bytes that are not printable become `?`.
pub fn ascii(field: &[u8]) -> impl Iterator<Item = char> + '_ {
    let end = field.iter().rposition(|b| !matches!(b, b' ' | 0)).map_or(0, |at| at + 1);
    let text = field.get(..end).unwrap_or(&[]);
    text.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '?' })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::String, vec, vec::Vec};
    use zerocopy::FromZeros;

    #[test]
    fn spec_base_5_1_13_descriptor_list() {
        let mut list = vec![0xff; 40];
        assert!(write_descriptors(&mut list, &[(nidt::UUID, &[7; 16]), (nidt::CSI, &[1])]));
        assert_eq!(list[..4], [3, 16, 0, 0]);
        let back: Vec<_> = descriptors(&list).collect();
        assert_eq!(back, [(nidt::UUID, &[7u8; 16][..]), (nidt::CSI, &[1][..])]);
        assert!(!write_descriptors(&mut list[..23], &[(nidt::UUID, &[7; 16]), (nidt::CSI, &[1])]));
    }

    proptest! {
        #[test]
        fn any_descriptor_list_ends(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(descriptors(&bytes).count() <= bytes.len() / 5);
        }
    }

    #[test]
    fn mdts_of_any_value() {
        let mut c = Controller::new_zeroed();
        for (mdts, want) in
            [(0, None), (1, Some(8192)), (14, Some(64 << 20)), (51, Some(1 << 63)), (52, None), (255, None)]
        {
            c.mdts = mdts;
            assert_eq!(c.max_transfer(), want);
        }
    }

    #[test]
    fn kv_combination_is_found() {
        let mut sets = CommandSets::new_zeroed();
        assert_eq!(sets.find_kv(), None);
        // QEMU's block controller: NVM and ZNS.
        sets.vector[0] = 5.into();
        assert_eq!(sets.find_kv(), None);
        sets.vector[1] = 3.into();
        assert_eq!(sets.find_kv(), Some(1));
        sets.vector[2] = 2.into();
        assert_eq!(sets.find_kv(), Some(2));
        sets.vector[0] = 0.into();
        assert_eq!(sets.find_kv(), None);
    }

    #[test]
    fn format_in_use_must_exist() {
        let mut ns = KvNamespace::new_zeroed();
        ns.kvf[1].kvvml = 9.into();
        ns.kvfc = 1;
        assert!(ns.format().is_none());
        ns.nkvf = 1;
        assert_eq!(ns.format().unwrap().1.kvvml.get(), 9);
        assert_eq!(ascii(b"ab \xff  \0").collect::<String>(), "ab ?");
    }
}
