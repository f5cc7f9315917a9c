// SPDX-License-Identifier: GPL-2.0
/* Exports: memory of the fake GPU that others reach through a dma-buf. */
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>

#include "fakegpu_priv.h"

static bool fg_is_system(const struct fg_buffer *buffer)
{
	return buffer->flags & FAKEGPU_EXPORT_SYSTEM;
}

/* Whether the importer's device reaches the BAR; others must do with system memory. */
static bool fg_reaches(struct fg_device *fg, struct device *importer)
{
	return pci_p2pdma_distance(fg->pdev, importer, false) >= 0;
}

static int fg_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct fg_buffer *buffer = dmabuf->priv;

	if (READ_ONCE(buffer->revoked))
		return -ENODEV;
	if (fg_is_system(buffer))
		attach->peer2peer = false;
	else if (!attach->peer2peer || !fg_reaches(buffer->fg, attach->dev))
		return -EOPNOTSUPP;
	if (!(buffer->flags & FAKEGPU_EXPORT_ANY_IMPORTER) && !dma_buf_attach_revocable(attach))
		return -EOPNOTSUPP;
	scoped_guard(mutex, &buffer->fg->lock)
		buffer->attachments++;
	return 0;
}

static void fg_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct fg_buffer *buffer = dmabuf->priv;

	guard(mutex)(&buffer->fg->lock);
	buffer->attachments--;
}

static int fg_pin(struct dma_buf_attachment *attach)
{
	struct fg_buffer *buffer = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (buffer->flags & FAKEGPU_EXPORT_REFUSE_PIN)
		return -EOPNOTSUPP;
	if (buffer->revoked)
		return -ENODEV;
	buffer->pinned++;
	return 0;
}

static void fg_unpin(struct dma_buf_attachment *attach)
{
	struct fg_buffer *buffer = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	buffer->pinned--;
}

static struct sg_table *fg_map_system(struct dma_buf_attachment *attach, struct fg_place *place,
				      enum dma_data_direction dir)
{
	struct sg_table *sgt __free(kfree) = kzalloc_obj(*sgt);
	int ret;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table_from_pages(sgt, place->pages, place->chunks, 0, place->len, GFP_KERNEL);
	if (ret)
		return ERR_PTR(ret);
	/* The same pages may be mapped by several imports at once. */
	ret = dma_map_sgtable(attach->dev, sgt, dir, DMA_ATTR_REQUIRE_COHERENT);
	if (ret) {
		sg_free_table(sgt);
		return ERR_PTR(ret);
	}
	return no_free_ptr(sgt);
}

static unsigned long fg_map_attrs(const struct fg_buffer *buffer)
{
	return buffer->flags & FAKEGPU_EXPORT_AS_RAM ? 0 : DMA_ATTR_MMIO;
}

static void fg_unmap_video(struct dma_buf_attachment *attach, struct sg_table *sgt, u32 count,
			   enum dma_data_direction dir)
{
	unsigned long attrs = fg_map_attrs(attach->dmabuf->priv);
	struct scatterlist *sg;
	u32 i;

	for_each_sg(sgt->sgl, sg, count, i)
		dma_unmap_phys(attach->dev, sg_dma_address(sg), sg_dma_len(sg), dir, attrs);
	sg_free_table(sgt);
}

/*
 * An entry for each chunk, as amdgpu makes them, and no struct page. (dma_buf_phys_vec_to_sgt() of Linux 7.3 puts all
 * ranges at the same place behind an IOMMU.)
 */
static struct sg_table *fg_map_video(struct dma_buf_attachment *attach, struct fg_place *place,
				     enum dma_data_direction dir)
{
	struct sg_table *sgt __free(kfree) = kzalloc_obj(*sgt);
	unsigned long attrs = fg_map_attrs(attach->dmabuf->priv);
	struct scatterlist *sg;
	int ret;
	u32 i;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(sgt, place->chunks, GFP_KERNEL);
	if (ret)
		return ERR_PTR(ret);
	for_each_sg(sgt->sgl, sg, place->chunks, i) {
		size_t len = place->vec[i].len;
		dma_addr_t addr = dma_map_phys(attach->dev, place->vec[i].paddr, len, dir, attrs);

		if (dma_mapping_error(attach->dev, addr)) {
			fg_unmap_video(attach, sgt, i, dir);
			return ERR_PTR(-EIO);
		}
		sg_set_page(sg, NULL, len, 0);
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = len;
	}
	return no_free_ptr(sgt);
}

