/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * Interface of /dev/rocm-xioN.
 *
 * Generated from the crate xio-uapi by `cargo run -p xio-layout --bin gen-header`. Do not edit.
 *
 * Rules that every request follows:
 * - The argument is a structure whose first field, @size, is its size in bytes as the caller
 *   was compiled. It must equal the size in the ioctl number, else %EINVAL.
 * - An older caller (smaller @size) gets the fields that it knows. A newer caller (larger
 *   @size) is served when everything this kernel does not know is zero, else %E2BIG; the part
 *   that this kernel does not know comes back as zero.
 * - @flags and reserved fields must be zero, else %EINVAL.
 * - Handles belong to the open file that made them; any other handle is %ENOENT.
 * - Offsets for ``mmap`` are opaque. No address of a register, of memory or of a bus is ever
 *   taken from the caller.
 */

#ifndef ROCM_XIO_H
#define ROCM_XIO_H

#include <linux/ioctl.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Type of the ioctl numbers of all requests. */
#define XIO_IOC_TYPE 0xBD

/* Version of the interface. It only grows; what is there can be told from the feature bits. */
#define XIO_ABI_VERSION 1U

/* Feature: queues mapped into the client. */
#define XIO_FEATURE_DIRECT_QUEUE 0x1ULL

/* Feature: an eventfd signalled when the controller posts a completion. */
#define XIO_FEATURE_EVENTFD 0x2ULL

/* Feature: buffers come with their DMA address table and ready-made PRP lists. */
#define XIO_FEATURE_BUFFER_TABLE 0x4ULL

/* Feature: user memory can be registered as a buffer. */
#define XIO_FEATURE_BUFFER_REGISTER 0x8ULL

/* Feature: commands can be submitted by the kernel, on queues of its own. */
#define XIO_FEATURE_MEDIATED 0x10ULL

/* Feature: the same by io_uring, without waiting. */
#define XIO_FEATURE_MEDIATED_URING 0x20ULL

/* Feature: a dma-buf can be imported as a buffer. */
#define XIO_FEATURE_BUFFER_IMPORT 0x40ULL

/* Feature: queues and doorbells can be exported as dma-bufs. */
#define XIO_FEATURE_QUEUE_EXPORT 0x80ULL

/* Feature: queues can be made in the memory of buffers. */
#define XIO_FEATURE_QUEUE_IN_BUFFER 0x100ULL

/* Feature: the controller has a memory buffer; @cmb says what for. */
#define XIO_FEATURE_CMB 0x200ULL

/*
 * Feature: what happens to the controller is told, by &struct xio_get_state, poll and an
 * eventfd.
 */
#define XIO_FEATURE_STATE 0x400ULL

/* The device has no IOMMU in front of it: it can reach all of memory. */
#define XIO_IOMMU_NONE 0U

/* An IOMMU is there but passes every address through. */
#define XIO_IOMMU_IDENTITY 1U

/* An IOMMU confines the device to what is mapped. */
#define XIO_IOMMU_TRANSLATED 2U

/*
 * As %XIO_IOMMU_TRANSLATED, but mappings are flushed lazily (type DMA-FQ). The module flushes
 * by itself before it frees memory.
 */
#define XIO_IOMMU_TRANSLATED_LAZY 3U

/* Direct queues: this client may have them because an IOMMU confines the device. */
#define XIO_DIRECT_CONFINED 0U

/* Direct queues: this client may have them because it has CAP_SYS_RAWIO. */
#define XIO_DIRECT_RAWIO 1U

/* Direct queues: everybody may have them, the module was loaded with unsafe_direct=1. */
#define XIO_DIRECT_UNSAFE 2U

/*
 * Direct queues: refused (EPERM), nothing confines the device; @unconfined says what is
 * missing.
 */
#define XIO_DIRECT_REFUSED 3U

/* Not confined: addresses are not translated. */
#define XIO_UNCONFINED_NOT_TRANSLATED 1U

/* Not confined: other devices share the IOMMU group, and so what is mapped. */
#define XIO_UNCONFINED_GROUP 2U

/*
 * Not confined: interrupts are not remapped, so a write to memory can be any interrupt. The
 * module's parameter unsafe_interrupts=1 accepts that, as vfio's allow_unsafe_interrupts does.
 */
