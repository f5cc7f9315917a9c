// SPDX-License-Identifier: MIT OR Apache-2.0
// The one place where device code knows what it is compiled for: AMD (clang -x hip, with ROCm's headers or without
// any), NVIDIA (nvcc, clang -x cuda), or this computer's processor (any C++17 compiler), where threads of the host
// run the same kernels.
//
// Vocabulary: a *wave* is what the hardware runs in lock step: 64 or 32 lanes on AMD, 32 on NVIDIA, one on the host. A
// *block* is the threads that have a barrier. *Device* scope is all waves of one GPU, *system* scope includes the
// controller and the host.
//
// Memory order is written once, here:
//
//  * xio_store_release, xio_load_acquire, xio_exchange_acquire: order between waves of one device.
//  * xio_doorbell: everything written before, by this wave and by those whose release it has acquired, can be seen by
//    the controller before the doorbell is. On AMD the release fence at system scope writes the L2 cache back; without
//    the explicit wait behind it LLVM up to 22 may let the doorbell overtake the write-back on gfx90a, gfx942
//    and gfx950 (it drops the wait when it believes that nothing is outstanding; fixed in LLVM 23).
//  * xio_load_phase, xio_acquire_system: what the controller wrote before the phase can be read after it. The rest of
//    a completion must be read again behind xio_acquire_system: read together with the phase it may be older.
#ifndef XIO_PLATFORM_H
#define XIO_PLATFORM_H

#include <stdint.h>

#if defined(__HIP__) || defined(__AMDGCN__)
#define XIO_AMD 1
#elif defined(__CUDACC__) || defined(__CUDA__)
#define XIO_NVIDIA 1
#else
#define XIO_HOST 1
#endif

/// Sixteen bytes that are loaded and stored at once.
struct alignas(16) xio_quad {
    uint32_t x, y, z, w;
};

#if defined(XIO_AMD) || defined(XIO_NVIDIA)
// Without the vendor's headers these are not there.
#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#define XIO_FN static inline __device__ __attribute__((always_inline))
#define XIO_SHARED __shared__
#endif

#if defined(XIO_AMD)
// ---------------------------------------------------------------------------------------------------------- AMD

#define XIO_KERNEL extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1, 256)))

/// A set of lanes, bit n for lane n.
typedef uint64_t xio_lanes;

/// How many lanes a set has.
XIO_FN uint32_t xio_count(xio_lanes lanes) { return (uint32_t)__builtin_popcountll(lanes); }

/// Index of the calling thread in its block.
XIO_FN uint32_t xio_thread() { return __builtin_amdgcn_workitem_id_x(); }
/// Index of the block.
XIO_FN uint32_t xio_block() { return __builtin_amdgcn_workgroup_id_x(); }

/// Index of the calling lane in its wave.
XIO_FN uint32_t xio_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }

/// The lanes that make this call and have `yes`. `lanes` are those that make it.
XIO_FN xio_lanes xio_ballot(xio_lanes, bool yes) {
#if defined(__GFX9__)
    return __builtin_amdgcn_ballot_w64(yes);
#else
    return __builtin_amdgcn_ballot_w32(yes);
#endif
}

/// The lanes that run this together.
XIO_FN xio_lanes xio_active() { return xio_ballot(0, true); }

/// The value of the first of `lanes`, for all of them.
XIO_FN uint32_t xio_first32(xio_lanes, uint32_t value) { return __builtin_amdgcn_readfirstlane(value); }
/// The value of the last of `lanes`, for all of them.
XIO_FN uint32_t xio_last32(xio_lanes lanes, uint32_t value) {
    return __builtin_amdgcn_readlane(value, 63 - __builtin_clzll(lanes));
}

/// What lanes wrote before can be read by the others of `lanes` behind it.
XIO_FN void xio_wave_sync(xio_lanes) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); }

/// All threads of the block meet; what they wrote before can be read by the others behind it.
XIO_FN void xio_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// For tests, which spoil the memory order and must see that it fails: no release fence before doorbells; device scope
// where system scope is needed; no explicit wait.
//   XIO_TEST_NO_FENCE, XIO_TEST_AGENT_SCOPE, XIO_TEST_NO_WAIT
#if defined(XIO_TEST_AGENT_SCOPE)
#define XIO_AMD_SYSTEM __HIP_MEMORY_SCOPE_AGENT
#define XIO_AMD_SYSTEM_FENCE "agent"
#else
#define XIO_AMD_SYSTEM __HIP_MEMORY_SCOPE_SYSTEM
#define XIO_AMD_SYSTEM_FENCE ""
#endif

/// The wait that LLVM up to 22 may drop behind a write-back of the cache.
XIO_FN void xio_amd_wait() {
#if (defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)) && !defined(XIO_TEST_NO_WAIT)
    __builtin_amdgcn_s_waitcnt(0);
#endif
}