static struct sg_table *fg_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct fg_buffer *buffer = attach->dmabuf->priv;
	struct fg_place *place = &buffer->place;
	struct sg_table *sgt;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (buffer->revoked)
		return ERR_PTR(-ENODEV);
	if (fg_is_system(buffer))
		sgt = fg_map_system(attach, place, dir);
	else
		sgt = fg_map_video(attach, place, dir);
	if (!IS_ERR(sgt))
		buffer->mapped++;
	return sgt;
}

static void fg_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction dir)
{
	struct fg_buffer *buffer = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (fg_is_system(buffer)) {
		dma_unmap_sgtable(attach->dev, sgt, dir, DMA_ATTR_REQUIRE_COHERENT);
		sg_free_table(sgt);
	} else {
		fg_unmap_video(attach, sgt, sgt->orig_nents, dir);
	}
	kfree(sgt);
	WRITE_ONCE(buffer->mapped, buffer->mapped - 1);
	wake_up_all(&buffer->idle);
}

static void fg_buffer_free(struct fg_buffer *buffer)
{
	struct fg_device *fg = buffer->fg;

	scoped_guard(mutex, &fg->lock) {
		list_del(&buffer->node);
		fg->export_count--;
	}
	fg_place_free(fg, &buffer->place);
	kfree(buffer);
	fg_device_put(fg);
}

static void fg_release(struct dma_buf *dmabuf)
{
	fg_buffer_free(dmabuf->priv);
}

static const struct dma_buf_ops fg_dma_buf_ops = {
	.attach = fg_attach,
	.detach = fg_detach,
	.pin = fg_pin,
	.unpin = fg_unpin,
	.map_dma_buf = fg_map,
	.unmap_dma_buf = fg_unmap,
	.release = fg_release,
};

static int fg_buffer_place(struct fg_buffer *buffer, struct fg_place *place, u64 len, u32 chunk_pages, u32 seed)
{
	if (fg_is_system(buffer))
		return fg_place_alloc_system(place, len);
	return fg_place_alloc(buffer->fg, place, len, chunk_pages, seed);
}

static struct fg_buffer *fg_buffer_alloc(struct fg_device *fg, const struct fakegpu_export *arg)
{
	struct fg_buffer *buffer __free(kfree) = kzalloc_obj(*buffer);
	int ret;

	if (!buffer)
		return ERR_PTR(-ENOMEM);
	buffer->fg = fg;
	buffer->flags = arg->flags;
	mutex_init(&buffer->moving);
	init_waitqueue_head(&buffer->idle);
	ret = fg_buffer_place(buffer, &buffer->place, arg->len, arg->chunk_pages, arg->seed);
	if (ret)
		return ERR_PTR(ret);
	kref_get(&fg->kref);
	scoped_guard(mutex, &fg->lock) {
		list_add_tail(&buffer->node, &fg->exports);
		fg->export_count++;
	}
	return no_free_ptr(buffer);
}

/* The dma-buf owns the buffer; the caller has a reference. The device is not dead meanwhile. */
struct fg_buffer *fg_buffer_create(struct fg_device *fg, const struct fakegpu_export *arg)
{
	const u32 known = FAKEGPU_EXPORT_SYSTEM | FAKEGPU_EXPORT_REFUSE_PIN | FAKEGPU_EXPORT_MOVABLE |
			  FAKEGPU_EXPORT_ANY_IMPORTER | FAKEGPU_EXPORT_AS_RAM;
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct fg_buffer *buffer;
	struct dma_buf *dmabuf;

	if (!arg->len || !PAGE_ALIGNED(arg->len) || arg->len > (u64)fg->pages << PAGE_SHIFT)
		return ERR_PTR(-EINVAL);
	if (!arg->chunk_pages || arg->chunk_pages > fg->pages || arg->flags & ~known || arg->reserved)
		return ERR_PTR(-EINVAL);
	buffer = fg_buffer_alloc(fg, arg);
	if (IS_ERR(buffer))
		return buffer;
	info.ops = &fg_dma_buf_ops;
	info.size = arg->len;
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = buffer;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		fg_buffer_free(buffer);
		return ERR_CAST(dmabuf);
	}
	scoped_guard(mutex, &fg->lock)
		buffer->dmabuf = dmabuf;
	return buffer;
}

int fg_buffer_access(struct fg_buffer *buffer, u64 offset, void *bytes, size_t len, bool write)
{
	struct dma_resv *resv = buffer->dmabuf->resv;
	int ret = dma_resv_lock_interruptible(resv, NULL);

	if (ret)
		return ret;
	if (offset > buffer->place.len || len > buffer->place.len - offset)
		ret = -EINVAL;
	else
		fg_place_copy(buffer->fg, &buffer->place, offset, bytes, len, write);
	dma_resv_unlock(resv);
	return ret;
}

