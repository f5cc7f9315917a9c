// SPDX-License-Identifier: MIT OR Apache-2.0
// The rings: tickets, entries, doorbells, completions. Included by xio_kv.h, which tells how it works. The functions
// here are the library's own; kernels use those of xio_kv_call.h and xio_kv_batch.h.
#ifndef XIO_KV_RING_H
#define XIO_KV_RING_H

/// A queue, with what never changes of it at hand: kept in registers, where acquiring does not make it be loaded again.
struct xio_view {
    uint64_t sq, cq, sq_doorbell, cq_doorbell, slots, timeout;
    uint32_t entries, shift, qid;
    xio_queue *state;
};

XIO_FN xio_view xio_view_of(xio_queue *q) {
    xio_view view;
    uint64_t entries_shift, qid;
    xio_load_fixed(&q->sq, &view.sq, &view.cq);
    xio_load_fixed(&q->sq_doorbell, &view.sq_doorbell, &view.cq_doorbell);
    xio_load_fixed(&q->slots, &view.slots, &view.timeout);
    xio_load_fixed((const uint64_t *)&q->entries, &entries_shift, &qid);
    view.entries = (uint32_t)entries_shift;
    view.shift = (uint32_t)(entries_shift >> 32);
    view.qid = (uint32_t)qid;
    view.state = q;
    return view;
}

