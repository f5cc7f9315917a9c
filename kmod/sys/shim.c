// SPDX-License-Identifier: GPL-2.0
/*
 * What C keeps in macros and inline functions, and module parameters of kinds that the Rust macro lacks.
 */
#include <linux/capability.h>
#include <linux/debugfs.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/io_uring/cmd.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/seq_file.h>

#include "shim.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* Queues, buffers and PRP lists are counted in pages of 4 KiB. */
static_assert(PAGE_SIZE == 4096);

static char *claim = "auto";
module_param(claim, charp, 0444);
MODULE_PARM_DESC(claim, "which controllers to claim: auto (every NVMe Key Value controller without a driver), override (only devices whose driver_override names this module)");

static bool unsafe_direct;
module_param_unsafe(unsafe_direct, bool, 0444);
MODULE_PARM_DESC(unsafe_direct, "give direct queues to everybody who may open the device, also where no IOMMU confines it: such a client can read and write all of memory");

static bool unsafe_interrupts;
module_param_unsafe(unsafe_interrupts, bool, 0444);
MODULE_PARM_DESC(unsafe_interrupts, "give direct queues also where interrupts are not remapped: such a client can raise any interrupt");

static unsigned int max_client_mb = 1024;
module_param(max_client_mb, uint, 0444);
MODULE_PARM_DESC(max_client_mb, "limit on the memory of one client in MiB");

static unsigned int max_user_mb = 4096;
module_param(max_user_mb, uint, 0444);
MODULE_PARM_DESC(max_user_mb, "limit on the memory of all clients of one user on a controller in MiB");

static unsigned int max_client_queues = 16;
module_param(max_client_queues, uint, 0444);
MODULE_PARM_DESC(max_client_queues, "limit on the queues of one client");

static unsigned int command_timeout_s = 30;
module_param(command_timeout_s, uint, 0644);
MODULE_PARM_DESC(command_timeout_s, "seconds after which a command that the kernel submitted is aborted, its queue deleted, the controller reset");

int rocm_xio_claim(void)
{
	if (sysfs_streq(claim, "auto"))
		return ROCM_XIO_CLAIM_AUTO;
	if (sysfs_streq(claim, "override"))
		return ROCM_XIO_CLAIM_OVERRIDE;
	return -EINVAL;
}

bool rocm_xio_unsafe_direct(void)
{
	return unsafe_direct;
}

u32 rocm_xio_max_client_mb(void)
{
	return max_client_mb;
}

u32 rocm_xio_max_user_mb(void)
{
	return max_user_mb;
}

u32 rocm_xio_command_timeout_s(void)
{
	return READ_ONCE(command_timeout_s);
}

u32 rocm_xio_max_client_queues(void)
{
	return max_client_queues;
}

bool rocm_xio_has_driver_override(struct device *dev)
{
	return device_has_driver_override(dev);
}

u32 rocm_xio_pci_domain(struct pci_dev *pdev)
{
	return pci_domain_nr(pdev->bus);
}

u8 rocm_xio_pci_bus(struct pci_dev *pdev)
{
	return pdev->bus->number;
}

int rocm_xio_numa_node(struct device *dev)
{
	return dev_to_node(dev);
}

/* Pages of a block are split, so that each is counted, mapped and freed by itself. */
struct page *rocm_xio_alloc_pages(int node, unsigned int order, bool optional)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
	struct page *page;

	if (order)
		gfp |= __GFP_NOWARN | __GFP_NORETRY;
	/* Large blocks are taken where they are, never made. */
	if (order && optional)
		gfp &= ~__GFP_DIRECT_RECLAIM;
	page = alloc_pages_node(node, gfp, order);
	if (page && order)
		split_page(page, order);
	return page;
}


void rocm_xio_put_page(struct page *page)
{
	put_page(page);
}

void *rocm_xio_page_address(struct page *page)
{
	return page_address(page);
}

