// SPDX-License-Identifier: MIT OR Apache-2.0
// Device code on this computer's processor: a wave has one lane, a block is some threads of the process. Included by
// xio_platform.h; what the functions do is said in xio_platform_amd.h.
//
// Order is made by acquire and release operations rather than by fences, since ThreadSanitizer does not know fences.
#ifndef XIO_PLATFORM_HOST_H
#define XIO_PLATFORM_HOST_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

#define XIO_FN static inline
#define XIO_KERNEL extern "C"
// One kernel of a block has one such variable, which its threads share.
#define XIO_SHARED

/// A thread's place, and what it shares with its block. Set by whoever starts kernels on the host.
struct xio_host_place {
    /// Index in the block.
    uint32_t thread;
    /// Index of the block.
    uint32_t block;
    /// Threads of the block.
    uint32_t threads;
    /// Zero.
    uint32_t reserved;
    /// Memory of the block, zeroed: arrivals at the barrier, its generation, then what kernels share.
    uint32_t *shared;
};

/// Bytes of the memory of a block.
#define XIO_HOST_SHARED 512

extern thread_local xio_host_place xio_host;

typedef uint32_t xio_lanes;

XIO_FN uint32_t xio_count(xio_lanes lanes) { return lanes; }
XIO_FN uint32_t xio_thread() { return xio_host.thread; }
XIO_FN uint32_t xio_block() { return xio_host.block; }
XIO_FN uint32_t xio_lane() { return 0; }
XIO_FN xio_lanes xio_ballot(xio_lanes, bool yes) { return yes ? 1 : 0; }
XIO_FN xio_lanes xio_active() { return 1; }
XIO_FN xio_lanes xio_together(uint32_t) { return 1; }
XIO_FN uint32_t xio_first32(xio_lanes, uint32_t value) { return value; }
XIO_FN uint32_t xio_last32(xio_lanes, uint32_t value) { return value; }
XIO_FN void xio_wave_sync(xio_lanes) {}

XIO_FN void xio_barrier() {
    uint32_t *arrived = xio_host.shared, *generation = xio_host.shared + 1;
    uint32_t now = __atomic_load_n(generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL) == xio_host.threads) {
        __atomic_store_n(arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(generation, now + 1, __ATOMIC_RELEASE);
        return;
    }
    while (__atomic_load_n(generation, __ATOMIC_ACQUIRE) == now) {
        sched_yield();
    }
}

XIO_FN void xio_release_device() {}
XIO_FN void xio_release_block() {}
XIO_FN void xio_acquire_device() {}
XIO_FN void xio_acquire_system() {}

template <class T> XIO_FN T xio_load(const T *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
template <class T> XIO_FN void xio_store(T *p, T v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
template <class T> XIO_FN T xio_add(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
// Both orders: without fences, the operation itself carries what a fence beside it would.
XIO_FN bool xio_swap(uint64_t *p, uint64_t from, uint64_t to) {
    return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
XIO_FN void xio_swap_two(xio_change *a, xio_change *b) {
    a->done = xio_swap(a->p, a->from, a->to);
    b->done = xio_swap(b->p, b->from, b->to);
}
XIO_FN void xio_swap_three(xio_change *a, xio_change *b, xio_change *c) {
    xio_swap_two(a, b);
    c->done = xio_swap(c->p, c->from, c->to);
}
XIO_FN void xio_acquire_locks() {}
XIO_FN void xio_load_fixed(const uint64_t *p, uint64_t *a, uint64_t *b) {
    *a = p[0];
    *b = p[1];
}
XIO_FN uint32_t xio_exchange_acquire(uint32_t *p, uint32_t v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQUIRE); }
template <class T> XIO_FN T xio_load_acquire(const T *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> XIO_FN void xio_store_release(T *p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
XIO_FN void xio_count_up(uint64_t *p, uint64_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
XIO_FN uint64_t xio_set_acquire(uint64_t *p, uint64_t bits) { return __atomic_fetch_or(p, bits, __ATOMIC_ACQUIRE); }
XIO_FN bool xio_swap_acquire(uint64_t *p, uint64_t *from, uint64_t to) {
    return __atomic_compare_exchange_n(p, from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
}
XIO_FN void xio_load_pair(const uint64_t *p, uint64_t *a, uint64_t *b) {
    *a = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    *b = __atomic_load_n(p + 1, __ATOMIC_RELAXED);
}
// Without fences the operations themselves must carry the order.
template <class T> XIO_FN T xio_load_plainly(const T *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> XIO_FN void xio_store_plainly(T *p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
XIO_FN void xio_shared_min(uint32_t *p, uint32_t v) {
    uint32_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
XIO_FN void xio_shared_add(uint64_t *p, uint64_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
XIO_FN uint32_t xio_load_phase(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
XIO_FN uint32_t xio_load_phase_alone(const uint32_t *p) { return xio_load_phase(p); }
XIO_FN void xio_acquire_phase() {}
XIO_FN void xio_release_result() {}
XIO_FN xio_quad xio_load_entry(const xio_quad *p) { return *p; }
XIO_FN void xio_doorbell(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

XIO_FN void xio_doorbell_head(uint32_t *p, uint32_t v) { xio_doorbell(p, v); }
XIO_FN void xio_acquire_result() {}

/// Nanoseconds.
XIO_FN uint64_t xio_clock() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
XIO_FN void xio_pause(uint32_t round) {
    if (round < 64) {
        __builtin_ia32_pause();
    } else {
        sched_yield();
    }
}

#endif // XIO_PLATFORM_HOST_H
