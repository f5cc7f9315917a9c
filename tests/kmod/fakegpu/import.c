// SPDX-License-Identifier: GPL-2.0
/* Imports: memory of others that the fake GPU reaches. It knows DMA addresses; the CPU plays the GPU's part. */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "fakegpu_priv.h"

#define FG_LATE msecs_to_jiffies(200)

/* The physical address that a device reaches at a DMA address. Peers' bus addresses bypass the IOMMU. */
static phys_addr_t fg_phys(struct device *dev, dma_addr_t addr)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	phys_addr_t phys = domain ? iommu_iova_to_phys(domain, addr) : 0;

	return phys ?: addr;
}

static void fg_add(struct fg_import *import, phys_addr_t phys, u64 offset, u64 len)
{
	struct fg_run *last = import->run_count ? &import->runs[import->run_count - 1] : NULL;
	bool mmio = !page_is_ram(PHYS_PFN(phys));

	if (last && last->mmio == mmio && last->phys + last->len == phys)
		last->len += len;
	else
		import->runs[import->run_count++] = (struct fg_run) {
			.phys = phys, .offset = offset, .len = len, .mmio = mmio,
		};
}

/* The caller unmaps on failure. */
static int fg_map_runs(struct fg_import *import)
{
	u32 i;

	for (i = 0; i < import->run_count; i++) {
		struct fg_run *run = &import->runs[i];

		if (run->mmio)
			run->io = ioremap(run->phys, run->len);
		else
			run->ram = memremap(run->phys, run->len, MEMREMAP_WB);
		if (!run->io && !run->ram)
			return -ENOMEM;
	}
	return 0;
}

static void fg_unmap_runs(struct fg_import *import)
{
	u32 i;

	for (i = 0; i < import->run_count; i++) {
		if (import->runs[i].io)
			iounmap(import->runs[i].io);
		if (import->runs[i].ram)
			memunmap(import->runs[i].ram);
	}
	kvfree(import->runs);
	import->runs = NULL;
	import->run_count = 0;
}

static int fg_find_runs(struct fg_import *import)
{
	u64 offset = 0;
	struct scatterlist *sg;
	int i;

	/* At most a run for each page, and one more where an entry does not begin at one. */
	import->runs = kvcalloc(PFN_UP(import->attach->dmabuf->size) + import->sgt->nents,
				sizeof(*import->runs), GFP_KERNEL);
	if (!import->runs)
		return -ENOMEM;
	for_each_sgtable_dma_sg(import->sgt, sg, i) {
		dma_addr_t addr = sg_dma_address(sg), end = addr + sg_dma_len(sg);

		while (addr < end) {
			u64 len = min_t(u64, end - addr, PAGE_SIZE - offset_in_page(addr));

			fg_add(import, fg_phys(import->dev, addr), offset, len);
			addr += len;
			offset += len;
		}
	}
	return fg_map_runs(import);
}

/* A pin has no purpose without a mapping. */
static void fg_import_unmap(struct fg_import *import)
{
	dma_resv_assert_held(import->attach->dmabuf->resv);
	if (import->sgt) {
		fg_unmap_runs(import);
		dma_buf_unmap_attachment(import->attach, import->sgt, DMA_BIDIRECTIONAL);
		import->sgt = NULL;
	}
	if (import->pinned)
		dma_buf_unpin(import->attach);
	import->pinned = false;
}

/* The exporter holds the reservation lock, and waits for the unmapping. */
static void fg_invalidate(struct dma_buf_attachment *attach)
{
	struct fg_import *import = attach->importer_priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	import->invalidations++;
	import->revoked = true;
	if (import->flags & FAKEGPU_IMPORT_STUBBORN || !import->sgt)
		return;
	if (import->flags & FAKEGPU_IMPORT_LATE)
		schedule_delayed_work(&import->late, FG_LATE);
	else
		fg_import_unmap(import);
}

static const struct dma_buf_attach_ops fg_attach_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = fg_invalidate,
};

static void fg_late(struct work_struct *work)
{
	struct fg_import *import = container_of(to_delayed_work(work), struct fg_import, late);
	struct dma_resv *resv = import->attach->dmabuf->resv;

	dma_resv_lock(resv, NULL);
	fg_import_unmap(import);
	dma_resv_unlock(resv);
}

static int fg_import_map_locked(struct fg_import *import)
{
	struct dma_buf_attachment *attach = import->attach;
	struct sg_table *sgt;
	int ret;

	if (import->flags & FAKEGPU_IMPORT_PIN) {
		ret = dma_buf_pin(attach);
		if (ret)
			return ret;
		import->pinned = true;
	}
	/* Invalidations before this concern nothing that exists. */
	import->revoked = false;
	sgt = dma_buf_map_attachment(attach, DMA_BIDIRECTIONAL);
	if (IS_ERR(sgt))
		return PTR_ERR(sgt);
	import->sgt = sgt;
	/* What the exporter is still moving. */
	ret = dma_resv_wait_timeout(attach->dmabuf->resv, DMA_RESV_USAGE_KERNEL, true, 10 * HZ);
	if (ret <= 0)
		return ret ?: -ETIMEDOUT;
	return fg_find_runs(import);
}

static int fg_import_map(struct fg_import *import)
{
	struct dma_resv *resv = import->attach->dmabuf->resv;
	int ret = dma_resv_lock_interruptible(resv, NULL);

	if (ret)
		return ret;
	ret = fg_import_map_locked(import);
	dma_resv_unlock(resv);
	return ret;
}

