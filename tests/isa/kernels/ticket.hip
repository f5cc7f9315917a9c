// SPDX-License-Identifier: MIT OR Apache-2.0
// Waves and blocks share counters: tickets by one atomic a wave, a lock, and data handed from block to block.
#include "port.h"

struct Ticket {
	u64 *tickets;
	u32 *lock;
	u32 *guarded;
	u64 *owner;
	u32 *mailbox;
	u32 *flags;
	u32 *sums;
	u32 rounds;
};

KERNEL void ticket(Ticket t)
{
	for (u32 round = 0; round < t.rounds; round++) {
		u64 active = __builtin_amdgcn_read_exec();
		u32 rank = __builtin_amdgcn_mbcnt_hi(active >> 32, __builtin_amdgcn_mbcnt_lo(active, 0));
		u32 low = 0, high = 0;
		if (rank == 0) {
			u64 base = add_agent(t.tickets, (u64)__builtin_popcountll(active));
			low = base;
			high = base >> 32;
		}
		u64 first = __builtin_amdgcn_readfirstlane(low) | (u64)__builtin_amdgcn_readfirstlane(high) << 32;
		t.owner[(u32)(first + rank)] = (u64)global_x() << 32 | round;
	}
	// A critical section whose data is not atomic: lost updates show a release or acquire that did not work.
	if (lane() == 0) {
		for (u32 round = 0; round < t.rounds; round++) {
			u32 free;
			do {
				free = 0;
				if (__hip_atomic_compare_exchange_strong(t.lock, &free, 1u, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
									 __HIP_MEMORY_SCOPE_AGENT))
					break;
				pause();
			} while (true);
			acquire_agent();
			t.guarded[0] += 1;
			t.guarded[17] ^= t.guarded[0];
			release_agent();
			store_agent(t.lock, 0u);
		}
	}
	// Block n fills its mailbox, the next block sums it up.
	u32 *mine = t.mailbox + block_x() * block_size();
	mine[thread_x()] = global_x() * 3 + 1;
	barrier();
	if (thread_x() == 0) {
		release_agent();
		store_agent(t.flags + block_x(), 1u);
	}
	if (block_x() > 0) {
		while (load_agent(t.flags + block_x() - 1) == 0)
			pause();
		acquire_agent();
		u32 value = mine[(i32)thread_x() - (i32)block_size()];
		__hip_atomic_fetch_add(t.sums + block_x() - 1, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
	}
}
