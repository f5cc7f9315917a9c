// SPDX-License-Identifier: MIT OR Apache-2.0
// Arithmetic of all sorts on every lane, compared with the same formulas on the host: result n of thread t is
// out[n * threads + t].
#include "port.h"

struct Alu {
	const u64 *a;
	const u64 *b;
	u64 *out;
	u32 threads;
};

CALLED u32 collatz(u32 x)
{
	u32 steps = 0;
	while (x > 1 && steps < 40) {
		x = x & 1 ? 3 * x + 1 : x / 2;
		steps++;
	}
	return steps;
}

KERNEL void alu(Alu k)
{
	u32 t = global_x();
	if (t >= k.threads)
		return;
	u64 a = k.a[t], b = k.b[t], *out = k.out + t;
	u32 x = (u32)a, y = (u32)b, n = k.threads;
	i32 s = (i32)x;
	i64 w = (i64)a;
	u32 shift = y & 31;
	u64 wide = b & 63;
	out[0 * n] = a + b;
	out[1 * n] = a - b;
	out[2 * n] = a * b;
	out[3 * n] = (u64)x * y;
	out[4 * n] = y ? x / y : 0;
	out[5 * n] = y ? x % y : 0;
	out[6 * n] = b ? a / b : 0;
	out[7 * n] = b ? a % b : 0;
	out[8 * n] = a << wide | (a >> ((64 - wide) & 63));
	out[9 * n] = (u64)(w >> wide);
	out[10 * n] = (u32)(s >> shift);
	out[11 * n] = (x >> shift) ^ (x << shift);
	out[12 * n] = (u64)__builtin_popcountll(a) << 32 | (u32)__builtin_clzll(a | 1);
	out[13 * n] = (u64)__builtin_ctz(x | 0x80000000u) << 32 | (u32)__builtin_clz(y | 1);
	out[14 * n] = __builtin_bswap64(a) ^ __builtin_bswap32(x);
	out[15 * n] = a < b ? a : b;
	out[16 * n] = w > (i64)b ? 1 : 2;
	out[17 * n] = (u64)(s < (i32)y ? s : (i32)y);
	out[18 * n] = (u64)(i64)(signed char)(x >> 8);
	out[19 * n] = (u64)(i64)(short)x * (short)y;
	out[20 * n] = (u16)(x + y) | (u32)(u8)(x * y) << 16;
	out[21 * n] = __builtin_rotateleft32(x, shift);
	out[22 * n] = (x & 0xf0f0f0f0u) | (y & ~0xf0f0f0f0u);
	out[23 * n] = collatz(x & 0xffff);
	out[24 * n] = __builtin_amdgcn_readfirstlane(x);
	out[25 * n] = __builtin_amdgcn_ballot_w64(x & 1);
	out[26 * n] = __builtin_amdgcn_ds_bpermute((lane() ^ 5) * 4, (i32)x);
	out[27 * n] = __builtin_amdgcn_mov_dpp((i32)x, 0xb1, 0xf, 0xf, true);
	u64 hash = 0xcbf29ce484222325ull;
	for (u32 i = 0; i < 8; i++)
		hash = (hash ^ (u8)(a >> (8 * i))) * 0x100000001b3ull;
	out[28 * n] = hash;
	out[29 * n] = (u64)__builtin_amdgcn_readlane((i32)y, 3);
	out[30 * n] = (a >= b) + (x == y) * 2 + (w < 0) * 4;
	out[31 * n] = (u64)(u32)(x > y ? x - y : 0) << 32 | __builtin_amdgcn_alignbit(x, y, 8);
}