struct page *rocm_xio_page_after(struct page *page, size_t n)
{
	return page + n;
}

bool rocm_xio_dma_is_coherent(struct device *dev, struct sg_table *sgt)
{
#ifdef CONFIG_DMA_API_DEBUG
	/* There every mapping is said to need a sync, so that the debugging code sees it. */
	return dev_is_dma_coherent(dev);
#else
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(sgt, sg, i)
		if (dma_need_sync(dev, sg_dma_address(sg)))
			return false;
	return true;
#endif
}

/* Addresses of n pages from number `first` on; says how many there are. What is not whole pages ends them. */
size_t rocm_xio_dma_addrs(struct sg_table *sgt, size_t first, u64 *addrs, size_t n)
{
	struct scatterlist *sg;
	size_t found = 0;
	int i;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		dma_addr_t at = sg_dma_address(sg);
		size_t pages = sg_dma_len(sg) >> PAGE_SHIFT, page;

		if ((at | sg_dma_len(sg)) & ~PAGE_MASK)
			break;
		for (page = min(first, pages), first -= page; page < pages && found < n; page++)
			addrs[found++] = at + (page << PAGE_SHIFT);
	}
	return found;
}

/* Whether none of the pages is the system's memory. */
bool rocm_xio_is_peer(struct device *dev, const u64 *addrs, size_t n)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	size_t i;

	for (i = 0; i < n; i++) {
		phys_addr_t phys = domain ? iommu_iova_to_phys(domain, addrs[i]) : addrs[i];

		/* What is not translated is an address on the bus. */
		if (region_intersects(phys ?: addrs[i], PAGE_SIZE, IORESOURCE_SYSTEM_RAM,
				      IORES_DESC_NONE) != REGION_DISJOINT)
			return false;
	}
	return true;
}

bool rocm_xio_is_revocable(struct dma_buf_attachment *attachment)
{
	return dma_buf_attach_revocable(attachment);
}

/* A dma-buf of this module. */
struct dma_buf *rocm_xio_export(const struct dma_buf_ops *ops, size_t len, void *priv)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	info.ops = ops;
	info.size = len;
	info.flags = O_RDWR;
	info.priv = priv;
	return dma_buf_export(&info);
}

int rocm_xio_export_fd(struct dma_buf *dmabuf)
{
	int fd;

	get_dma_buf(dmabuf);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static const char *rocm_xio_fence_name(struct dma_fence *fence)
{
	return KBUILD_MODNAME;
}

/* Signalled fences keep no pointer to these, so that a fence may outlive the module. */
static const struct dma_fence_ops rocm_xio_fence_ops = {
	.get_driver_name = rocm_xio_fence_name,
	.get_timeline_name = rocm_xio_fence_name,
};

struct dma_fence *rocm_xio_fence(void)
{
	struct dma_fence *fence = kzalloc(sizeof(*fence), GFP_KERNEL);

	if (!fence)
		return ERR_PTR(-ENOMEM);
	dma_fence_init(fence, &rocm_xio_fence_ops, NULL, dma_fence_context_alloc(1), 1);
	return fence;
}

void rocm_xio_put_fence(struct dma_fence *fence)
{
	dma_fence_put(fence);
}

int rocm_xio_add_fence(struct dma_resv *resv, struct dma_fence *fence)
{
	int err = dma_resv_reserve_fences(resv, 1);

	if (!err)
		dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_BOOKKEEP);
	return err;
}

struct sg_table *rocm_xio_map_pages(struct device *dev, struct page **pages, size_t n,
				    enum dma_data_direction dir)
{
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	int err;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table_from_pages(sgt, pages, n, 0, n << PAGE_SHIFT, GFP_KERNEL);
	if (err)
		goto free;
	err = dma_map_sgtable(dev, sgt, dir, 0);
	if (!err)
		return sgt;
	sg_free_table(sgt);
free:
	kfree(sgt);
	return ERR_PTR(err);
}