#define XIO_UNCONFINED_INTERRUPTS 4U

/* Not confined: the firmware has memory mapped for the device. */
#define XIO_UNCONFINED_RESERVED 8U

/* Kind of queue: direct. */
#define XIO_QUEUE_KIND_DIRECT 1U

/* Kind of queue: the kernel's, by way of &struct xio_kv_submit. */
#define XIO_QUEUE_KIND_MEDIATED 2U

/* Buffer: the device may only read it. Retrieve and List into it are refused. */
#define XIO_BUFFER_READ_ONLY 1U

/*
 * Buffer to import: refuse memory that is not reached from device to device, such as video
 * memory that its driver would move to the system's first.
 */
#define XIO_BUFFER_REQUIRE_P2P 2U

/* Buffer to allocate: in the controller memory buffer. */
#define XIO_BUFFER_CMB 4U

/* Memory of a buffer: the system's. */
#define XIO_MEMORY_SYSTEM 0U

/* Memory of a buffer: of another device, reached without the system's memory. */
#define XIO_MEMORY_PEER 1U

/* Use of the controller memory buffer: submission queues. */
#define XIO_CMB_SQ 1U

/* Use of the controller memory buffer: values, both to store and to retrieve. */
#define XIO_CMB_DATA 2U

/* Queue to create: the submission queue is in the controller memory buffer. */
#define XIO_QUEUE_SQ_CMB 1U

/* Queue to create: the submission queue is in @sq_buffer. */
#define XIO_QUEUE_SQ_BUFFER 2U

/* Queue to create: the completion queue is in @cq_buffer. */
#define XIO_QUEUE_CQ_BUFFER 4U

/* Part of a queue to export: the submission queue. */
#define XIO_QUEUE_PART_SQ 0U

/* Part of a queue to export: the completion queue. */
#define XIO_QUEUE_PART_CQ 1U

/* Part of a queue to export: the page with the submission queue's tail doorbell. */
#define XIO_QUEUE_PART_SQ_DOORBELL 2U

/* Part of a queue to export: the page with the completion queue's head doorbell. */
#define XIO_QUEUE_PART_CQ_DOORBELL 3U

/* Most entries of one &struct xio_kv_submit. */
#define XIO_MAX_SUBMIT 256U

/*
 * Operation of &struct xio_kv_entry: Flush: what was stored before is durable. It has no key
 * and no buffer.
 */
#define XIO_KV_FLUSH 0U

/* Operation of &struct xio_kv_entry: Store. */
#define XIO_KV_STORE 1U

/* Operation of &struct xio_kv_entry: Retrieve. */
#define XIO_KV_RETRIEVE 2U

/* Operation of &struct xio_kv_entry: List. */
#define XIO_KV_LIST 6U

/* Operation of &struct xio_kv_entry: Delete. */
#define XIO_KV_DELETE 16U

/* Operation of &struct xio_kv_entry: Exist. */
#define XIO_KV_EXIST 20U

/* Option of a Store: only if the key exists. */
#define XIO_KV_STORE_IF_EXISTS 1U

/* Option of a Store: only if the key does not exist. */
#define XIO_KV_STORE_IF_ABSENT 2U

/* Option of a Store: do not compress. */
#define XIO_KV_STORE_NO_COMPRESS 4U

/* Option of a Retrieve: as stored, without decompression. */
#define XIO_KV_RETRIEVE_RAW 1U

/* Bit in @status of &struct xio_kv_entry: the same command would fail again (DNR). */
#define XIO_KV_STATUS_DNR 16384U

/* State: commands are served. */
#define XIO_STATE_LIVE 0U

/* State: the controller is being reset, or suspended; it is going to be live again. */
#define XIO_STATE_STOPPED 1U

/*
 * State: the controller failed, and could not be brought up again. An administrator can reset
 * the device, or unbind and bind it.
 */
#define XIO_STATE_FAILED 2U

/* Last reset: there was none. */
#define XIO_RESET_NONE 0U

/* Last reset: a command was not answered in time. */
#define XIO_RESET_TIMEOUT 1U

/*
 * Last reset: completions of the admin queue belonged to no command, since a client rang its
 * doorbell or the controller is at fault.
 */
