// SPDX-License-Identifier: MIT OR Apache-2.0
// A block together: each thread has some of the commands, and the doorbell is rung once for all. Included by
// xio_kv.h.
#ifndef XIO_KV_BATCH_H
#define XIO_KV_BATCH_H

/// What the threads of a block share during xio_batch. Declare it XIO_SHARED in the kernel.
struct xio_block_state {
    /// First ticket, if `taken` is not 0.
    uint64_t first;
    /// Entries fetched by the controller, as seen by the first thread.
    uint64_t sq_head;
    /// Tickets that are free from `first` on.
    uint32_t free;
    /// Tickets that were taken at once, since nothing was in flight.
    uint32_t quick;
    /// Tickets that were taken; XIO_BATCH_STOP when none can be had any more.
    uint32_t taken;
    /// Status of the commands that can not be submitted then.
    uint32_t status;
};

/// Value of `taken`.
#define XIO_BATCH_STOP (~0u)

#if defined(XIO_HOST)
/// The variable of this name, in the memory of the host's block.
#define XIO_BLOCK_STATE(name) xio_block_state &name = *(xio_block_state *)(xio_host.shared + 8)
#else
#define XIO_BLOCK_STATE(name) XIO_SHARED xio_block_state name
#endif

/// Takes up to `wanted` tickets for the block; how many, XIO_BATCH_STOP when the queue is broken or stayed full until the
/// deadline. `fillers` says whether any of this thread's met a poisoned slot. All threads of the block.
XIO_FN uint32_t xio_batch_reserve(xio_queue *q, xio_block_state *s, uint32_t threads, uint32_t wanted, bool *fillers) {
    uint32_t thread = xio_thread();
    uint64_t start = 0;
    if (wanted > q->entries - 1) {
        wanted = q->entries - 1;
    }
    for (uint32_t round = 0;; round++) {
        if (thread == 0) {
            // All loads before anything waits for one.
            uint64_t tail = xio_load(&q->tail), sq_head = xio_load(&q->sq_head);
            bool idle = xio_is_idle(q, tail);
            s->quick = idle && xio_swap(&q->tail, tail, tail + wanted) ? wanted : 0;
            s->first = tail;
            s->sq_head = sq_head;
            s->free = wanted;
        }
        xio_barrier();
        if (s->quick != 0) {
            *fillers = false;
            return s->quick;
        }
        uint64_t first = s->first, sq_head = s->sq_head;
        *fillers = false;
        for (uint32_t i = thread; i < wanted; i += threads) {
            bool filler;
            if (!xio_is_free(q, first + i, sq_head, &filler)) {
                xio_shared_min(&s->free, i);
                break;
            }
            *fillers |= filler;
        }
        xio_barrier();
        if (thread == 0) {
            uint32_t free = s->free;
            s->taken = free > 0 && xio_swap(&q->tail, first, first + free) ? free : 0;
            start = start == 0 ? xio_clock() : start;
            if (free > 0) {
                // Taken, or another was faster.
            } else if (xio_load(&q->broken) != 0 || xio_clock() - start > q->timeout) {
                s->taken = XIO_BATCH_STOP;
                s->status = xio_load(&q->broken) != 0 ? XIO_STATUS_BROKEN : XIO_STATUS_FULL;
            } else {
                uint64_t none = 0;
                xio_reap(q, xio_wave_here(), &none);
                xio_pause(round);
            }
        }
        xio_barrier();
        uint32_t taken = s->taken;
        if (taken != 0) {
            return taken;
        }
    }
}

/// Lanes that publish for the block.
#if defined(XIO_HOST)
#define XIO_PUBLISHERS 1
#else
#define XIO_PUBLISHERS 32
#endif

/// In a result that waits for a place: its ticket met a poisoned slot.
#define XIO_BATCH_POSTPONED ((uint64_t)1 << 30)

/// Writes the entries of this thread's share of `taken` commands, `done` behind the first; whether any was out of the
/// ordinary: postponed, or not a command at all. For the latter an Exist of nothing goes to the place that it has.
/// `locked` as for xio_write_entry.
template <class Make>
XIO_FN bool xio_batch_write(xio_queue *q, uint64_t first, uint32_t taken, uint32_t threads, uint32_t done,
                            xio_result *results, bool fillers, bool locked, const Make &make) {
    bool odd = false;
    for (uint32_t i = xio_thread(); i < taken; i += threads) {
        xio_command command = make(done + i);
        xio_result *result = results + done + i;
        uint32_t nsid = command.words[1];
        if (fillers && (xio_load(&xio_slot_of(q, first + i)->state) & XIO_SLOT_POISONED) != 0) {
            xio_store((uint64_t *)result, XIO_BATCH_POSTPONED);
            xio_write_filler(q, first + i, nsid);
            odd = true;
            continue;
        }
        if (!command.valid) {
            xio_key nothing = {{0, 0, 0, 0}, 1};
            command = xio_cmd_exist(nsid, nothing);
            odd = true;
        }
        xio_store((uint64_t *)result, (uint64_t)0);
        xio_write_entry(q, first + i, command, result, locked);
    }
    return odd;
}

/// Waits for this thread's share. Commands out of the ordinary get their result here.
template <class Make>
XIO_FN void xio_batch_wait(xio_queue *q, uint32_t taken, uint32_t threads, uint32_t done, xio_result *results, bool odd,
                           const Make &make) {
    for (uint32_t i = xio_thread(); i < taken; i += threads) {
        xio_result *result = results + done + i;
        if (odd && xio_load((const uint64_t *)result) == XIO_BATCH_POSTPONED) {
            xio_submit(q, make(done + i), result);
        }
        xio_wait(q, result);
        if (odd && !make(done + i).valid) {
            xio_set_result(result, XIO_STATUS_INVALID);
        }
    }
}

/// Carries out `count` commands, any number, with all threads of the block, and waits for all of them. `make(i)` gives
/// the command of index i as an xio_command; it is called by one thread, once or twice, and writes nothing. When it
/// returns, `results` is there for all threads of the block, and so are the bytes that commands moved.
///
/// All `threads` threads of the block, with the same arguments; `threads` is the size of the block, which is
/// one-dimensional. As many commands as the queue has free entries go at once, with one doorbell; more go in turns.
template <class Make>
XIO_FN void xio_batch(xio_queue *q, xio_block_state *s, uint32_t threads, uint32_t count, xio_result *results,
                      const Make &make) {
    for (uint32_t done = 0; done < count;) {
        bool fillers = false;
        uint32_t taken = xio_batch_reserve(q, s, threads, count - done, &fillers);
        if (taken == XIO_BATCH_STOP) {
            for (uint32_t i = done + xio_thread(); i < count; i += threads) {
                xio_set_result(results + i, s->status);
            }
            xio_barrier();
            return;
        }
        uint64_t first = s->first;
        // A block of one wave needs no ready marks when it can publish at once.
        xio_wave all = xio_wave_of_block(threads <= XIO_PUBLISHERS ? threads : 1);
        bool locked = threads <= XIO_PUBLISHERS && xio_begin_publish(q, all, first);
        bool odd = xio_batch_write(q, first, taken, threads, done, results, fillers, locked, make);
        if (locked) {
            xio_end_publish(q, all, first, first + taken);
        } else {
            xio_barrier();
            if (xio_thread() < XIO_PUBLISHERS) {
                xio_publish(q, xio_wave_here(), first, taken);
            }
        }
        xio_batch_wait(q, taken, threads, done, results, odd, make);
        xio_barrier();
        done += taken;
    }
}

#endif // XIO_KV_BATCH_H