XIO_FN void xio_release_device() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    xio_amd_wait();
}
XIO_FN void xio_acquire_device() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
XIO_FN void xio_release_system() {
#if !defined(XIO_TEST_NO_FENCE)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, XIO_AMD_SYSTEM_FENCE);
    xio_amd_wait();
#endif
}
/// What the controller wrote before a phase that was loaded can be read behind it.
XIO_FN void xio_acquire_system() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, XIO_AMD_SYSTEM_FENCE); }

/// Relaxed atomic operations at device scope.
template <class T> XIO_FN T xio_load(const T *p) {
    return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> XIO_FN void xio_store(T *p, T v) {
    __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> XIO_FN T xio_add(T *p, T v) {
    return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
XIO_FN bool xio_swap(uint64_t *p, uint64_t from, uint64_t to) {
    return __hip_atomic_compare_exchange_strong(p, &from, to, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                __HIP_MEMORY_SCOPE_AGENT);
}
XIO_FN uint32_t xio_exchange_acquire(uint32_t *p, uint32_t v) {
    uint32_t old = __hip_atomic_exchange(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    xio_acquire_device();
    return old;
}
template <class T> XIO_FN T xio_load_acquire(const T *p) {
    T v = xio_load(p);
    xio_acquire_device();
    return v;
}
template <class T> XIO_FN void xio_store_release(T *p, T v) {
    xio_release_device();
    xio_store(p, v);
}
/// Adds without looking at the sum.
XIO_FN void xio_count_up(uint64_t *p, uint64_t v) { xio_add(p, v); }
/// Sets bits; what was there before. Order as xio_exchange_acquire.
XIO_FN uint64_t xio_set_acquire(uint64_t *p, uint64_t bits) {
    uint64_t old = __hip_atomic_fetch_or(p, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    xio_acquire_device();
    return old;
}
/// Swaps; order as xio_exchange_acquire.
XIO_FN bool xio_swap_acquire(uint64_t *p, uint64_t *from, uint64_t to) {
    bool done = __hip_atomic_compare_exchange_strong(p, from, to, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                     __HIP_MEMORY_SCOPE_AGENT);
    xio_acquire_device();
    return done;
}
/// Two words side by side, 16-byte aligned, both as of one moment or `a` as the later.
XIO_FN void xio_load_pair(const uint64_t *p, uint64_t *a, uint64_t *b) {
    *b = xio_load(p + 1);
    *a = xio_load(p);
    xio_acquire_device();
}
/// A load and a store that need no fence of their own where they are used.
template <class T> XIO_FN T xio_load_plainly(const T *p) { return xio_load(p); }
template <class T> XIO_FN void xio_store_plainly(T *p, T v) { xio_store(p, v); }
/// The smaller of the two stays at `p`, in memory of the block.
XIO_FN void xio_shared_min(uint32_t *p, uint32_t v) {
    __hip_atomic_fetch_min(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
XIO_FN void xio_shared_add(uint64_t *p, uint64_t v) {
    __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

/// The dword of a completion that holds the phase; xio_acquire_system must follow before anything else is read.
XIO_FN uint32_t xio_load_phase(const uint32_t *p) {
    return __hip_atomic_load(p, __ATOMIC_RELAXED, XIO_AMD_SYSTEM);
}
/// An entry that the controller wrote, behind xio_acquire_system.
XIO_FN xio_quad xio_load_entry(const xio_quad *p) { return *p; }
/// Writes a doorbell, behind everything that was written before.
XIO_FN void xio_doorbell(uint32_t *p, uint32_t v) {
    xio_release_system();
    __hip_atomic_store(p, v, __ATOMIC_RELAXED, XIO_AMD_SYSTEM);
}

/// Writes the head doorbell of a completion queue: what was read of the entries has been used, so nothing is waited for.
XIO_FN void xio_doorbell_head(uint32_t *p, uint32_t v) {
    __hip_atomic_store(p, v, __ATOMIC_RELAXED, XIO_AMD_SYSTEM);
}
/// What the controller wrote before a result that was seen can be read behind it.
XIO_FN void xio_acquire_result() { xio_acquire_system(); }

/// Ticks of a clock that all waves share and that never stops.
XIO_FN uint64_t xio_clock() { return __builtin_readsteadycounter(); }
/// Lets others run for a moment; `round` counts how often in a row.
XIO_FN void xio_pause(uint32_t round) {
    if (round < 16) {
        __builtin_amdgcn_s_sleep(1);
    } else {
        __builtin_amdgcn_s_sleep(8);
    }
}

#elif defined(XIO_NVIDIA)
// ------------------------------------------------------------------------------------------------------- NVIDIA

#if defined(__CUDACC__) && !defined(__clang__)
#define XIO_KERNEL extern "C" __global__ __launch_bounds__(256)
#else
#define XIO_KERNEL extern "C" __global__ __attribute__((launch_bounds(256)))
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
XIO_FN void xio_barrier() { asm volatile("barrier.sync 0;" ::: "memory"); }

XIO_FN void xio_release_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
XIO_FN void xio_acquire_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
XIO_FN void xio_release_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
XIO_FN void xio_acquire_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

XIO_FN uint32_t xio_load(const uint32_t *p) {
    uint32_t r;
    asm volatile("ld.relaxed.gpu.b32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
    return r;
}
XIO_FN uint64_t xio_load(const uint64_t *p) {
    uint64_t r;
    asm volatile("ld.relaxed.gpu.b64 %0, [%1];" : "=l"(r) : "l"(p) : "memory");
    return r;
}
XIO_FN void xio_store(uint32_t *p, uint32_t v) {
    asm volatile("st.relaxed.gpu.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
XIO_FN void xio_store(uint64_t *p, uint64_t v) {
    asm volatile("st.relaxed.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
XIO_FN uint32_t xio_add(uint32_t *p, uint32_t v) {
    uint32_t r;
    asm volatile("atom.relaxed.gpu.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory");
    return r;
}
XIO_FN uint64_t xio_add(uint64_t *p, uint64_t v) {
    uint64_t r;
    asm volatile("atom.relaxed.gpu.add.u64 %0, [%1], %2;" : "=l"(r) : "l"(p), "l"(v) : "memory");
    return r;
}
XIO_FN bool xio_swap(uint64_t *p, uint64_t from, uint64_t to) {
    uint64_t r;
    asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(r) : "l"(p), "l"(from), "l"(to) : "memory");
    return r == from;
}
XIO_FN uint32_t xio_exchange_acquire(uint32_t *p, uint32_t v) {
    uint32_t r;
    asm volatile("atom.acquire.gpu.exch.b32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory");
    return r;
}
XIO_FN uint32_t xio_load_acquire(const uint32_t *p) {
    uint32_t r;
    asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
    return r;
}
XIO_FN uint64_t xio_load_acquire(const uint64_t *p) {
    uint64_t r;
    asm volatile("ld.acquire.gpu.b64 %0, [%1];" : "=l"(r) : "l"(p) : "memory");
    return r;
}
XIO_FN void xio_store_release(uint32_t *p, uint32_t v) {
    asm volatile("st.release.gpu.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
XIO_FN void xio_store_release(uint64_t *p, uint64_t v) {
    asm volatile("st.release.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
XIO_FN void xio_count_up(uint64_t *p, uint64_t v) {
    asm volatile("red.relaxed.gpu.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
XIO_FN uint64_t xio_set_acquire(uint64_t *p, uint64_t bits) {
    uint64_t r;
    asm volatile("atom.acquire.gpu.or.b64 %0, [%1], %2;" : "=l"(r) : "l"(p), "l"(bits) : "memory");
    return r;
}
XIO_FN bool xio_swap_acquire(uint64_t *p, uint64_t *from, uint64_t to) {
    uint64_t r, old = *from;
    asm volatile("atom.acquire.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(r) : "l"(p), "l"(old), "l"(to) : "memory");
    *from = r;
    return r == old;
}
XIO_FN void xio_load_pair(const uint64_t *p, uint64_t *a, uint64_t *b) {
    asm volatile("ld.relaxed.gpu.v2.b64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(p) : "memory");
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
    asm volatile("ld.relaxed.sys.b32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
    return r;
}
XIO_FN xio_quad xio_load_entry(const xio_quad *p) {
    xio_quad r;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(p)
                 : "memory");
    return r;
}
XIO_FN void xio_doorbell(uint32_t *p, uint32_t v) {
    xio_release_system();
    asm volatile("st.relaxed.sys.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
XIO_FN void xio_doorbell_head(uint32_t *p, uint32_t v) {
    asm volatile("st.relaxed.sys.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
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

#else
// --------------------------------------------------------------------------------------------------------- host

#include "xio_platform_host.h"

#endif

// ------------------------------------------------------------------------------------------------- all of them

/// The lanes that run a piece of code together, and the caller's place among them.
struct xio_wave {
    /// Who.
    xio_lanes lanes;
    /// How many.
    uint32_t count;
    /// How many of them come before the caller.
    uint32_t rank;
};

/// How many of `lanes` come before the caller.
XIO_FN uint32_t xio_rank(xio_lanes lanes) {
    return xio_count(lanes & (((xio_lanes)1 << xio_lane()) - 1));
}

/// The lanes that run this together.
XIO_FN xio_wave xio_wave_here() {
    xio_wave w;
    w.lanes = xio_active();
    w.count = xio_count(w.lanes);
    w.rank = xio_rank(w.lanes);
    return w;
}

/// The first `count` threads of the block, which are one wave: all of them call.
XIO_FN xio_wave xio_wave_of_block(uint32_t count) {
    xio_wave w;
    w.lanes = (xio_lanes)(((uint64_t)1 << count) - 1);
    w.count = count;
    w.rank = xio_thread();
    return w;
}

/// A 64-bit value of the first of `lanes`, for all of them.
XIO_FN uint64_t xio_first(xio_lanes lanes, uint64_t value) {
    uint32_t low = xio_first32(lanes, (uint32_t)value);
    uint32_t high = xio_first32(lanes, (uint32_t)(value >> 32));
    return (uint64_t)high << 32 | low;
}

#endif // XIO_PLATFORM_H
