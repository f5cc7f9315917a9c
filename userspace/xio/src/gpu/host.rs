// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels as threads of this process.
#![allow(unsafe_code, reason = "kernels are C++ functions that work on addresses")]

use super::code::Code;
use super::executor::{Executor, Function, Grid, Importer, Kind, MappedDmabuf, Mapping, Params};
use super::memory::DeviceDmabuf;
use crate::dmabuf::{dmabuf_of, sealed_memory};
use crate::error::{gpu, Error, Result};
use crate::mapping::Region;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that threads of a block share.
const SHARED: usize = 512;
/// Most threads at once; a block that has more runs alone.
const THREADS: u32 = 64;

/// Threads of this process.
#[derive(Debug)]
pub(super) struct Host {
    /// Memory that can be exported, by its address.
    shared: Mutex<HashMap<u64, Shared>>,
}

/// A file in memory, and where it is mapped.
#[derive(Debug)]
struct Shared {
    file: File,
    region: Region,
}

impl Host {
    pub(super) fn new() -> Result<Self> {
        if cfg!(xio_host_kernels) {
            Ok(Self { shared: Mutex::default() })
        } else {
            Err(gpu(
                "host",
                "the library was built without a C++ compiler, so it has no kernels for the host",
            ))
        }
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<u64, Shared>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a pointer to a kernel's argument must be at least.
fn layout(len: usize) -> std::alloc::Layout {
    // Lengths are whole pages by `DeviceMemory::new`.
    std::alloc::Layout::from_size_align(len.max(4096), 4096)
        .unwrap_or(std::alloc::Layout::new::<[u8; 4096]>())
}

/// Bytes that come before an allocation to keep its length.
const HEAD: usize = 4096;

impl Executor for Host {
    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn name(&self) -> String {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        format!("threads of this process ({threads} at a time)")
    }

    fn clock_hz(&self) -> u64 {
        1_000_000_000
    }

    fn alloc(&self, len: usize) -> Result<u64> {
        // SAFETY: the size is not zero.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout(len + HEAD)) };
        if ptr.is_null() {
            return Err(gpu("host", format!("no memory for {len} bytes")));
        }
        // SAFETY: within the allocation, at its start, aligned.
        unsafe { ptr.cast::<usize>().write(len) };
        Ok(ptr as u64 + HEAD as u64)
    }

    fn alloc_shared(&self, len: usize) -> Result<u64> {
        let file = sealed_memory(len)?;
        let region = Region::of_file(&file, 0, len, true, "mapping memory to be shared")?;
        let address = region.as_ptr() as u64;
        self.shared().insert(address, Shared { file, region });
        Ok(address)
    }

    unsafe fn free(&self, address: u64) {
        // Unmapped when it is dropped.
        if self.shared().remove(&address).is_some() {
            return;
        }
        let ptr = (address as usize - HEAD) as *mut u8;
        // SAFETY: `alloc` put the length there, and made it with this layout.
        unsafe { std::alloc::dealloc(ptr, layout(ptr.cast::<usize>().read() + HEAD)) }
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from as *const u8, to.len()) };
        Ok(())
    }

    unsafe fn register(&self, ptr: *mut u8, _len: usize, _how: Mapping) -> Result<u64> {
        Ok(ptr as u64)
    }

    unsafe fn unregister(&self, _ptr: *mut u8, _how: Mapping) {}

    fn builtin(&self, name: &CStr) -> Result<Function> {
        kernels::find(name).ok_or_else(|| gpu("host", format!("no kernel {}", name.to_string_lossy())))
    }

    fn load(&self, _code: &Code<'_>, name: &CStr) -> Result<Function> {
        Err(gpu("host", format!("kernel {}: only the library's own run as threads", name.to_string_lossy())))
    }

    unsafe fn launch(&self, kernel: Function, grid: Grid, params: Params<'_>) -> Result<()> {
        let at_once = (THREADS / grid.threads).max(1);
        for first in (0..grid.blocks).step_by(at_once as usize) {
            let blocks = first..grid.blocks.min(first + at_once);
            // SAFETY: the caller's promise.
            unsafe { kernels::run_blocks(kernel, blocks, grid.threads, params)? };
        }
        Ok(())
    }

    fn export(&self, address: u64, len: usize, to: Importer) -> Result<DeviceDmabuf> {
        let shared = self.shared();
        let memory = shared.get(&address).filter(|memory| memory.region.len() == len);
        let memory = memory.ok_or_else(|| gpu("host", "only memory of Gpu::alloc_shared can be exported"))?;
        let fd = match to {
            Importer::Driver => dmabuf_of(&memory.file, len)?,
            Importer::Process => memory.file.try_clone().map(Into::into).map_err(|source| {
                let what = "sharing memory";
                Error::Os { what, source }
            })?,
        };
        Ok(DeviceDmabuf::new(fd, 0, None))
    }

