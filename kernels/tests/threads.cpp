// SPDX-License-Identifier: MIT OR Apache-2.0
// The host build of the device library under ThreadSanitizer: threads share a queue in all three styles, and a
// controller thread answers out of order. Prints what was done; the sanitizer ends the program if there is a data race.
#include "../host.cpp"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr uint32_t ENTRIES = 16, THREADS = 4, BLOCKS = 4, COUNT = 2000;

/// A queue pair and what the controller keeps of it.
struct Rig {
    alignas(128) xio_queue queue = {};
    alignas(64) xio_quad sq[ENTRIES * 4] = {};
    alignas(64) xio_quad cq[ENTRIES] = {};
    xio_slot slots[ENTRIES] = {};
    uint32_t sq_doorbell = 0, cq_doorbell = 0;
    uint32_t head = 0;
    uint64_t posted = 0;
    std::vector<uint32_t> held;
    uint64_t random = 0x9e3779b97f4a7c15;

    Rig() {
        queue.sq = (uint64_t)sq;
        queue.cq = (uint64_t)cq;
        queue.sq_doorbell = (uint64_t)&sq_doorbell;
        queue.cq_doorbell = (uint64_t)&cq_doorbell;
        queue.slots = (uint64_t)slots;
        queue.timeout = 60000000000u;
        queue.entries = ENTRIES;
        queue.shift = 4;
        queue.qid = 7;
        for (uint64_t i = 0; i < ENTRIES; i++) {
            slots[i].state = i << 2;
        }
    }

    uint32_t next() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return (uint32_t)(random >> 16);
    }

    /// Fetches what is there and answers some of it, in any order. The key's number comes back as dword 0.
    void pass() {
        uint32_t tail = __atomic_load_n(&sq_doorbell, __ATOMIC_ACQUIRE);
        while (head != tail) {
            held.push_back(head);
            head = (head + 1) % ENTRIES;
        }
        while (!held.empty() && next() % 4 != 0) {
            uint32_t taken = __atomic_load_n(&cq_doorbell, __ATOMIC_ACQUIRE);
            uint32_t at = (uint32_t)(posted % ENTRIES);
            if ((at + 1) % ENTRIES == taken) {
                return;
            }
            size_t n = next() % held.size();
            uint32_t slot = held[n], cid = sq[slot * 4].x >> 16, key = sq[slot * 4].z;
            held.erase(held.begin() + (long)n);
            cq[at].x = key;
            cq[at].z = 7u << 16 | head;
            uint32_t phase = (posted / ENTRIES) % 2 == 0;
            __atomic_store_n(&cq[at].w, cid | phase << 16, __ATOMIC_RELEASE);
            posted++;
        }
    }
};

/// Runs a kernel; false when a result is wrong.
bool run(Rig &rig, void (*kernel)(xio_args), const char *name) {
    std::vector<xio_item> items(COUNT);
    std::vector<xio_result> results(COUNT);
    std::vector<uint64_t> out(COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        items[i] = xio_item{};
        items[i].opcode = XIO_OP_EXIST;
        items[i].key_len = 4;
        __builtin_memcpy(items[i].key, &i, 4);
    }
    xio_queue *queue = &rig.queue;
    xio_args args = {};
    args.queues = (uint64_t)&queue;
    args.queue_count = 1;
    args.items = (uint64_t)items.data();
    args.results = (uint64_t)results.data();
    args.out = (uint64_t)out.data();
    args.nsid = 1;
    args.count = COUNT;
    args.batch = 25;
    args.threads = THREADS;
    args.blocks = BLOCKS;
    std::atomic<bool> done{false};
    std::thread controller([&] {
        while (!done.load()) {
            rig.pass();
            std::this_thread::yield();
        }
    });
    alignas(64) static uint32_t shared[BLOCKS][XIO_HOST_SHARED / 4];
    std::vector<std::thread> threads;
    for (uint32_t block = 0; block < BLOCKS; block++) {
        for (uint32_t thread = 0; thread < THREADS; thread++) {
            threads.emplace_back([&, block, thread] {
                xio_host_place place = {thread, block, THREADS, 0, shared[block]};
                xio_host_run(kernel, &args, &place);
            });
        }
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    done.store(true);
    controller.join();
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        wrong += results[i].status != XIO_DONE || results[i].length != i;
    }
    printf("%s: %u commands, %u wrong, %llu doorbells\n", name, COUNT, wrong, (unsigned long long)queue->doorbells);
    return wrong == 0;
}

} // namespace

int main() {
    static Rig rig;
    bool ok = run(rig, xio_kernel_exist, "blocking");
    ok = run(rig, xio_kernel_batch, "batch") && ok;
    ok = run(rig, xio_kernel_checksum, "split") && ok;
    return ok ? 0 : 1;
}