#define XIO_RESET_OUT_OF_STEP 2U

/* Last reset: the controller stated that it failed (CSTS.CFS), or stopped by itself. */
#define XIO_RESET_FATAL 3U

/* Last reset: the device did not answer at all. */
#define XIO_RESET_ABSENT 4U

/*
 * Last reset: by the system, such as a function reset, suspend and resume, or recovery from a
 * PCI error.
 */
#define XIO_RESET_SYSTEM 5U

/*
 * Last reset: to make the controller forget what a user's direct queues may have left in it,
 * before another user has some. Nobody has anything on it then.
 */
#define XIO_RESET_USER 6U

/* Last reset: the controller refused to delete a queue. */
#define XIO_RESET_REFUSED 7U

/*
 * Wanted of &struct xio_get_state: @eventfd is to be signalled from now on whenever the state
 * changes.
 */
#define XIO_STATE_SET_EVENTFD 1U

/* No eventfd for a queue. */
#define XIO_NO_EVENTFD (-1)

/* Bytes of a page of the controller, of a buffer and of a PRP list. */
#define XIO_PAGE_SIZE 4096U

/* Data pages between two chain pointers of a ready-made PRP list. */
#define XIO_LIST_ENTRIES 511U

/* First slot of the second ready-made PRP list. */
#define XIO_LIST_SHIFT 256U

/**
 * struct xio_get_info - What the controller is, what it can do, and what this client may do
 *   with it.
 * @size: Size of this structure.
 * @flags: Must be zero.
 * @abi_version: %XIO_ABI_VERSION of the module.
 * @nvme_version: Version register (VS) of the controller.
 * @features: %XIO_FEATURE_* bits.
 * @cap: Capabilities register (CAP).
 * @max_transfer: Largest transfer of one command in bytes (MDTS), 0 when the controller states
 *   none.
 * @max_buffer: Largest buffer in bytes.
 * @max_client_memory: Limit in bytes on all memory of one client.
 * @max_queue_entries: Deepest queue in entries.
 * @max_queues: Queue pairs that all clients of the controller can have together.
 * @doorbell_stride: Bytes from one doorbell register to the next (4 << CAP.DSTRD).
 * @namespaces: Number of active namespaces with the Key Value command set.
 * @iommu: %XIO_IOMMU_*: what confines the device, at this moment.
 * @direct: %XIO_DIRECT_*: whether this client may have direct queues, at this moment, and why.
 * @queue_kinds: %XIO_QUEUE_KIND_* bits that this client may create at this moment.
 * @event_vectors: Interrupt vectors that serve eventfds; 0 means that one vector serves
 *   everything.
 * @numa_node: NUMA node of the device, -1 when unknown.
 * @pci_domain: PCI domain.
 * @pci_bus: PCI bus.
 * @pci_device: PCI device (slot).
 * @pci_function: PCI function.
 * @doorbell_pages: Not 0 when the doorbells of each queue have pages of their own.
 * @vendor_id: PCI vendor (VID).
 * @subsystem_vendor_id: PCI subsystem vendor (SSVID).
 * @controller_id: Controller identifier (CNTLID).
 * @reserved0: Zero.
 * @serial: Serial number (SN), ASCII, padded with spaces.
 * @model: Model number (MN), ASCII, padded with spaces.
 * @firmware: Firmware revision (FR), ASCII, padded with spaces.
 * @subnqn: NVM subsystem qualified name (SUBNQN), padded with zeros.
 * @mediated_depth: Commands of all clients that the kernel's queue holds at a time.
 * @max_user_memory: Limit in bytes on all memory of one user.
 * @max_client_queues: Limit on the queues of one client.
 * @unconfined: %XIO_UNCONFINED_*: what keeps the IOMMU from confining the device, at this
 *   moment; 0 when it does.
 * @cmb_size: Bytes of the controller memory buffer, 0 when there is none.
 * @cmb_free: Bytes of it that are not in use, at this moment.
 * @cmb: %XIO_CMB_*: what it can be used for.
 * @reserved: Zero.
 *
 * Errors: %EINVAL (size, flags), %E2BIG, %EFAULT, %ENODEV (the controller is gone).
 */
