// SPDX-License-Identifier: MIT OR Apache-2.0
// Device code on NVIDIA GPUs: inline PTX, so that nvcc and clang do the same. Included by xio_platform.h; what the functions do
// is said in xio_platform_amd.h.
#ifndef XIO_PLATFORM_NVIDIA_H
#define XIO_PLATFORM_NVIDIA_H

// At least one block a multiprocessor: more would be bought with registers in memory, and acquiring empties its cache.
#if defined(__CUDACC__) && !defined(__clang__)
#define XIO_KERNEL extern "C" __global__ __launch_bounds__(256, 1)
#else
#define XIO_KERNEL extern "C" __global__ __attribute__((launch_bounds(256, 1)))
#endif

typedef uint32_t xio_lanes;

XIO_FN uint32_t xio_thread() {
    uint32_t r;
    asm("mov.u32 %0, %%tid.x;" : "=r"(r));
    return r;
}
XIO_FN uint32_t xio_block() {
    uint32_t r;
    asm("mov.u32 %0, %%ctaid.x;" : "=r"(r));
    return r;
}
XIO_FN uint32_t xio_lane() {
    uint32_t r;
    asm("mov.u32 %0, %%laneid;" : "=r"(r));
    return r;
}
/// An address in the window of global memory. Without it atomic operations would ask first whether the memory is the
/// block's, and wait for that one after the other.
XIO_FN uint64_t xio_global(const void *p) {
    uint64_t r;
    asm("cvta.to.global.u64 %0, %1;" : "=l"(r) : "l"(p));
    return r;
}
/// How many lanes a set has.
XIO_FN uint32_t xio_count(xio_lanes lanes) {
    uint32_t r;
    asm("popc.b32 %0, %1;" : "=r"(r) : "r"(lanes));
    return r;
}
XIO_FN xio_lanes xio_ballot(xio_lanes lanes, bool yes) {
    uint32_t r;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
                 : "=r"(r)
                 : "r"((uint32_t)yes), "r"(lanes)
                 : "memory");
    return r;
}
// Lanes that run apart here each form a group of their own: less combining, nothing wrong.
XIO_FN xio_lanes xio_active() {
    uint32_t r;
    asm volatile("activemask.b32 %0;" : "=r"(r)::"memory");
    return r;
}
XIO_FN uint32_t xio_first32(xio_lanes lanes, uint32_t value) {
    uint32_t r, lane = xio_count((lanes & -lanes) - 1);
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(r) : "r"(value), "r"(lane), "r"(lanes) : "memory");
    return r;
}
XIO_FN uint32_t xio_last32(xio_lanes lanes, uint32_t value) {
    uint32_t r, lane;
    asm("bfind.u32 %0, %1;" : "=r"(lane) : "r"(lanes));
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(r) : "r"(value), "r"(lane), "r"(lanes) : "memory");
    return r;
}
XIO_FN void xio_wave_sync(xio_lanes lanes) { asm volatile("bar.warp.sync %0;" ::"r"(lanes) : "memory"); }
// Lanes that run apart come together here: apart, each would wait for the controller on its own.
XIO_FN xio_lanes xio_together(uint32_t threads) {
    uint32_t rest = threads - (xio_thread() & ~31u);
    xio_lanes lanes = rest < 32 ? ((xio_lanes)1 << rest) - 1 : ~(xio_lanes)0;
    xio_wave_sync(lanes);
    return lanes;
}
XIO_FN void xio_barrier() { asm volatile("barrier.sync 0;" ::: "memory"); }

XIO_FN void xio_release_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Causality is transitive: the barrier orders it before the other's fence.
XIO_FN void xio_release_block() {}
XIO_FN void xio_acquire_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
XIO_FN void xio_release_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
XIO_FN void xio_acquire_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

