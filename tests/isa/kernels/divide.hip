// SPDX-License-Identifier: MIT OR Apache-2.0
// Arithmetic of whole waves, which compilers do with scalar instructions.
#include "port.h"

struct Divide {
	u64 *out;
	u64 a;
	u64 b;
};

KERNEL void divide(Divide k)
{
	u32 x = (u32)k.a, y = (u32)k.b;
	if (thread_x() != 0)
		return;
	k.out[0] = x / y;
	k.out[1] = x % y;
	k.out[2] = k.a / k.b;
	k.out[3] = k.a % k.b;
	k.out[4] = (u64)((i64)k.a / (i64)k.b);
	k.out[5] = (u64)((i32)x / (i32)y);
	k.out[6] = x / 7 + k.a % 1000;
	k.out[7] = k.a * k.b + ((k.a << (k.b & 63)) ^ (k.a >> (k.b & 63)));
	k.out[8] = (u64)((i64)k.a >> (k.b & 63)) + (u32)((i32)x >> (y & 31));
	k.out[9] = (u64)__builtin_popcountll(k.a) << 32 | (u64)__builtin_clzll(k.a | 1) << 8 | __builtin_ctzll(k.b | 1ull << 63);
	k.out[10] = (x > y) + ((i32)x > (i32)y) * 2 + (k.a > k.b) * 4 + ((k.a >> 17) & 1) * 8;
	k.out[11] = (x < y ? x : y) + ((u64)((i32)x > (i32)y ? x : y) << 32);
}
