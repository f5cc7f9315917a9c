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

// XIO_APART is a function that is called, where that costs nothing: what is needed seldom should not lie among the
// instructions of those who hope not to need it, whose cache is small. On AMD calls need a stack, in memory.
#if defined(XIO_NVIDIA)
#define XIO_APART static inline __device__ __attribute__((noinline))
#else
#define XIO_APART XIO_FN
#endif

/// An atomic swap that is to be done, as xio_swap does it: whether it was.
struct xio_change {
    uint64_t *p;
    uint64_t from, to;
    bool done;
};

#if defined(XIO_AMD)
#include "xio_platform_amd.h"
#elif defined(XIO_NVIDIA)
#include "xio_platform_nvidia.h"
#else
#include "xio_platform_host.h"
#endif

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
