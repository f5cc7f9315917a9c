// SPDX-License-Identifier: MIT OR Apache-2.0
// Submitting and waiting, for any thread. Included by xio_kv.h.
#ifndef XIO_KV_CALL_H
#define XIO_KV_CALL_H

/// Whether a result is there. What the command moved can be read behind xio_acquire_result only.
XIO_FN bool xio_is_done(const xio_result *result) {
    return (xio_load_plainly((const uint64_t *)result) & XIO_DONE) != 0;
}

/// A result without any command: `status` is one of XIO_STATUS_*.
XIO_FN void xio_set_result(xio_result *result, uint32_t status) {
    xio_store_release((uint64_t *)result, (uint64_t)(XIO_DONE | status));
}

/// The status of a result that is there: that of NVMe or one of XIO_STATUS_*.
XIO_FN uint32_t xio_status(const xio_result *result) { return result->status & ~XIO_DONE; }

/// Submits a command and lets the controller know. `result` is written when the command is done: do not touch it,
/// and keep the command's memory, until then. When the command can not be submitted (XIO_STATUS_FULL at the deadline,
/// XIO_STATUS_BROKEN, XIO_STATUS_INVALID), the result says so at once.
///
/// Waits only while the ring is full, and takes completions meanwhile. Any thread; lanes that call together take
/// their tickets with one operation and ring once.
XIO_FN void xio_submit(xio_queue *queue, const xio_command &command, xio_result *result) {
    const xio_view q = xio_view_of(queue);
    xio_wave all = xio_wave_here();
    uint64_t start = 0;
    bool pending = command.valid;
    xio_store((uint64_t *)result, (uint64_t)0);
    if (!pending) {
        xio_set_result(result, XIO_STATUS_INVALID);
    }
    for (uint32_t round = 0;; round++) {
        xio_lanes lanes = xio_ballot(all.lanes, pending);
        if (lanes == 0) {
            break;
        }
        uint32_t rank = xio_rank(lanes), wanted = xio_count(lanes);
        // All loads before anything waits for one. Lanes agree on the tail of one of them.
        xio_seen seen = xio_see(q);
        uint64_t tail = xio_first(all.lanes, seen.tail);
        bool filler = false, free = true;
        if (pending && !(wanted < q.entries && seen.tail == tail && xio_is_idle(seen))) {
            free = xio_is_free(q, tail + rank, seen.sq_head, &filler);
        }
        // Tickets are taken up to the first that is not free.
        xio_lanes blocked = xio_ballot(all.lanes, !free);
        uint32_t count = blocked == 0 ? wanted : xio_count(lanes & ((blocked & -blocked) - 1));
        xio_taking got = {};
        if (all.rank == 0 && count > 0) {
            got = xio_take_tickets(q, tail, count, true);
        }
        if (xio_first32(all.lanes, got.tickets.done)) {
            bool locked = xio_first32(all.lanes, got.lock.done) != 0;
            if (pending && rank < count) {
                if (filler) {
                    xio_write_filler(q, tail + rank, command.words[1]);
                } else {
                    xio_write_entry(q, tail + rank, command, result, locked);
                    pending = false;
                }
            }
            if (locked) {
                xio_end_publish(q, all, tail, tail + count);
            } else {
                xio_publish(queue, all, tail, count);
            }
            continue;
        }
        uint32_t reaped = count > 0 ? 1 : xio_reap(queue, all, 0).count;
        if (reaped > 0 && reaped != XIO_REAP_BUSY) {
            continue;
        }
        bool broken = xio_load(&q.state->broken) != 0;
        start = start == 0 ? xio_clock() : start;
        if (broken || xio_clock() - start > q.timeout) {
            if (pending) {
                xio_set_result(result, broken ? XIO_STATUS_BROKEN : XIO_STATUS_FULL);
                pending = false;
            }
            continue;
        }
        xio_pause(round);
    }
}

/// Gives up the commands of the lanes with `over`, if no other wave is taking completions: their slots are poisoned,
/// and nothing will write their results any more. An answer that came in the very moment stays.
XIO_APART void xio_give_up(xio_queue *queue, xio_wave w, bool over, xio_result *result, uint32_t status) {
    const xio_view q = xio_view_of(queue);
    uint64_t word = xio_lock_reaped(q, w);
    if (word & XIO_LOCKED) {
        return;
    }
    if (over && !xio_is_done(result)) {
        uint64_t ticket = result->ticket;
        xio_slot *slot = xio_slot_of(q, ticket);
        if (xio_load_plainly(&slot->state) == (xio_state(ticket) | XIO_SLOT_BUSY)) {
            xio_store_plainly(&slot->state, xio_state(ticket + q.entries) | XIO_SLOT_POISONED);
            xio_set_result(result, status);
            xio_add(&q.state->poisoned, 1u);
        }
    }
    xio_release_device();
    xio_wave_sync(w.lanes);
    if (w.rank == 0) {
        xio_store_release(&q.state->reaped, word);
    }
}

