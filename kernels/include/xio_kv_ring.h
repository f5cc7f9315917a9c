// SPDX-License-Identifier: MIT OR Apache-2.0
// The rings: tickets, entries, doorbells, completions. Included by xio_kv.h, which tells how it works. The functions
// here are the library's own; kernels use those of xio_kv_call.h and xio_kv_batch.h.
#ifndef XIO_KV_RING_H
#define XIO_KV_RING_H

XIO_FN xio_slot *xio_slot_of(const xio_queue *q, uint64_t ticket) {
    return (xio_slot *)q->slots + (ticket & (q->entries - 1));
}

/// State of a slot that is free for `ticket`, or in use by it with XIO_SLOT_BUSY. Tickets are compared modulo 2 to the
/// power of 62.
XIO_FN uint64_t xio_state(uint64_t ticket) { return ticket << 2; }

/// Lock bit of the words `published` and `reaped`, whose other bits are twice a count.
#define XIO_LOCKED ((uint64_t)1)

/// Whether `a` comes after `b`, where both are twice a count. They belong to the same few laps of the ring, so the
/// difference is small even when the count has wrapped.
XIO_FN bool xio_after(uint64_t a, uint64_t b) { return (int64_t)(a - b) > 0; }

/// Whether a command can have `ticket` now; `filler` says that only a filler can.
XIO_FN bool xio_is_free(const xio_queue *q, uint64_t ticket, uint64_t sq_head, bool *filler) {
    // One entry of the ring stays free always.
    if (ticket - sq_head > q->entries - 2) {
        return false;
    }
    uint64_t state = xio_load_plainly(&xio_slot_of(q, ticket)->state);
    *filler = (state & XIO_SLOT_POISONED) != 0;
    return (state & ~XIO_SLOT_POISONED) == xio_state(ticket);
}

/// Whether nothing is in flight and no slot is poisoned: then all places from `tail` on are free.
XIO_FN bool xio_is_idle(const xio_queue *q, uint64_t tail) {
    uint64_t reaped = xio_load_plainly(&q->reaped);
    uint32_t poisoned = xio_load(&q->poisoned);
    return ((reaped ^ tail << 1) | poisoned) == 0;
}

/// Writes the words of a command to the entry of `ticket`, whose place is the command's identifier.
XIO_FN void xio_write_words(xio_queue *q, uint64_t ticket, const xio_command &c) {
    uint32_t at = (uint32_t)ticket & (q->entries - 1);
    xio_quad *entry = (xio_quad *)q->sq + (uint64_t)at * 4;
    const uint32_t *w = c.words;
    entry[0] = xio_quad{w[0] | at << 16, w[1], w[2], w[3]};
    entry[1] = xio_quad{w[4], w[5], w[6], w[7]};
    entry[2] = xio_quad{w[8], w[9], w[10], w[11]};
    entry[3] = xio_quad{w[12], w[13], w[14], w[15]};
}

