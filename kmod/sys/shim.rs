// SPDX-License-Identifier: GPL-2.0
//! Prototypes of `shim.c`, and of functions that the kernel exports but its bindings do not know.

use kernel::{bindings, ffi};

pub(super) const CLAIM_OVERRIDE: ffi::c_int = 1;

#[allow(improper_ctypes)] // Lock debugging structures are empty.
extern "C" {
    pub(super) fn rocm_xio_claim() -> ffi::c_int;
    pub(super) fn rocm_xio_unsafe_direct() -> bool;
    pub(super) fn rocm_xio_max_client_mb() -> u32;
    pub(super) fn rocm_xio_max_user_mb() -> u32;
    pub(super) fn rocm_xio_max_client_queues() -> u32;
    pub(super) fn rocm_xio_command_timeout_s() -> u32;
    pub(super) fn rocm_xio_trace_submit(device: u32, qid: u16, client: u64, sqe: *const u8);
    pub(super) fn rocm_xio_trace_complete(device: u32, client: u64, cqe: *const u8, us: u64);
    pub(super) fn rocm_xio_trace_state(device: u32, state: u32, reset: u32, resets: u32);
    pub(super) fn rocm_xio_has_driver_override(dev: *mut bindings::device) -> bool;
    pub(super) fn rocm_xio_pci_domain(pdev: *mut bindings::pci_dev) -> u32;
    pub(super) fn rocm_xio_pci_bus(pdev: *mut bindings::pci_dev) -> u8;
    pub(super) fn rocm_xio_numa_node(dev: *mut bindings::device) -> ffi::c_int;
    pub(super) fn rocm_xio_alloc_pages(node: ffi::c_int, order: ffi::c_uint, optional: bool) -> *mut bindings::page;
    pub(super) fn rocm_xio_put_page(page: *mut bindings::page);
    pub(super) fn rocm_xio_page_address(page: *mut bindings::page) -> *mut ffi::c_void;
    pub(super) fn rocm_xio_page_after(page: *mut bindings::page, n: usize) -> *mut bindings::page;
    pub(super) fn rocm_xio_dma_is_coherent(dev: *mut bindings::device, sgt: *mut bindings::sg_table) -> bool;
    pub(super) fn rocm_xio_dma_addrs(
        sgt: *mut bindings::sg_table,
        first: usize,
        addrs: *mut u64,
        n: usize,
    ) -> usize;
    pub(super) fn rocm_xio_is_peer(dev: *mut bindings::device, addrs: *const u64, n: usize) -> bool;
    pub(super) fn rocm_xio_is_revocable(attachment: *mut bindings::dma_buf_attachment) -> bool;
    pub(super) fn rocm_xio_export(
        ops: *const bindings::dma_buf_ops,
        len: usize,
        private: *mut ffi::c_void,
    ) -> *mut bindings::dma_buf;
    pub(super) fn rocm_xio_export_fd(dmabuf: *mut bindings::dma_buf) -> ffi::c_int;
    pub(super) fn rocm_xio_fence() -> *mut bindings::dma_fence;
    pub(super) fn rocm_xio_put_fence(fence: *mut bindings::dma_fence);
    pub(super) fn rocm_xio_add_fence(resv: *mut bindings::dma_resv, fence: *mut bindings::dma_fence) -> ffi::c_int;
    pub(super) fn rocm_xio_map_pages(
        dev: *mut bindings::device,
        pages: *mut *mut bindings::page,
        n: usize,
        direction: bindings::dma_data_direction,
    ) -> *mut bindings::sg_table;
    pub(super) fn rocm_xio_unmap_pages(
        dev: *mut bindings::device,
        sgt: *mut bindings::sg_table,
        direction: bindings::dma_data_direction,
    );
    pub(super) fn rocm_xio_bar_bus_address(pdev: *mut bindings::pci_dev, bar: ffi::c_int) -> u64;
    pub(super) fn rocm_xio_clear_io(at: *mut ffi::c_void, n: usize);
    pub(super) fn rocm_xio_iommu_flush(dev: *mut bindings::device);
    pub(super) fn rocm_xio_pgprot_uncached(prot: bindings::pgprot_t) -> bindings::pgprot_t;
    pub(super) fn rocm_xio_msecs_to_jiffies(ms: ffi::c_uint) -> ffi::c_ulong;
    pub(super) fn rocm_xio_account_pinned(mm: *mut bindings::mm_struct, pages: u64) -> bool;
    pub(super) fn rocm_xio_unaccount_pinned(mm: *mut bindings::mm_struct, pages: u64);
    pub(super) fn rocm_xio_lock_killable(lock: *mut bindings::mutex) -> ffi::c_int;
    pub(super) fn rocm_xio_signal_pending() -> bool;
    pub(super) fn rocm_xio_put_off_task_work() -> bool;
    pub(super) fn rocm_xio_resume_task_work();
    pub(super) fn rocm_xio_uring_op(cmd: *mut bindings::io_uring_cmd) -> u32;
    pub(super) fn rocm_xio_uring_argument(cmd: *mut bindings::io_uring_cmd) -> u64;
    pub(super) fn rocm_xio_uring_file(cmd: *mut bindings::io_uring_cmd) -> *mut bindings::file;
    pub(super) fn rocm_xio_uring_must_not_block(issue_flags: ffi::c_uint) -> bool;
    pub(super) fn rocm_xio_uring_is_cancel(issue_flags: ffi::c_uint) -> bool;
    pub(super) fn rocm_xio_uring_mark_cancelable(cmd: *mut bindings::io_uring_cmd, issue_flags: ffi::c_uint);
    pub(super) fn rocm_xio_uring_fail(
        cmd: *mut bindings::io_uring_cmd,
        error: ffi::c_int,
        issue_flags: ffi::c_uint,
    );
    pub(super) fn rocm_xio_uring_complete(
        cmd: *mut bindings::io_uring_cmd,
        data: *mut ffi::c_void,
        finish: unsafe extern "C" fn(*mut ffi::c_void, bool) -> ffi::c_int,
    );
    pub(super) fn rocm_xio_iommu_gaps(dev: *mut bindings::device) -> u32;
    pub(super) fn rocm_xio_use_unconfined() -> ffi::c_int;
    pub(super) fn rocm_xio_set_master(dev: *mut bindings::device, on: bool);
    pub(super) fn rocm_xio_has_memory_bar(pdev: *mut bindings::pci_dev, bar: ffi::c_int) -> bool;
    pub(super) fn rocm_xio_debugfs_create(
        name: *const ffi::c_char,
        xio: *mut ffi::c_void,
    ) -> *mut bindings::dentry;
    pub(super) fn rocm_xio_debugfs_remove(dir: *mut bindings::dentry);

    pub(super) fn dma_buf_phys_vec_to_sgt(
        attachment: *mut bindings::dma_buf_attachment,
        provider: *mut bindings::p2pdma_provider,
        ranges: *mut bindings::phys_vec,
        count: usize,
        len: usize,
        direction: bindings::dma_data_direction,
    ) -> *mut bindings::sg_table;
    pub(super) fn dma_buf_free_sgt(
        attachment: *mut bindings::dma_buf_attachment,
        sgt: *mut bindings::sg_table,
        direction: bindings::dma_data_direction,
    );
    pub(super) fn anon_inode_create_getfile(
        name: *const ffi::c_char,
        fops: *const bindings::file_operations,
        private: *mut ffi::c_void,
        flags: ffi::c_int,
        context_inode: *const bindings::inode,
    ) -> *mut bindings::file;
}
