// SPDX-License-Identifier: MIT OR Apache-2.0
// One lane drives a queue pair: entry, fence, doorbell, poll, fence, completion, doorbell. The device behind it
// is a model in the tests that answers word A with A + 1.
#include "port.h"

struct Ring {
	u32x4 *sq;
	u32 *cq;
	u32 *sq_doorbell;
	u32 *cq_doorbell;
	u32 *results;
	u64 spins;
	u32 mask;
	u32 count;
};

// Not inlined, as a call is where the compiler loses sight of the stores before the fence.
CALLED void ring_doorbell(u32 *doorbell, u32 value)
{
	release_system();
	store_system(doorbell, value);
}

KERNEL void ring(Ring r)
{
	if (thread_x() != 0 || block_x() != 0)
		return;
	u32 tail = 0, head = 0, phase = 1, failures = 0;
	for (u32 n = 0; n < r.count; n++) {
		u32x4 *entry = r.sq + (u64)tail * 4;
		entry[0] = u32x4{n << 16, n * 0x01010101u, 0, 0};
		entry[1] = u32x4{n, 0, 0, 0};
		entry[2] = u32x4{0, n, 0, 0};
		entry[3] = u32x4{0, 0, 0, ~n};
		tail = (tail + 1) & r.mask;
		ring_doorbell(r.sq_doorbell, tail);
		u32 *completion = r.cq + (u64)head * 4;
		u32 status, word;
		u64 spins = 0;
#ifdef TORN
		// All of it with the phase, which may be newer than the rest.
		u32x4 all;
		do {
			all = *(volatile u32x4 *)completion;
			status = all.w;
			word = all.x;
		} while (((status >> 16) & 1) != phase && ++spins < r.spins);
		acquire_system();
#else
		while ((((status = load_system(completion + 3)) >> 16) & 1) != phase && ++spins < r.spins)
			pause();
		acquire_system();
		word = completion[0];
#endif
		failures += spins >= r.spins || (status & 0xffff) != (n & 0xffff) || word != n * 0x01010101u + 1;
		r.results[n] = word;
		head = (head + 1) & r.mask;
		if (!head)
			phase ^= 1;
		ring_doorbell(r.cq_doorbell, head);
	}
	r.results[r.count] = failures;
}
