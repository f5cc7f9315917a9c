// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels that make and look at values: pattern, verification, checksum after retrieval.
#ifndef XIO_KERNELS_VALUES_H
#define XIO_KERNELS_VALUES_H

/// A word that depends on all bits of its argument.
XIO_FN uint64_t xio_mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/// Byte `at` of the pattern of value `i`.
XIO_FN uint8_t xio_pattern(uint64_t seed, uint32_t i, uint64_t at) {
    return (uint8_t)(xio_mix(seed + i * 0x9e3779b97f4a7c15u + at / 8) >> at % 8 * 8);
}

/// What a byte at a place adds to a value's checksum: the sum over all does not depend on the order of adding.
XIO_FN uint64_t xio_checksum(uint64_t at, uint8_t byte) { return xio_mix((at << 8 | byte) + 0x9e3779b97f4a7c15u); }

/// Fills the ranges of all items with their pattern. A block takes an item.
XIO_KERNEL void xio_kernel_fill(xio_args a) {
    const xio_item *items = (const xio_item *)a.items;
    for (uint32_t i = xio_block(); i < a.count; i += a.blocks) {
        uint8_t *data = (uint8_t *)a.buffer.data + items[i].offset;
        for (uint32_t at = xio_thread(); at < items[i].len; at += a.threads) {
            data[at] = xio_pattern(a.seed, i, at);
        }
    }
}

/// Compares the ranges of all items with their pattern: `args.out[i]` becomes the number of bytes that differ.
XIO_KERNEL void xio_kernel_verify(xio_args a) {
    const xio_item *items = (const xio_item *)a.items;
    for (uint32_t i = xio_block(); i < a.count; i += a.blocks) {
        const uint8_t *data = (const uint8_t *)a.buffer.data + items[i].offset;
        uint64_t wrong = 0;
        for (uint32_t at = xio_thread(); at < items[i].len; at += a.threads) {
            wrong += data[at] != xio_pattern(a.seed, i, at);
        }
        xio_add((uint64_t *)a.out + i, wrong);
    }
}

/// Retrieves the values of all items and sums them up on the GPU: `args.out[i]` grows by the checksum of what came.
/// Split style: the first thread of a block has the next item's command on its way while all threads sum up.
XIO_KERNEL void xio_kernel_checksum(xio_args a) {
    xio_queue *q = xio_queue_for(a, xio_block());
    const xio_item *items = (const xio_item *)a.items;
    xio_result *results = (xio_result *)a.results;
    bool first = xio_thread() == 0;
    if (first && xio_block() < a.count) {
        xio_submit(q, xio_cmd_item(a.nsid, items[xio_block()], a.buffer), results + xio_block());
    }
    for (uint32_t i = xio_block(); i < a.count; i += a.blocks) {
        if (first) {
            if (i + a.blocks < a.count) {
                xio_submit(q, xio_cmd_item(a.nsid, items[i + a.blocks], a.buffer), results + i + a.blocks);
            }
            xio_wait(q, results + i);
        }
        xio_barrier();
        xio_acquire_system();
        uint32_t len = results[i].length < items[i].len ? results[i].length : items[i].len;
        if (xio_status(results + i) != XIO_OK) {
            len = 0;
        }
        const uint8_t *data = (const uint8_t *)a.buffer.data + items[i].offset;
        uint64_t sum = 0;
        for (uint32_t at = xio_thread(); at < len; at += a.threads) {
            sum += xio_checksum(at, data[at]);
        }
        xio_add((uint64_t *)a.out + i, sum);
        xio_barrier();
    }
}

/// Loads that a thread has on their way at once when it copies: memory of the host is far away.
#define XIO_COPY_EACH 8

/// Copies the ranges of items to `args.copy`, at the same offsets; 16 bytes at a time, so offsets are multiples of 16
/// and the buffers have room to the next one.
XIO_FN void xio_copy_items(const xio_args &a, const xio_item *items, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const xio_quad *from = (const xio_quad *)(a.buffer.data + items[i].offset);
        xio_quad *to = (xio_quad *)(a.copy + items[i].offset);
        uint32_t quads = (items[i].len + 15) / 16, step = a.threads * XIO_COPY_EACH;
        for (uint32_t at = xio_thread(); at < quads; at += step) {
            xio_quad some[XIO_COPY_EACH];
            XIO_UNROLL
            for (uint32_t n = 0; n < XIO_COPY_EACH; n++) {
                uint32_t place = at + n * a.threads;
                some[n] = from[place < quads ? place : at];
            }
            XIO_UNROLL
            for (uint32_t n = 0; n < XIO_COPY_EACH; n++) {
                uint32_t place = at + n * a.threads;
                // By members: clang copies whole structures from an array through memory, and the array would be there.
                if (place < quads) {
                    to[place] = xio_quad{some[n].x, some[n].y, some[n].z, some[n].w};
                }
            }
        }
    }
}

#endif // XIO_KERNELS_VALUES_H
