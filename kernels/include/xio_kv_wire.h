// SPDX-License-Identifier: MIT OR Apache-2.0
// Structures and constants that device code shares with NVMe, the module and the host's side of the library.
//
// Generated from the crates nvme-kv, xio-uapi and xio-device-abi by `cargo run -p xio-layout --bin gen-header`.
// Do not edit. All is little-endian; addresses are those of the device.
#ifndef XIO_KV_WIRE_H
#define XIO_KV_WIRE_H

#include <stddef.h>
#include <stdint.h>

/// Opcode of Store.
#define XIO_OP_STORE ((uint32_t)0x1)

/// Opcode of Retrieve.
#define XIO_OP_RETRIEVE ((uint32_t)0x2)

/// Opcode of List.
#define XIO_OP_LIST ((uint32_t)0x6)

/// Opcode of Delete.
#define XIO_OP_DELETE ((uint32_t)0x10)

/// Opcode of Exist.
#define XIO_OP_EXIST ((uint32_t)0x14)

/// Store only if the key exists.
#define XIO_STORE_IF_EXISTS ((uint32_t)0x1)

/// Store only if the key does not exist.
#define XIO_STORE_IF_ABSENT ((uint32_t)0x2)

/// Ask the controller not to compress the value.
#define XIO_STORE_NO_COMPRESS ((uint32_t)0x4)

/// Ask for the value as it is stored.
#define XIO_RETRIEVE_RAW ((uint32_t)0x1)

/// Bytes of the longest key.
#define XIO_KEY_MAX ((uint32_t)0x10)

/// Bytes of the smallest room for a list of keys.
#define XIO_LIST_MIN ((uint32_t)0x18)

/// Success.
#define XIO_OK ((uint32_t)0x0)

/// No such key: an answer, not an error.
#define XIO_NOT_FOUND ((uint32_t)0x87)

/// The key exists already.
#define XIO_EXISTS ((uint32_t)0x89)

/// The namespace is full.
#define XIO_FULL ((uint32_t)0x81)

/// No answer in time; the command may still be carried out.
#define XIO_STATUS_TIMEOUT ((uint32_t)0x10000)

/// The queue stayed full until the deadline; not submitted.
#define XIO_STATUS_FULL ((uint32_t)0x10001)

/// The controller broke the protocol of this queue.
#define XIO_STATUS_BROKEN ((uint32_t)0x10002)

/// Not a command: key, range or opcode; not submitted.
#define XIO_STATUS_INVALID ((uint32_t)0x10003)

/// Set in the status of a result that is there.
#define XIO_DONE ((uint32_t)0x80000000)

/// Broken by a completion of another queue.
#define XIO_BROKEN_QUEUE_ID ((uint32_t)0x1)

/// Broken by a completion of nothing in flight.
#define XIO_BROKEN_COMMAND_ID ((uint32_t)0x2)

/// Broken by a queue head beyond what was published.
#define XIO_BROKEN_HEAD ((uint32_t)0x3)

/// Most entries of a queue.
#define XIO_MAX_ENTRIES ((uint32_t)0x4000)

/// Most threads of a block.
#define XIO_MAX_THREADS ((uint32_t)0x100)

/// State of a slot: its command is in flight.
#define XIO_SLOT_BUSY ((uint64_t)0x1)

/// State of a slot: a command was given up there.
#define XIO_SLOT_POISONED ((uint64_t)0x2)

/// Bytes of a page.
#define XIO_PAGE_SIZE ((uint32_t)0x1000)

/// Data pages between two chain pointers of a ready-made PRP list.
#define XIO_LIST_ENTRIES ((uint32_t)0x1ff)

/// Phase tag in the last dword of a completion.
#define XIO_CQE_PHASE ((uint32_t)0x10000)

/// Status code type and code, once the phase is shifted out.
#define XIO_STATUS_MASK ((uint32_t)0x7ff)

