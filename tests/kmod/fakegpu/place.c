// SPDX-License-Identifier: GPL-2.0
/* Where bytes are: chunks of video memory in any order, or system pages. */
#include <linux/bitmap.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/prandom.h>
#include <linux/slab.h>

#include "fakegpu_priv.h"

/* The slots of chunk_pages pages of which no page is in use. Gives their number. */
static u32 fg_free_slots(struct fg_device *fg, u32 chunk_pages, u32 *slots)
{
	u32 slot, count = 0;

	for (slot = 0; slot < fg->pages / chunk_pages; slot++) {
		u32 first = slot * chunk_pages;

		if (find_next_bit(fg->used, first + chunk_pages, first) == first + chunk_pages)
			slots[count++] = slot;
	}
	return count;
}

/* Puts a random choice of the slots at the front. */
static void fg_shuffle(u32 *slots, u32 count, u32 wanted, u32 seed)
{
	struct rnd_state state;
	u32 i;

	if (!seed)
		return;
	prandom_seed_state(&state, seed);
	for (i = 0; i < wanted; i++) {
		/* Not in swap(), which evaluates it twice. */
		u32 other = i + prandom_u32_state(&state) % (count - i);

		swap(slots[i], slots[other]);
	}
}

static void fg_take_slots(struct fg_device *fg, struct fg_place *place, const u32 *slots)
{
	u64 chunk_len = (u64)place->chunk_pages << PAGE_SHIFT, left = place->len;
	u32 i;

	for (i = 0; i < place->chunks; i++) {
		bitmap_set(fg->used, slots[i] * place->chunk_pages, place->chunk_pages);
		place->vec[i].paddr = fg->start + slots[i] * chunk_len;
		place->vec[i].len = min(left, chunk_len);
		left -= place->vec[i].len;
	}
	fg->pages_used += place->chunks * place->chunk_pages;
}

static int fg_choose(struct fg_device *fg, struct fg_place *place, u32 seed)
{
	u32 *slots __free(kvfree) = kvmalloc_array(fg->pages, sizeof(*slots), GFP_KERNEL);
	u32 count;

	if (!slots)
		return -ENOMEM;
	guard(mutex)(&fg->lock);
	count = fg_free_slots(fg, place->chunk_pages, slots);
	if (count < place->chunks)
		return -ENOSPC;
	fg_shuffle(slots, count, place->chunks, seed);
	fg_take_slots(fg, place, slots);
	return 0;
}

/* A fresh place in video memory, zeroed. */
int fg_place_alloc(struct fg_device *fg, struct fg_place *place, u64 len, u32 chunk_pages, u32 seed)
{
	u32 i;
	int ret;

	*place = (struct fg_place) {
		.len = len,
		.chunk_pages = chunk_pages,
		.chunks = DIV_ROUND_UP(len >> PAGE_SHIFT, chunk_pages),
	};
	place->vec = kvcalloc(place->chunks, sizeof(*place->vec), GFP_KERNEL);
	if (!place->vec)
		return -ENOMEM;
	ret = fg_choose(fg, place, seed);
	if (ret) {
		kvfree(place->vec);
		return ret;
	}
	for (i = 0; i < place->chunks; i++)
		memset_io(fg->bar + (place->vec[i].paddr - fg->start), 0, place->vec[i].len);
	return 0;
}

static void fg_pages_free(struct page **pages, u32 count)
{
	u32 i;

	for (i = 0; i < count && pages[i]; i++)
		__free_page(pages[i]);
	kvfree(pages);
}

/* A fresh place in system memory, zeroed: pages from anywhere. */
int fg_place_alloc_system(struct fg_place *place, u64 len)
{
	u32 i, count = len >> PAGE_SHIFT;

	*place = (struct fg_place) { .len = len, .chunk_pages = 1, .chunks = count };
	place->pages = kvcalloc(count, sizeof(*place->pages), GFP_KERNEL);
	if (!place->pages)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		place->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!place->pages[i]) {
			fg_pages_free(place->pages, count);
			return -ENOMEM;
		}
	}
	return 0;
}

void fg_place_free(struct fg_device *fg, struct fg_place *place)
{
	u32 i;

	if (place->pages) {
		fg_pages_free(place->pages, place->chunks);
		return;
	}
	scoped_guard(mutex, &fg->lock) {
		for (i = 0; i < place->chunks; i++)
			bitmap_clear(fg->used, PHYS_PFN(place->vec[i].paddr - fg->start), place->chunk_pages);
		fg->pages_used -= place->chunks * place->chunk_pages;
	}
	kvfree(place->vec);
}

/* Doorbells and phase tags are dwords, and must be accessed as such, in order with what is around them. */
static bool fg_is_dword(const void *at, size_t len)
{
	return len == sizeof(u32) && IS_ALIGNED((unsigned long)at, sizeof(u32));
}

void fg_copy_io(void __iomem *io, void *bytes, size_t len, bool write)
{
	u32 dword;

	if (!fg_is_dword((__force void *)io, len)) {
		if (write)
			memcpy_toio(io, bytes, len);
		else
			memcpy_fromio(bytes, io, len);
	} else if (write) {
		memcpy(&dword, bytes, sizeof(dword));
		writel(dword, io);
	} else {
		dword = readl(io);
		memcpy(bytes, &dword, sizeof(dword));
	}
}

void fg_copy_ram(void *ram, void *bytes, size_t len, bool write)
{
	u32 dword;

	if (!fg_is_dword(ram, len)) {
		memcpy(write ? ram : bytes, write ? bytes : ram, len);
	} else if (write) {
		memcpy(&dword, bytes, sizeof(dword));
		/* After what was stored before, for whoever polls it. */
		smp_store_release((u32 *)ram, dword);
	} else {
		/* Before what is loaded next. */
		dword = smp_load_acquire((u32 *)ram);
		memcpy(bytes, &dword, sizeof(dword));
	}
}

/* The range must be inside. Video memory must not be dead. */
void fg_place_copy(struct fg_device *fg, const struct fg_place *place, u64 offset, void *bytes, size_t len, bool write)
{
	while (len) {
		u32 page = offset >> PAGE_SHIFT, in_page = offset_in_page(offset);
		size_t piece = min_t(size_t, len, PAGE_SIZE - in_page);

		if (place->pages) {
			fg_copy_ram(page_address(place->pages[page]) + in_page, bytes, piece, write);
		} else {
			u64 in_chunk = (u64)(page % place->chunk_pages) << PAGE_SHIFT;
			phys_addr_t phys = place->vec[page / place->chunk_pages].paddr + in_chunk + in_page;

			fg_copy_io(fg->bar + (phys - fg->start), bytes, piece, write);
		}
		offset += piece;
		bytes += piece;
		len -= piece;
	}
}