struct xio_get_info {
	__u32 size;
	__u32 flags;
	__u32 abi_version;
	__u32 nvme_version;
	__u64 features;
	__u64 cap;
	__u64 max_transfer;
	__u64 max_buffer;
	__u64 max_client_memory;
	__u32 max_queue_entries;
	__u32 max_queues;
	__u32 doorbell_stride;
	__u32 namespaces;
	__u32 iommu;
	__u32 direct;
	__u32 queue_kinds;
	__u32 event_vectors;
	__s32 numa_node;
	__u32 pci_domain;
	__u8 pci_bus;
	__u8 pci_device;
	__u8 pci_function;
	__u8 doorbell_pages;
	__u16 vendor_id;
	__u16 subsystem_vendor_id;
	__u16 controller_id;
	__u16 reserved0[3];
	__u8 serial[20];
	__u8 model[40];
	__u8 firmware[8];
	__u8 subnqn[256];
	__u32 mediated_depth;
	__u64 max_user_memory;
	__u32 max_client_queues;
	__u32 unconfined;
	__u64 cmb_size;
	__u64 cmb_free;
	__u32 cmb;
	__u32 reserved[5];
};

/* Request with &struct xio_get_info. */
#define XIO_IOC_GET_INFO _IOWR(XIO_IOC_TYPE, 0x00, struct xio_get_info)

/**
 * struct xio_get_namespace - A namespace with the Key Value command set, read from the
 *   controller at this moment.
 * @size: Size of this structure.
 * @flags: Must be zero.
 * @nsid: In: namespace to ask for; 0 asks by @index. Out: its identifier.
 * @index: In: when @nsid is 0, how many namespaces to skip, in ascending order of identifiers.
 * @capacity: Capacity in bytes (NSZE).
 * @used: Bytes in use (NUSE).
 * @max_key: Longest key in bytes (KVKML of the format in use).
 * @formats: Number of formats that the namespace has.
 * @format: Index of the format in use.
 * @reserved0: Zero.
 * @max_value: Longest value in bytes (KVVML of the format in use).
 * @max_keys: Limit on the number of keys (MNKS of the format in use), 0 when none is stated.
 * @nguid: Namespace GUID (NGUID), zero when there is none.
 * @eui64: IEEE extended unique identifier (EUI64), zero when there is none.
 * @reserved: Zero.
 *
 * Errors: %EINVAL (size, flags), %E2BIG, %EFAULT, %ENODEV, %ENOENT (no such index or
 * namespace), %EIO (the controller refused Identify), %ETIMEDOUT.
 */
struct xio_get_namespace {
	__u32 size;
	__u32 flags;
	__u32 nsid;
	__u32 index;
	__u64 capacity;
	__u64 used;
	__u16 max_key;
	__u16 formats;
	__u16 format;
	__u16 reserved0;
	__u32 max_value;
	__u32 max_keys;
	__u8 nguid[16];
	__u8 eui64[8];
	__u32 reserved[14];
};

/* Request with &struct xio_get_namespace. */
#define XIO_IOC_GET_NAMESPACE _IOWR(XIO_IOC_TYPE, 0x01, struct xio_get_namespace)

