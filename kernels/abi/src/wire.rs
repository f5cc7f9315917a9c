// SPDX-License-Identifier: MIT OR Apache-2.0
//! What device code needs of `nvme-kv` and `xio-uapi`. Options are taken from what the encoder writes, so that they
//! can not differ from it.

use crate::{device, Constant, Member, Structure};
use core::mem::{offset_of, size_of};
use nvme_kv::kv::{opcode, Command, Condition, RetrieveOptions, StoreOptions};
use nvme_kv::{Cqe, DataPointer, Key, Sqe, Status};
use xio_uapi as uapi;

macro_rules! members {
    ($of:ty: $($(#[doc = $doc:literal])* $field:ident: $ty:literal,)*) => {
        &[$( Member { name: stringify!($field), ty: $ty, offset: offset_of!($of, $field), doc: &[$($doc),*] } ),*]
    };
}

/// Structures of NVMe and of the module.
pub const STRUCTURES: &[Structure] = &[
    Structure {
        name: "xio_sqe",
        size: size_of::<Sqe>(),
        align: 16,
        doc: &["Submission queue entry (Base 2.1, section 4.1)."],
        members: members! { Sqe:
            /// Opcode.
            opcode: "u8",
            /// FUSE and PSDT.
            flags: "u8",
            /// Command identifier.
            cid: "u16",
            /// Namespace.
            nsid: "u32",
            /// Command dwords 2 and 3: bytes 0 to 7 of the key.
            cdw2: "[u32; 2]",
            /// Metadata pointer.
            mptr: "u64",
            /// First PRP entry.
            prp1: "u64",
            /// Second PRP entry.
            prp2: "u64",
            /// Command dwords 10 to 15: length; options and length of the key; nothing; nothing; bytes 8 to 15 of the key.
            cdw10: "[u32; 6]",
        },
    },
    Structure {
        name: "xio_cqe",
        size: size_of::<Cqe>(),
        align: 16,
        doc: &["Completion queue entry (Base 2.1, section 4.2)."],
        members: members! { Cqe:
            /// Result.
            dw0: "u32",
            /// Second dword of the result.
            dw1: "u32",
            /// Head of the submission queue.
            sqhd: "u16",
            /// Submission queue.
            sqid: "u16",
            /// Command identifier.
            cid: "u16",
            /// Phase in bit 0, status in bits 15:1.
            status: "u16",
        },
    },
    Structure {
        name: "xio_page",
        size: size_of::<uapi::Page>(),
        align: 8,
        doc: &["What a command needs to point at a page of a buffer; see struct xio_page of rocm_xio.h."],
        members: members! { uapi::Page:
            /// Address of the page for the controller.
            addr: "u64",
            /// Address of the PRP list entry of this page, in each of the two ready-made lists.
            list: "[u64; 2]",
            /// Zero.
            reserved: "u64",
        },
    },
];

/// Command dword 11 without the key's length, as the encoder makes it.
fn options(command: &Command) -> u64 {
    u64::from(command.encode(0, 0).dword(11) >> 8)
}

fn store(condition: Condition, no_compress: bool) -> u64 {
    let (len, data, options_of) = (0, DataPointer::default(), StoreOptions { condition, no_compress });
    Key::new(b"k").map_or(0, |key| options(&Command::Store { key, len, options: options_of, data }))
}

fn raw() -> u64 {
    let (len, data, options_of) = (0, DataPointer::default(), RetrieveOptions { raw: true });
    Key::new(b"k").map_or(0, |key| options(&Command::Retrieve { key, len, options: options_of, data }))
}

/// All constants, in the order of the header.
pub fn constants() -> [Constant; 31] {
    let u32s = |name, value: u64, doc| Constant { name, ty: "u32", value, doc };
    let u64s = |name, value: u64, doc| Constant { name, ty: "u64", value, doc };
    [
        u32s("XIO_OP_STORE", opcode::STORE.into(), "Opcode of Store."),
        u32s("XIO_OP_RETRIEVE", opcode::RETRIEVE.into(), "Opcode of Retrieve."),
        u32s("XIO_OP_LIST", opcode::LIST.into(), "Opcode of List."),
        u32s("XIO_OP_DELETE", opcode::DELETE.into(), "Opcode of Delete."),
        u32s("XIO_OP_EXIST", opcode::EXIST.into(), "Opcode of Exist."),
        u32s("XIO_STORE_IF_EXISTS", store(Condition::IfExists, false), "Store only if the key exists."),
        u32s(
            "XIO_STORE_IF_ABSENT",
            store(Condition::IfAbsent, false),
            "Store only if the key does not exist.",
        ),
        u32s(
            "XIO_STORE_NO_COMPRESS",
            store(Condition::Always, true),
            "Ask the controller not to compress the value.",
        ),
        u32s("XIO_RETRIEVE_RAW", raw(), "Ask for the value as it is stored."),
        u32s("XIO_KEY_MAX", Key::MAX as u64, "Bytes of the longest key."),
        u32s("XIO_LIST_MIN", nvme_kv::list::MIN_LEN as u64, "Bytes of the smallest room for a list of keys."),
        u32s("XIO_OK", Status::SUCCESS.bits().into(), "Success."),
        u32s("XIO_NOT_FOUND", Status::KEY_NOT_FOUND.bits().into(), "No such key: an answer, not an error."),
        u32s("XIO_EXISTS", Status::KEY_EXISTS.bits().into(), "The key exists already."),
        u32s("XIO_FULL", Status::CAPACITY_EXCEEDED.bits().into(), "The namespace is full."),
        u32s(
            "XIO_STATUS_TIMEOUT",
            device::STATUS_TIMEOUT.into(),
            "No answer in time; the command may still be carried out.",
        ),
        u32s(
            "XIO_STATUS_FULL",
            device::STATUS_FULL.into(),
            "The queue stayed full until the deadline; not submitted.",
        ),
        u32s(
            "XIO_STATUS_BROKEN",
            device::STATUS_BROKEN.into(),
            "The controller broke the protocol of this queue.",
        ),
        u32s(
            "XIO_STATUS_INVALID",
            device::STATUS_INVALID.into(),
            "Not a command: key, range or opcode; not submitted.",
        ),
        u32s("XIO_DONE", device::DONE.into(), "Set in the status of a result that is there."),
        u32s(
            "XIO_BROKEN_QUEUE_ID",
            device::BROKEN_QUEUE_ID.into(),
            "Broken by a completion of another queue.",
        ),
        u32s(
            "XIO_BROKEN_COMMAND_ID",
            device::BROKEN_COMMAND_ID.into(),
            "Broken by a completion of nothing in flight.",
        ),
        u32s(
            "XIO_BROKEN_HEAD",
            device::BROKEN_HEAD.into(),
            "Broken by a queue head beyond what was published.",
        ),
        u32s("XIO_MAX_ENTRIES", device::MAX_ENTRIES.into(), "Most entries of a queue."),
        u32s("XIO_MAX_THREADS", device::MAX_THREADS.into(), "Most threads of a block."),
        u64s("XIO_SLOT_BUSY", device::SLOT_BUSY, "State of a slot: its command is in flight."),
        u64s("XIO_SLOT_POISONED", device::SLOT_POISONED, "State of a slot: a command was given up there."),
        u32s("XIO_PAGE_SIZE", uapi::PAGE_SIZE.into(), "Bytes of a page."),
        u32s(
            "XIO_LIST_ENTRIES",
            uapi::LIST_ENTRIES.into(),
            "Data pages between two chain pointers of a ready-made PRP list.",
        ),
        u32s("XIO_CQE_PHASE", 1 << 16, "Phase tag in the last dword of a completion."),
        u32s("XIO_STATUS_MASK", 0x7ff, "Status code type and code, once the phase is shifted out."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_encoder() {
        let all = constants();
        let value = |name: &str| all.iter().find(|c| c.name == name).map(|c| c.value);
        assert_eq!(value("XIO_STORE_IF_EXISTS"), Some(1));
        assert_eq!(value("XIO_STORE_IF_ABSENT"), Some(2));
        assert_eq!(value("XIO_STORE_NO_COMPRESS"), Some(4));
        assert_eq!(value("XIO_RETRIEVE_RAW"), Some(1));
        assert_eq!(value("XIO_NOT_FOUND"), Some(0x87));
    }

    #[test]
    fn entries_have_no_gaps() {
        for s in STRUCTURES.iter().chain(device::STRUCTURES) {
            assert!(s.members.windows(2).all(|w| w[0].offset < w[1].offset), "{}", s.name);
            assert_eq!(s.size % s.align, 0, "{}", s.name);
        }
    }
}
