// SPDX-License-Identifier: MIT OR Apache-2.0
// The rings: tickets, entries, doorbells, completions. Included by xio_kv.h, which tells how it works. The functions
// here are the library's own; kernels use those of xio_kv_call.h and xio_kv_batch.h.
#ifndef XIO_KV_RING_H
#define XIO_KV_RING_H

/// Sixteen bytes that are stored at once.
struct alignas(16) xio_quad {
    uint32_t x, y, z, w;
};

XIO_FN xio_slot *xio_slot_of(const xio_queue *q, uint64_t ticket) {
    return (xio_slot *)q->slots + (ticket & (q->entries - 1));
}

/// State of a slot that is free for `ticket`, or in use by it with XIO_SLOT_BUSY. Tickets are compared modulo 2 to the
/// power of 62.
XIO_FN uint64_t xio_state(uint64_t ticket) { return ticket << 2; }

/// Whether ticket `a` comes after `b`. Both belong to the same few laps of the ring, so the difference is small even
/// when the counter has wrapped.
XIO_FN bool xio_after(uint64_t a, uint64_t b) { return (int64_t)(a - b) > 0; }

/// Whether a command can have `ticket` now; `filler` says that only a filler can.
XIO_FN bool xio_is_free(const xio_queue *q, uint64_t ticket, uint64_t sq_head, bool *filler) {
    // One entry of the ring stays free always.
    if (ticket - sq_head > q->entries - 2) {
        return false;
    }
    uint64_t state = xio_load_acquire(&xio_slot_of(q, ticket)->state);
    *filler = (state & XIO_SLOT_POISONED) != 0;
    return (state & ~XIO_SLOT_POISONED) == xio_state(ticket);
}

/// Writes the entry of `ticket`, and marks it ready: by the slot's state. `result` is where the answer goes.
XIO_FN void xio_write_entry(xio_queue *q, uint64_t ticket, const xio_command &c, xio_result *result) {
    uint32_t at = (uint32_t)ticket & (q->entries - 1);
    xio_quad *entry = (xio_quad *)q->sq + (uint64_t)at * 4;
    const uint32_t *w = c.words;
    entry[0] = xio_quad{w[0] | at << 16, w[1], w[2], w[3]};
    entry[1] = xio_quad{w[4], w[5], w[6], w[7]};
    entry[2] = xio_quad{w[8], w[9], w[10], w[11]};
    entry[3] = xio_quad{w[12], w[13], w[14], w[15]};
    xio_slot *slot = xio_slot_of(q, ticket);
    xio_store(&slot->result, (uint64_t)result);
    result->ticket = ticket;
    xio_store_release(&slot->state, xio_state(ticket) | XIO_SLOT_BUSY);
}

/// Passes the place of a poisoned slot: an Exist of a key of one byte, whose identifier is beyond all others.
XIO_FN void xio_write_filler(xio_queue *q, uint64_t ticket, uint32_t nsid) {
    uint32_t at = (uint32_t)ticket & (q->entries - 1);
    xio_quad *entry = (xio_quad *)q->sq + (uint64_t)at * 4;
    entry[0] = xio_quad{XIO_OP_EXIST | (at + q->entries) << 16, nsid, 0, 0};
    entry[1] = xio_quad{0, 0, 0, 0};
    entry[2] = xio_quad{0, 0, 0, 1};
    entry[3] = xio_quad{0, 0, 0, 0};
    xio_store_release(&xio_slot_of(q, ticket)->state, xio_state(ticket) | XIO_SLOT_BUSY | XIO_SLOT_POISONED);
}

/// Whether the entry of `ticket` was written. A command may have been given up since, before it was published.
XIO_FN bool xio_is_ready(const xio_queue *q, uint64_t ticket) {
    uint64_t state = xio_load_acquire(&xio_slot_of(q, ticket)->state) & ~XIO_SLOT_POISONED;
    return state == (xio_state(ticket) | XIO_SLOT_BUSY) || state == xio_state(ticket + q->entries);
}

/// How many of the first lanes of a wave, without a gap, have `yes`.
XIO_FN uint32_t xio_prefix(const xio_wave &w, bool yes) {
    xio_lanes no = xio_ballot(w.lanes, !yes);
    return no == 0 ? w.count : xio_count(w.lanes & ((no & -no) - 1));
}

/// Lets the controller know of the tickets `first` to `first + count - 1`, whose entries are written, and of all that
/// follow and are ready. When it returns it does, or an earlier entry is not written yet: then whoever writes that
/// one publishes these, too.
XIO_FN void xio_publish(xio_queue *q, const xio_wave &w, uint64_t first, uint32_t count) {
    uint64_t last = first + count - 1;
    for (uint32_t round = 0;; round++) {
        uint32_t known = 0, locked = 0;
        if (w.rank == 0) {
            known = xio_after(xio_load(&q->published), last);
            locked = !known && xio_load(&q->publish_lock) == 0 && xio_exchange_acquire(&q->publish_lock, 1) == 0;
        }
        uint32_t flags = xio_first32(w.lanes, known | locked << 1);
        if (flags == 1) {
            return;
        }
        if (flags == 0) {
            xio_pause(round);
            continue;
        }
        uint64_t from = xio_first(w.lanes, xio_load(&q->published));
        // The caller's own need not be looked at.
        uint64_t to = from == first ? from + count : from;
        for (;;) {
            uint32_t more = xio_prefix(w, xio_is_ready(q, to + w.rank));
            to += more;
            if (more < w.count || to - from >= q->entries) {
                break;
            }
        }
        xio_wave_sync(w.lanes);
        if (w.rank == 0) {
            if (to != from) {
                xio_store(&q->published, to);
                q->doorbells++;
                xio_doorbell((uint32_t *)q->sq_doorbell, (uint32_t)to & (q->entries - 1));
            }
            xio_store_release(&q->publish_lock, 0u);
        }
        return;
    }
}

