// SPDX-License-Identifier: MIT OR Apache-2.0
// What the interpreter's own kernels need, without any header of HIP. The three macros that spoil the memory
// order have the names that the device library offers to its tests:
//   XIO_TEST_NO_FENCE     no release fence before a doorbell
//   XIO_TEST_AGENT_SCOPE  fences and accesses at agent scope instead of system scope
//   XIO_TEST_NO_WAIT      no explicit wait behind the release fence
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#define KERNEL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device, always_inline))
#define CALLED static __attribute__((device, noinline))
#define SHARED static __attribute__((shared))

#ifdef XIO_TEST_AGENT_SCOPE
#define SYSTEM_SCOPE __HIP_MEMORY_SCOPE_AGENT
#define SYSTEM_FENCE "agent"
#else
#define SYSTEM_SCOPE __HIP_MEMORY_SCOPE_SYSTEM
#define SYSTEM_FENCE ""
#endif

DEVICE u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_size() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE u32 global_x() { return block_x() * block_size() + thread_x(); }
DEVICE u32 lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }

DEVICE void release_system()
{
#ifndef XIO_TEST_NO_FENCE
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, SYSTEM_FENCE);
#ifndef XIO_TEST_NO_WAIT
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
	// LLVM up to 22 may drop the wait that belongs behind buffer_wbl2.
	__builtin_amdgcn_s_waitcnt(0);
#endif
#endif
#endif
}

DEVICE void acquire_system()
{
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, SYSTEM_FENCE);
}

DEVICE void release_agent() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
DEVICE void acquire_agent() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }

DEVICE void barrier()
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <class T> DEVICE void store_system(T *to, T value)
{
	__hip_atomic_store(to, value, __ATOMIC_RELAXED, SYSTEM_SCOPE);
}
template <class T> DEVICE T load_system(const T *from)
{
	return __hip_atomic_load(from, __ATOMIC_RELAXED, SYSTEM_SCOPE);
}
template <class T> DEVICE void store_agent(T *to, T value)
{
	__hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> DEVICE T load_agent(const T *from)
{
	return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> DEVICE T add_agent(T *to, T value)
{
	return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
