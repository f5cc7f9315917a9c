// SPDX-License-Identifier: MIT OR Apache-2.0
// A block of several waves: tree sum over LDS, exchange of bytes, a counter in LDS.
#include "port.h"

struct Lds {
	const u32 *in;
	u32 *out;
	u8 *bytes;
};

KERNEL void lds(Lds a)
{
	SHARED u32 partial[1024];
	SHARED u8 text[1024];
	SHARED u64 wide[256];
	SHARED u32 count;
	u32 t = thread_x(), n = block_size();
	if (t == 0)
		count = 0;
	partial[t] = a.in[global_x()];
	text[t] = (u8)(a.in[global_x()] >> 8);
	if (t < 256)
		wide[t] = (u64)t << 33 | t;
	barrier();
	for (u32 half = n / 2; half > 0; half /= 2) {
		if (t < half)
			partial[t] += partial[t + half];
		barrier();
	}
	if (t % 3 == 0)
		__hip_atomic_fetch_add(&count, t, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
	a.bytes[global_x()] = text[n - 1 - t];
	barrier();
	if (t == 0) {
		a.out[block_x() * 4] = partial[0];
		a.out[block_x() * 4 + 1] = count;
		u64 w = wide[(n - 1) & 255];
		a.out[block_x() * 4 + 2] = (u32)w;
		a.out[block_x() * 4 + 3] = (u32)(w >> 32);
	}
}
