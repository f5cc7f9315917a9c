/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests of /dev/fakegpu, the stand-in for a GPU driver that the virtual machine tests load. Never installed.
 * tests/guest/src/fakegpu.rs has the same structures in Rust.
 *
 * Exports and imports are numbered by one counter for each open file, and end with FAKEGPU_FREE or with the file. An
 * export's memory lives on as long as somebody has its dma-buf.
 */
#ifndef FAKEGPU_H
#define FAKEGPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FAKEGPU_ANYWHERE	0xffffffffU

/* Backed by system memory, and no importer gets peer-to-peer: what amdgpu does where peers can not reach VRAM. */
#define FAKEGPU_EXPORT_SYSTEM		(1 << 0)
/* Pinning fails. */
#define FAKEGPU_EXPORT_REFUSE_PIN	(1 << 1)
/* FAKEGPU_INVALIDATE may move the contents elsewhere. */
#define FAKEGPU_EXPORT_MOVABLE		(1 << 2)
/* Importers that can not be told to let go are welcome, too. */
#define FAKEGPU_EXPORT_ANY_IMPORTER	(1 << 3)
/*
 * Mapped as if it were RAM. QEMU's virtio-iommu does not tell vfio-user devices of mappings of MMIO, and they can not
 * reach such memory otherwise.
 */
#define FAKEGPU_EXPORT_AS_RAM		(1 << 4)

/* Makes a buffer of chunks that lie about in video memory, and a dma-buf of it. */
struct fakegpu_export {
	__u64 len;		/* in bytes, whole pages */
	__u32 chunk_pages;	/* pages that stay together */
	__u32 seed;		/* of the order of the chunks; 0: ascending */
	__u32 flags;		/* FAKEGPU_EXPORT_* */
	__s32 fd;		/* out: the dma-buf */
	__u32 id;		/* out */
	__u32 reserved;
};

/* Attaches without invalidate_mappings and without peer-to-peer, as importers did before these existed. */
#define FAKEGPU_IMPORT_STATIC		(1 << 0)
/* Pins, so that the exporter may not move it. */
#define FAKEGPU_IMPORT_PIN		(1 << 1)
/* A broken importer: told to let go, it keeps its mapping until FAKEGPU_FREE. */
#define FAKEGPU_IMPORT_STUBBORN		(1 << 2)
/* Told to let go, it does so a while later, from a worker. */
#define FAKEGPU_IMPORT_LATE		(1 << 3)

/* Maps somebody's dma-buf for the GPU, or for another PCI function. */
struct fakegpu_import {
	__s32 fd;
	__u32 flags;		/* FAKEGPU_IMPORT_* */
	__u32 device;		/* domain << 16 | bus << 8 | devfn, or FAKEGPU_ANYWHERE for the GPU itself */
	__u32 id;		/* out */
	__u64 len;		/* out */
};

/* Accesses an export or import as the GPU's own code would. Four aligned bytes are one access. */
struct fakegpu_access {
	__u64 offset;
	__u64 len;
	__u64 user;		/* address of the caller's bytes */
	__u32 id;
	__u32 reserved;
};

/* After all have let go, move the contents to other places. */
#define FAKEGPU_INVALIDATE_MOVE		(1 << 0)
/* Nobody may map it ever again. */
#define FAKEGPU_INVALIDATE_REVOKE	(1 << 1)

/* Tells importers of an export, pinned ones too, to let go, and waits until they have: else ETIMEDOUT. */
struct fakegpu_invalidate {
	__u32 id;
	__u32 flags;		/* FAKEGPU_INVALIDATE_* */
	__u32 timeout_ms;
	__u32 seed;		/* of the order of the new places */
};

/* Exports: nobody may map it. Imports: the exporter took it back. */
#define FAKEGPU_STATE_REVOKED	(1 << 0)
/* Imports: the exporter agreed to peer-to-peer. Exports: it is in video memory. */
#define FAKEGPU_STATE_PEER	(1 << 1)

struct fakegpu_stats {
	__u32 id;
	__u32 state;		/* FAKEGPU_STATE_* */
	__u32 attachments;	/* exports */
	__u32 mapped;		/* exports: mappings that exist */
	__u32 pinned;		/* exports: pins */
	__u32 invalidations;	/* exports: told; imports: heard */
	__u32 segments;		/* exports: chunks; imports: pieces of consecutive physical memory */
	__u32 mmio_segments;	/* imports: those that are no RAM */
};

/* Of the whole device. */
struct fakegpu_device {
	__u32 pages;		/* of video memory */
	__u32 pages_used;
	__u32 exports;
	__u32 imports;
};

#define FAKEGPU_EXPORT		_IOWR('F', 0, struct fakegpu_export)
#define FAKEGPU_IMPORT		_IOWR('F', 1, struct fakegpu_import)
#define FAKEGPU_READ		_IOW('F', 2, struct fakegpu_access)
#define FAKEGPU_WRITE		_IOW('F', 3, struct fakegpu_access)
#define FAKEGPU_INVALIDATE	_IOW('F', 4, struct fakegpu_invalidate)
#define FAKEGPU_STATS		_IOWR('F', 5, struct fakegpu_stats)
#define FAKEGPU_DEVICE		_IOR('F', 6, struct fakegpu_device)
#define FAKEGPU_FREE		_IOW('F', 7, __u32)

#endif
