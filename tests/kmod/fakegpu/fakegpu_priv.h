/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for a GPU driver. Its video memory is BAR 2 of QEMU's ivshmem-plain, which QEMU shares with the
 * software controllers like RAM, so that they reach it as a disk reaches a GPU's memory.
 *
 *   driver.c    the PCI function and the device node, and their ends in any order
 *   requests.c  the ioctls and the numbers that they name things by
 *   place.c     where bytes are: chunks of video memory, or system pages
 *   buffer.c    exports: memory shared with others as a dma-buf
 *   import.c    imports: memory of others that the GPU reaches
 *
 * Locks, outer first: fg_device.life, fg_buffer.moving, the dma-buf's reservation lock, fg_device.lock.
 */
#ifndef FAKEGPU_PRIV_H
#define FAKEGPU_PRIV_H

#include <linux/dma-buf.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "fakegpu.h"

#define FG_BAR 2

/* Outlives the driver's hold on the function, for open files and exported memory. */
struct fg_device {
	struct kref kref;
	struct pci_dev *pdev;
	struct miscdevice misc;
	/* Requests hold it for reading, the end of the function for writing; dead is under it. */
	struct rw_semaphore life;
	bool dead;
	/* Valid until dead. */
	void __iomem *bar;

	phys_addr_t start;
	u32 pages;
	/* The following are under this: */
	struct mutex lock;
	unsigned long *used;
	u32 pages_used;
	u32 export_count;
	u32 import_count;
	struct list_head exports;
	struct list_head imports;
};

/* Where the bytes of an export are. */
struct fg_place {
	u64 len;
	/* Video memory: chunks of equal size, but for the last. */
	u32 chunk_pages;
	u32 chunks;
	struct phys_vec *vec;
	/* Or system memory. */
	struct page **pages;
};

struct fg_buffer {
	struct fg_device *fg;
	struct dma_buf *dmabuf;
	struct list_head node;
	u32 flags;
	/* One at a time invalidates it. */
	struct mutex moving;
	/* The following are under the reservation lock: */
	struct fg_place place;
	bool revoked;
	u32 attachments;
	u32 mapped;
	u32 pinned;
	u32 invalidations;
	/* Woken when nothing is mapped any more. */
	wait_queue_head_t idle;
};

/* Consecutive physical memory of an import, mapped. */
struct fg_run {
	phys_addr_t phys;
	u64 offset;
	u64 len;
	bool mmio;
	void __iomem *io;
	void *ram;
};

struct fg_import {
	struct fg_device *fg;
	struct device *dev;
	struct list_head node;
	u32 flags;
	/* NULL after the end: */
	struct dma_buf_attachment *attach;
	/* The following are under the reservation lock: */
	struct sg_table *sgt;
	struct fg_run *runs;
	u32 run_count;
	bool pinned;
	bool revoked;
	u32 invalidations;
	struct delayed_work late;
};

/* driver.c */
void fg_device_put(struct fg_device *fg);

/* requests.c */
extern const struct file_operations fg_fops;

/* place.c */
int fg_place_alloc(struct fg_device *fg, struct fg_place *place, u64 len, u32 chunk_pages, u32 seed);
int fg_place_alloc_system(struct fg_place *place, u64 len);
void fg_place_free(struct fg_device *fg, struct fg_place *place);
void fg_place_copy(struct fg_device *fg, const struct fg_place *place, u64 offset, void *bytes, size_t len, bool write);
void fg_copy_io(void __iomem *io, void *bytes, size_t len, bool write);
void fg_copy_ram(void *ram, void *bytes, size_t len, bool write);

/* buffer.c */
struct fg_buffer *fg_buffer_create(struct fg_device *fg, const struct fakegpu_export *arg);
int fg_buffer_access(struct fg_buffer *buffer, u64 offset, void *bytes, size_t len, bool write);
int fg_buffer_invalidate(struct fg_buffer *buffer, const struct fakegpu_invalidate *arg);
int fg_buffer_revoke(struct fg_buffer *buffer, long timeout);
void fg_buffer_stats(struct fg_buffer *buffer, struct fakegpu_stats *stats);

/* import.c */
struct fg_import *fg_import_create(struct fg_device *fg, const struct fakegpu_import *arg);
void fg_import_end(struct fg_import *import);
void fg_import_free(struct fg_import *import);
int fg_import_access(struct fg_import *import, u64 offset, void *bytes, size_t len, bool write);
void fg_import_stats(struct fg_import *import, struct fakegpu_stats *stats);

#endif
