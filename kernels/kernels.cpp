// SPDX-License-Identifier: MIT OR Apache-2.0
// All kernels of the library, as one code object for each kind of GPU and as functions of the host.
#include "include/xio_kv.h"

#include "kv.h"

#include "values.h"

#include "bench.h"
