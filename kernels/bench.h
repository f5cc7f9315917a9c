// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels that measure. Each block runs `args.rounds` rounds of `args.batch` commands, its own part of the items, and
// writes to args.out: [0] ticks of the slowest block, [1] commands that failed.
//
// Beside the library's own queue there are two others to compare with, both for one block alone:
//  * xio_kernel_bench_lock: every thread takes a lock, writes its entry, rings the doorbell, and unlocks; completions
//    are taken one by one under another lock. What one writes first.
//  * xio_kernel_bench_plain: the block owns the queue: thread i writes entry i and reads completion i, no atomic
//    operation at all, and a batch waits for its slowest command. It keeps no account of which command a completion
//    belongs to. Against a controller that only echoes, this is the rate of the queue itself.
#ifndef XIO_KERNELS_BENCH_H
#define XIO_KERNELS_BENCH_H

/// Adds what a block found.
XIO_FN void xio_bench_report(const xio_args &a, uint64_t start, uint64_t failed) {
    uint64_t *out = (uint64_t *)a.out, ticks = xio_clock() - start;
    if (xio_thread() == 0) {
        uint64_t old = xio_load(out);
        while (old < ticks && !xio_swap(out, old, ticks)) {
            old = xio_load(out);
        }
    }
    if (failed != 0) {
        xio_add(out + 1, failed);
    }
}

/// The library.
XIO_KERNEL void xio_kernel_bench(xio_args a) {
    XIO_BLOCK_STATE(state);
    uint32_t from = xio_block() * a.batch, threads = a.threads;
    xio_queue *q = xio_queue_for(a, xio_block());
    const xio_item *items = (const xio_item *)a.items + from;
    xio_result *results = (xio_result *)a.results + from;
    uint64_t failed = 0, start = xio_clock();
    for (uint64_t round = 0; round < a.rounds; round++) {
        failed += xio_batch(q, &state, threads, a.batch, results,
                            [&](uint32_t i) { return xio_cmd_item(a.nsid, items[i], a.buffer); });
    }
    xio_bench_report(a, start, failed);
}

/// The library's blocking calls: each thread for itself, one command at a time.
XIO_KERNEL void xio_kernel_bench_call(xio_args a) {
    xio_queue *q = xio_queue_for(a, xio_block());
    uint32_t i = xio_block() * a.threads + xio_thread();
    const xio_item *items = (const xio_item *)a.items;
    xio_result *results = (xio_result *)a.results;
    uint64_t failed = 0, start = xio_clock();
    for (uint64_t round = 0; round < a.rounds; round++) {
        failed += xio_call(q, xio_cmd_item(a.nsid, items[i], a.buffer), results + i) != XIO_OK;
    }
    xio_bench_report(a, start, failed);
}

/// Values to args.copy: each is copied by the block while the others of the batch are on their way. Split style.
XIO_KERNEL void xio_kernel_bench_stream(xio_args a) {
    xio_queue *q = xio_queue_for(a, xio_block());
    const xio_item *items = (const xio_item *)a.items + xio_block() * a.batch;
    xio_result *results = (xio_result *)a.results + xio_block() * a.batch;
    uint64_t failed = 0, start = xio_clock(), all = a.rounds * a.batch, sent = 0;
    bool first = xio_thread() == 0;
    for (uint64_t n = 0; n < all; n++) {
        uint32_t i = (uint32_t)(n % a.batch);
        if (first) {
            // The place of the value before this one is free again.
            for (; sent < all && sent < n + a.batch; sent++) {
                uint32_t next = (uint32_t)(sent % a.batch);
                xio_submit(q, xio_cmd_item(a.nsid, items[next], a.buffer), results + next);
            }
            xio_wait(q, results + i);
            failed += xio_status(results + i) != XIO_OK;
        }
        xio_barrier();
        xio_acquire_system();
        xio_copy_items(a, items + i, 1);
        xio_barrier();
    }
    xio_bench_report(a, start, failed);
}

/// The copying alone, without any command.
XIO_KERNEL void xio_kernel_bench_pull(xio_args a) {
    const xio_item *items = (const xio_item *)a.items + xio_block() * a.batch;
    uint64_t start = xio_clock();
    for (uint64_t round = 0; round < a.rounds; round++) {
        xio_copy_items(a, items, a.batch);
    }
    xio_bench_report(a, start, 0);
}

