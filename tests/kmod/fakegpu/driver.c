// SPDX-License-Identifier: GPL-2.0
/* The PCI function and the device node, and their ends in any order. */
#include <linux/bitmap.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "fakegpu_priv.h"

/* How long importers may take to let go when the function ends. */
#define FG_END_LIMIT (10 * HZ)

static void fg_device_release(struct kref *kref)
{
	struct fg_device *fg = container_of(kref, struct fg_device, kref);

	bitmap_free(fg->used);
	kfree(fg);
}

void fg_device_put(struct fg_device *fg)
{
	kref_put(&fg->kref, fg_device_release);
}

static struct fg_device *fg_device_alloc(struct pci_dev *pdev)
{
	struct fg_device *fg = kzalloc_obj(*fg);

	if (!fg)
		return NULL;
	kref_init(&fg->kref);
	init_rwsem(&fg->life);
	mutex_init(&fg->lock);
	INIT_LIST_HEAD(&fg->exports);
	INIT_LIST_HEAD(&fg->imports);
	fg->pdev = pdev;
	fg->start = pci_resource_start(pdev, FG_BAR);
	fg->pages = min_t(u64, pci_resource_len(pdev, FG_BAR) >> PAGE_SHIFT, S32_MAX);
	fg->used = bitmap_zalloc(fg->pages, GFP_KERNEL);
	if (!fg->used) {
		kfree(fg);
		return NULL;
	}
	fg->misc = (struct miscdevice) {
		.minor = MISC_DYNAMIC_MINOR,
		.name = "fakegpu",
		.fops = &fg_fops,
		.parent = &pdev->dev,
		.mode = 0666,
	};
	return fg;
}

static int fg_start(struct fg_device *fg)
{
	struct pci_dev *pdev = fg->pdev;
	int ret = pcim_enable_device(pdev);

	if (ret)
		return ret;
	pci_set_master(pdev);
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	ret = pcim_p2pdma_init(pdev);
	if (ret)
		return ret;
	fg->bar = pcim_iomap_region(pdev, FG_BAR, "fakegpu");
	if (IS_ERR(fg->bar))
		return PTR_ERR(fg->bar);
	return misc_register(&fg->misc);
}

static int fg_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct fg_device *fg;
	int ret;

	if (!(pci_resource_flags(pdev, FG_BAR) & IORESOURCE_MEM) || !pci_resource_len(pdev, FG_BAR))
		return -ENODEV;
	fg = fg_device_alloc(pdev);
	if (!fg)
		return -ENOMEM;
	ret = fg_start(fg);
	if (ret) {
		fg_device_put(fg);
		return ret;
	}
	pci_set_drvdata(pdev, fg);
	return 0;
}

/* An export that is not on its way out already, with a reference; each is given once. */
static struct fg_buffer *fg_next_export(struct fg_device *fg)
{
	struct fg_buffer *buffer;

	guard(mutex)(&fg->lock);
	list_for_each_entry(buffer, &fg->exports, node) {
		if (!get_file_active(&buffer->dmabuf->file))
			continue;
		list_del_init(&buffer->node);
		return buffer;
	}
	return NULL;
}

/* Nothing may be mapped when the memory is no longer ours, which is after remove. */
static void fg_end_exports(struct fg_device *fg)
{
	struct fg_buffer *buffer;

	while ((buffer = fg_next_export(fg))) {
		int ret = fg_buffer_revoke(buffer, FG_END_LIMIT);

		WARN(ret, "an importer did not let go of a buffer: %d\n", ret);
		dma_buf_put(buffer->dmabuf);
	}
}

static void fg_remove(struct pci_dev *pdev)
{
	struct fg_device *fg = pci_get_drvdata(pdev);
	struct fg_import *import;

	misc_deregister(&fg->misc);
	down_write(&fg->life);
	fg->dead = true;
	/* Nobody adds or removes imports meanwhile. */
	list_for_each_entry(import, &fg->imports, node)
		fg_import_end(import);
	fg_end_exports(fg);
	up_write(&fg->life);
	fg_device_put(fg);
}

static const struct pci_device_id fg_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};

static struct pci_driver fg_driver = {
	.name = "fakegpu",
	.id_table = fg_ids,
	.probe = fg_probe,
	.remove = fg_remove,
};
module_pci_driver(fg_driver);

MODULE_DESCRIPTION("Stand-in for a GPU driver, for tests of dma-buf sharing");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