/// Submission queue entry (Base 2.1, section 4.1).
struct alignas(16) xio_sqe {
    /// Opcode.
    uint8_t opcode;
    /// FUSE and PSDT.
    uint8_t flags;
    /// Command identifier.
    uint16_t cid;
    /// Namespace.
    uint32_t nsid;
    /// Command dwords 2 and 3: bytes 0 to 7 of the key.
    uint32_t cdw2[2];
    /// Metadata pointer.
    uint64_t mptr;
    /// First PRP entry.
    uint64_t prp1;
    /// Second PRP entry.
    uint64_t prp2;
    /// Command dwords 10 to 15: length; options and length of the key; nothing; nothing; bytes 8 to 15 of the key.
    uint32_t cdw10[6];
};
static_assert(sizeof(xio_sqe) == 64 && alignof(xio_sqe) == 16, "xio_sqe");
static_assert(offsetof(xio_sqe, opcode) == 0, "xio_sqe.opcode");
static_assert(offsetof(xio_sqe, flags) == 1, "xio_sqe.flags");
static_assert(offsetof(xio_sqe, cid) == 2, "xio_sqe.cid");
static_assert(offsetof(xio_sqe, nsid) == 4, "xio_sqe.nsid");
static_assert(offsetof(xio_sqe, cdw2) == 8, "xio_sqe.cdw2");
static_assert(offsetof(xio_sqe, mptr) == 16, "xio_sqe.mptr");
static_assert(offsetof(xio_sqe, prp1) == 24, "xio_sqe.prp1");
static_assert(offsetof(xio_sqe, prp2) == 32, "xio_sqe.prp2");
static_assert(offsetof(xio_sqe, cdw10) == 40, "xio_sqe.cdw10");

/// Completion queue entry (Base 2.1, section 4.2).
struct alignas(16) xio_cqe {
    /// Result.
    uint32_t dw0;
    /// Second dword of the result.
    uint32_t dw1;
    /// Head of the submission queue.
    uint16_t sqhd;
    /// Submission queue.
    uint16_t sqid;
    /// Command identifier.
    uint16_t cid;
    /// Phase in bit 0, status in bits 15:1.
    uint16_t status;
};
static_assert(sizeof(xio_cqe) == 16 && alignof(xio_cqe) == 16, "xio_cqe");
static_assert(offsetof(xio_cqe, dw0) == 0, "xio_cqe.dw0");
static_assert(offsetof(xio_cqe, dw1) == 4, "xio_cqe.dw1");
static_assert(offsetof(xio_cqe, sqhd) == 8, "xio_cqe.sqhd");
static_assert(offsetof(xio_cqe, sqid) == 10, "xio_cqe.sqid");
static_assert(offsetof(xio_cqe, cid) == 12, "xio_cqe.cid");
static_assert(offsetof(xio_cqe, status) == 14, "xio_cqe.status");

/// What a command needs to point at a page of a buffer; see struct xio_page of rocm_xio.h.
struct alignas(8) xio_page {
    /// Address of the page for the controller.
    uint64_t addr;
    /// Address of the PRP list entry of this page, in each of the two ready-made lists.
    uint64_t list[2];
    /// Zero.
    uint64_t reserved;
};
static_assert(sizeof(xio_page) == 32 && alignof(xio_page) == 8, "xio_page");
static_assert(offsetof(xio_page, addr) == 0, "xio_page.addr");
static_assert(offsetof(xio_page, list) == 8, "xio_page.list");
static_assert(offsetof(xio_page, reserved) == 24, "xio_page.reserved");

/// What came of a command. Device code waits until status has XIO_DONE; host code reads it after the kernel's end.
struct alignas(16) xio_result {
    /// XIO_DONE and the status: that of NVMe (type and code, bits 10:0), or one of XIO_STATUS_*.
    uint32_t status;
    /// Dword 0 of the completion: for Retrieve the true length of the value in bytes, also when it is longer than
    /// what was asked for.
    uint32_t length;
    /// The ticket: which command of its queue it was.
    uint64_t ticket;
};
static_assert(sizeof(xio_result) == 16 && alignof(xio_result) == 16, "xio_result");
static_assert(offsetof(xio_result, status) == 0, "xio_result.status");
static_assert(offsetof(xio_result, length) == 4, "xio_result.length");
static_assert(offsetof(xio_result, ticket) == 8, "xio_result.ticket");

/// A command in flight, one for each entry of a queue. Used by the library only.
struct alignas(16) xio_slot {
    /// Ticket times 4, plus XIO_SLOT_BUSY and XIO_SLOT_POISONED. Without XIO_SLOT_BUSY: free for that ticket.
    uint64_t state;
    /// Address of the result of the command in flight.
    uint64_t result;
};
static_assert(sizeof(xio_slot) == 16 && alignof(xio_slot) == 16, "xio_slot");
static_assert(offsetof(xio_slot, state) == 0, "xio_slot.state");
static_assert(offsetof(xio_slot, result) == 8, "xio_slot.result");