XIO_FN xio_slot *xio_slot_of(const xio_view &q, uint64_t ticket) {
    return (xio_slot *)q.slots + (ticket & (q.entries - 1));
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
XIO_FN bool xio_is_free(const xio_view &q, uint64_t ticket, uint64_t sq_head, bool *filler) {
    // One entry of the ring stays free always.
    if (ticket - sq_head > q.entries - 2) {
        return false;
    }
    uint64_t state = xio_load_plainly(&xio_slot_of(q, ticket)->state);
    *filler = (state & XIO_SLOT_POISONED) != 0;
    return (state & ~XIO_SLOT_POISONED) == xio_state(ticket);
}

/// What decides whether there are places, loaded at once.
struct xio_seen {
    uint64_t tail;
    uint64_t sq_head;
    uint64_t reaped;
    uint32_t poisoned;
};

XIO_FN xio_seen xio_see(const xio_view &q) {
    xio_seen seen;
    seen.tail = xio_load(&q.state->tail);
    seen.sq_head = xio_load(&q.state->sq_head);
    seen.reaped = xio_load_plainly(&q.state->reaped);
    seen.poisoned = xio_load(&q.state->poisoned);
    return seen;
}

/// Whether nothing is in flight and no slot is poisoned: then all places from the tail on are free, and stay so as long
/// as the tail is the same.
XIO_FN bool xio_is_idle(const xio_seen &seen) { return ((seen.reaped ^ seen.tail << 1) | seen.poisoned) == 0; }

/// Writes the words of a command to the entry of `ticket`, whose place is the command's identifier.
XIO_FN void xio_write_words(const xio_view &q, uint64_t ticket, const xio_command &c) {
    uint32_t at = (uint32_t)ticket & (q.entries - 1);
    xio_quad *entry = (xio_quad *)q.sq + (uint64_t)at * 4;
    const uint32_t *w = c.words;
    entry[0] = xio_quad{w[0] | at << 16, w[1], w[2], w[3]};
    entry[1] = xio_quad{w[4], w[5], w[6], w[7]};
    entry[2] = xio_quad{w[8], w[9], w[10], w[11]};
    entry[3] = xio_quad{w[12], w[13], w[14], w[15]};
}

/// Writes the entry of `ticket`, and marks it ready: by the slot's state. `result` is where the answer goes. With the
/// publishing lock (`locked`) nobody looks at the mark before the doorbell, whose fence covers both.
XIO_FN void xio_write_entry(const xio_view &q, uint64_t ticket, const xio_command &c, xio_result *result, bool locked) {
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
XIO_FN void xio_write_filler(const xio_view &q, uint64_t ticket, uint32_t nsid) {
    uint32_t at = (uint32_t)ticket & (q.entries - 1);
    xio_quad *entry = (xio_quad *)q.sq + (uint64_t)at * 4;
    entry[0] = xio_quad{XIO_OP_EXIST | (at + q.entries) << 16, nsid, 0, 0};
    entry[1] = xio_quad{0, 0, 0, 0};
    entry[2] = xio_quad{0, 0, 0, 1};
    entry[3] = xio_quad{0, 0, 0, 0};
    xio_store_release(&xio_slot_of(q, ticket)->state, xio_state(ticket) | XIO_SLOT_BUSY | XIO_SLOT_POISONED);
}

/// Whether the entry of `ticket` was written. A command may have been given up since, before it was published.
XIO_FN bool xio_is_ready(const xio_view &q, uint64_t ticket) {
    uint64_t state = xio_load_acquire(&xio_slot_of(q, ticket)->state) & ~XIO_SLOT_POISONED;
    return state == (xio_state(ticket) | XIO_SLOT_BUSY) || state == xio_state(ticket + q.entries);
}

/// How many of the first lanes of a wave, without a gap, have `yes`.
XIO_FN uint32_t xio_prefix(const xio_wave &w, bool yes) {
    xio_lanes no = xio_ballot(w.lanes, !yes);
    return no == 0 ? w.count : xio_count(w.lanes & ((no & -no) - 1));
}

/// Takes tickets from one on, and the publishing lock with them if it is free and all before are published: asked for
/// at once, since most often nobody else is there.
struct xio_taking {
    xio_change tickets;
    xio_change lock;
};

XIO_FN xio_taking xio_want_tickets(const xio_view &q, uint64_t tail, uint32_t count) {
    return xio_taking{{&q.state->tail, tail, tail + count, false},
                      {&q.state->published, tail << 1, tail << 1 | XIO_LOCKED, false}};
}

/// Gives a lock back that was of no use, since the tickets went to another.
XIO_FN void xio_give_back(xio_change *lock, const xio_change &tickets) {
    if (lock->done && !tickets.done) {
        xio_store_release(lock->p, lock->from);
        lock->done = false;
    }
}

/// Takes `count` tickets from `tail` on, and the publishing lock if `lock` says so. One lane.
XIO_FN xio_taking xio_take_tickets(const xio_view &q, uint64_t tail, uint32_t count, bool lock) {
    xio_taking take = xio_want_tickets(q, tail, count);
    if (lock) {
        xio_swap_two(&take.tickets, &take.lock);
    } else {
        take.tickets.done = xio_swap(take.tickets.p, take.tickets.from, take.tickets.to);
    }
    xio_acquire_locks();
    xio_give_back(&take.lock, take.tickets);
    return take;
}

/// When nothing is in flight: takes `count` tickets from `tail` on, the publishing lock, and that of `reaped` (`reap`), all at once.
/// One lane.
XIO_FN xio_taking xio_take_all(const xio_view &q, uint64_t tail, uint32_t count, xio_change *reap) {
    xio_taking take = xio_want_tickets(q, tail, count);
    *reap = xio_change{&q.state->reaped, tail << 1, tail << 1 | XIO_LOCKED, false};
    xio_swap_three(&take.tickets, &take.lock, reap);
    xio_acquire_locks();
    xio_give_back(&take.lock, take.tickets);
    xio_give_back(reap, take.tickets);
    return take;
}

/// With the publishing lock: lets the controller know of the tickets to before `to`, and unlocks. One lane.
XIO_FN void xio_ring(const xio_view &q, uint64_t to) {
    // Before the doorbell: an answer may come at once, and is compared with it.
    xio_store(&q.state->published, to << 1 | XIO_LOCKED);
    xio_doorbell((uint32_t *)q.sq_doorbell, (uint32_t)to & (q.entries - 1));
    xio_count_up(&q.state->doorbells, 1);
    // Behind the doorbell, so that two doorbells never change places.
    xio_store_release(&q.state->published, to << 1);
}

/// Likewise for a wave, the tickets from `from` on, if there are any.
XIO_FN void xio_end_publish(const xio_view &q, const xio_wave &w, uint64_t from, uint64_t to) {
    xio_wave_sync(w.lanes);
    if (w.rank == 0 && to != from) {
        xio_ring(q, to);
    } else if (w.rank == 0) {
        xio_store_release(&q.state->published, to << 1);
    }
}

/// Lets the controller know of the tickets `first` to `first + count - 1`, whose entries are written, and of all that
/// follow and are ready. When it returns it does, or an earlier entry is not written yet: then whoever writes that
/// one publishes these, too.
XIO_APART void xio_publish(xio_queue *queue, xio_wave w, uint64_t first, uint32_t count) {
    const xio_view q = xio_view_of(queue);
    for (uint32_t round = 0;; round++) {
        uint64_t word = first << 1, tail = 0;
        uint32_t locked = 0;
        if (w.rank == 0) {
            // Most often all before are published, and the swap says so and takes the lock at once.
            locked = xio_swap_acquire(&q.state->published, &word, word | XIO_LOCKED);
            if (!locked && (word & XIO_LOCKED) == 0 && !xio_after(word, (first + count - 1) << 1)) {
                uint64_t seen = word;
                locked = xio_swap_acquire(&q.state->published, &seen, word | XIO_LOCKED);
            }
            tail = locked ? xio_load(&q.state->tail) : 0;
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
};

/// Loads a completion and its slot. `dword` is the one with the phase, which was seen before: it names the slot, so
/// that nothing waits for the rest. With the lock of `reaped`, behind xio_acquire_system.
XIO_FN void xio_load_taken(const xio_view &q, uint64_t at, uint32_t dword, xio_taken *t) {
    t->cqe = xio_load_entry((const xio_quad *)q.cq + (at & (q.entries - 1)));
    t->cqe.w = dword;
    t->slot = xio_slot_of(q, dword & 0xffff);
    xio_load_pair(&t->slot->state, &t->state, &t->result);
}

/// Hands a completion to whoever waits for it, and frees its slot; what is wrong with it (XIO_BROKEN_*), or 0. With the
/// lock of `reaped`; `published` was loaded after the completion was acquired, so it covers the command. `mine` is set
/// to 0 when that was its own result.
XIO_FN uint32_t xio_complete(const xio_view &q, const xio_taken &t, uint64_t published, uint64_t *mine) {
    uint32_t kind = (t.cqe.w & 0xffff) >> q.shift;
    if (t.cqe.z >> 16 != q.qid) {
        return XIO_BROKEN_QUEUE_ID;
    }
    bool filler = kind == 1;
    uint64_t bits = t.state & (XIO_SLOT_BUSY | XIO_SLOT_POISONED);
    if (kind == 0 && (bits & XIO_SLOT_POISONED)) {
        xio_count_up(&q.state->late, 1);
        return 0;
    }
    // Compared where a slot's state keeps its ticket: in the upper 62 bits.
    bool sent = xio_after(published << 1, t.state & ~(XIO_SLOT_BUSY | XIO_SLOT_POISONED));
    if (kind > 1 || bits != (filler ? XIO_SLOT_BUSY | XIO_SLOT_POISONED : XIO_SLOT_BUSY) || !sent) {
        return XIO_BROKEN_COMMAND_ID;
    }
    // Free again, but for a poisoned one. Whoever takes it overwrites what was read here already.
    xio_store_plainly(&t.slot->state, (t.state ^ XIO_SLOT_BUSY) + xio_state(q.entries));
    if (!filler) {
        // What the command moved is in memory since its completion was acquired; who waits acquires it, too.
        uint32_t status = t.cqe.w >> 17 & XIO_STATUS_MASK;
        xio_store_plainly((uint64_t *)t.result, (uint64_t)t.cqe.x << 32 | XIO_DONE | status);
        *mine = *mine == t.result ? 0 : *mine;
    }
    return 0;
}

/// Takes the lock of `reaped` if it is free, for a wave; the word without the lock, or with it when another has it.
XIO_FN uint64_t xio_lock_reaped(const xio_view &q, const xio_wave &w) {
    uint64_t word = XIO_LOCKED;
    if (w.rank == 0 && (xio_load(&q.state->reaped) & XIO_LOCKED) == 0) {
        word = xio_set_acquire(&q.state->reaped, XIO_LOCKED);
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

/// A caller's share of the completions from `head` on: the one at `rank`, the one `step` further, ..., EACH of them.
template <uint32_t EACH> struct xio_share {
    uint64_t head;
    uint32_t rank;
    uint32_t step;
    /// Their dwords with the phase, as they were seen.
    uint32_t dwords[EACH];
};

/// Whether `dword` is that of a completion that came, at a place counted from the queue's beginning.
XIO_FN bool xio_has_come(const xio_view &q, uint64_t at, uint32_t dword) {
    // The phase is 1 in the first lap and changes with each.
    return ((dword & XIO_CQE_PHASE) != 0) == ((at >> q.shift & 1) == 0);
}

/// The dword with the phase of the completion at a place, which is one of EACH that a lane looks at.
template <uint32_t EACH> XIO_FN uint32_t xio_look_at(const xio_view &q, uint64_t at) {
    const uint32_t *entry = (const uint32_t *)((const xio_quad *)q.cq + (at & (q.entries - 1)));
    return EACH == 1 ? xio_load_phase_alone(entry + 3) : xio_load_phase(entry + 3);
}

/// Behind it, what the controller wrote before EACH dwords with phases can be read.
template <uint32_t EACH> XIO_FN void xio_acquire_looks() {
    if (EACH == 1) {
        xio_acquire_phase();
    } else {
        xio_acquire_system();
    }
}

/// The completions that are there, of `open` that can come; their number. Each lane of the wave with its share.
template <uint32_t EACH>
XIO_FN uint32_t xio_look(const xio_view &q, const xio_wave &w, uint32_t open, xio_share<EACH> *share) {
    uint32_t count = 0;
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        uint32_t i = n * share->step + share->rank;
        share->dwords[n] = i < open ? xio_look_at<EACH>(q, share->head + i) : 0;
    }
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        uint32_t i = n * share->step + share->rank;
        bool here = i < open && xio_has_come(q, share->head + i, share->dwords[n]);
        count += count == n * share->step ? xio_prefix(w, here) : 0;
    }
    return count;
}

/// What xio_hand_out found.
struct xio_found {
    /// XIO_BROKEN_* of one of the caller's, or 0.
    uint32_t broken;
    /// Head of the submission queue by the last completion of the caller, and its status.
    uint32_t sqhd;
    uint32_t status;
    /// q->published without the lock, as of after the completions.
    uint64_t published;
};

/// Hands out the caller's share of the first `count` completions, which are there. With the lock of `reaped`.
template <uint32_t EACH>
XIO_FN xio_found xio_hand_out(const xio_view &q, const xio_share<EACH> &share, uint32_t count, uint64_t *mine) {
    xio_acquire_looks<EACH>();
    xio_found found = {0, 0, 0, xio_load(&q.state->published) & ~XIO_LOCKED};
    xio_taken taken[EACH] = {};
    // All loads before anything waits for one.
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        uint32_t i = n * share.step + share.rank;
        if (i < count) {
            xio_load_taken(q, share.head + i, share.dwords[n], &taken[n]);
        }
    }
    XIO_UNROLL
    for (uint32_t n = 0; n < EACH; n++) {
        if (n * share.step + share.rank < count) {
            if (EACH == 1 && taken[n].result != *mine) {
                xio_release_result();
            }
            uint32_t wrong = xio_complete(q, taken[n], found.published, mine);
            found.broken = wrong != 0 ? wrong : found.broken;
            found.sqhd = taken[n].cqe.z & 0xffff;
            found.status = taken[n].cqe.w >> 17 & XIO_STATUS_MASK;
        }
    }
    return found;
}

/// Takes the completions from `head` on that are there, of `open` that can come; how many. With the lock of `reaped`.
template <uint32_t EACH>
XIO_FN uint32_t xio_take(const xio_view &q, const xio_wave &w, uint64_t head, uint32_t open, uint64_t *mine,
                         xio_found *found) {
    xio_share<EACH> share = {head, w.rank, w.count, {}};
    uint32_t count = xio_look(q, w, open, &share);
    if (count > 0) {
        *found = xio_hand_out(q, share, count, mine);
    }
    return count;
}

/// The heads of both queues, for whoever has the lock of `reaped`.
struct xio_heads {
    uint64_t sq;
    uint64_t cq;
};

/// Moves the heads on by `count` completions, whose last carries `sqhd`; XIO_BROKEN_HEAD or 0.
XIO_FN uint32_t xio_move_heads(const xio_view &q, xio_heads *heads, uint32_t count, uint32_t sqhd, uint64_t published) {
    uint64_t fetched = heads->sq + ((sqhd - (uint32_t)heads->sq) & (q.entries - 1));
    heads->cq += count;
    if (sqhd >= q.entries || xio_after(fetched << 1, published)) {
        return XIO_BROKEN_HEAD;
    }
    heads->sq = fetched;
    return 0;
}

/// Lets others know of the heads; and the controller, when half of the completion queue may be in use by completions
/// that came or can come and are not known to be read. Until then it has room for them. One lane.
XIO_FN void xio_show_heads(const xio_view &q, const xio_heads &heads, uint64_t published, uint64_t *known) {
    xio_store(&q.state->sq_head, heads.sq);
    if (published - (*known << 1) >= q.entries) {
        *known = heads.cq;
        xio_store(&q.state->cq_known, heads.cq);
        xio_doorbell_head((uint32_t *)q.cq_doorbell, (uint32_t)heads.cq & (q.entries - 1));
        xio_count_up(&q.state->cq_doorbells, 1);
    }
}

/// What xio_reap did.
struct xio_reaped {
    /// Completions that were taken; XIO_REAP_BUSY when another wave is at it.
    uint32_t count;
    /// Whether this lane handed out the result that it named: then it has acquired what its command moved. To a lane alone:
    /// and with which status.
    bool mine;
    uint32_t status;
};
#define XIO_REAP_BUSY (~0u)

/// The lock of `reaped`, as a lane alone has it: the word without the lock, and `published` as of then. The word with the lock:
/// it does not have it.
struct xio_held {
    uint64_t word;
    uint64_t published;
};

/// Takes the completions that are there. `mine` is the address of a result, or 0. The lock is taken, and given back in any case.
XIO_APART xio_reaped xio_reap(xio_queue *queue, xio_wave w, uint64_t mine, xio_held held = {XIO_LOCKED, 0}) {
    const xio_view q = xio_view_of(queue);
    uint64_t word = held.word, published = held.published;
    if (word & XIO_LOCKED) {
        word = xio_lock_reaped(q, w);
        if (word & XIO_LOCKED) {
            return xio_reaped{XIO_REAP_BUSY, false, 0};
        }
        published = xio_first(w.lanes, xio_load(&q.state->published)) & ~XIO_LOCKED;
    }
    uint64_t wanted = mine;
    uint64_t known = xio_load(&q.state->cq_known);
    xio_heads heads = {xio_load(&q.state->sq_head), word >> 1};
    uint32_t broken = 0, status = 0;
    for (uint32_t look = 0; look < XIO_REAP_LOOKS && broken == 0; look++) {
        // As many as were published can come, and no more than the ring holds.
        uint32_t open = (uint32_t)((published - (heads.cq << 1)) >> 1);
        open = open > q.entries - 1 ? q.entries - 1 : open;
        if (open == 0) {
            break;
        }
        xio_found found = {};
        uint32_t count = open <= w.count ? xio_take<1>(q, w, heads.cq, open, &mine, &found)
                                         : xio_take<XIO_REAP_EACH>(q, w, heads.cq, open, &mine, &found);
        if (count == 0) {
            xio_pause(0);
            continue;
        }
        published = xio_first(w.lanes, found.published);
        status = found.status;
        // The last completion is that of the lane with the highest place.
        xio_lanes has = xio_ballot(w.lanes, (count - 1) % w.count == w.rank);
        uint32_t wrong = xio_move_heads(q, &heads, count, xio_last32(has, found.sqhd), published);
        if (w.rank == 0) {
            xio_show_heads(q, heads, published, &known);
        }
        broken = wrong != 0 ? wrong : found.broken;
        xio_lanes broke = xio_ballot(w.lanes, broken != 0);
        broken = broke != 0 ? xio_last32(broke, broken) : 0;
        // A lane alone goes as soon as it has what it came for.
        if (w.count == 1 && mine == 0) {
            break;
        }
    }
    if (broken != 0) {
        xio_store(&q.state->broken, broken);
    }
    xio_wave_sync(w.lanes);
    if (w.rank == 0) {
        if (heads.cq != word >> 1) {
            // Behind the doorbells, so that those of two waves never change places.
            xio_store_release(&q.state->reaped, heads.cq << 1);
        } else {
            xio_store_plainly(&q.state->reaped, word);
        }
    }
    return xio_reaped{(uint32_t)(heads.cq - (word >> 1)), mine != wanted, status};
}

#endif // XIO_KV_RING_H