/// Writes the entry of `ticket`, and marks it ready: by the slot's state. `result` is where the answer goes. With the
/// publishing lock (`locked`) nobody looks at the mark before the doorbell, whose fence covers both.
XIO_FN void xio_write_entry(xio_queue *q, uint64_t ticket, const xio_command &c, xio_result *result, bool locked) {
    xio_write_words(q, ticket, c);
    xio_slot *slot = xio_slot_of(q, ticket);
    xio_store(&slot->result, (uint64_t)result);
    result->ticket = ticket;
    if (locked) {
        xio_store_plainly(&slot->state, xio_state(ticket) | XIO_SLOT_BUSY);
    } else {
        xio_store_release(&slot->state, xio_state(ticket) | XIO_SLOT_BUSY);
    }
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

/// Takes the publishing lock if all tickets before `first` are published and nobody has it.
XIO_FN bool xio_begin_publish(xio_queue *q, const xio_wave &w, uint64_t first) {
    uint32_t locked = 0;
    if (w.rank == 0) {
        uint64_t word = first << 1;
        locked = xio_swap_acquire(&q->published, &word, word | XIO_LOCKED);
    }
    return xio_first32(w.lanes, locked) != 0;
}

/// With the publishing lock: lets the controller know of the tickets from `from` to before `to`, and unlocks.
XIO_FN void xio_end_publish(xio_queue *q, const xio_wave &w, uint64_t from, uint64_t to) {
    xio_wave_sync(w.lanes);
    if (w.rank == 0) {
        if (to != from) {
            // Before the doorbell: an answer may come at once, and is compared with it.
            xio_store(&q->published, to << 1 | XIO_LOCKED);
            xio_doorbell((uint32_t *)q->sq_doorbell, (uint32_t)to & (q->entries - 1));
            xio_count_up(&q->doorbells, 1);
        }
        // Behind the doorbell, so that two doorbells never change places.
        xio_store_release(&q->published, to << 1);
    }
}

/// Lets the controller know of the tickets `first` to `first + count - 1`, whose entries are written, and of all that
/// follow and are ready. When it returns it does, or an earlier entry is not written yet: then whoever writes that
/// one publishes these, too.
XIO_FN void xio_publish(xio_queue *q, const xio_wave &w, uint64_t first, uint32_t count) {
    for (uint32_t round = 0;; round++) {
        uint64_t word = first << 1, tail = 0;
        uint32_t locked = 0;
        if (w.rank == 0) {
            // Most often all before are published, and the swap says so and takes the lock at once.
            locked = xio_swap_acquire(&q->published, &word, word | XIO_LOCKED);
            if (!locked && (word & XIO_LOCKED) == 0 && !xio_after(word, (first + count - 1) << 1)) {
                uint64_t seen = word;
                locked = xio_swap_acquire(&q->published, &seen, word | XIO_LOCKED);
            }
            tail = locked ? xio_load(&q->tail) : 0;
        }
        word = xio_first(w.lanes, word);
        if (!xio_first32(w.lanes, locked)) {
            if (xio_after(word & ~XIO_LOCKED, (first + count - 1) << 1)) {
                return;
            }
            xio_pause(round);
            continue;
        }
        // The caller's own need not be looked at, nor is there anything beyond the tail.
        uint64_t from = word >> 1, to = word == first << 1 ? first + count : from;
        uint32_t open = (uint32_t)(xio_first(w.lanes, tail) - to);
        while (open > 0) {
            uint32_t more = xio_prefix(w, w.rank < open && xio_is_ready(q, to + w.rank));
            to += more;
            open -= more;
            if (more < w.count) {
                break;
            }
        }
        xio_end_publish(q, w, from << 1 == to << 1 ? to : from, to);
        return;
    }
}

/// A completion and the slot that it belongs to.
struct xio_taken {
    xio_quad cqe;
    xio_slot *slot;
    uint64_t state;
    uint64_t result;
    /// What is wrong with it: XIO_BROKEN_*, or 0.
    uint32_t wrong;
};

/// Finds the slot of a completion and loads it. With the lock of `reaped`.
XIO_FN void xio_find_slot(xio_queue *q, xio_taken *t) {
    uint32_t cid = t->cqe.w & 0xffff;
    t->wrong = cid >> q->shift > 1 ? XIO_BROKEN_COMMAND_ID : 0;
    t->wrong = t->cqe.z >> 16 != q->qid ? XIO_BROKEN_QUEUE_ID : t->wrong;
    t->slot = xio_slot_of(q, cid);
    xio_load_pair(&t->slot->state, &t->state, &t->result);
}

/// Hands a completion to whoever waits for it, and frees its slot; what is wrong with it, or 0. With the lock of
/// `reaped`; `published` was loaded after the completion was acquired, so it covers the command. `mine` is set to 0 when
/// that was its own result.
XIO_FN uint32_t xio_complete(xio_queue *q, const xio_taken &t, uint64_t published, uint64_t *mine) {
    if (t.wrong != 0) {
        return t.wrong;
    }
    bool filler = (t.cqe.w & 0xffff) >> q->shift == 1;
    uint64_t bits = t.state & (XIO_SLOT_BUSY | XIO_SLOT_POISONED);
    if (!filler && (bits & XIO_SLOT_POISONED)) {
        xio_count_up(&q->late, 1);
        return 0;
    }
    // Compared where a slot's state keeps its ticket: in the upper 62 bits.
    bool sent = xio_after(published << 1, t.state & ~(XIO_SLOT_BUSY | XIO_SLOT_POISONED));
    if (bits != (filler ? XIO_SLOT_BUSY | XIO_SLOT_POISONED : XIO_SLOT_BUSY) || !sent) {
        return XIO_BROKEN_COMMAND_ID;
    }
    // Free again, but for a poisoned one. Whoever takes it overwrites what was read here already.
    xio_store_plainly(&t.slot->state, (t.state ^ XIO_SLOT_BUSY) + xio_state(q->entries));
    if (!filler) {
        // What the command moved is in memory since its completion was acquired; who waits acquires it, too.
        uint32_t status = t.cqe.w >> 17 & XIO_STATUS_MASK;
        xio_store_plainly((uint64_t *)t.result, (uint64_t)t.cqe.x << 32 | XIO_DONE | status);
        *mine = *mine == t.result ? 0 : *mine;
    }
    return 0;
}

/// Takes the lock of `reaped` if it is free, for a wave; the word without the lock, or with it when another has it.
XIO_FN uint64_t xio_lock_reaped(xio_queue *q, const xio_wave &w) {
    uint64_t word = XIO_LOCKED;
    if (w.rank == 0 && (xio_load(&q->reaped) & XIO_LOCKED) == 0) {
        word = xio_set_acquire(&q->reaped, XIO_LOCKED);
    }
    return xio_first(w.lanes, word);
}

#if defined(XIO_HOST)
#define XIO_UNROLL
#else
#define XIO_UNROLL _Pragma("unroll")
#endif

/// Completions that a lane reads at once when there are many: their loads are on their way together.
#define XIO_REAP_EACH 4
/// How often a wave that has the lock looks before it lets go of it, as long as there is something to come: handing the
/// lock from wave to wave would cost more than taking the completions of others along.
#define XIO_REAP_LOOKS 16

/// The completions from `head` on that are there, at most `EACH` for each lane of the wave; their number.
template <uint32_t EACH> XIO_FN uint32_t xio_look(const xio_queue *q, const xio_wave &w, uint64_t head, uint32_t open) {
    uint32_t dwords[EACH], count = 0;
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        uint64_t at = head + n * w.count + w.rank;
        const uint32_t *entry = (const uint32_t *)((const xio_quad *)q->cq + (at & (q->entries - 1)));
        dwords[n] = n * w.count + w.rank < open ? xio_load_phase(entry + 3) : 0;
    }
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        // The phase is 1 in the first lap and changes with each.
        uint64_t at = head + n * w.count + w.rank;
        bool lap = (at >> q->shift & 1) == 0, phase = (dwords[n] & XIO_CQE_PHASE) != 0;
        bool here = n * w.count + w.rank < open && phase == lap;
        count += count == n * w.count ? xio_prefix(w, here) : 0;
    }
    return count;
}