void rocm_xio_unmap_pages(struct device *dev, struct sg_table *sgt, enum dma_data_direction dir)
{
	dma_unmap_sgtable(dev, sgt, dir, 0);
	rocm_xio_iommu_flush(dev);
	sg_free_table(sgt);
	kfree(sgt);
}

u64 rocm_xio_bar_bus_address(struct pci_dev *pdev, int bar)
{
	return pci_bus_address(pdev, bar);
}

void rocm_xio_clear_io(void *at, size_t n)
{
	memset_io((void __iomem __force *)at, 0, n);
}

/* Debian's default domain type flushes lazily; memory must not be freed before the flush. */
void rocm_xio_iommu_flush(struct device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (domain)
		iommu_flush_iotlb_all(domain);
}

pgprot_t rocm_xio_pgprot_uncached(pgprot_t prot)
{
	return pgprot_noncached(prot);
}

unsigned long rocm_xio_msecs_to_jiffies(unsigned int ms)
{
	return msecs_to_jiffies(ms);
}

/* Long-term pins count in mm->pinned_vm, as those of RDMA and io_uring do. */
bool rocm_xio_account_pinned(struct mm_struct *mm, u64 pages)
{
	u64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	u64 pinned = atomic64_add_return(pages, &mm->pinned_vm);

	if (pinned <= limit || capable(CAP_IPC_LOCK))
		return true;
	atomic64_sub(pages, &mm->pinned_vm);
	return false;
}

void rocm_xio_unaccount_pinned(struct mm_struct *mm, u64 pages)
{
	atomic64_sub(pages, &mm->pinned_vm);
}

int rocm_xio_lock_killable(struct mutex *lock)
{
	return mutex_lock_killable(lock);
}

bool rocm_xio_signal_pending(void)
{
	return task_sigpending(current);
}

/* Whether there was a notice of task work. */
bool rocm_xio_put_off_task_work(void)
{
	bool noticed = test_thread_flag(TIF_NOTIFY_SIGNAL);

	clear_notify_signal();
	return noticed;
}

void rocm_xio_resume_task_work(void)
{
	set_thread_flag(TIF_NOTIFY_SIGNAL);
}

/* What an io_uring command keeps until it is done. */
struct rocm_xio_uring {
	void *data;
	int (*finish)(void *data, bool dead);
};

u32 rocm_xio_uring_op(struct io_uring_cmd *cmd)
{
	return cmd->cmd_op;
}

u64 rocm_xio_uring_argument(struct io_uring_cmd *cmd)
{
	return READ_ONCE(*io_uring_sqe_cmd(cmd->sqe, u64));
}

struct file *rocm_xio_uring_file(struct io_uring_cmd *cmd)
{
	return cmd->file;
}

bool rocm_xio_uring_must_not_block(unsigned int issue_flags)
{
	return issue_flags & IO_URING_F_NONBLOCK;
}

bool rocm_xio_uring_is_cancel(unsigned int issue_flags)
{
	return issue_flags & IO_URING_F_CANCEL;
}

void rocm_xio_uring_mark_cancelable(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	io_uring_cmd_mark_cancelable(cmd, issue_flags);
}

void rocm_xio_uring_fail(struct io_uring_cmd *cmd, int error, unsigned int issue_flags)
{
	io_uring_cmd_done(cmd, error, issue_flags);
}

static void rocm_xio_uring_task_work(struct io_tw_req tw_req, io_tw_token_t tw)
{
	struct io_uring_cmd *cmd = io_uring_cmd_from_tw(tw_req);
	struct rocm_xio_uring *kept = io_uring_cmd_to_pdu(cmd, struct rocm_xio_uring);
	int ret = kept->finish(kept->data, tw.cancel);

	io_uring_cmd_done(cmd, ret, IO_URING_CMD_TASK_WORK_ISSUE_FLAGS);
}