/**
 * struct xio_queue_create - Makes a submission and a completion queue and gives out the offsets
 *   to map them.
 * @size: Size of this structure.
 * @flags: In: %XIO_QUEUE_* or 0: where the queues are.
 * @entries: Entries of each of the two queues, 2 to @max_queue_entries. One slot always stays
 *   free.
 * @eventfd: eventfd to signal, or -1. A queue with one costs an interrupt per completion.
 * @handle: Out: handle.
 * @qid: Out: queue identifier, as completions carry it.
 * @sq_offset: Out: mmap offset of the submission queue; 0 when it is in a buffer.
 * @cq_offset: Out: mmap offset of the completion queue; 0 when it is in a buffer.
 * @sq_doorbell_offset: Out: mmap offset of the page with the submission queue's tail doorbell.
 * @cq_doorbell_offset: Out: mmap offset of the page with the completion queue's head doorbell.
 * @sq_len: Out: bytes to map for the submission queue.
 * @cq_len: Out: bytes to map for the completion queue.
 * @sq_doorbell_in_page: Out: position of the tail doorbell within its page.
 * @cq_doorbell_in_page: Out: position of the head doorbell within its page.
 * @sq_buffer: In: handle of the submission queue's buffer, with %XIO_QUEUE_SQ_BUFFER.
 * @cq_buffer: In: handle of the completion queue's buffer, with %XIO_QUEUE_CQ_BUFFER.
 * @sq_buffer_offset: In: where in its buffer the submission queue begins, a multiple of
 *   %XIO_PAGE_SIZE.
 * @cq_buffer_offset: In: where in its buffer the completion queue begins, a multiple of
 *   %XIO_PAGE_SIZE.
 * @reserved: Must be zero.
 *
 * All clients of a controller share its IOMMU domain, so a client with direct queues reaches
 * what others have mapped. It gets them only while no other client has any memory on the
 * controller, and keeps others from getting some until it has no queue any more.
 *
 * A queue can be in memory of a buffer, such as imported video memory, from an offset of whole
 * pages on. Its addresses must be consecutive where the controller wants that (CAP.CQR). Such a
 * queue is mapped through its buffer, which can not be freed before the queue, and the caller
 * has cleared its completion queue.
 *
 * Errors: %EINVAL (size, flags, @entries below 2 or above the limit, a range that is not in the
 * buffer, two places for one queue, reserved), %E2BIG, %EFAULT, %ENODEV, %ENOENT (no such
 * buffer), %EACCES (a read-only buffer for completions), %EOPNOTSUPP (scattered memory for a
 * controller that wants it contiguous, or no controller memory buffer for queues), %ESTALE (the
 * buffer's memory was taken back), %EPERM (direct queues are refused: see @direct of &struct
 * xio_get_info), %EBUSY (another client has memory or queues on the controller), %ENOSPC (no
 * queue left), %EBADF (eventfd), %ENOMEM, %EDQUOT (@max_client_memory, @max_user_memory,
 * @max_client_queues, or too many objects), %EIO (refused by the controller), %ETIMEDOUT.
 */
struct xio_queue_create {
	__u32 size;
	__u32 flags;
	__u32 entries;
	__s32 eventfd;
	__u32 handle;
	__u32 qid;
	__u64 sq_offset;
	__u64 cq_offset;
	__u64 sq_doorbell_offset;
	__u64 cq_doorbell_offset;
	__u32 sq_len;
	__u32 cq_len;
	__u32 sq_doorbell_in_page;
	__u32 cq_doorbell_in_page;
	__u32 sq_buffer;
	__u32 cq_buffer;
	__u64 sq_buffer_offset;
	__u64 cq_buffer_offset;
	__u32 reserved[2];
};

/* Request with &struct xio_queue_create. */
#define XIO_IOC_QUEUE_CREATE _IOWR(XIO_IOC_TYPE, 0x02, struct xio_queue_create)

/**
 * struct xio_queue_destroy - Deletes a queue pair; its mappings fault from then on.
 * @size: Size of this structure.
 * @flags: Must be zero.
 * @handle: Handle.
 * @reserved: Must be zero.
 *
 * Errors: %EINVAL, %E2BIG, %EFAULT, %ENODEV, %ENOENT.
 */
struct xio_queue_destroy {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved[5];
};

/* Request with &struct xio_queue_destroy. */
#define XIO_IOC_QUEUE_DESTROY _IOWR(XIO_IOC_TYPE, 0x03, struct xio_queue_destroy)

/**
 * struct xio_buffer_alloc - Allocates memory that commands can point at.
 * @size: Size of this structure.
 * @flags: In: %XIO_BUFFER_CMB or 0.
 * @len: In: bytes wanted. Out: bytes got, a multiple of %XIO_PAGE_SIZE.
 * @data_offset: Out: mmap offset of the data.
 * @table_offset: Out: mmap offset of the table, an array of &struct xio_page, one for each page
 *   of the buffer. Read-only.
 * @table_len: Out: bytes to map for the table.
 * @handle: Out: handle.
 * @reserved: Must be zero.
 *
 * Errors: %EINVAL (size, flags, @len 0 or above @max_buffer, reserved), %E2BIG, %EFAULT,
 * %ENODEV, %EBUSY (another client has direct queues), %ENOMEM, %EDQUOT (@max_client_memory or
 * @max_user_memory), %EINTR (a signal, while much was being allocated), %EOPNOTSUPP (no
 * controller memory buffer for values), %ENOSPC (not so much of it is free). Mapping the table:
 * %EPERM unless the client may have direct queues.
 */