/// Waits until a command is done; then `result` is there, and so are the bytes that the command moved. At the queue's
/// deadline, counted from this call, the command is given up: XIO_STATUS_TIMEOUT, its slot is poisoned, and its memory
/// may still be written to until the queue is deleted.
///
/// Any thread, also another than that which submitted, ordered behind it. Lanes that call together wait together, and
/// take completions for everybody.
XIO_FN void xio_wait(xio_queue *q, xio_result *result) {
    xio_wave all = xio_wave_here();
    uint64_t start = 0;
    bool waiting = true, mine = false;
    for (uint32_t round = 0;; round++) {
        waiting = waiting && !mine && !xio_is_done(result);
        if (xio_ballot(all.lanes, waiting) == 0) {
            break;
        }
        xio_reaped reaped = xio_reap(q, all, (uint64_t)result);
        mine = mine || reaped.mine;
        if (reaped.count > 0 && reaped.count != XIO_REAP_BUSY) {
            round = 0;
            continue;
        }
        bool broken = xio_load(&q->broken) != 0;
        // Quick answers need no look at the clock.
        start = start == 0 ? xio_clock() : start;
        uint64_t waited = xio_clock() - start;
        bool over = waiting && (broken || waited > q->timeout);
        if (xio_ballot(all.lanes, over) != 0) {
            xio_give_up(q, all, over, result, broken ? XIO_STATUS_BROKEN : XIO_STATUS_TIMEOUT);
            // A result that never was submitted with has no answer and nothing to give up.
            if (over && waited / 2 > q->timeout && !xio_is_done(result)) {
                xio_set_result(result, XIO_STATUS_INVALID);
            }
        }
        xio_pause(round);
    }
    if (!mine) {
        xio_acquire_result();
    }
}

/// Takes completions that are there, without waiting; whether the command is done. Any thread.
XIO_FN bool xio_poll(xio_queue *q, xio_result *result) {
    xio_wave all = xio_wave_here();
    if (xio_ballot(all.lanes, !xio_is_done(result)) != 0) {
        xio_reap(q, all, 0);
    }
    bool done = xio_is_done(result);
    xio_acquire_result();
    return done;
}

/// A call of a lane alone when nothing is in flight: it takes its ticket and both locks at once, and keeps that of `reaped` until the
/// answer is there. False when it is not so; then nothing was done.
XIO_FN bool xio_call_alone(xio_queue *queue, const xio_wave &lane, const xio_command &command, xio_result *result,
                           uint32_t *status) {
    const xio_view q = xio_view_of(queue);
    xio_seen seen = xio_see(q);
    if (!command.valid || !xio_is_idle(seen)) {
        return false;
    }
    xio_change reap;
    xio_taking got = xio_take_all(q, seen.tail, 1, &reap);
    if (!got.tickets.done) {
        return false;
    }
    // Not with a doorbell yet to wait for.
    xio_give_back(&reap, got.lock);
    xio_store((uint64_t *)result, (uint64_t)0);
    xio_write_entry(q, seen.tail, command, result, got.lock.done);
    if (got.lock.done) {
        xio_ring(q, seen.tail + 1);
    } else {
        xio_publish(queue, lane, seen.tail, 1);
    }
    xio_reaped reaped = {0, false, 0};
    if (reap.done) {
        reaped = xio_reap(queue, lane, (uint64_t)result, xio_held{seen.tail << 1, (seen.tail + 1) << 1});
    }
    if (!reaped.mine) {
        xio_wait(queue, result);
    }
    *status = reaped.mine ? reaped.status : xio_status(result);
    return true;
}

/// Submits and waits; the status.
XIO_FN uint32_t xio_call(xio_queue *q, const xio_command &command, xio_result *result) {
    xio_wave all = xio_wave_here();
    uint32_t status;
    if (all.count == 1 && xio_call_alone(q, all, command, result, &status)) {
        return status;
    }
    xio_submit(q, command, result);
    xio_wait(q, result);
    return xio_status(result);
}

/// Stores `len` bytes at `offset` of `buffer` as the value of `key`; waits. `options`: XIO_STORE_*. The status: XIO_OK,
/// XIO_EXISTS and XIO_NOT_FOUND by the options, XIO_FULL, ...
XIO_FN uint32_t xio_kv_store(xio_queue *q, uint32_t nsid, const xio_key &key, const xio_buffer &buffer,
                             uint64_t offset, uint32_t len, uint32_t options, xio_result *result) {
    return xio_call(q, xio_cmd_store(nsid, key, xio_range_of(buffer, offset, len), len, options), result);
}

/// Retrieves the value of `key`, at most `len` bytes, to `offset` of `buffer`; waits. `result->length` is the true
/// length. The status: XIO_OK, XIO_NOT_FOUND, ...
XIO_FN uint32_t xio_kv_retrieve(xio_queue *q, uint32_t nsid, const xio_key &key, const xio_buffer &buffer,
                                uint64_t offset, uint32_t len, uint32_t options, xio_result *result) {
    return xio_call(q, xio_cmd_retrieve(nsid, key, xio_range_of(buffer, offset, len), len, options), result);
}

/// Asks whether `key` exists; waits. XIO_OK, XIO_NOT_FOUND, ...
XIO_FN uint32_t xio_kv_exist(xio_queue *q, uint32_t nsid, const xio_key &key, xio_result *result) {
    return xio_call(q, xio_cmd_exist(nsid, key), result);
}

/// Deletes `key` and its value; waits. XIO_OK, XIO_NOT_FOUND, ...
XIO_FN uint32_t xio_kv_delete(xio_queue *q, uint32_t nsid, const xio_key &key, xio_result *result) {
    return xio_call(q, xio_cmd_delete(nsid, key), result);
}

/// Lists keys from `start` on into `len` bytes at `offset` of `buffer`; waits.
XIO_FN uint32_t xio_kv_list(xio_queue *q, uint32_t nsid, const xio_key &start, const xio_buffer &buffer,
                            uint64_t offset, uint32_t len, xio_result *result) {
    return xio_call(q, xio_cmd_list(nsid, start, xio_range_of(buffer, offset, len), len), result);
}

#endif // XIO_KV_CALL_H
