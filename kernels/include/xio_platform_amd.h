// SPDX-License-Identifier: MIT OR Apache-2.0
// Device code on AMD GPUs: compiler builtins, with ROCm's headers or without. Included by xio_platform.h, which says why the
// order is as it is. What each function does is said here, once for all targets.
#ifndef XIO_PLATFORM_AMD_H
#define XIO_PLATFORM_AMD_H

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
#if !__has_builtin(__builtin_amdgcn_ballot_w64)
    // Before clang 16 (ROCm 5.4): compares with 0, which is the same; 33 is "not equal".
    return __builtin_amdgcn_uicmp((uint32_t)yes, 0u, 33);
#elif defined(__GFX9__)
    return __builtin_amdgcn_ballot_w64(yes);
#else
    return __builtin_amdgcn_ballot_w32(yes);
#endif
}

/// The lanes that run this together.
XIO_FN xio_lanes xio_active() { return xio_ballot(0, true); }
/// The caller's wave in a block of `threads` threads; all its lanes call, and go on together.
XIO_FN xio_lanes xio_together(uint32_t) { return xio_active(); }

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

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define XIO_AMD_WAIT() __builtin_amdgcn_s_waitcnt(0)
#else
#define XIO_AMD_WAIT() (void)0
#endif

/// The wait that LLVM up to 22 may drop behind a write-back of the cache.
XIO_FN void xio_amd_wait() {
#if !defined(XIO_TEST_NO_WAIT)
    XIO_AMD_WAIT();
#endif
}

XIO_FN void xio_release_device() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    xio_amd_wait();
}
/// What this thread wrote goes along with what another thread of the block releases behind a barrier.
XIO_FN void xio_release_block() { xio_release_device(); }
XIO_FN void xio_acquire_device() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
XIO_FN void xio_release_system() {
#if !defined(XIO_TEST_NO_FENCE)
#if defined(XIO_TEST_NO_WAIT)
    // With nothing outstanding LLVM does drop it.
    XIO_AMD_WAIT();
#endif
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
/// Several swaps on their way at once, in any order; xio_acquire_locks must follow.
XIO_FN void xio_swap_two(xio_change *a, xio_change *b) {
    a->done = xio_swap(a->p, a->from, a->to);
    b->done = xio_swap(b->p, b->from, b->to);
}
XIO_FN void xio_swap_three(xio_change *a, xio_change *b, xio_change *c) {
    xio_swap_two(a, b);
    c->done = xio_swap(c->p, c->from, c->to);
}
/// Behind locks that were taken by swaps, where nothing is read under them before the next doorbell.
XIO_FN void xio_acquire_locks() { xio_acquire_device(); }
/// A word that is the same for all lanes that run this together: kept once for the wave.
XIO_FN uint64_t xio_amd_uniform(uint64_t word) {
    uint32_t low = __builtin_amdgcn_readfirstlane((uint32_t)word);
    uint32_t high = __builtin_amdgcn_readfirstlane((uint32_t)(word >> 32));
    return (uint64_t)high << 32 | low;
}
/// Two words that never change while kernels run, from an address that is the same for all lanes.
XIO_FN void xio_load_fixed(const uint64_t *p, uint64_t *a, uint64_t *b) {
    *a = xio_amd_uniform(p[0]);
    *b = xio_amd_uniform(p[1]);
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
/// The same where one is looked at at a time: xio_acquire_phase must follow.
XIO_FN uint32_t xio_load_phase_alone(const uint32_t *p) { return xio_load_phase(p); }
XIO_FN void xio_acquire_phase() { xio_acquire_system(); }
/// Before a result is stored that another wave may wait for, behind xio_acquire_phase.
XIO_FN void xio_release_result() {}
/// An entry that the controller wrote, behind xio_acquire_system or xio_acquire_phase.
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
XIO_FN uint64_t xio_clock() {
#if __has_builtin(__builtin_readsteadycounter)
    return __builtin_readsteadycounter();
#elif defined(__GFX9__)
    // Before clang 19 (ROCm 6.3): the same instructions by their names.
    return __builtin_amdgcn_s_memrealtime();
#else
    // MSG_RTN_GET_REALTIME
    return __builtin_amdgcn_s_sendmsg_rtnl(0x83);
#endif
}
/// Lets others run for a moment; `round` counts how often in a row.
XIO_FN void xio_pause(uint32_t round) {
    if (round < 16) {
        __builtin_amdgcn_s_sleep(1);
    } else {
        __builtin_amdgcn_s_sleep(8);
    }
}

#endif // XIO_PLATFORM_AMD_H