struct xio_buffer_alloc {
	__u32 size;
	__u32 flags;
	__u64 len;
	__u64 data_offset;
	__u64 table_offset;
	__u64 table_len;
	__u32 handle;
	__u32 reserved[9];
};

/* Request with &struct xio_buffer_alloc. */
#define XIO_IOC_BUFFER_ALLOC _IOWR(XIO_IOC_TYPE, 0x04, struct xio_buffer_alloc)

/**
 * struct xio_buffer_free - Frees a buffer. When the call returns the controller can not reach
 *   the memory any more, and its mappings fault.
 * @size: Size of this structure.
 * @flags: Must be zero.
 * @handle: Handle.
 * @reserved: Must be zero.
 *
 * Errors: %EINVAL, %E2BIG, %EFAULT, %ENODEV, %ENOENT, %EBUSY (a queue is in it).
 */
struct xio_buffer_free {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved[5];
};

/* Request with &struct xio_buffer_free. */
#define XIO_IOC_BUFFER_FREE _IOWR(XIO_IOC_TYPE, 0x05, struct xio_buffer_free)

/**
 * struct xio_buffer_register - Makes a buffer of memory of the caller. The pages stay pinned
 *   until the buffer is freed, also when they are unmapped meanwhile; they count against
 *   RLIMIT_MEMLOCK.
 * @size: Size of this structure.
 * @flags: In: %XIO_BUFFER_READ_ONLY or 0.
 * @address: In: address.
 * @len: In: bytes.
 * @table_offset: Out: mmap offset of the table, as for &struct xio_buffer_alloc. Byte 0 of the
 *   buffer is the first byte of the page that holds @address.
 * @table_len: Out: bytes to map for the table.
 * @handle: Out: handle.
 * @first: Out: where in the buffer @address is.
 * @reserved: Must be zero.
 *
 * Errors: %EINVAL (size, flags, @len 0 or above @max_buffer, an address that is not aligned to
 * 4 or wraps, reserved), %E2BIG, %EFAULT (no memory there, or read-only memory without
 * %XIO_BUFFER_READ_ONLY, or memory that can not be pinned), %ENODEV, %EBUSY (another client has
 * direct queues), %ENOMEM (RLIMIT_MEMLOCK, or no memory), %EDQUOT (@max_client_memory), %EINTR.
 */
struct xio_buffer_register {
	__u32 size;
	__u32 flags;
	__u64 address;
	__u64 len;
	__u64 table_offset;
	__u64 table_len;
	__u32 handle;
	__u32 first;
	__u32 reserved[8];
};

/* Request with &struct xio_buffer_register. */
#define XIO_IOC_BUFFER_REGISTER _IOWR(XIO_IOC_TYPE, 0x06, struct xio_buffer_register)

/**
 * struct xio_buffer_import - Makes a buffer of a dma-buf, such as memory of a GPU. It stays
 *   where it is (pinned) until the buffer is freed. Should its exporter take it back
 *   nevertheless, commands that use the buffer are refused with %ESTALE, those under way are
 *   waited for, direct queues of the client are deleted where no IOMMU ends the access, and the
 *   memory is given back.
 * @size: Size of this structure.
 * @flags: In: %XIO_BUFFER_READ_ONLY, %XIO_BUFFER_REQUIRE_P2P or 0.
 * @fd: In: file descriptor of the dma-buf. It may be closed afterwards.
 * @memory: Out: %XIO_MEMORY_*.
 * @offset: In: where in the dma-buf the buffer begins, a multiple of %XIO_PAGE_SIZE.
 * @len: In: bytes, a multiple of %XIO_PAGE_SIZE.
 * @table_offset: Out: mmap offset of the table, as for &struct xio_buffer_alloc.
 * @table_len: Out: bytes to map for the table.
 * @handle: Out: handle.
 * @reserved: Must be zero.
 *
 * Errors: %EINVAL (size, flags, @offset or @len not a multiple of %XIO_PAGE_SIZE or beyond the
 * dma-buf, @len 0 or above @max_buffer, a dma-buf of this module, memory in pieces that are not
 * whole pages, reserved), %E2BIG, %EFAULT, %EBADF (no file), %ENODEV, %EBUSY (another client
 * has direct queues), %ESTALE (it is being taken back), %EREMOTEIO (%XIO_BUFFER_REQUIRE_P2P,
 * but the memory would be the system's), %ENOMEM, %EDQUOT, and what the exporter says.
 */
