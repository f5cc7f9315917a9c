// SPDX-License-Identifier: MIT OR Apache-2.0
// A block together: each thread has some of the commands, and the doorbell is rung once for all. Included by
// xio_kv.h.
#ifndef XIO_KV_BATCH_H
#define XIO_KV_BATCH_H

/// What the threads of a block share during xio_batch. Declare it XIO_SHARED in the kernel.
struct xio_block_state {
    /// The first thread's: the queue that had nothing in flight at the end of the last batch, or 0, and its tail then.
    const xio_queue *idle;
    uint64_t tail;
    /// First ticket, if `taken` is not 0.
    uint64_t first;
    /// Entries fetched by the controller, as seen by the first thread.
    uint64_t sq_head;
    /// Completions taken before those that the block takes together.
    uint64_t head;
    /// q->published as of the last of them.
    uint64_t published;
    /// Tickets that are free from `first` on.
    uint32_t free;
    /// Tickets that were taken; 0 to try again, XIO_BATCH_STOP when none can be had any more.
    uint32_t taken;
    /// Status of the commands that can not be submitted then.
    uint32_t status;
    /// XIO_BATCH_*: what else there is to know of the tickets.
    uint32_t flags;
    /// Completions that the block waits for together; how many of them came; head of the submission queue by the last.
    uint32_t open;
    uint32_t came;
    uint32_t sqhd;
};

/// Value of `taken`.
#define XIO_BATCH_STOP (~0u)
/// Nothing was in flight, so all wanted tickets were taken without looking at their slots.
#define XIO_BATCH_IDLE 1u
/// The block has the publishing lock.
#define XIO_BATCH_PUBLISHES 2u
/// The block has the lock of `reaped`.
#define XIO_BATCH_REAPS 4u

/// Makes a state that knows nothing. All threads of the block.
XIO_FN void xio_block_begin(xio_block_state *s) {
    if (xio_thread() == 0) {
        s->idle = nullptr;
    }
}

/// A block's state of this name, for any number of batches.
#if defined(XIO_HOST)
#define XIO_BLOCK_STATE(name)                                               \
    xio_block_state &name = *(xio_block_state *)(xio_host.shared + 8);      \
    xio_block_begin(&name)
#else
#define XIO_BLOCK_STATE(name)        \
    XIO_SHARED xio_block_state name; \
    xio_block_begin(&name)
#endif

/// When nothing is in flight: takes `wanted` tickets and both locks at once; its flags. One thread.
XIO_FN uint32_t xio_batch_claim(const xio_view &q, xio_block_state *s, uint64_t tail, uint32_t wanted,
                                uint32_t threads) {
    xio_change reap = {};
    // It takes a while to write more than a thread's one, so others keep the locks meanwhile.
    xio_taking take = wanted <= threads ? xio_take_all(q, tail, wanted, &reap) : xio_take_tickets(q, tail, wanted, false);
    s->first = s->head = tail;
    s->open = s->came = reap.done ? wanted : 0;
    return (take.tickets.done ? XIO_BATCH_IDLE : 0) | (take.lock.done ? XIO_BATCH_PUBLISHES : 0) |
           (reap.done ? XIO_BATCH_REAPS : 0);
}

/// Takes `wanted` tickets if nothing is in flight; else tells all where to look for free places. One thread.
XIO_FN void xio_batch_open(const xio_view &q, xio_block_state *s, uint32_t threads, uint32_t wanted) {
    // What was idle still is if nobody took tickets since.
    s->flags = s->idle == q.state ? xio_batch_claim(q, s, s->tail, wanted, threads) : 0;
    s->idle = nullptr;
    if (s->flags == 0) {
        xio_seen seen = xio_see(q);
        s->first = seen.tail;
        s->sq_head = seen.sq_head;
        s->free = wanted;
        s->flags = xio_is_idle(seen) ? xio_batch_claim(q, s, seen.tail, wanted, threads) : 0;
    }
}

/// Takes the tickets that are free, when all have looked; if none is, makes room, until the deadline. One thread.
XIO_FN void xio_batch_take(const xio_view &q, xio_block_state *s, uint32_t threads, uint32_t round, uint64_t *start) {
    uint32_t free = s->free;
    s->taken = 0;
    if (free > 0) {
        // Taken, or another was faster.
        xio_taking got = xio_take_tickets(q, s->first, free, free <= threads);
        s->taken = got.tickets.done ? free : 0;
        s->flags = got.lock.done ? XIO_BATCH_PUBLISHES : 0;
        return;
    }
    bool broken = xio_load(&q.state->broken) != 0;
    *start = *start == 0 ? xio_clock() : *start;
    if (broken || xio_clock() - *start > q.timeout) {
        s->taken = XIO_BATCH_STOP;
        s->status = broken ? XIO_STATUS_BROKEN : XIO_STATUS_FULL;
        return;
    }
    xio_reap(q.state, xio_wave_here(), 0);
    xio_pause(round);
}