/* Runs finish(data) in the task that issued the command, then completes it. */
void rocm_xio_uring_complete(struct io_uring_cmd *cmd, void *data, int (*finish)(void *data, bool dead))
{
	struct rocm_xio_uring *kept = io_uring_cmd_to_pdu(cmd, struct rocm_xio_uring);

	kept->data = data;
	kept->finish = finish;
	io_uring_cmd_complete_in_task(cmd, rocm_xio_uring_task_work);
}

static int rocm_xio_count_device(struct device *dev, void *count)
{
	++*(unsigned int *)count;
	return 0;
}

/* What, beside translation, vfio asks of an IOMMU before it lets user space program a device. */
u32 rocm_xio_iommu_gaps(struct device *dev)
{
	struct iommu_group *group = iommu_group_get(dev);
	struct iommu_resv_region *region;
	unsigned int devices = 0;
	LIST_HEAD(regions);
	u32 gaps = 0;

	if (!group)
		return ROCM_XIO_GAP_GROUP | ROCM_XIO_GAP_INTERRUPTS;
	iommu_group_for_each_dev(group, &devices, rocm_xio_count_device);
	if (devices != 1)
		gaps |= ROCM_XIO_GAP_GROUP;
	if (!unsafe_interrupts && !iommu_group_has_isolated_msi(group))
		gaps |= ROCM_XIO_GAP_INTERRUPTS;
	iommu_get_resv_regions(dev, &regions);
	list_for_each_entry(region, &regions, list)
		if (region->type == IOMMU_RESV_DIRECT)
			gaps |= ROCM_XIO_GAP_RESERVED;
	iommu_put_resv_regions(dev, &regions);
	iommu_group_put(group);
	return gaps;
}

/* A device that nothing confines reaches all of memory: not in a locked-down kernel, and not without a trace. */
int rocm_xio_use_unconfined(void)
{
	int err = security_locked_down(LOCKDOWN_PCI_ACCESS);

	if (err)
		return err;
	pr_warn_once("rocm_xio: direct queues of a device that no IOMMU confines are in use\n");
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	return 0;
}

void rocm_xio_set_master(struct device *dev, bool on)
{
	if (on)
		pci_set_master(to_pci_dev(dev));
	else
		pci_clear_master(to_pci_dev(dev));
}

bool rocm_xio_has_memory_bar(struct pci_dev *pdev, int bar)
{
	return pci_resource_flags(pdev, bar) & IORESOURCE_MEM;
}

void rocm_xio_trace_submit(u32 device, u16 qid, u64 client, const u8 *sqe)
{
	trace_rocm_xio_submit(device, qid, client, sqe);
}

void rocm_xio_trace_complete(u32 device, u64 client, const u8 *cqe, u64 us)
{
	trace_rocm_xio_complete(device, client, cqe, us);
}

void rocm_xio_trace_state(u32 device, u32 state, u32 reset, u32 resets)
{
	trace_rocm_xio_state(device, state, reset, resets);
}

static int rocm_xio_counters_show(struct seq_file *m, void *unused)
{
	rocm_xio_counters(m, m->private);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(rocm_xio_counters);

static int rocm_xio_objects_show(struct seq_file *m, void *unused)
{
	rocm_xio_objects(m, m->private);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(rocm_xio_objects);

/* A file of C, since those of Rust do not keep the module while they are open. */
struct dentry *rocm_xio_debugfs_create(const char *name, void *xio)
{
	struct dentry *dir = debugfs_create_dir(name, NULL);

	debugfs_create_file("counters", 0400, dir, xio, &rocm_xio_counters_fops);
	debugfs_create_file("objects", 0400, dir, xio, &rocm_xio_objects_fops);
	return dir;
}

/* Waits for readers. */
void rocm_xio_debugfs_remove(struct dentry *dir)
{
	debugfs_remove(dir);
}