struct xio_buffer_import {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 memory;
	__u64 offset;
	__u64 len;
	__u64 table_offset;
	__u64 table_len;
	__u32 handle;
	__u32 reserved[7];
};

/* Request with &struct xio_buffer_import. */
#define XIO_IOC_BUFFER_IMPORT _IOWR(XIO_IOC_TYPE, 0x07, struct xio_buffer_import)

/**
 * struct xio_queue_export - Makes a dma-buf of a part of a direct queue, for a driver of
 *   another device to import: where a GPU can not map the doorbells by their address in the
 *   process, its driver can by this. Importers must be able to reach memory of other devices
 *   (peer-to-peer) and to give it back: that is asked of them when the queue, the client or the
 *   device goes.
 * @size: Size of this structure.
 * @flags: Must be zero.
 * @handle: In: handle of the queue.
 * @part: In: %XIO_QUEUE_PART_*.
 * @fd: Out: file descriptor of the dma-buf, closed on exec.
 * @in_page: Out: position of the doorbell within the dma-buf; 0 for a queue.
 * @len: Out: bytes of the dma-buf.
 * @reserved: Must be zero.
 *
 * Errors: %EINVAL (size, flags, @part, reserved), %E2BIG, %EFAULT, %ENODEV, %ENOENT (no such
 * queue), %ENXIO (the part is in a buffer), %EMFILE, %ENOMEM.
 */
struct xio_queue_export {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 part;
	__s32 fd;
	__u32 in_page;
	__u64 len;
	__u32 reserved[8];
};

/* Request with &struct xio_queue_export. */
#define XIO_IOC_QUEUE_EXPORT _IOWR(XIO_IOC_TYPE, 0x08, struct xio_queue_export)

/**
 * struct xio_kv_entry - One command of &struct xio_kv_submit.
 * @op: %XIO_KV_*: the operation.
 * @options: Options of the operation, %XIO_KV_STORE_* or %XIO_KV_RETRIEVE_*.
 * @key_len: Bytes of the key, 1 to 16; for List also 0, for Flush 0.
 * @reserved0: Must be zero.
 * @nsid: Namespace.
 * @key: Key, padded with zeros.
 * @buffer: Handle of the buffer; ignored by Delete, Exist and Flush, and when @len is 0.
 * @len: Bytes of the value to store, or of the room for what is retrieved or listed.
 * @offset: Where in the buffer, a multiple of 4.
 * @error: Out: 0, or a negative errno when the command has no status: %EINVAL (op, options,
 *   key, namespace, range), %ENOENT (buffer), %ESTALE (the buffer's memory was taken back),
 *   %EACCES (the buffer is read-only), %EMSGSIZE (more than @max_transfer), %ECANCELED (not
 *   started: signal or deadline), %ETIMEDOUT or %EINTR (started, not answered when the call
 *   ended; it may still take effect), %ENODEV (the controller was reset or is gone).
 * @status: Out: status of the completion (status code type in bits 10:8, status code in bits
 *   7:0, %XIO_KV_STATUS_DNR), 0 for success.
 * @value_len: Out: of a successful Retrieve, the true length of the value, also when it is more
 *   than @len.
 * @reserved: Zero.
 */
struct xio_kv_entry {
	__u8 op;
	__u8 options;
	__u8 key_len;
	__u8 reserved0;
	__u32 nsid;
	__u8 key[16];
	__u32 buffer;
	__u32 len;
	__u64 offset;
	__s32 error;
	__u32 status;
	__u32 value_len;
	__u32 reserved;
};