XIO_FN uint32_t xio_load(const uint32_t *p) {
    uint32_t r;
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(r) : "l"(xio_global(p)) : "memory");
    return r;
}
XIO_FN uint64_t xio_load(const uint64_t *p) {
    uint64_t r;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(r) : "l"(xio_global(p)) : "memory");
    return r;
}
XIO_FN void xio_store(uint32_t *p, uint32_t v) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(xio_global(p)), "r"(v) : "memory");
}
XIO_FN void xio_store(uint64_t *p, uint64_t v) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(xio_global(p)), "l"(v) : "memory");
}
XIO_FN uint32_t xio_add(uint32_t *p, uint32_t v) {
    uint32_t r;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(xio_global(p)), "r"(v) : "memory");
    return r;
}
XIO_FN uint64_t xio_add(uint64_t *p, uint64_t v) {
    uint64_t r;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(r) : "l"(xio_global(p)), "l"(v) : "memory");
    return r;
}
XIO_FN bool xio_swap(uint64_t *p, uint64_t from, uint64_t to) {
    uint64_t r;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(r)
                 : "l"(xio_global(p)), "l"(from), "l"(to)
                 : "memory");
    return r == from;
}
// In one piece, or the compiler waits for one before it starts the next.
XIO_FN void xio_swap_two(xio_change *a, xio_change *b) {
    uint64_t x, y;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%2], %3, %4;\n\t"
                 "atom.relaxed.gpu.global.cas.b64 %1, [%5], %6, %7;"
                 : "=&l"(x), "=&l"(y)
                 : "l"(xio_global(a->p)), "l"(a->from), "l"(a->to), "l"(xio_global(b->p)), "l"(b->from), "l"(b->to)
                 : "memory");
    a->done = x == a->from;
    b->done = y == b->from;
}
XIO_FN void xio_swap_three(xio_change *a, xio_change *b, xio_change *c) {
    uint64_t x, y, z;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%3], %4, %5;\n\t"
                 "atom.relaxed.gpu.global.cas.b64 %1, [%6], %7, %8;\n\t"
                 "atom.relaxed.gpu.global.cas.b64 %2, [%9], %10, %11;"
                 : "=&l"(x), "=&l"(y), "=&l"(z)
                 : "l"(xio_global(a->p)), "l"(a->from), "l"(a->to), "l"(xio_global(b->p)), "l"(b->from), "l"(b->to),
                   "l"(xio_global(c->p)), "l"(c->from), "l"(c->to)
                 : "memory");
    a->done = x == a->from;
    b->done = y == b->from;
    c->done = z == c->from;
}
// The fence of the doorbell comes before anything that the locks are for.
XIO_FN void xio_acquire_locks() {}
// Not volatile: where it is loaded again, the compiler may take what it has.
XIO_FN void xio_load_fixed(const uint64_t *p, uint64_t *a, uint64_t *b) {
    asm("ld.global.nc.v2.b64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(xio_global(p)));
}
XIO_FN uint32_t xio_exchange_acquire(uint32_t *p, uint32_t v) {
    uint32_t r;
    asm volatile("atom.acquire.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(r) : "l"(xio_global(p)), "r"(v) : "memory");
    return r;
}
XIO_FN uint32_t xio_load_acquire(const uint32_t *p) {
    uint32_t r;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(r) : "l"(xio_global(p)) : "memory");
    return r;
}
XIO_FN uint64_t xio_load_acquire(const uint64_t *p) {
    uint64_t r;
    asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(r) : "l"(xio_global(p)) : "memory");
    return r;
}
XIO_FN void xio_store_release(uint32_t *p, uint32_t v) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(xio_global(p)), "r"(v) : "memory");
}
XIO_FN void xio_store_release(uint64_t *p, uint64_t v) {
    asm volatile("st.release.gpu.global.b64 [%0], %1;" ::"l"(xio_global(p)), "l"(v) : "memory");
}
XIO_FN void xio_count_up(uint64_t *p, uint64_t v) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(xio_global(p)), "l"(v) : "memory");
}
XIO_FN uint64_t xio_set_acquire(uint64_t *p, uint64_t bits) {
    uint64_t r;
    asm volatile("atom.acquire.gpu.global.or.b64 %0, [%1], %2;" : "=l"(r) : "l"(xio_global(p)), "l"(bits) : "memory");
    return r;
}
XIO_FN bool xio_swap_acquire(uint64_t *p, uint64_t *from, uint64_t to) {
    uint64_t r, old = *from;
    asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(r)
                 : "l"(xio_global(p)), "l"(old), "l"(to)
                 : "memory");
    *from = r;
    return r == old;
}
XIO_FN void xio_load_pair(const uint64_t *p, uint64_t *a, uint64_t *b) {
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(xio_global(p)) : "memory");
}
template <class T> XIO_FN T xio_load_plainly(const T *p) { return xio_load(p); }
template <class T> XIO_FN void xio_store_plainly(T *p, T v) { xio_store(p, v); }
XIO_FN void xio_shared_min(uint32_t *p, uint32_t v) {
    asm volatile("{ .reg .u32 t; atom.relaxed.cta.min.u32 t, [%0], %1; }" ::"l"(p), "r"(v) : "memory");
}
XIO_FN void xio_shared_add(uint64_t *p, uint64_t v) {
    asm volatile("{ .reg .u64 t; atom.relaxed.cta.add.u64 t, [%0], %1; }" ::"l"(p), "l"(v) : "memory");
}
XIO_FN uint32_t xio_load_phase(const uint32_t *p) {
    uint32_t r;
    asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(r) : "l"(xio_global(p)) : "memory");
    return r;
}
// The load itself acquires, which is cheaper than a fence; but nothing behind it starts before it is done.
XIO_FN uint32_t xio_load_phase_alone(const uint32_t *p) {
    uint32_t r;
    asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(r) : "l"(xio_global(p)) : "memory");
    return r;
}
XIO_FN void xio_acquire_phase() {}
XIO_FN void xio_release_result() { xio_release_device(); }
XIO_FN xio_quad xio_load_entry(const xio_quad *p) {
    xio_quad r;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(xio_global(p))
                 : "memory");
    return r;
}
XIO_FN void xio_doorbell(uint32_t *p, uint32_t v) {
    xio_release_system();
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(xio_global(p)), "r"(v) : "memory");
}
XIO_FN void xio_doorbell_head(uint32_t *p, uint32_t v) {
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(xio_global(p)), "r"(v) : "memory");
}
// Causality is transitive: whoever stored the result had acquired at system scope.
XIO_FN void xio_acquire_result() { xio_acquire_device(); }
XIO_FN uint64_t xio_clock() {
    uint64_t r;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(r));
    return r;
}
XIO_FN void xio_pause(uint32_t round) {
    uint32_t nanoseconds = round < 16 ? 20 : 200;
    asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}

#endif // XIO_PLATFORM_NVIDIA_H