/// What xio_take finds.
struct xio_chunk {
    /// Completions that were taken.
    uint32_t count;
    /// XIO_BROKEN_* of this lane's, or 0.
    uint32_t broken;
    /// Head of the submission queue by the last completion of this lane.
    uint32_t sqhd;
    /// q->published without the lock, as of after the completions.
    uint64_t published;
};

/// Takes the completions from `head` on that are there, of `open` that can come. With the lock of `reaped`.
template <uint32_t EACH>
XIO_FN xio_chunk xio_take(xio_queue *q, const xio_wave &w, uint64_t head, uint32_t open, uint64_t *mine) {
    xio_chunk chunk = {xio_look<EACH>(q, w, head, open), 0, 0, 0};
    if (chunk.count == 0) {
        return chunk;
    }
    xio_acquire_system();
    chunk.published = xio_load(&q->published) & ~XIO_LOCKED;
    xio_taken taken[EACH] = {};
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        if (n * w.count + w.rank < chunk.count) {
            uint64_t at = (head + n * w.count + w.rank) & (q->entries - 1);
            taken[n].cqe = xio_load_entry((const xio_quad *)q->cq + at);
        }
    }
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        if (n * w.count + w.rank < chunk.count) {
            xio_find_slot(q, &taken[n]);
        }
    }
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        if (n * w.count + w.rank < chunk.count) {
            uint32_t wrong = xio_complete(q, taken[n], chunk.published, mine);
            chunk.broken = wrong != 0 ? wrong : chunk.broken;
            chunk.sqhd = taken[n].cqe.z & 0xffff;
        }
    }
    return chunk;
}

