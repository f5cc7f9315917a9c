// SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT
//! The requests and their structures.

use crate::describe::{Constant, Field, Layout};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An ioctl argument.
pub trait Request: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable {
    /// Number within the type.
    const NR: u8;
    /// Whole ioctl number, with the size of this version of the structure.
    const CMD: u32;
    /// Smallest size that is served: everything up to the reserved fields at the end.
    const MIN_SIZE: usize;
}

constants! {
    /// Version of the interface. It only grows; what is there can be told from the feature bits.
    ABI_VERSION: u32 = 1;

    /// Feature: queues mapped into the client.
    FEATURE_DIRECT_QUEUE: u64 = 1 << 0;
    /// Feature: an eventfd signalled when the controller posts a completion.
    FEATURE_EVENTFD: u64 = 1 << 1;
    /// Feature: buffers come with their DMA address table and ready-made PRP lists.
    FEATURE_BUFFER_TABLE: u64 = 1 << 2;

    /// Feature: user memory can be registered as a buffer.
    FEATURE_BUFFER_REGISTER: u64 = 1 << 3;
    /// Feature: commands can be submitted by the kernel, on queues of its own.
    FEATURE_MEDIATED: u64 = 1 << 4;
    /// Feature: the same by io_uring, without waiting.
    FEATURE_MEDIATED_URING: u64 = 1 << 5;
    /// Feature: a dma-buf can be imported as a buffer.
    FEATURE_BUFFER_IMPORT: u64 = 1 << 6;
    /// Feature: queues and doorbells can be exported as dma-bufs.
    FEATURE_QUEUE_EXPORT: u64 = 1 << 7;
    /// Feature: queues can be made in the memory of buffers.
    FEATURE_QUEUE_IN_BUFFER: u64 = 1 << 8;
    /// Feature: the controller has a memory buffer; `cmb` says what for.
    FEATURE_CMB: u64 = 1 << 9;
    /// Feature: what happens to the controller is told, by `xio_get_state`, poll and an eventfd.
    FEATURE_STATE: u64 = 1 << 10;

    /// The device has no IOMMU in front of it: it can reach all of memory.
    IOMMU_NONE: u32 = 0;
    /// An IOMMU is there but passes every address through.
    IOMMU_IDENTITY: u32 = 1;
    /// An IOMMU confines the device to what is mapped.
    IOMMU_TRANSLATED: u32 = 2;
    /// As `IOMMU_TRANSLATED`, but mappings are flushed lazily (type DMA-FQ). The module flushes by itself
    /// before it frees memory.
    IOMMU_TRANSLATED_LAZY: u32 = 3;

    /// Direct queues: this client may have them because an IOMMU confines the device.
    DIRECT_CONFINED: u32 = 0;
    /// Direct queues: this client may have them because it has CAP_SYS_RAWIO.
    DIRECT_RAWIO: u32 = 1;
    /// Direct queues: everybody may have them, the module was loaded with unsafe_direct=1.
    DIRECT_UNSAFE: u32 = 2;
    /// Direct queues: refused (EPERM), nothing confines the device; `unconfined` says what is missing.
    DIRECT_REFUSED: u32 = 3;

    /// Not confined: addresses are not translated.
    UNCONFINED_NOT_TRANSLATED: u32 = 1 << 0;
    /// Not confined: other devices share the IOMMU group, and so what is mapped.
    UNCONFINED_GROUP: u32 = 1 << 1;
    /// Not confined: interrupts are not remapped, so a write to memory can be any interrupt. The module's parameter
    /// unsafe_interrupts=1 accepts that, as vfio's allow_unsafe_interrupts does.
    UNCONFINED_INTERRUPTS: u32 = 1 << 2;
    /// Not confined: the firmware has memory mapped for the device.
    UNCONFINED_RESERVED: u32 = 1 << 3;

    /// Kind of queue: direct.
    QUEUE_KIND_DIRECT: u32 = 1 << 0;
    /// Kind of queue: the kernel's, by way of `xio_kv_submit`.
    QUEUE_KIND_MEDIATED: u32 = 1 << 1;

    /// Buffer: the device may only read it. Retrieve and List into it are refused.
    BUFFER_READ_ONLY: u32 = 1 << 0;
    /// Buffer to import: refuse memory that is not reached from device to device, such as video memory that its driver
    /// would move to the system's first.
    BUFFER_REQUIRE_P2P: u32 = 1 << 1;
    /// Buffer to allocate: in the controller memory buffer.
    BUFFER_CMB: u32 = 1 << 2;

    /// Memory of a buffer: the system's.
    MEMORY_SYSTEM: u32 = 0;
    /// Memory of a buffer: of another device, reached without the system's memory.
    MEMORY_PEER: u32 = 1;

    /// Use of the controller memory buffer: submission queues.
    CMB_SQ: u32 = 1 << 0;
    /// Use of the controller memory buffer: values, both to store and to retrieve.
    CMB_DATA: u32 = 1 << 1;

    /// Queue to create: the submission queue is in the controller memory buffer.
    QUEUE_SQ_CMB: u32 = 1 << 0;
    /// Queue to create: the submission queue is in `sq_buffer`.
    QUEUE_SQ_BUFFER: u32 = 1 << 1;
    /// Queue to create: the completion queue is in `cq_buffer`.
    QUEUE_CQ_BUFFER: u32 = 1 << 2;

    /// Part of a queue to export: the submission queue.
    QUEUE_PART_SQ: u32 = 0;
    /// Part of a queue to export: the completion queue.
    QUEUE_PART_CQ: u32 = 1;
    /// Part of a queue to export: the page with the submission queue's tail doorbell.
    QUEUE_PART_SQ_DOORBELL: u32 = 2;
    /// Part of a queue to export: the page with the completion queue's head doorbell.
    QUEUE_PART_CQ_DOORBELL: u32 = 3;

    /// Most entries of one `xio_kv_submit`.
    MAX_SUBMIT: u32 = 256;
    /// Operation of `xio_kv_entry`: Flush: what was stored before is durable. It has no key and no buffer.
    KV_FLUSH: u32 = 0x00;
    /// Operation of `xio_kv_entry`: Store.
    KV_STORE: u32 = 0x01;
    /// Operation of `xio_kv_entry`: Retrieve.
    KV_RETRIEVE: u32 = 0x02;
    /// Operation of `xio_kv_entry`: List.
    KV_LIST: u32 = 0x06;
    /// Operation of `xio_kv_entry`: Delete.
    KV_DELETE: u32 = 0x10;
    /// Operation of `xio_kv_entry`: Exist.
    KV_EXIST: u32 = 0x14;
    /// Option of a Store: only if the key exists.
    KV_STORE_IF_EXISTS: u32 = 1 << 0;
    /// Option of a Store: only if the key does not exist.
    KV_STORE_IF_ABSENT: u32 = 1 << 1;
    /// Option of a Store: do not compress.
    KV_STORE_NO_COMPRESS: u32 = 1 << 2;
    /// Option of a Retrieve: as stored, without decompression.
    KV_RETRIEVE_RAW: u32 = 1 << 0;

    /// Bit in `status` of `xio_kv_entry`: the same command would fail again (DNR).
    KV_STATUS_DNR: u32 = 1 << 14;

    /// State: commands are served.
    STATE_LIVE: u32 = 0;
    /// State: the controller is being reset, or suspended; it is going to be live again.
    STATE_STOPPED: u32 = 1;
    /// State: the controller failed, and could not be brought up again. An administrator can reset the device, or
    /// unbind and bind it.
    STATE_FAILED: u32 = 2;

    /// Last reset: there was none.
    RESET_NONE: u32 = 0;
    /// Last reset: a command was not answered in time.
    RESET_TIMEOUT: u32 = 1;
    /// Last reset: completions of the admin queue belonged to no command, since a client rang its doorbell or the
    /// controller is at fault.
    RESET_OUT_OF_STEP: u32 = 2;
    /// Last reset: the controller stated that it failed (CSTS.CFS), or stopped by itself.
    RESET_FATAL: u32 = 3;
    /// Last reset: the device did not answer at all.
    RESET_ABSENT: u32 = 4;
    /// Last reset: by the system, such as a function reset, suspend and resume, or recovery from a PCI error.
    RESET_SYSTEM: u32 = 5;
    /// Last reset: to make the controller forget what a user's direct queues may have left in it, before another user
    /// has some. Nobody has anything on it then.
    RESET_USER: u32 = 6;
    /// Last reset: the controller refused to delete a queue.
    RESET_REFUSED: u32 = 7;

    /// Wanted of `xio_get_state`: `eventfd` is to be signalled from now on whenever the state changes.
    STATE_SET_EVENTFD: u32 = 1 << 0;

    /// No eventfd for a queue.
    NO_EVENTFD: i32 = -1;

    /// Bytes of a page of the controller, of a buffer and of a PRP list.
    PAGE_SIZE: u32 = 4096;
    /// Data pages between two chain pointers of a ready-made PRP list.
    LIST_ENTRIES: u32 = 511;
    /// First slot of the second ready-made PRP list.
    LIST_SHIFT: u32 = 256;
}

