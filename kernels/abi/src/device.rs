// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures that host and device code of this project share. All are little-endian and naturally aligned; pointers
//! are 64-bit addresses as the device sees them.

use crate::{Member, Structure};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Defines structures and their descriptions in one go.
macro_rules! structures {
    ($(
        $(#[doc = $doc:literal])*
        struct $name:ident = $c:literal, align $align:literal {
            $( $(#[doc = $fdoc:literal])* $field:ident: $ty:ty, )*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            pub struct $name {
                $( $(#[doc = $fdoc])* pub $field: $ty, )*
            }
        )*
        /// Descriptions of all structures, in an order that C++ can have.
        pub const STRUCTURES: &[Structure] = &[$(
            Structure {
                name: $c,
                size: core::mem::size_of::<$name>(),
                align: $align,
                members: &[$( Member {
                    name: stringify!($field),
                    ty: stringify!($ty),
                    offset: core::mem::offset_of!($name, $field),
                    doc: &[$($fdoc),*],
                } ),*],
                doc: &[$($doc),*],
            }
        ),*];
    };
}

structures! {
    /// What came of a command. Device code waits until `status` has `XIO_DONE`; host code reads it after the kernel's
    /// end.
    struct TaskResult = "xio_result", align 16 {
        /// `XIO_DONE` and the status: that of NVMe (type and code, bits 10:0), or one of `XIO_STATUS_*`.
        status: u32,
        /// Dword 0 of the completion: for Retrieve the true length of the value in bytes, also when it is longer than
        /// what was asked for.
        length: u32,
        /// The ticket: which command of its queue it was.
        ticket: u64,
    }

    /// A command in flight, one for each entry of a queue. Used by the library only.
    struct Slot = "xio_slot", align 16 {
        /// Ticket times 4, plus `XIO_SLOT_BUSY` and `XIO_SLOT_POISONED`. Without `XIO_SLOT_BUSY`: free for that ticket.
        state: u64,
        /// Address of the result of the command in flight.
        result: u64,
    }

    /// A queue pair as device code drives it. Made by the host, in memory of the device; any number of waves and blocks
    /// of one device may use it at the same time. Each group of 128 bytes is written by one kind of user.
    struct Queue = "xio_queue", align 128 {
        /// Address of the submission queue.
        sq: u64,
        /// Address of the completion queue.
        cq: u64,
        /// Address of the submission queue's tail doorbell.
        sq_doorbell: u64,
        /// Address of the completion queue's head doorbell.
        cq_doorbell: u64,
        /// Address of `entries` slots.
        slots: u64,
        /// For how long a call waits, in ticks of the device's clock.
        timeout: u64,
        /// Entries of each of the two queues, a power of two.
        entries: u32,
        /// Logarithm of `entries` to the base 2.
        shift: u32,
        /// Queue identifier, as completions carry it.
        qid: u32,
        /// Zero.
        reserved0: [u32; 17],
        /// Next ticket. Tickets count the commands of the queue and never repeat.
        tail: u64,
        /// Zero.
        reserved1: [u64; 15],
        /// Twice the ticket up to which the controller knows all, plus 1 while a wave is publishing.
        published: u64,
        /// How often the tail doorbell was written.
        doorbells: u64,
        /// Zero.
        reserved2: [u64; 14],
        /// Tickets below were fetched by the controller.
        sq_head: u64,
        /// Zero.
        reserved3: [u64; 15],
        /// Twice the number of completions that were taken, plus 1 while a wave is taking some or giving commands up.
        reaped: u64,
        /// How often the head doorbell was written.
        cq_doorbells: u64,
        /// Completions of commands that were given up before.
        late: u64,
        /// Completions that the controller was told of as taken, by the head doorbell.
        cq_known: u64,
        /// Zero.
        reserved4: [u64; 12],
        /// Slots that are poisoned: a command was given up there, and its identifier is not used again.
        poisoned: u32,
        /// Not 0 when the controller broke the protocol: `XIO_BROKEN_*`. The queue takes no more commands.
        broken: u32,
        /// Locks of the benchmark that compares, for entries and for completions.
        locks: [u32; 2],
        /// Zero.
        reserved5: [u32; 28],
    }

    /// A buffer that commands can point at, as device code sees it.
    struct Buffer = "xio_buffer", align 8 {
        /// Address of one `xio_page` for each page of the buffer, as the module made them.
        pages: u64,
        /// Address of the data, 0 when device code does not touch it.
        data: u64,
        /// Bytes.
        len: u64,
    }

    /// A command for the kernels that take a table of them.
    struct Item = "xio_item", align 8 {
        /// `XIO_OP_*`.
        opcode: u32,
        /// `XIO_STORE_*` or `XIO_RETRIEVE_*`.
        options: u32,
        /// Key, padded with zeros.
        key: [u8; 16],
        /// Bytes of the key, 1 to 16.
        key_len: u32,
        /// Bytes of the value, or of the room for it.
        len: u32,
        /// Where value, or room, begins in the buffer: a multiple of 4.
        offset: u64,
    }

    /// What every kernel of the library is started with.
    struct Args = "xio_args", align 8 {
        /// Address of `queue_count` addresses of queues.
        queues: u64,
        /// Address of `count` items.
        items: u64,
        /// Address of `count` results.
        results: u64,
        /// The buffer that items refer to.
        buffer: Buffer,
        /// Address of 64-bit words for what the kernel finds out.
        out: u64,
        /// Address of memory of the device that values are copied to, or 0.
        copy: u64,
        /// Seed of the pattern.
        seed: u64,
        /// How often to do it all.
        rounds: u64,
        /// Items.
        count: u32,
        /// Queues.
        queue_count: u32,
        /// Namespace.
        nsid: u32,
        /// Items of a batch.
        batch: u32,
        /// Threads of a block.
        threads: u32,
        /// Blocks.
        blocks: u32,
    }
}

/// The slot's command is in flight.
pub const SLOT_BUSY: u64 = 1;
/// A command was given up here: only fillers go through this slot.
pub const SLOT_POISONED: u64 = 2;
/// The result is there.
pub const DONE: u32 = 1 << 31;
/// No answer in time; the command may still be carried out.
pub const STATUS_TIMEOUT: u32 = 0x1_0000;
/// The queue stayed full until the deadline; the command was not submitted.
pub const STATUS_FULL: u32 = 0x1_0001;
/// The queue is broken; the command was not submitted, or its answer is not known.
pub const STATUS_BROKEN: u32 = 0x1_0002;
/// The item can not be a command: its key, its range of the buffer, or its opcode.
pub const STATUS_INVALID: u32 = 0x1_0003;
/// A completion of another queue.
pub const BROKEN_QUEUE_ID: u32 = 1;
/// A completion of a command that is not in flight.
pub const BROKEN_COMMAND_ID: u32 = 2;
/// The head of the submission queue went beyond what was published.
pub const BROKEN_HEAD: u32 = 3;
/// Most entries: so that command identifiers of fillers, `entries` to 2 times `entries`, stay below 0xffff.
pub const MAX_ENTRIES: u32 = 16384;
/// Most threads of a block that the kernels are built for.
pub const MAX_THREADS: u32 = 256;

impl TaskResult {
    /// Nothing yet.
    pub const EMPTY: Self = Self { status: 0, length: 0, ticket: 0 };

    /// The status, without [`DONE`]; `None` while there is none.
    pub const fn get(&self) -> Option<u32> {
        if self.status & DONE == 0 {
            None
        } else {
            Some(self.status & !DONE)
        }
    }
}

const _: () = {
    assert!(core::mem::size_of::<Queue>() == 768);
    assert!(core::mem::offset_of!(Queue, tail) == 128);
    assert!(core::mem::offset_of!(Queue, published) == 256);
    assert!(core::mem::offset_of!(Queue, sq_head) == 384);
    assert!(core::mem::offset_of!(Queue, reaped) == 512);
    assert!(core::mem::offset_of!(Queue, poisoned) == 640);
};