/**
 * struct xio_kv_submit - Runs commands on the kernel's queues and waits for them. The kernel
 *   checks each and makes its addresses, so this is open to everybody who may open the device,
 *   with IOMMU or without. Commands of one call run in any order.
 * @size: Size of this structure.
 * @flags: Must be zero.
 * @entries: In: address of the entries, an array of &struct xio_kv_entry.
 * @count: In: number of entries, 1 to %XIO_MAX_SUBMIT.
 * @timeout_ms: In: longest wait in milliseconds.
 * @done: Out: entries that got a status.
 * @reserved: Must be zero.
 *
 * The result is 0 when every entry was looked at: each then has its own @error and @status. A
 * call that is interrupted or out of time has them too, for what was done until then.
 *
 * As an io_uring command (``IORING_OP_URING_CMD``, ``cmd_op`` the number of this request, the
 * address of this structure in the first 8 bytes of ``cmd``) it does not wait: the structure
 * and the entries are filled before the completion is posted, whose result is 0 or a negative
 * errno. Completions come in the order in which calls are done.
 *
 * Errors: %EINVAL (size, flags, @count 0 or above %XIO_MAX_SUBMIT, @timeout_ms 0, reserved),
 * %E2BIG, %EFAULT, %ENODEV, %EBUSY (another client has direct queues), %ENOSPC (no queue left
 * for the kernel), %EAGAIN (too many calls under way), %ENOMEM, %EINTR, %ETIMEDOUT.
 */
struct xio_kv_submit {
	__u32 size;
	__u32 flags;
	__u64 entries;
	__u32 count;
	__u32 timeout_ms;
	__u32 done;
	__u32 reserved[5];
};

/* Request with &struct xio_kv_submit. */
#define XIO_IOC_KV_SUBMIT _IOWR(XIO_IOC_TYPE, 0x09, struct xio_kv_submit)

/**
 * struct xio_get_state - How the controller is, and how often it was reset. With a reset all
 *   queues and buffers of all clients are gone, and their mappings: a client can make new ones
 *   once the state is %XIO_STATE_LIVE.
 * @size: Size of this structure.
 * @flags: In: %XIO_STATE_SET_EVENTFD or 0.
 * @eventfd: In: with %XIO_STATE_SET_EVENTFD, an eventfd, or %XIO_NO_EVENTFD for none any more.
 * @state: Out: %XIO_STATE_*.
 * @resets: Out: resets since the device was bound.
 * @reset: Out: %XIO_RESET_*: why it was last reset, or failed.
 * @reserved: Must be zero.
 *
 * Each change of the state makes the file ready for poll (``POLLPRI``) until this is asked, and
 * signals the eventfd. When the device is gone for good the file polls ``POLLERR`` and
 * ``POLLHUP``, and requests give %ENODEV.
 *
 * Errors: %EINVAL (size, flags, reserved), %E2BIG, %EFAULT, %EBADF (eventfd), %ENOMEM, %ENODEV
 * (the device is gone for good).
 */
struct xio_get_state {
	__u32 size;
	__u32 flags;
	__s32 eventfd;
	__u32 state;
	__u32 resets;
	__u32 reset;
	__u32 reserved[6];
};

/* Request with &struct xio_get_state. */
#define XIO_IOC_GET_STATE _IOWR(XIO_IOC_TYPE, 0x0a, struct xio_get_state)

/**
 * struct xio_page - What a command needs to point at a page of a buffer and at what follows.
 * @addr: Address of the page for the controller.
 * @list: Address of the PRP list entry of this page, in each of the two ready-made lists; 0 for
 *   page 0.
 * @reserved: Zero.
 *
 * A range that starts in page ``f`` and ends in page ``l`` has PRP1 = @addr of page ``f`` +
 * offset in the page (a multiple of 4), and PRP2 = 0 when ``f == l``, @addr of page ``l`` when
 * ``l == f + 1``, else ``list[v]`` of page ``f + 1``, where ``v`` is 1 when
 * ``(l - 1) % XIO_LIST_ENTRIES == 0``, else 0. (There the last page of the range would come
 * first on a new page of list 0, where the controller takes the chain pointer for data.)
 */
struct xio_page {
	__u64 addr;
	__u64 list[2];
	__u64 reserved;
};

#ifdef __cplusplus
}
#endif

#endif /* ROCM_XIO_H */