/// Takes up to `wanted` tickets for the block; how many, XIO_BATCH_STOP when the queue is broken or stayed full until
/// the deadline. `fillers` says whether any of this thread's met a poisoned slot. All threads of the block.
XIO_FN uint32_t xio_batch_reserve(const xio_view &q, xio_block_state *s, uint32_t threads, uint32_t wanted,
                                  bool *fillers) {
    uint32_t thread = xio_thread();
    uint64_t start = 0;
    if (wanted > q.entries - 1) {
        wanted = q.entries - 1;
    }
    for (uint32_t round = 0;; round++) {
        if (thread == 0) {
            xio_batch_open(q, s, threads, wanted);
        }
        xio_barrier();
        *fillers = false;
        if (s->flags & XIO_BATCH_IDLE) {
            return wanted;
        }
        uint64_t first = s->first, sq_head = s->sq_head;
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
            xio_batch_take(q, s, threads, round, &start);
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

/// Writes the entries of this thread's share of `taken` commands, `done` behind the first, of which `command` is the
/// thread's first; whether any was out of the ordinary: postponed, or not a command at all. For the latter an Exist of
/// nothing goes to the place that it has. `locked` as for xio_write_entry.
template <class Make>
XIO_FN bool xio_batch_write(const xio_view &q, uint64_t first, uint32_t taken, uint32_t threads, uint32_t done,
                            xio_result *results, bool fillers, bool locked, xio_command command, const Make &make) {
    bool odd = false;
    for (uint32_t i = xio_thread(); i < taken; i += threads) {
        if (i >= threads) {
            command = make(done + i);
        }
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

/// How often a block looks for a completion before its waves go on, each for itself.
#define XIO_BATCH_LOOKS 256

/// Waits a while for the completion of this thread's share; whether it came. All of the wave together.
XIO_FN bool xio_batch_look(const xio_view &q, xio_share<1> *share, uint32_t threads, uint32_t open) {
    xio_lanes lanes = xio_together(threads);
    bool here = share->rank >= open;
    for (uint32_t look = 0; look < XIO_BATCH_LOOKS && xio_ballot(lanes, !here) != 0; look++) {
        if (look > 0) {
            xio_pause(look);
        }
        if (!here) {
            share->dwords[0] = xio_look_at<1>(q, share->head + share->rank);
            here = xio_has_come(q, share->head + share->rank, share->dwords[0]);
        }
    }
    return here;
}

/// Takes the lock of `reaped` for the block if it is free. One thread.
XIO_FN void xio_batch_lock(const xio_view &q, xio_block_state *s, uint32_t taken) {
    uint64_t word = xio_lock_reaped(q, xio_wave_here());
    s->open = 0;
    if ((word & XIO_LOCKED) == 0) {
        uint64_t flying = ((xio_load(&q.state->published) & ~XIO_LOCKED) - word) >> 1;
        s->open = flying < taken ? (uint32_t)flying : taken;
        if (s->open == 0) {
            xio_store_plainly(&q.state->reaped, word);
        }
    }
    s->came = s->open;
    s->head = word >> 1;
}

/// Gives the lock of `reaped` back, `count` completions further. `seen` and `known` were loaded under it. One thread.
XIO_FN void xio_batch_unlock(const xio_view &q, xio_block_state *s, uint32_t count, const xio_seen &seen,
                             uint64_t known) {
    xio_heads heads = {seen.sq_head, s->head};
    if (count > 0) {
        if (xio_move_heads(q, &heads, count, s->sqhd, s->published) != 0) {
            xio_store(&q.state->broken, (uint32_t)XIO_BROKEN_HEAD);
        }
        xio_show_heads(q, heads, s->published, &known);
    }
    xio_store_release(&q.state->reaped, heads.cq << 1);
    if (((heads.cq ^ seen.tail) << 1 | seen.poisoned) == 0) {
        s->idle = q.state;
        s->tail = seen.tail;
    }
}

/// Takes as many completions as the block has commands, a thread each, if nobody else is at it and they come soon; when
/// this thread handed out the result at `mine` itself, its first word, else 0. What does not come, xio_wait waits for.
/// All threads of the block; `flags` says which locks it has.
XIO_FN uint32_t xio_batch_reap(const xio_view &q, xio_block_state *s, uint32_t threads, uint32_t taken, uint32_t flags,
                           uint64_t mine) {
    uint32_t thread = xio_thread();
    if ((flags & XIO_BATCH_REAPS) == 0) {
        if (thread == 0) {
            xio_batch_lock(q, s, taken);
        }
        xio_barrier();
    } else if (thread == 0 && (flags & XIO_BATCH_PUBLISHES) == 0) {
        // Another rang the doorbell, so there was no fence behind the lock.
        xio_acquire_device();
    }
    uint32_t open = s->open;
    if (open == 0) {
        return 0;
    }
    xio_share<1> share = {s->head, thread, 0, {0}};
    if (!xio_batch_look(q, &share, threads, open)) {
        xio_shared_min(&s->came, thread);
    }
    // Without a gap, as far as all are there.
    xio_barrier();
    uint32_t count = s->came;
    // These loads are on their way together with those of the completion.
    xio_seen seen = {};
    uint64_t known = 0;
    if (thread == 0) {
        seen = xio_see(q);
        known = xio_load(&q.state->cq_known);
    }
    if (thread < count) {
        xio_found found = xio_hand_out(q, share, count, &mine);
        if (found.broken != 0) {
            xio_store(&q.state->broken, found.broken);
        }
        if (thread == count - 1) {
            s->sqhd = found.sqhd;
            s->published = found.published;
        }
    }
    xio_release_block();
    xio_barrier();
    if (thread == 0) {
        xio_batch_unlock(q, s, count, seen, known);
    }
    return mine == 0 ? XIO_DONE | (share.dwords[0] >> 17 & XIO_STATUS_MASK) : 0;
}

/// Waits for a command of a batch; its status. A postponed one is submitted first.
XIO_APART uint32_t xio_batch_finish(xio_queue *q, xio_command command, bool odd, xio_result *result) {
    if (odd && xio_load((const uint64_t *)result) == XIO_BATCH_POSTPONED) {
        xio_submit(q, command, result);
    }
    xio_wait(q, result);
    if (odd && !command.valid) {
        xio_set_result(result, XIO_STATUS_INVALID);
    }
    return xio_status(result);
}

/// Gives all commands from `done` on the state's status; how many of them are this thread's. All threads of the block.
XIO_FN uint32_t xio_batch_stop(const xio_block_state *s, uint32_t threads, uint32_t done, uint32_t count,
                               xio_result *results) {
    uint32_t failed = 0;
    for (uint32_t i = done + xio_thread(); i < count; i += threads) {
        xio_set_result(results + i, s->status);
        failed++;
    }
    xio_barrier();
    return failed;
}

/// Carries out `count` commands, any number, with all threads of the block, and waits for all of them. `make(i)` gives
/// the command of index i as an xio_command; it is called by one thread, once or a few times, and writes nothing. When
/// it returns, `results` is there for all threads of the block, and so are the bytes that commands moved. The number of
/// the calling thread's own commands (thread, thread + threads, ...) that did not end with XIO_OK.
///
/// All `threads` threads of the block, with the same arguments; `threads` is the size of the block, which is
/// one-dimensional. As many commands as the queue has free entries go at once, with one doorbell; more go in turns.
template <class Make>
XIO_FN uint32_t xio_batch(xio_queue *queue, xio_block_state *s, uint32_t threads, uint32_t count, xio_result *results,
                          const Make &make) {
    const xio_view q = xio_view_of(queue);
    uint32_t thread = xio_thread(), failed = 0;
    for (uint32_t done = 0; done < count;) {
        // While the first thread takes the tickets.
        xio_command command = {};
        if (thread < count - done) {
            command = make(done + thread);
        }
        bool fillers = false;
        uint32_t taken = xio_batch_reserve(q, s, threads, count - done, &fillers);
        if (taken == XIO_BATCH_STOP) {
            return failed + xio_batch_stop(s, threads, done, count, results);
        }
        uint64_t first = s->first;
        uint32_t flags = s->flags;
        bool locked = (flags & XIO_BATCH_PUBLISHES) != 0;
        bool odd = xio_batch_write(q, first, taken, threads, done, results, fillers, locked, command, make);
        xio_release_block();
        xio_barrier();
        if (locked && thread == 0) {
            xio_ring(q, first + taken);
        } else if (!locked && thread < XIO_PUBLISHERS) {
            xio_publish(queue, xio_wave_here(), first, taken);
        }
        xio_result *mine = results + done + thread;
        uint32_t word = taken <= threads ? xio_batch_reap(q, s, threads, taken, flags, (uint64_t)mine) : 0;
        if (word != 0 && !odd) {
            failed += word != (XIO_DONE | XIO_OK);
        } else {
            for (uint32_t i = thread; i < taken; i += threads) {
                failed += xio_batch_finish(queue, make(done + i), odd, results + done + i) != XIO_OK;
            }
        }
        xio_barrier();
        done += taken;
    }
    return failed;
}

#endif // XIO_KV_BATCH_H