/// What xio_reap gives when another wave is at it.
#define XIO_REAP_BUSY (~0u)

/// Takes the completions that are there; how many. A lane that hands out the result at address `mine` itself sets it to
/// 0: then it has acquired what its command moved.
XIO_FN uint32_t xio_reap(xio_queue *q, const xio_wave &w, uint64_t *mine) {
    uint64_t word = xio_lock_reaped(q, w);
    if (word & XIO_LOCKED) {
        return XIO_REAP_BUSY;
    }
    uint64_t published = xio_first(w.lanes, xio_load(&q->published)) & ~XIO_LOCKED;
    uint64_t sq_head = xio_load(&q->sq_head), head = word >> 1;
    uint32_t broken = 0;
    for (uint32_t look = 0; look < XIO_REAP_LOOKS && broken == 0; look++) {
        // As many as were published can come, and no more than the ring holds.
        uint32_t open = (uint32_t)((published - (head << 1)) >> 1);
        open = open > q->entries - 1 ? q->entries - 1 : open;
        if (open == 0) {
            break;
        }
        xio_chunk chunk = open <= w.count ? xio_take<1>(q, w, head, open, mine)
                                          : xio_take<XIO_REAP_EACH>(q, w, head, open, mine);
        uint32_t count = chunk.count, sqhd = chunk.sqhd;
        if (count == 0) {
            xio_pause(0);
            continue;
        }
        broken = chunk.broken;
        published = xio_first(w.lanes, chunk.published);
        // The last completion is that of the lane with the highest place.
        xio_lanes has = xio_ballot(w.lanes, (count - 1) % w.count == w.rank);
        sqhd = xio_last32(has, sqhd);
        uint64_t fetched = sq_head + ((sqhd - (uint32_t)sq_head) & (q->entries - 1));
        if (sqhd >= q->entries || xio_after(fetched << 1, published)) {
            broken = XIO_BROKEN_HEAD;
        } else {
            sq_head = fetched;
        }
        head += count;
        if (w.rank == 0) {
            xio_store(&q->sq_head, sq_head);
            xio_doorbell_head((uint32_t *)q->cq_doorbell, (uint32_t)head & (q->entries - 1));
            xio_count_up(&q->cq_doorbells, 1);
        }
        xio_lanes wrong = xio_ballot(w.lanes, broken != 0);
        broken = wrong != 0 && broken == 0 ? xio_last32(wrong, broken) : broken;
        // A lane alone goes as soon as it has what it came for.
        if (wrong != 0 || (w.count == 1 && *mine == 0)) {
            break;
        }
    }
    if (broken != 0) {
        xio_store(&q->broken, broken);
    }
    xio_wave_sync(w.lanes);
    if (w.rank == 0) {
        if (head != word >> 1) {
            // Behind the doorbells, so that those of two waves never change places.
            xio_store_release(&q->reaped, head << 1);
        } else {
            xio_store_plainly(&q->reaped, word);
        }
    }
    return (uint32_t)(head - (word >> 1));
}

#endif // XIO_KV_RING_H
