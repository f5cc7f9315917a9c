// SPDX-License-Identifier: MIT OR Apache-2.0
// NVMe Key Value from device code: kernels store and retrieve pairs by themselves, without the host.
//
// The host makes a queue (xio_queue) and a buffer (xio_buffer) and gives their addresses to a kernel; see the crate
// `xio`, module `gpu`. The kernel then has three ways to work, all on one queue at the same time if it likes:
//
//  * blocking, any thread for itself:      xio_kv_retrieve(queue, nsid, key, buffer, offset, len, 0, &results[i])
//  * split, to have several in flight:     xio_submit(queue, command, &results[i]); ...; xio_wait(queue, &results[i])
//  * a block together, one doorbell for all: xio_batch(queue, &shared, threads, count, results, make)
//
// What every function keeps to:
//
//  * "No such key" and all other statuses are results. Nothing traps, nothing waits longer than the queue's timeout
//    (three times that at most, see xio_wait), whatever the controller does.
//  * Lengths and offsets are bytes. A range begins at a multiple of 4 in its buffer.
//  * Any number of threads, waves and blocks of one device may use a queue at once. Two devices, or a device and the
//    host, may not: each takes a queue of its own.
//  * Results are in memory that all waves of the device reach: never a local variable.
//  * Calls may be made by any lanes of a wave, also inside branches. Lanes that call together share the work: one
//    ticket operation, one doorbell. None ever waits for a lane of its own wave.
//
// How it works, and why:
//
//  1. A command takes a *ticket*, a 64-bit number that never repeats. Ticket modulo entries is the place in the ring
//     and the command identifier. A wave looks whether the places from the ring's tail on are free, one lane each, and
//     takes as many as are with one compare-and-swap; so a ticket is never waited for and never given back.
//  2. Free means two things: the command that had the place before was answered, and the controller has fetched so
//     many entries (by the head that completions carry) that the ring does not overflow.
//  3. Each lane writes its entry and marks it ready. Whoever gets the publishing lock counts the entries that are
//     ready in a row, its own or others', and writes the doorbell once for all of them.
//  4. Whoever waits and gets the reaping lock takes completions, one lane each: the result goes to the address that
//     the command's slot holds, and the place is free again. A block in xio_batch does so with all its threads. The
//     head doorbell is written when half of the completion queue may be in use, so seldom.
//  5. A command that is not answered in time is given up: its slot is poisoned, which is reported in the queue, and its
//     identifier is not used again: an answer that comes late finds nothing to write to. The place in the ring must be
//     passed all the same, by a *filler*: an Exist with another identifier, whose answer nobody waits for.
#ifndef XIO_KV_H
#define XIO_KV_H

#include "xio_kv_wire.h"
#include "xio_platform.h"

#include "xio_kv_command.h"

#include "xio_kv_ring.h"

#include "xio_kv_call.h"

#include "xio_kv_batch.h"

#endif // XIO_KV_H
