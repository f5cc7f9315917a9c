// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels as functions of this process, and how a thread takes its place in a block.
#include "kernels.cpp"

thread_local xio_host_place xio_host;

/// Starts a kernel in the calling thread, at a place in a block. `shared` is XIO_HOST_SHARED bytes of zeros that the
/// threads of the block have in common.
extern "C" void xio_host_run(void (*kernel)(xio_args), const xio_args *args, const xio_host_place *place) {
    xio_host = *place;
    kernel(*args);
}