    fn map_dmabuf(&self, dmabuf: OwnedFd, len: usize) -> Result<MappedDmabuf> {
        let region = Region::of_device(&dmabuf, 0, len, true, "mapping a dma-buf")?;
        Ok(MappedDmabuf { address: region.as_ptr() as u64, _held: Box::new(region) })
    }

    fn peer_to_peer(&self) -> String {
        "not needed: the controller reaches host memory".into()
    }

    fn code(&self) -> String {
        "host".into()
    }
}

#[cfg(xio_host_kernels)]
mod kernels {
    use super::{Function, Params, SHARED};
    use crate::error::{gpu, Result};
    use std::ffi::{c_void, CStr};
    use std::ops::Range;
    use std::sync::PoisonError;
    use xio_device_abi::Args;

    /// `xio_host_place` of xio_platform_host.h.
    #[repr(C)]
    struct Place {
        thread: u32,
        block: u32,
        threads: u32,
        reserved: u32,
        shared: *mut c_void,
    }

    /// Memory of a block.
    #[repr(C, align(64))]
    struct Shared([u8; SHARED]);

    extern "C" {
        fn xio_host_run(kernel: *mut c_void, args: *const Args, place: *const Place);
    }

    macro_rules! kernels {
        ($($name:ident)*) => {
            extern "C" { $( fn $name(args: Args); )* }
            /// A kernel by its name.
            pub(super) fn find(name: &CStr) -> Option<Function> {
                let name = name.to_str().ok()?;
                $( if name == stringify!($name) { return Some(Function($name as *const () as usize)); } )*
                None
            }
        };
    }
    kernels! {
        xio_kernel_store xio_kernel_retrieve xio_kernel_exist xio_kernel_delete xio_kernel_list xio_kernel_batch
        xio_kernel_encode xio_kernel_fill xio_kernel_verify xio_kernel_checksum xio_kernel_bench
        xio_kernel_bench_call xio_kernel_bench_stream xio_kernel_bench_pull xio_kernel_bench_plain xio_kernel_bench_lock
    }

    /// Runs some blocks at the same time.
    ///
    /// # Safety
    /// `params` is an `xio_args` and all it names is mapped.
    pub(super) unsafe fn run_blocks(
        kernel: Function,
        blocks: Range<u32>,
        threads: u32,
        params: Params<'_>,
    ) -> Result<()> {
        let args = <Args as zerocopy::FromBytes>::read_from_bytes(params.0)
            .map_err(|_| gpu("host", "kernels on the host take the library's arguments alone"))?;
        let shared: Vec<Box<std::cell::UnsafeCell<Shared>>> =
            blocks.clone().map(|_| Box::new(std::cell::UnsafeCell::new(Shared([0; SHARED])))).collect();
        let all = || {
            blocks.clone().zip(&shared).flat_map(|(block, s)| (0..threads).map(move |t| (block, s.get(), t)))
        };
        // No thread goes on before all are there: at a barrier it would wait for one that never comes.
        let gate = std::sync::RwLock::new(false);
        let mut failed = None;
        std::thread::scope(|scope| {
            let mut open = gate.write().unwrap_or_else(PoisonError::into_inner);
            for (block, memory, thread) in all() {
                let (memory, args, gate) = (memory as usize, &args, &gate);
                let start = move || {
                    let go = *gate.read().unwrap_or_else(PoisonError::into_inner);
                    let shared = memory as *mut c_void;
                    let place = Place { thread, block, threads, reserved: 0, shared };
                    if go {
                        // SAFETY: a kernel that takes these arguments by `find`; what they name is mapped by the
                        // caller's promise, and `shared` lives until the scope ends.
                        unsafe { xio_host_run(kernel.0 as *mut c_void, args, &place) }
                    }
                };
                let spawned =
                    std::thread::Builder::new().name("xio-kernel".into()).spawn_scoped(scope, start);
                failed = failed.take().or(spawned.err());
            }
            *open = failed.is_none();
        });
        if let Some(error) = failed {
            return Err(gpu("host", format!("starting {threads} threads for a block: {error}")));
        }
        Ok(())
    }
}

#[cfg(not(xio_host_kernels))]
mod kernels {
    use super::{Function, Params};
    use crate::error::{gpu, Result};
    use std::ffi::CStr;
    use std::ops::Range;

    pub(super) fn find(_name: &CStr) -> Option<Function> {
        None
    }

    pub(super) unsafe fn run_blocks(_: Function, _: Range<u32>, _: u32, _: Params<'_>) -> Result<()> {
        Err(gpu("host", "the library was built without kernels for the host"))
    }
}
