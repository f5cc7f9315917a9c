// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels for the five operations, and for tables of them. Each takes an xio_args by value.
//
// Blocks are one-dimensional with args.threads threads, the grid has args.blocks of them.
#ifndef XIO_KERNELS_KV_H
#define XIO_KERNELS_KV_H

/// The queue of a block: they take turns.
XIO_FN xio_queue *xio_queue_for(const xio_args &a, uint32_t block) {
    return ((xio_queue *const *)a.queues)[block % a.queue_count];
}

/// Blocking style: each thread carries out the items `i` that are its, as the operation `opcode` whatever they say.
XIO_FN void xio_each_item(const xio_args &a, uint32_t opcode) {
    xio_queue *q = xio_queue_for(a, xio_block());
    const xio_item *items = (const xio_item *)a.items;
    xio_result *results = (xio_result *)a.results;
    for (uint32_t i = xio_block() * a.threads + xio_thread(); i < a.count; i += a.threads * a.blocks) {
        xio_item item = items[i];
        item.opcode = opcode;
        xio_call(q, xio_cmd_item(a.nsid, item, a.buffer), results + i);
    }
}

/// Stores the values of all items, each by a thread of its own.
XIO_KERNEL void xio_kernel_store(xio_args a) { xio_each_item(a, XIO_OP_STORE); }

/// Retrieves the values of all items.
XIO_KERNEL void xio_kernel_retrieve(xio_args a) { xio_each_item(a, XIO_OP_RETRIEVE); }

/// Asks for all items whether their keys exist.
XIO_KERNEL void xio_kernel_exist(xio_args a) { xio_each_item(a, XIO_OP_EXIST); }

/// Deletes the keys of all items.
XIO_KERNEL void xio_kernel_delete(xio_args a) { xio_each_item(a, XIO_OP_DELETE); }

/// Lists keys into the room that each item has, from its key on.
XIO_KERNEL void xio_kernel_list(xio_args a) { xio_each_item(a, XIO_OP_LIST); }

/// Carries out the table: any operations mixed, a block at a time `args.batch` of them.
XIO_KERNEL void xio_kernel_batch(xio_args a) {
    XIO_BLOCK_STATE(state);
    xio_queue *q = xio_queue_for(a, xio_block());
    for (uint32_t from = xio_block() * a.batch; from < a.count; from += a.blocks * a.batch) {
        const xio_item *items = (const xio_item *)a.items + from;
        uint32_t count = a.count - from < a.batch ? a.count - from : a.batch;
        xio_batch(q, &state, a.threads, count, (xio_result *)a.results + from,
                  [&](uint32_t i) { return xio_cmd_item(a.nsid, items[i], a.buffer); });
    }
}

/// Writes the entries that items make to `args.out`, 64 bytes each and all zeros for what is no command, without any
/// queue: for comparing them with other encoders.
XIO_KERNEL void xio_kernel_encode(xio_args a) {
    const xio_item *items = (const xio_item *)a.items;
    for (uint32_t i = xio_block() * a.threads + xio_thread(); i < a.count; i += a.threads * a.blocks) {
        xio_command c = xio_cmd_item(a.nsid, items[i], a.buffer);
        uint32_t *out = (uint32_t *)a.out + i * 16;
        for (uint32_t n = 0; n < 16; n++) {
            out[n] = c.valid ? c.words[n] : 0;
        }
    }
}

#endif // XIO_KERNELS_KV_H
