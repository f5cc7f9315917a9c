// SPDX-License-Identifier: MIT OR Apache-2.0
// A kernel of an application: fetches weight shards by key into memory of the GPU. A block takes a shard at a time, in
// pieces that each have a key of their own, and copies what came to where the model wants it.
//
//   hipcc --genco --offload-arch=gfx942 -O3 -std=c++17 -I../../kernels/include fetch_shards.hip -o fetch_shards.co
//   nvcc -arch=sm_90 -O3 -std=c++17 -x cu -cubin -I../../kernels/include fetch_shards.hip -o fetch_shards.cubin
//
// or, for AMD, with CMake (CMakeLists.txt), or without ROCm with Debian's clang 22:
//
//   clang++-22 -x hip --offload-arch=gfx942 --cuda-device-only -nogpuinc -nogpulib --no-gpu-bundle-output -O3 \
//       -std=c++17 -I../../kernels/include -c fetch_shards.hip -o fetch_shards.co
#include "xio_kv.h"

/// What the kernel is started with. The host's program has the same structure.
struct fetch_arguments {
    /// Address of the queue.
    uint64_t queue;
    /// Where values arrive: `pieces` rooms of `piece` bytes for each block.
    xio_buffer buffer;
    /// Address of `shards` times `pieces` results.
    uint64_t results;
    /// Address of the weights in memory of the GPU, shard behind shard.
    uint64_t weights;
    /// Namespace.
    uint32_t nsid;
    uint32_t shards;
    /// Pieces of a shard, each the value of a key.
    uint32_t pieces;
    /// Bytes of a piece, a multiple of 4096.
    uint32_t piece;
    uint32_t threads;
    uint32_t blocks;
};

/// Key of a piece: "w", the number of the shard, the number of the piece.
XIO_FN xio_key piece_key(uint32_t shard, uint32_t piece) {
    uint8_t bytes[9] = {'w'};
    for (uint32_t i = 0; i < 4; i++) {
        bytes[1 + i] = (uint8_t)(shard >> (24 - 8 * i));
        bytes[5 + i] = (uint8_t)(piece >> (24 - 8 * i));
    }
    return xio_key_of(bytes, sizeof bytes);
}

XIO_KERNEL void fetch_shards(fetch_arguments a) {
    XIO_BLOCK_STATE(state);
    xio_queue *queue = (xio_queue *)a.queue;
    uint64_t room = (uint64_t)xio_block() * a.pieces * a.piece;
    for (uint32_t shard = xio_block(); shard < a.shards; shard += a.blocks) {
        xio_result *results = (xio_result *)a.results + (uint64_t)shard * a.pieces;
        // All pieces at once: one doorbell.
        xio_batch(queue, &state, a.threads, a.pieces, results, [&](uint32_t i) {
            xio_range range = xio_range_of(a.buffer, room + (uint64_t)i * a.piece, a.piece);
            return xio_cmd_retrieve(a.nsid, piece_key(shard, i), range, a.piece, 0);
        });
        // What is missing stays as it was; the host sees it in the results.
        for (uint32_t i = 0; i < a.pieces; i++) {
            if (xio_status(&results[i]) != XIO_OK || results[i].length != a.piece) {
                continue;
            }
            const xio_quad *from = (const xio_quad *)(a.buffer.data + room + (uint64_t)i * a.piece);
            xio_quad *to = (xio_quad *)(a.weights + ((uint64_t)shard * a.pieces + i) * a.piece);
            for (uint32_t at = xio_thread(); at < a.piece / 16; at += a.threads) {
                to[at] = from[at];
            }
        }
        xio_barrier();
    }
}
