/* SPDX-License-Identifier: GPL-2.0 */
#ifndef ROCM_XIO_SHIM_H
#define ROCM_XIO_SHIM_H

#include <linux/dma-direction.h>
#include <linux/types.h>
#include <linux/pgtable.h>

struct dentry;
struct device;
struct dma_buf;
struct dma_buf_attachment;
struct dma_buf_ops;
struct dma_fence;
struct dma_resv;
struct file;
struct io_uring_cmd;
struct mm_struct;
struct mutex;
struct page;
struct pci_dev;
struct seq_file;
struct sg_table;

#define ROCM_XIO_CLAIM_AUTO	0
#define ROCM_XIO_CLAIM_OVERRIDE	1

/* XIO_UNCONFINED_* of the interface */
#define ROCM_XIO_GAP_GROUP	(1 << 1)
#define ROCM_XIO_GAP_INTERRUPTS	(1 << 2)
#define ROCM_XIO_GAP_RESERVED	(1 << 3)

int rocm_xio_claim(void);
bool rocm_xio_unsafe_direct(void);
u32 rocm_xio_max_client_mb(void);
u32 rocm_xio_max_user_mb(void);
u32 rocm_xio_max_client_queues(void);
u32 rocm_xio_command_timeout_s(void);
bool rocm_xio_has_driver_override(struct device *dev);
u32 rocm_xio_pci_domain(struct pci_dev *pdev);
u8 rocm_xio_pci_bus(struct pci_dev *pdev);
int rocm_xio_numa_node(struct device *dev);
struct page *rocm_xio_alloc_pages(int node, unsigned int order, bool optional);
void rocm_xio_put_page(struct page *page);
void *rocm_xio_page_address(struct page *page);
struct page *rocm_xio_page_after(struct page *page, size_t n);
bool rocm_xio_dma_is_coherent(struct device *dev, struct sg_table *sgt);
size_t rocm_xio_dma_addrs(struct sg_table *sgt, size_t first, u64 *addrs, size_t n);
bool rocm_xio_is_peer(struct device *dev, const u64 *addrs, size_t n);
bool rocm_xio_is_revocable(struct dma_buf_attachment *attachment);
struct dma_buf *rocm_xio_export(const struct dma_buf_ops *ops, size_t len, void *priv);
int rocm_xio_export_fd(struct dma_buf *dmabuf);
struct dma_fence *rocm_xio_fence(void);
void rocm_xio_put_fence(struct dma_fence *fence);
int rocm_xio_add_fence(struct dma_resv *resv, struct dma_fence *fence);
struct sg_table *rocm_xio_map_pages(struct device *dev, struct page **pages, size_t n,
				    enum dma_data_direction dir);
void rocm_xio_unmap_pages(struct device *dev, struct sg_table *sgt, enum dma_data_direction dir);
u64 rocm_xio_bar_bus_address(struct pci_dev *pdev, int bar);
void rocm_xio_clear_io(void *at, size_t n);
void rocm_xio_iommu_flush(struct device *dev);
pgprot_t rocm_xio_pgprot_uncached(pgprot_t prot);
unsigned long rocm_xio_msecs_to_jiffies(unsigned int ms);
bool rocm_xio_account_pinned(struct mm_struct *mm, u64 pages);
void rocm_xio_unaccount_pinned(struct mm_struct *mm, u64 pages);
int rocm_xio_lock_killable(struct mutex *lock);
bool rocm_xio_signal_pending(void);
bool rocm_xio_put_off_task_work(void);
void rocm_xio_resume_task_work(void);
u32 rocm_xio_uring_op(struct io_uring_cmd *cmd);
u64 rocm_xio_uring_argument(struct io_uring_cmd *cmd);
struct file *rocm_xio_uring_file(struct io_uring_cmd *cmd);
bool rocm_xio_uring_must_not_block(unsigned int issue_flags);
bool rocm_xio_uring_is_cancel(unsigned int issue_flags);
void rocm_xio_uring_mark_cancelable(struct io_uring_cmd *cmd, unsigned int issue_flags);
void rocm_xio_uring_fail(struct io_uring_cmd *cmd, int error, unsigned int issue_flags);
void rocm_xio_uring_complete(struct io_uring_cmd *cmd, void *data, int (*finish)(void *data, bool dead));
u32 rocm_xio_iommu_gaps(struct device *dev);
int rocm_xio_use_unconfined(void);
void rocm_xio_set_master(struct device *dev, bool on);
bool rocm_xio_has_memory_bar(struct pci_dev *pdev, int bar);
struct dentry *rocm_xio_debugfs_create(const char *name, void *xio);
void rocm_xio_debugfs_remove(struct dentry *dir);
void rocm_xio_trace_submit(u32 device, u16 qid, u64 client, const u8 *sqe);
void rocm_xio_trace_complete(u32 device, u64 client, const u8 *cqe, u64 us);
void rocm_xio_trace_state(u32 device, u32 state, u32 reset, u32 resets);

/* Written in Rust. */
void rocm_xio_counters(struct seq_file *m, void *xio);
void rocm_xio_objects(struct seq_file *m, void *xio);

#endif