static int fg_import_attach(struct fg_import *import, int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct dma_buf_attachment *attach;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (import->flags & FAKEGPU_IMPORT_STATIC)
		attach = dma_buf_attach(dmabuf, import->dev);
	else
		attach = dma_buf_dynamic_attach(dmabuf, import->dev, &fg_attach_ops, import);
	if (IS_ERR(attach)) {
		dma_buf_put(dmabuf);
		return PTR_ERR(attach);
	}
	import->attach = attach;
	return 0;
}

/* Lets go of the memory; what remains is the number. */
void fg_import_end(struct fg_import *import)
{
	struct dma_buf_attachment *attach = import->attach;
	struct dma_buf *dmabuf;

	if (!attach)
		return;
	dmabuf = attach->dmabuf;
	dma_resv_lock(dmabuf->resv, NULL);
	fg_import_unmap(import);
	dma_resv_unlock(dmabuf->resv);
	/* With nothing mapped, nothing is scheduled any more. */
	cancel_delayed_work_sync(&import->late);
	dma_buf_detach(dmabuf, attach);
	import->attach = NULL;
	dma_buf_put(dmabuf);
}

void fg_import_free(struct fg_import *import)
{
	struct fg_device *fg = import->fg;

	fg_import_end(import);
	scoped_guard(mutex, &fg->lock) {
		list_del(&import->node);
		fg->import_count--;
	}
	put_device(import->dev);
	kfree(import);
	fg_device_put(fg);
}

/* A reference to the device that an import is for. */
static struct device *fg_import_device(struct fg_device *fg, u32 device)
{
	struct pci_dev *pdev;

	if (device == FAKEGPU_ANYWHERE)
		return get_device(&fg->pdev->dev);
	pdev = pci_get_domain_bus_and_slot(device >> 16, (device >> 8) & 0xff, device & 0xff);
	return pdev ? &pdev->dev : NULL;
}

static struct fg_import *fg_import_alloc(struct fg_device *fg, const struct fakegpu_import *arg)
{
	struct fg_import *import __free(kfree) = kzalloc_obj(*import);

	if (!import)
		return ERR_PTR(-ENOMEM);
	import->dev = fg_import_device(fg, arg->device);
	if (!import->dev)
		return ERR_PTR(-ENXIO);
	import->fg = fg;
	import->flags = arg->flags;
	INIT_DELAYED_WORK(&import->late, fg_late);
	kref_get(&fg->kref);
	scoped_guard(mutex, &fg->lock) {
		list_add_tail(&import->node, &fg->imports);
		fg->import_count++;
	}
	return no_free_ptr(import);
}

/* The device is not dead meanwhile. */
struct fg_import *fg_import_create(struct fg_device *fg, const struct fakegpu_import *arg)
{
	const u32 known = FAKEGPU_IMPORT_STATIC | FAKEGPU_IMPORT_PIN | FAKEGPU_IMPORT_STUBBORN | FAKEGPU_IMPORT_LATE;
	struct fg_import *import;
	int ret;

	if (arg->flags & ~known)
		return ERR_PTR(-EINVAL);
	/* The core pins for static importers. */
	if (arg->flags & FAKEGPU_IMPORT_STATIC && arg->flags & FAKEGPU_IMPORT_PIN)
		return ERR_PTR(-EINVAL);
	import = fg_import_alloc(fg, arg);
	if (IS_ERR(import))
		return import;
	ret = fg_import_attach(import, arg->fd);
	if (!ret)
		ret = fg_import_map(import);
	if (ret) {
		fg_import_free(import);
		return ERR_PTR(ret);
	}
	return import;
}

static void fg_runs_copy(struct fg_import *import, u64 offset, void *bytes, size_t len, bool write)
{
	u32 i;

	for (i = 0; len && i < import->run_count; i++) {
		struct fg_run *run = &import->runs[i];
		u64 in_run = offset - run->offset;
		size_t piece;

		if (in_run >= run->len)
			continue;
		piece = min_t(u64, len, run->len - in_run);
		if (run->mmio)
			fg_copy_io(run->io + in_run, bytes, piece, write);
		else
			fg_copy_ram(run->ram + in_run, bytes, piece, write);
		offset += piece;
		bytes += piece;
		len -= piece;
	}
}

int fg_import_access(struct fg_import *import, u64 offset, void *bytes, size_t len, bool write)
{
	struct dma_buf *dmabuf = import->attach->dmabuf;
	int ret = dma_resv_lock_interruptible(dmabuf->resv, NULL);

	if (ret)
		return ret;
	if (import->revoked || !import->sgt)
		ret = -ENODEV;
	else if (offset > dmabuf->size || len > dmabuf->size - offset)
		ret = -EINVAL;
	else
		fg_runs_copy(import, offset, bytes, len, write);
	dma_resv_unlock(dmabuf->resv);
	return ret;
}

void fg_import_stats(struct fg_import *import, struct fakegpu_stats *stats)
{
	struct dma_buf *dmabuf = import->attach->dmabuf;
	u32 i;

	dma_resv_lock(dmabuf->resv, NULL);
	stats->state = (import->revoked ? FAKEGPU_STATE_REVOKED : 0) |
		       (import->attach->peer2peer ? FAKEGPU_STATE_PEER : 0);
	stats->mapped = import->sgt ? 1 : 0;
	stats->pinned = import->pinned;
	stats->invalidations = import->invalidations;
	stats->segments = import->run_count;
	for (i = 0; i < import->run_count; i++)
		stats->mmio_segments += import->runs[i].mmio;
	dma_resv_unlock(dmabuf->resv);
}