/// Waits for completion `at` of the queue, whichever command it is of; its status, or XIO_STATUS_TIMEOUT.
XIO_FN uint32_t xio_bench_completion(const xio_view &q, uint64_t at, uint64_t start, uint32_t *cid) {
    const uint32_t *entry = (const uint32_t *)((const xio_quad *)q.cq + (at & (q.entries - 1)));
    bool phase = (at >> q.shift & 1) == 0;
    while (((xio_load_phase_alone(entry + 3) & XIO_CQE_PHASE) != 0) != phase) {
        if (xio_clock() - start > q.timeout) {
            return XIO_STATUS_TIMEOUT;
        }
        xio_pause(0);
    }
    xio_acquire_phase();
    xio_quad again = xio_load_entry((const xio_quad *)entry);
    *cid = again.w & 0xffff;
    return again.w >> 17 & XIO_STATUS_MASK;
}

/// The block owns the queue. Batches are at most the queue's depth and the block's threads.
XIO_KERNEL void xio_kernel_bench_plain(xio_args a) {
    const xio_view q = xio_view_of(xio_queue_for(a, xio_block()));
    const xio_item *items = (const xio_item *)a.items + xio_block() * a.batch;
    uint64_t failed = 0, start = xio_clock(), base = q.state->tail;
    uint32_t thread = xio_thread();
    for (uint64_t round = 0; round < a.rounds && failed == 0; round++) {
        if (thread < a.batch) {
            xio_write_words(q, base + thread, xio_cmd_item(a.nsid, items[thread], a.buffer));
        }
        xio_barrier();
        if (thread == 0) {
            xio_doorbell((uint32_t *)q.sq_doorbell, (uint32_t)(base + a.batch) & (q.entries - 1));
        }
        uint32_t cid;
        if (thread < a.batch) {
            failed += xio_bench_completion(q, base + thread, xio_clock(), &cid) != XIO_OK;
        }
        base += a.batch;
        xio_barrier();
        if (thread == 0) {
            xio_doorbell_head((uint32_t *)q.cq_doorbell, (uint32_t)base & (q.entries - 1));
        }
    }
    if (thread == 0) {
        q.state->tail = base;
        q.state->reaped = base << 1;
    }
    xio_bench_report(a, start, failed);
}

/// One thread of the wave at a time has the lock: only the lane that `turn` names tries, so that none spins against a
/// sibling.
XIO_FN void xio_bench_lock(uint32_t *lock) {
    for (uint32_t round = 0; xio_exchange_acquire(lock, 1) != 0; round++) {
        xio_pause(round);
    }
}

/// A lock and a doorbell for each command; completions one at a time.
XIO_KERNEL void xio_kernel_bench_lock(xio_args a) {
    const xio_view q = xio_view_of(xio_queue_for(a, xio_block()));
    uint32_t i = xio_block() * a.batch + xio_thread();
    const xio_item *items = (const xio_item *)a.items;
    uint64_t failed = 0, start = xio_clock();
    for (uint64_t round = 0; round < a.rounds; round++) {
        xio_command c = xio_cmd_item(a.nsid, items[i], a.buffer);
        xio_wave w = xio_wave_here();
        for (uint32_t turn = 0; turn < w.count; turn++) {
            if (w.rank == turn) {
                xio_bench_lock(&q.state->locks[0]);
                uint64_t tail = q.state->tail;
                xio_write_words(q, tail, c);
                q.state->tail = tail + 1;
                xio_doorbell((uint32_t *)q.sq_doorbell, (uint32_t)(tail + 1) & (q.entries - 1));
                xio_store_release(&q.state->locks[0], 0u);
            }
            xio_wave_sync(w.lanes);
        }
        for (uint32_t turn = 0; turn < w.count; turn++) {
            if (w.rank == turn) {
                uint32_t cid;
                xio_bench_lock(&q.state->locks[1]);
                uint64_t head = q.state->reaped >> 1;
                failed += xio_bench_completion(q, head, xio_clock(), &cid) != XIO_OK;
                q.state->reaped = (head + 1) << 1;
                xio_doorbell((uint32_t *)q.cq_doorbell, (uint32_t)(head + 1) & (q.entries - 1));
                xio_store_release(&q.state->locks[1], 0u);
            }
            xio_wave_sync(w.lanes);
        }
    }
    xio_bench_report(a, start, failed);
}

#endif // XIO_KERNELS_BENCH_H