/// A queue pair as device code drives it. Made by the host, in memory of the device; any number of waves and blocks
/// of one device may use it at the same time. Each group of 128 bytes is written by one kind of user.
struct alignas(128) xio_queue {
    /// Address of the submission queue.
    uint64_t sq;
    /// Address of the completion queue.
    uint64_t cq;
    /// Address of the submission queue's tail doorbell.
    uint64_t sq_doorbell;
    /// Address of the completion queue's head doorbell.
    uint64_t cq_doorbell;
    /// Address of entries slots.
    uint64_t slots;
    /// For how long a call waits, in ticks of the device's clock.
    uint64_t timeout;
    /// Entries of each of the two queues, a power of two.
    uint32_t entries;
    /// Logarithm of entries to the base 2.
    uint32_t shift;
    /// Queue identifier, as completions carry it.
    uint32_t qid;
    /// Zero.
    uint32_t reserved0[17];
    /// Next ticket. Tickets count the commands of the queue and never repeat.
    uint64_t tail;
    /// Zero.
    uint64_t reserved1[15];
    /// Twice the ticket up to which the controller knows all, plus 1 while a wave is publishing.
    uint64_t published;
    /// How often the tail doorbell was written.
    uint64_t doorbells;
    /// Zero.
    uint64_t reserved2[14];
    /// Tickets below were fetched by the controller.
    uint64_t sq_head;
    /// Zero.
    uint64_t reserved3[15];
    /// Twice the number of completions that were taken, plus 1 while a wave is taking some or giving commands up.
    uint64_t reaped;
    /// How often the head doorbell was written.
    uint64_t cq_doorbells;
    /// Completions of commands that were given up before.
    uint64_t late;
    /// Completions that the controller was told of as taken, by the head doorbell.
    uint64_t cq_known;
    /// Zero.
    uint64_t reserved4[12];
    /// Slots that are poisoned: a command was given up there, and its identifier is not used again.
    uint32_t poisoned;
    /// Not 0 when the controller broke the protocol: XIO_BROKEN_*. The queue takes no more commands.
    uint32_t broken;
    /// Locks of the benchmark that compares, for entries and for completions.
    uint32_t locks[2];
    /// Zero.
    uint32_t reserved5[28];
};
static_assert(sizeof(xio_queue) == 768 && alignof(xio_queue) == 128, "xio_queue");
static_assert(offsetof(xio_queue, sq) == 0, "xio_queue.sq");
static_assert(offsetof(xio_queue, cq) == 8, "xio_queue.cq");
static_assert(offsetof(xio_queue, sq_doorbell) == 16, "xio_queue.sq_doorbell");
static_assert(offsetof(xio_queue, cq_doorbell) == 24, "xio_queue.cq_doorbell");
static_assert(offsetof(xio_queue, slots) == 32, "xio_queue.slots");
static_assert(offsetof(xio_queue, timeout) == 40, "xio_queue.timeout");
static_assert(offsetof(xio_queue, entries) == 48, "xio_queue.entries");
static_assert(offsetof(xio_queue, shift) == 52, "xio_queue.shift");
static_assert(offsetof(xio_queue, qid) == 56, "xio_queue.qid");
static_assert(offsetof(xio_queue, reserved0) == 60, "xio_queue.reserved0");
static_assert(offsetof(xio_queue, tail) == 128, "xio_queue.tail");
static_assert(offsetof(xio_queue, reserved1) == 136, "xio_queue.reserved1");
static_assert(offsetof(xio_queue, published) == 256, "xio_queue.published");
static_assert(offsetof(xio_queue, doorbells) == 264, "xio_queue.doorbells");
static_assert(offsetof(xio_queue, reserved2) == 272, "xio_queue.reserved2");
static_assert(offsetof(xio_queue, sq_head) == 384, "xio_queue.sq_head");
static_assert(offsetof(xio_queue, reserved3) == 392, "xio_queue.reserved3");
static_assert(offsetof(xio_queue, reaped) == 512, "xio_queue.reaped");
static_assert(offsetof(xio_queue, cq_doorbells) == 520, "xio_queue.cq_doorbells");
static_assert(offsetof(xio_queue, late) == 528, "xio_queue.late");
static_assert(offsetof(xio_queue, cq_known) == 536, "xio_queue.cq_known");
static_assert(offsetof(xio_queue, reserved4) == 544, "xio_queue.reserved4");
static_assert(offsetof(xio_queue, poisoned) == 640, "xio_queue.poisoned");
static_assert(offsetof(xio_queue, broken) == 644, "xio_queue.broken");
static_assert(offsetof(xio_queue, locks) == 648, "xio_queue.locks");
static_assert(offsetof(xio_queue, reserved5) == 656, "xio_queue.reserved5");