/*
 * Tells all importers to let go and waits until they have: first for what devices are doing (fences), then for the
 * unmapping. From then on nobody can map it. A failure leaves it revoked.
 */
int fg_buffer_revoke(struct fg_buffer *buffer, long timeout)
{
	struct dma_resv *resv = buffer->dmabuf->resv;
	long left;

	dma_resv_lock(resv, NULL);
	WRITE_ONCE(buffer->revoked, true);
	buffer->invalidations++;
	dma_buf_invalidate_mappings(buffer->dmabuf);
	left = dma_resv_wait_timeout(resv, DMA_RESV_USAGE_BOOKKEEP, true, timeout);
	dma_resv_unlock(resv);
	if (left > 0)
		left = wait_event_killable_timeout(buffer->idle, !READ_ONCE(buffer->mapped), left);
	if (left > 0)
		return 0;
	return left ?: -ETIMEDOUT;
}

static void fg_buffer_unrevoke(struct fg_buffer *buffer)
{
	dma_resv_lock(buffer->dmabuf->resv, NULL);
	WRITE_ONCE(buffer->revoked, false);
	dma_resv_unlock(buffer->dmabuf->resv);
}

static void fg_place_move(struct fg_device *fg, const struct fg_place *to, const struct fg_place *from, void *bounce)
{
	u64 offset;

	for (offset = 0; offset < from->len; offset += PAGE_SIZE) {
		fg_place_copy(fg, from, offset, bounce, PAGE_SIZE, false);
		fg_place_copy(fg, to, offset, bounce, PAGE_SIZE, true);
	}
}

/* It is revoked and nothing is mapped. */
static int fg_buffer_move(struct fg_buffer *buffer, u32 seed)
{
	void *bounce __free(kfree) = kmalloc(PAGE_SIZE, GFP_KERNEL);
	struct fg_place place;
	int ret;

	if (!bounce)
		return -ENOMEM;
	ret = fg_buffer_place(buffer, &place, buffer->place.len, buffer->place.chunk_pages, seed);
	if (ret)
		return ret;
	dma_resv_lock(buffer->dmabuf->resv, NULL);
	fg_place_move(buffer->fg, &place, &buffer->place, bounce);
	swap(place, buffer->place);
	dma_resv_unlock(buffer->dmabuf->resv);
	/* So that whoever still reaches it is found out. */
	memset(bounce, 0xee, PAGE_SIZE);
	for (u64 offset = 0; offset < place.len; offset += PAGE_SIZE)
		fg_place_copy(buffer->fg, &place, offset, bounce, PAGE_SIZE, true);
	fg_place_free(buffer->fg, &place);
	return 0;
}

int fg_buffer_invalidate(struct fg_buffer *buffer, const struct fakegpu_invalidate *arg)
{
	bool move = arg->flags & FAKEGPU_INVALIDATE_MOVE;
	int ret;

	if (arg->flags & ~(FAKEGPU_INVALIDATE_MOVE | FAKEGPU_INVALIDATE_REVOKE))
		return -EINVAL;
	if (move && !(buffer->flags & FAKEGPU_EXPORT_MOVABLE))
		return -EINVAL;
	ret = mutex_lock_killable(&buffer->moving);
	if (ret)
		return ret;
	ret = fg_buffer_revoke(buffer, msecs_to_jiffies(arg->timeout_ms));
	if (!ret) {
		if (move)
			ret = fg_buffer_move(buffer, arg->seed);
		if (!(arg->flags & FAKEGPU_INVALIDATE_REVOKE))
			fg_buffer_unrevoke(buffer);
	}
	mutex_unlock(&buffer->moving);
	return ret;
}

void fg_buffer_stats(struct fg_buffer *buffer, struct fakegpu_stats *stats)
{
	dma_resv_lock(buffer->dmabuf->resv, NULL);
	stats->state = (buffer->revoked ? FAKEGPU_STATE_REVOKED : 0) | (fg_is_system(buffer) ? 0 : FAKEGPU_STATE_PEER);
	stats->mapped = buffer->mapped;
	stats->pinned = buffer->pinned;
	stats->invalidations = buffer->invalidations;
	stats->segments = buffer->place.chunks;
	dma_resv_unlock(buffer->dmabuf->resv);
	scoped_guard(mutex, &buffer->fg->lock)
		stats->attachments = buffer->attachments;
}