/// Hands a completion to whoever waits for it, and frees its slot; what is wrong with it, or 0.
XIO_FN uint32_t xio_complete(xio_queue *q, const xio_quad &cqe) {
    if (cqe.z >> 16 != q->qid) {
        return XIO_BROKEN_QUEUE_ID;
    }
    uint32_t cid = cqe.w & 0xffff, status = cqe.w >> 17 & XIO_STATUS_MASK;
    if (cid >> q->shift > 1) {
        return XIO_BROKEN_COMMAND_ID;
    }
    bool filler = cid >> q->shift == 1;
    xio_slot *slot = xio_slot_of(q, cid);
    uint64_t state = xio_load_acquire(&slot->state);
    uint64_t next = (state & ~(XIO_SLOT_BUSY | XIO_SLOT_POISONED)) + xio_state(q->entries);
    if (filler) {
        if ((state & 3) != (XIO_SLOT_BUSY | XIO_SLOT_POISONED)) {
            return XIO_BROKEN_COMMAND_ID;
        }
        xio_store_release(&slot->state, next | XIO_SLOT_POISONED);
        return 0;
    }
    if (state & XIO_SLOT_POISONED) {
        xio_add(&q->late, (uint64_t)1);
        return 0;
    }
    if (!(state & XIO_SLOT_BUSY)) {
        return XIO_BROKEN_COMMAND_ID;
    }
    uint64_t result = xio_load(&slot->result);
    // From here on the place can have another command. Who gives it up in this very moment is the other one to swap.
    if (!xio_swap(&slot->state, state, next)) {
        xio_add(&q->late, (uint64_t)1);
        return 0;
    }
    xio_store_release((uint64_t *)result, (uint64_t)cqe.x << 32 | XIO_DONE | status);
    return 0;
}

/// Takes note of how much the controller has fetched, from the head in a completion; false when that can not be.
XIO_FN bool xio_update_head(xio_queue *q, uint32_t sqhd) {
    uint64_t old = xio_load(&q->sq_head);
    uint64_t head = old + ((sqhd - (uint32_t)old) & (q->entries - 1));
    if (sqhd >= q->entries || xio_after(head, xio_load(&q->published))) {
        return false;
    }
    xio_store(&q->sq_head, head);
    return true;
}

/// Takes the completions that are there, if no other wave is at it; how many.
XIO_FN uint32_t xio_reap(xio_queue *q, const xio_wave &w) {
    uint32_t locked = 0;
    if (w.rank == 0) {
        locked = xio_load(&q->reap_lock) == 0 && xio_exchange_acquire(&q->reap_lock, 1) == 0;
    }
    if (!xio_first32(w.lanes, locked)) {
        return 0;
    }
    uint64_t from = xio_first(w.lanes, xio_load(&q->cq_head)), head = from;
    uint32_t broken = 0;
    for (;;) {
        uint64_t at = head + w.rank;
        const uint32_t *entry = (const uint32_t *)((const xio_quad *)q->cq + (at & (q->entries - 1)));
        // The phase is 1 in the first lap and changes with each.
        bool phase = (at >> q->shift & 1) == 0;
        bool here = w.rank < q->entries && ((xio_load_phase(entry + 3) & XIO_CQE_PHASE) != 0) == phase;
        uint32_t count = xio_prefix(w, here);
        if (count == 0) {
            break;
        }
        xio_acquire_system();
        if (w.rank < count) {
            const volatile uint32_t *again = entry;
            xio_quad cqe = {again[0], again[1], again[2], again[3]};
            broken = xio_complete(q, cqe);
            if (w.rank == count - 1 && !xio_update_head(q, cqe.z & 0xffff)) {
                broken = XIO_BROKEN_HEAD;
            }
        }
        head += count;
        if (count < w.count || xio_ballot(w.lanes, broken != 0) != 0) {
            break;
        }
    }
    if (broken != 0) {
        xio_store(&q->broken, broken);
    }
    xio_release_device();
    xio_wave_sync(w.lanes);
    if (w.rank == 0) {
        if (head != from) {
            xio_store(&q->cq_head, head);
            q->cq_doorbells++;
            xio_doorbell((uint32_t *)q->cq_doorbell, (uint32_t)head & (q->entries - 1));
        }
        xio_store_release(&q->reap_lock, 0u);
    }
    return (uint32_t)(head - from);
}

#endif // XIO_KV_RING_H
