// SPDX-License-Identifier: MIT OR Apache-2.0
// An array of each lane's own in scratch memory, reached directly and through a pointer.
#include "port.h"

struct Scratch {
	const u32 *in;
	u32 *out;
	u32 count;
};

CALLED u32 sum(const u32 *of, u32 count)
{
	u32 all = 0;
	for (u32 i = 0; i < count; i++)
		all += of[i];
	return all;
}

KERNEL void scratch(Scratch s)
{
	u32 own[32];
	for (u32 i = 0; i < s.count; i++)
		own[i & 31] = s.in[(i + thread_x()) & 31] * (i + 1);
	s.out[thread_x()] = sum(own, s.count) + own[thread_x() % s.count];
}