structures! {
    /// What the controller is, what it can do, and what this client may do with it.
    ///
    /// Errors: `EINVAL` (size, flags), `E2BIG`, `EFAULT`, `ENODEV` (the controller is gone).
    struct GetInfo = "xio_get_info", request GET_INFO = 0x00 {
        /// Size of this structure.
        size: u32,
        /// Must be zero.
        flags: u32,
        /// `ABI_VERSION` of the module.
        abi_version: u32,
        /// Version register (VS) of the controller.
        nvme_version: u32,
        /// `FEATURE_*` bits.
        features: u64,
        /// Capabilities register (CAP).
        cap: u64,
        /// Largest transfer of one command in bytes (MDTS), 0 when the controller states none.
        max_transfer: u64,
        /// Largest buffer in bytes.
        max_buffer: u64,
        /// Limit in bytes on all memory of one client.
        max_client_memory: u64,
        /// Deepest queue in entries.
        max_queue_entries: u32,
        /// Queue pairs that all clients of the controller can have together.
        max_queues: u32,
        /// Bytes from one doorbell register to the next (4 << CAP.DSTRD).
        doorbell_stride: u32,
        /// Number of active namespaces with the Key Value command set.
        namespaces: u32,
        /// `IOMMU_*`: what confines the device, at this moment.
        iommu: u32,
        /// `DIRECT_*`: whether this client may have direct queues, at this moment, and why.
        direct: u32,
        /// `QUEUE_KIND_*` bits that this client may create at this moment.
        queue_kinds: u32,
        /// Interrupt vectors that serve eventfds; 0 means that one vector serves everything.
        event_vectors: u32,
        /// NUMA node of the device, -1 when unknown.
        numa_node: i32,
        /// PCI domain.
        pci_domain: u32,
        /// PCI bus.
        pci_bus: u8,
        /// PCI device (slot).
        pci_device: u8,
        /// PCI function.
        pci_function: u8,
        /// Not 0 when the doorbells of each queue have pages of their own.
        doorbell_pages: u8,
        /// PCI vendor (VID).
        vendor_id: u16,
        /// PCI subsystem vendor (SSVID).
        subsystem_vendor_id: u16,
        /// Controller identifier (CNTLID).
        controller_id: u16,
        /// Zero.
        reserved0: [u16; 3],
        /// Serial number (SN), ASCII, padded with spaces.
        serial: [u8; 20],
        /// Model number (MN), ASCII, padded with spaces.
        model: [u8; 40],
        /// Firmware revision (FR), ASCII, padded with spaces.
        firmware: [u8; 8],
        /// NVM subsystem qualified name (SUBNQN), padded with zeros.
        subnqn: [u8; 256],
        /// Commands of all clients that the kernel's queue holds at a time.
        mediated_depth: u32,
        /// Limit in bytes on all memory of one user.
        max_user_memory: u64,
        /// Limit on the queues of one client.
        max_client_queues: u32,
        /// `UNCONFINED_*`: what keeps the IOMMU from confining the device, at this moment; 0 when it does.
        unconfined: u32,
        /// Bytes of the controller memory buffer, 0 when there is none.
        cmb_size: u64,
        /// Bytes of it that are not in use, at this moment.
        cmb_free: u64,
        /// `CMB_*`: what it can be used for.
        cmb: u32,
        /// Zero.
        reserved: [u32; 5],
    }

    /// A namespace with the Key Value command set, read from the controller at this moment.
    ///
    /// Errors: `EINVAL` (size, flags), `E2BIG`, `EFAULT`, `ENODEV`, `ENOENT` (no such index or namespace),
    /// `EIO` (the controller refused Identify), `ETIMEDOUT`.
    struct GetNamespace = "xio_get_namespace", request GET_NAMESPACE = 0x01 {
        /// Size of this structure.
        size: u32,
        /// Must be zero.
        flags: u32,
        /// In: namespace to ask for; 0 asks by `index`. Out: its identifier.
        nsid: u32,
        /// In: when `nsid` is 0, how many namespaces to skip, in ascending order of identifiers.
        index: u32,
        /// Capacity in bytes (NSZE).
        capacity: u64,
        /// Bytes in use (NUSE).
        used: u64,
        /// Longest key in bytes (KVKML of the format in use).
        max_key: u16,
        /// Number of formats that the namespace has.
        formats: u16,
        /// Index of the format in use.
        format: u16,
        /// Zero.
        reserved0: u16,
        /// Longest value in bytes (KVVML of the format in use).
        max_value: u32,
        /// Limit on the number of keys (MNKS of the format in use), 0 when none is stated.
        max_keys: u32,
        /// Namespace GUID (NGUID), zero when there is none.
        nguid: [u8; 16],
        /// IEEE extended unique identifier (EUI64), zero when there is none.
        eui64: [u8; 8],
        /// Zero.
        reserved: [u32; 14],
    }

    /// Makes a submission and a completion queue and gives out the offsets to map them.
    ///
    /// All clients of a controller share its IOMMU domain, so a client with direct queues reaches what others have mapped. It
    /// gets them only while no other client has any memory on the controller, and keeps others from getting some
    /// until it has no queue any more.
    ///
    /// A queue can be in memory of a buffer, such as imported video memory, from an offset of whole pages on. Its addresses must
    /// be consecutive where the controller wants that (CAP.CQR). Such a queue is mapped through its buffer, which
    /// can not be freed before the queue, and the caller has cleared its completion queue.
    ///
    /// Errors: `EINVAL` (size, flags, `entries` below 2 or above the limit, a range that is not in the buffer, two places for one
    /// queue, reserved), `E2BIG`, `EFAULT`, `ENODEV`, `ENOENT` (no such buffer), `EACCES` (a read-only buffer for completions),
    /// `EOPNOTSUPP` (scattered memory for a controller that wants it contiguous, or no controller memory buffer for queues),
    /// `ESTALE` (the buffer's memory was taken back), `EPERM` (direct queues are refused: see `direct` of `xio_get_info`), `EBUSY` (another client has memory or
    /// queues on the controller), `ENOSPC` (no queue left), `EBADF` (eventfd), `ENOMEM`, `EDQUOT` (`max_client_memory`,
    /// `max_user_memory`, `max_client_queues`, or too many objects), `EIO` (refused by the
    /// controller), `ETIMEDOUT`.
    struct QueueCreate = "xio_queue_create", request QUEUE_CREATE = 0x02 {
        /// Size of this structure.
        size: u32,
        /// In: `QUEUE_*` or 0: where the queues are.
        flags: u32,
        /// Entries of each of the two queues, 2 to `max_queue_entries`. One slot always stays free.
        entries: u32,
        /// eventfd to signal, or -1. A queue with one costs an interrupt per completion.
        eventfd: i32,
        /// Out: handle.
        handle: u32,
        /// Out: queue identifier, as completions carry it.
        qid: u32,
        /// Out: mmap offset of the submission queue; 0 when it is in a buffer.
        sq_offset: u64,
        /// Out: mmap offset of the completion queue; 0 when it is in a buffer.
        cq_offset: u64,
        /// Out: mmap offset of the page with the submission queue's tail doorbell.
        sq_doorbell_offset: u64,
        /// Out: mmap offset of the page with the completion queue's head doorbell.
        cq_doorbell_offset: u64,
        /// Out: bytes to map for the submission queue.
        sq_len: u32,
        /// Out: bytes to map for the completion queue.
        cq_len: u32,
        /// Out: position of the tail doorbell within its page.
        sq_doorbell_in_page: u32,
        /// Out: position of the head doorbell within its page.
        cq_doorbell_in_page: u32,
        /// In: handle of the submission queue's buffer, with `QUEUE_SQ_BUFFER`.
        sq_buffer: u32,
        /// In: handle of the completion queue's buffer, with `QUEUE_CQ_BUFFER`.
        cq_buffer: u32,
        /// In: where in its buffer the submission queue begins, a multiple of `PAGE_SIZE`.
        sq_buffer_offset: u64,
        /// In: where in its buffer the completion queue begins, a multiple of `PAGE_SIZE`.
        cq_buffer_offset: u64,
        /// Must be zero.
        reserved: [u32; 2],
    }

    /// Deletes a queue pair; its mappings fault from then on.
    ///
    /// Errors: `EINVAL`, `E2BIG`, `EFAULT`, `ENODEV`, `ENOENT`.
    struct QueueDestroy = "xio_queue_destroy", request QUEUE_DESTROY = 0x03 {
        /// Size of this structure.
        size: u32,
        /// Must be zero.
        flags: u32,
        /// Handle.
        handle: u32,
        /// Must be zero.
        reserved: [u32; 5],
    }

    /// Allocates memory that commands can point at.
    ///
    /// Errors: `EINVAL` (size, flags, `len` 0 or above `max_buffer`, reserved), `E2BIG`, `EFAULT`, `ENODEV`,
    /// `EBUSY` (another client has direct queues), `ENOMEM`, `EDQUOT` (`max_client_memory` or `max_user_memory`), `EINTR`
    /// (a signal, while much was being allocated), `EOPNOTSUPP` (no controller memory buffer for values), `ENOSPC` (not so much
    /// of it is free). Mapping the table: `EPERM` unless the client may have direct queues.
    struct BufferAlloc = "xio_buffer_alloc", request BUFFER_ALLOC = 0x04 {
        /// Size of this structure.
        size: u32,
        /// In: `BUFFER_CMB` or 0.
        flags: u32,
        /// In: bytes wanted. Out: bytes got, a multiple of `PAGE_SIZE`.
        len: u64,
        /// Out: mmap offset of the data.
        data_offset: u64,
        /// Out: mmap offset of the table, an array of `xio_page`, one for each page of the buffer. Read-only.
        table_offset: u64,
        /// Out: bytes to map for the table.
        table_len: u64,
        /// Out: handle.
        handle: u32,
        /// Must be zero.
        reserved: [u32; 9],
    }

    /// Frees a buffer. When the call returns the controller can not reach the memory any more, and its
    /// mappings fault.
    ///
    /// Errors: `EINVAL`, `E2BIG`, `EFAULT`, `ENODEV`, `ENOENT`, `EBUSY` (a queue is in it).
    struct BufferFree = "xio_buffer_free", request BUFFER_FREE = 0x05 {
        /// Size of this structure.
        size: u32,
        /// Must be zero.
        flags: u32,
        /// Handle.
        handle: u32,
        /// Must be zero.
        reserved: [u32; 5],
    }

    /// Makes a buffer of memory of the caller. The pages stay pinned until the buffer is freed, also when they are
    /// unmapped meanwhile; they count against RLIMIT_MEMLOCK.
    ///
    /// Errors: `EINVAL` (size, flags, `len` 0 or above `max_buffer`, an address that is not aligned to 4 or wraps,
    /// reserved), `E2BIG`, `EFAULT` (no memory there, or read-only memory without `BUFFER_READ_ONLY`, or memory
    /// that can not be pinned), `ENODEV`, `EBUSY` (another client has direct queues), `ENOMEM` (RLIMIT_MEMLOCK, or no
    /// memory), `EDQUOT` (`max_client_memory`), `EINTR`.
    struct BufferRegister = "xio_buffer_register", request BUFFER_REGISTER = 0x06 {
        /// Size of this structure.
        size: u32,
        /// In: `BUFFER_READ_ONLY` or 0.
        flags: u32,
        /// In: address.
        address: u64,
        /// In: bytes.
        len: u64,
        /// Out: mmap offset of the table, as for `xio_buffer_alloc`. Byte 0 of the buffer is the first byte of the page
        /// that holds `address`.
        table_offset: u64,
        /// Out: bytes to map for the table.
        table_len: u64,
        /// Out: handle.
        handle: u32,
        /// Out: where in the buffer `address` is.
        first: u32,
        /// Must be zero.
        reserved: [u32; 8],
    }

    /// Makes a buffer of a dma-buf, such as memory of a GPU. It stays where it is (pinned) until the buffer is freed. Should its
    /// exporter take it back nevertheless, commands that use the buffer are refused with `ESTALE`, those under
    /// way are waited for, direct queues of the client are deleted where no IOMMU ends the access, and the
    /// memory is given back.
    ///
    /// Errors: `EINVAL` (size, flags, `offset` or `len` not a multiple of `PAGE_SIZE` or beyond the dma-buf, `len` 0 or above
    /// `max_buffer`, a dma-buf of this module, memory in pieces that are not whole pages, reserved), `E2BIG`, `EFAULT`, `EBADF`
    /// (no file), `ENODEV`, `EBUSY` (another client has direct queues), `ESTALE` (it is being taken back), `EREMOTEIO` (`BUFFER_REQUIRE_P2P`, but the memory would
    /// be the system's), `ENOMEM`, `EDQUOT`, and what the exporter says.
    struct BufferImport = "xio_buffer_import", request BUFFER_IMPORT = 0x07 {
        /// Size of this structure.
        size: u32,
        /// In: `BUFFER_READ_ONLY`, `BUFFER_REQUIRE_P2P` or 0.
        flags: u32,
        /// In: file descriptor of the dma-buf. It may be closed afterwards.
        fd: i32,
        /// Out: `MEMORY_*`.
        memory: u32,
        /// In: where in the dma-buf the buffer begins, a multiple of `PAGE_SIZE`.
        offset: u64,
        /// In: bytes, a multiple of `PAGE_SIZE`.
        len: u64,
        /// Out: mmap offset of the table, as for `xio_buffer_alloc`.
        table_offset: u64,
        /// Out: bytes to map for the table.
        table_len: u64,
        /// Out: handle.
        handle: u32,
        /// Must be zero.
        reserved: [u32; 7],
    }

    /// Makes a dma-buf of a part of a direct queue, for a driver of another device to import: where a GPU can not map the
    /// doorbells by their address in the process, its driver can by this. Importers must be able to reach memory of
    /// other devices (peer-to-peer) and to give it back: that is asked of them when the queue, the client or
    /// the device goes.
    ///
    /// Errors: `EINVAL` (size, flags, `part`, reserved), `E2BIG`, `EFAULT`, `ENODEV`, `ENOENT` (no such queue), `ENXIO` (the part
    /// is in a buffer), `EMFILE`, `ENOMEM`.
    struct QueueExport = "xio_queue_export", request QUEUE_EXPORT = 0x08 {
        /// Size of this structure.
        size: u32,
        /// Must be zero.
        flags: u32,
        /// In: handle of the queue.
        handle: u32,
        /// In: `QUEUE_PART_*`.
        part: u32,
        /// Out: file descriptor of the dma-buf, closed on exec.
        fd: i32,
        /// Out: position of the doorbell within the dma-buf; 0 for a queue.
        in_page: u32,
        /// Out: bytes of the dma-buf.
        len: u64,
        /// Must be zero.
        reserved: [u32; 8],
    }

    /// One command of `xio_kv_submit`.
    struct KvEntry = "xio_kv_entry" {
        /// `KV_*`: the operation.
        op: u8,
        /// Options of the operation, `KV_STORE_*` or `KV_RETRIEVE_*`.
        options: u8,
        /// Bytes of the key, 1 to 16; for List also 0, for Flush 0.
        key_len: u8,
        /// Must be zero.
        reserved0: u8,
        /// Namespace.
        nsid: u32,
        /// Key, padded with zeros.
        key: [u8; 16],
        /// Handle of the buffer; ignored by Delete, Exist and Flush, and when `len` is 0.
        buffer: u32,
        /// Bytes of the value to store, or of the room for what is retrieved or listed.
        len: u32,
        /// Where in the buffer, a multiple of 4.
        offset: u64,
        /// Out: 0, or a negative errno when the command has no status: `EINVAL` (op, options, key, namespace, range),
        /// `ENOENT` (buffer), `ESTALE` (the buffer's memory was taken back), `EACCES` (the buffer is read-only), `EMSGSIZE` (more than `max_transfer`), `ECANCELED` (not
        /// started: signal or deadline), `ETIMEDOUT` or `EINTR` (started, not answered when the call ended; it may still
        /// take effect), `ENODEV` (the controller was reset or is gone).
        error: i32,
        /// Out: status of the completion (status code type in bits 10:8, status code in bits 7:0, `KV_STATUS_DNR`), 0 for
        /// success.
        status: u32,
        /// Out: of a successful Retrieve, the true length of the value, also when it is more than `len`.
        value_len: u32,
        /// Zero.
        reserved: u32,
    }

    /// Runs commands on the kernel's queues and waits for them. The kernel checks each and makes its addresses, so this
    /// is open to everybody who may open the device, with IOMMU or without. Commands of one call run in any order.
    ///
    /// The result is 0 when every entry was looked at: each then has its own `error` and `status`. A call that is
    /// interrupted or out of time has them too, for what was done until then.
    ///
    /// As an io_uring command (`IORING_OP_URING_CMD`, `cmd_op` the number of this request, the address of this structure in the
    /// first 8 bytes of `cmd`) it does not wait: the structure and the entries are filled before the completion is
    /// posted, whose result is 0 or a negative errno. Completions come in the order in which calls are done.
    ///
    /// Errors: `EINVAL` (size, flags, `count` 0 or above `MAX_SUBMIT`, `timeout_ms` 0, reserved), `E2BIG`, `EFAULT`, `ENODEV`,
    /// `EBUSY` (another client has direct queues), `ENOSPC` (no queue left for the kernel), `EAGAIN` (too many calls under
    /// way), `ENOMEM`, `EINTR`, `ETIMEDOUT`.
    struct KvSubmit = "xio_kv_submit", request KV_SUBMIT = 0x09 {
        /// Size of this structure.
        size: u32,
        /// Must be zero.
        flags: u32,
        /// In: address of the entries, an array of `xio_kv_entry`.
        entries: u64,
        /// In: number of entries, 1 to `MAX_SUBMIT`.
        count: u32,
        /// In: longest wait in milliseconds.
        timeout_ms: u32,
        /// Out: entries that got a status.
        done: u32,
        /// Must be zero.
        reserved: [u32; 5],
    }

    /// How the controller is, and how often it was reset. With a reset all queues and buffers of all clients are gone, and their
    /// mappings: a client can make new ones once the state is `STATE_LIVE`.
    ///
    /// Each change of the state makes the file ready for poll (`POLLPRI`) until this is asked, and signals the eventfd. When the
    /// device is gone for good the file polls `POLLERR` and `POLLHUP`, and requests give `ENODEV`.
    ///
    /// Errors: `EINVAL` (size, flags, reserved), `E2BIG`, `EFAULT`, `EBADF` (eventfd), `ENOMEM`, `ENODEV` (the device is gone for
    /// good).
    struct GetState = "xio_get_state", request GET_STATE = 0x0a {
        /// Size of this structure.
        size: u32,
        /// In: `STATE_SET_EVENTFD` or 0.
        flags: u32,
        /// In: with `STATE_SET_EVENTFD`, an eventfd, or `NO_EVENTFD` for none any more.
        eventfd: i32,
        /// Out: `STATE_*`.
        state: u32,
        /// Out: resets since the device was bound.
        resets: u32,
        /// Out: `RESET_*`: why it was last reset, or failed.
        reset: u32,
        /// Must be zero.
        reserved: [u32; 6],
    }

    /// What a command needs to point at a page of a buffer and at what follows.
    ///
    /// A range that starts in page `f` and ends in page `l` has PRP1 = `addr` of page `f` + offset in the page
    /// (a multiple of 4), and PRP2 = 0 when `f == l`, `addr` of page `l` when `l == f + 1`, else
    /// `list[v]` of page `f + 1`, where `v` is 1 when `(l - 1) % LIST_ENTRIES == 0`, else 0.
    /// (There the last page of the range would come first on a new page of list 0, where the controller
    /// takes the chain pointer for data.)
    struct Page = "xio_page" {
        /// Address of the page for the controller.
        addr: u64,
        /// Address of the PRP list entry of this page, in each of the two ready-made lists; 0 for page 0.
        list: [u64; 2],
        /// Zero.
        reserved: u64,
    }
}