/// A buffer that commands can point at, as device code sees it.
struct alignas(8) xio_buffer {
    /// Address of one xio_page for each page of the buffer, as the module made them.
    uint64_t pages;
    /// Address of the data, 0 when device code does not touch it.
    uint64_t data;
    /// Bytes.
    uint64_t len;
};
static_assert(sizeof(xio_buffer) == 24 && alignof(xio_buffer) == 8, "xio_buffer");
static_assert(offsetof(xio_buffer, pages) == 0, "xio_buffer.pages");
static_assert(offsetof(xio_buffer, data) == 8, "xio_buffer.data");
static_assert(offsetof(xio_buffer, len) == 16, "xio_buffer.len");

/// A command for the kernels that take a table of them.
struct alignas(8) xio_item {
    /// XIO_OP_*.
    uint32_t opcode;
    /// XIO_STORE_* or XIO_RETRIEVE_*.
    uint32_t options;
    /// Key, padded with zeros.
    uint8_t key[16];
    /// Bytes of the key, 1 to 16.
    uint32_t key_len;
    /// Bytes of the value, or of the room for it.
    uint32_t len;
    /// Where value, or room, begins in the buffer: a multiple of 4.
    uint64_t offset;
};
static_assert(sizeof(xio_item) == 40 && alignof(xio_item) == 8, "xio_item");
static_assert(offsetof(xio_item, opcode) == 0, "xio_item.opcode");
static_assert(offsetof(xio_item, options) == 4, "xio_item.options");
static_assert(offsetof(xio_item, key) == 8, "xio_item.key");
static_assert(offsetof(xio_item, key_len) == 24, "xio_item.key_len");
static_assert(offsetof(xio_item, len) == 28, "xio_item.len");
static_assert(offsetof(xio_item, offset) == 32, "xio_item.offset");

/// What every kernel of the library is started with.
struct alignas(8) xio_args {
    /// Address of queue_count addresses of queues.
    uint64_t queues;
    /// Address of count items.
    uint64_t items;
    /// Address of count results.
    uint64_t results;
    /// The buffer that items refer to.
    xio_buffer buffer;
    /// Address of 64-bit words for what the kernel finds out.
    uint64_t out;
    /// Address of memory of the device that values are copied to, or 0.
    uint64_t copy;
    /// Seed of the pattern.
    uint64_t seed;
    /// How often to do it all.
    uint64_t rounds;
    /// Items.
    uint32_t count;
    /// Queues.
    uint32_t queue_count;
    /// Namespace.
    uint32_t nsid;
    /// Items of a batch.
    uint32_t batch;
    /// Threads of a block.
    uint32_t threads;
    /// Blocks.
    uint32_t blocks;
};
static_assert(sizeof(xio_args) == 104 && alignof(xio_args) == 8, "xio_args");
static_assert(offsetof(xio_args, queues) == 0, "xio_args.queues");
static_assert(offsetof(xio_args, items) == 8, "xio_args.items");
static_assert(offsetof(xio_args, results) == 16, "xio_args.results");
static_assert(offsetof(xio_args, buffer) == 24, "xio_args.buffer");
static_assert(offsetof(xio_args, out) == 48, "xio_args.out");
static_assert(offsetof(xio_args, copy) == 56, "xio_args.copy");
static_assert(offsetof(xio_args, seed) == 64, "xio_args.seed");
static_assert(offsetof(xio_args, rounds) == 72, "xio_args.rounds");
static_assert(offsetof(xio_args, count) == 80, "xio_args.count");
static_assert(offsetof(xio_args, queue_count) == 84, "xio_args.queue_count");
static_assert(offsetof(xio_args, nsid) == 88, "xio_args.nsid");
static_assert(offsetof(xio_args, batch) == 92, "xio_args.batch");
static_assert(offsetof(xio_args, threads) == 96, "xio_args.threads");
static_assert(offsetof(xio_args, blocks) == 100, "xio_args.blocks");

#endif // XIO_KV_WIRE_H
