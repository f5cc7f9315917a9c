// SPDX-License-Identifier: MIT OR Apache-2.0
// Waits by the clock, as a deadline does.
#include "port.h"

struct Clock {
	u64 *out;
	u64 ticks;
};

KERNEL void clock(Clock c)
{
	u64 start = __builtin_readsteadycounter(), cycles = __builtin_readcyclecounter();
	u32 rounds = 0;
	while (__builtin_readsteadycounter() - start < c.ticks) {
		pause();
		rounds++;
	}
	if (thread_x() == 0) {
		c.out[0] = __builtin_readsteadycounter() - start;
		c.out[1] = __builtin_readcyclecounter() != cycles;
		c.out[2] = rounds;
	}
}
