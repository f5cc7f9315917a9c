// SPDX-License-Identifier: MIT OR Apache-2.0
//! NVIDIA GPUs, through CUDA's driver library.
#![allow(unsafe_code, reason = "calls into CUDA's driver")]

use super::code::{embedded, Code};
use super::executor::{Executor, Function, Grid, Importer, Kind, MappedDmabuf, Mapping, Params};
use super::library::{failed, functions, open, wait_for};
use super::memory::DeviceDmabuf;
use crate::error::{gpu, Result};
use nvme_kv::PAGE_SIZE;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

functions! {
    /// CUDA's driver API, of CUDA 11.7 or newer.
    Api {
        needed cuInit: fn(c_uint) -> c_int;
        needed cuDeviceGetCount: fn(*mut c_int) -> c_int;
        needed cuDeviceGet: fn(*mut c_int, c_int) -> c_int;
        needed cuDeviceGetName: fn(*mut c_char, c_int, c_int) -> c_int;
        needed cuDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> c_int;
        needed cuDevicePrimaryCtxRetain: fn(*mut *mut c_void, c_int) -> c_int;
        needed cuCtxSetCurrent: fn(*mut c_void) -> c_int;
        needed cuMemAlloc_v2: fn(*mut u64, usize) -> c_int;
        needed cuMemFree_v2: fn(u64) -> c_int;
        needed cuMemsetD8_v2: fn(u64, u8, usize) -> c_int;
        needed cuMemcpyHtoD_v2: fn(u64, *const c_void, usize) -> c_int;
        needed cuMemcpyDtoH_v2: fn(*mut c_void, u64, usize) -> c_int;
        needed cuMemHostRegister_v2: fn(*mut c_void, usize, c_uint) -> c_int;
        needed cuMemHostUnregister: fn(*mut c_void) -> c_int;
        needed cuMemHostGetDevicePointer_v2: fn(*mut u64, *mut c_void, c_uint) -> c_int;
        needed cuModuleLoadData: fn(*mut *mut c_void, *const c_void) -> c_int;
        needed cuModuleGetFunction: fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
        needed cuLaunchKernel: fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
            *mut *mut c_void, *mut *mut c_void) -> c_int;
        needed cuStreamCreate: fn(*mut *mut c_void, c_uint) -> c_int;
        needed cuStreamSynchronize: fn(*mut c_void) -> c_int;
        needed cuStreamQuery: fn(*mut c_void) -> c_int;
        needed cuGetErrorString: fn(c_int, *mut *const c_char) -> c_int;
        maybe cuMemGetHandleForAddressRange: fn(*mut c_void, u64, usize, c_int, u64) -> c_int;
        maybe cuImportExternalMemory: fn(*mut *mut c_void, *const ExternalHandle) -> c_int;
        maybe cuExternalMemoryGetMappedBuffer: fn(*mut u64, *mut c_void, *const ExternalBuffer) -> c_int;
        maybe cuDestroyExternalMemory: fn(*mut c_void) -> c_int;
    }
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
pub(super) struct ExternalHandle {
    kind: c_int,
    handle: ExternalFd,
    size: u64,
    flags: c_uint,
    reserved: [c_uint; 16],
}

/// The union in it, whose largest variant has two pointers.
#[repr(C, align(8))]
struct ExternalFd {
    fd: c_int,
    rest: [c_int; 3],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
pub(super) struct ExternalBuffer {
    offset: u64,
    size: u64,
    flags: c_uint,
    reserved: [c_uint; 16],
}

// A test compares these with the header.
const _: () = assert!(size_of::<ExternalHandle>() == 104 && size_of::<ExternalBuffer>() == 88);
const _: () = assert!(offset_of!(ExternalHandle, handle) == 8 && offset_of!(ExternalHandle, size) == 24);
const _: () = assert!(offset_of!(ExternalHandle, flags) == 32 && offset_of!(ExternalBuffer, flags) == 16);

const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];
const NON_BLOCKING: c_uint = 1;
const NOT_READY: c_int = 600;
const PORTABLE: c_uint = 0x1;
const DEVICE_MAP: c_uint = 0x2;
const IO_MEMORY: c_uint = 0x4;
const DMA_BUF_SUPPORTED: c_int = 124;
const DMA_BUF_FD: c_int = 1;
const COMPUTE_MAJOR: c_int = 75;
const COMPUTE_MINOR: c_int = 76;
const EXTERNAL_DMA_BUF: c_int = 9;
/// What the driver allocates in; it cuts smaller pieces out of such blocks, anywhere.
const BLOCK: usize = 2 << 20;

/// Of GPUs of which no memory can be exported.
const NO_EXPORT: &str =
    "this GPU or its kernel driver exports no dma-buf: take NVIDIA's open kernel modules, or memory of the \
                         controller";

/// The driver, once it was opened.
fn api() -> Result<&'static Api> {
    static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = API.get_or_init(|| {
        // SAFETY: a vendor's runtime.
        let library = unsafe { open(NAMES)? };
        // SAFETY: signatures of CUDA's documentation; the library is never closed.
        unsafe { Api::find(library) }.map_err(|name| format!("the driver has no {name}: it is too old"))
    });
    opened.as_ref().map_err(|why| gpu("cuda", why.clone()))
}

fn check(api: &Api, what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the place for a pointer to a text that is never freed; it is left null for an unknown number.
    let _ = unsafe { (api.cuGetErrorString)(code, &mut text) };
    // SAFETY: a C string or null.
    Err(unsafe { failed("cuda", what, code, text) })
}

/// A context belongs to the calling thread from here on.
fn enter(api: &'static Api, context: usize) -> Result<&'static Api> {
    // SAFETY: contexts live as long as the process.
    check(api, "cuCtxSetCurrent", unsafe { (api.cuCtxSetCurrent)(context as *mut c_void) })?;
    Ok(api)
}

/// Number of GPUs.
pub(super) fn count() -> Result<u32> {
    let api = api()?;
    let mut count = 0;
    // SAFETY: no memory but `count`.
    unsafe {
        check(api, "cuInit", (api.cuInit)(0))?;
        check(api, "cuDeviceGetCount", (api.cuDeviceGetCount)(&mut count))?;
    }
    Ok(count.max(0) as u32)
}

/// A GPU with its primary context.
#[derive(Debug)]
pub(super) struct Cuda {
    api: &'static Api,
    device: c_int,
    context: usize,
    stream: usize,
    /// The library's kernels: name of the code, and module.
    module: std::result::Result<(String, usize), String>,
}

impl Cuda {
    pub(super) fn new(index: u32) -> Result<Self> {
        let there = count()?;
        if index >= there {
            return Err(gpu("cuda", format!("there is no GPU {index}: there are {there}")));
        }
        let api = api()?;
        let (mut device, mut context, mut stream) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no memory but these variables.
        unsafe {
            check(api, "cuDeviceGet", (api.cuDeviceGet)(&mut device, index as c_int))?;
            check(api, "cuDevicePrimaryCtxRetain", (api.cuDevicePrimaryCtxRetain)(&mut context, device))?;
            check(api, "cuCtxSetCurrent", (api.cuCtxSetCurrent)(context))?;
            check(api, "cuStreamCreate", (api.cuStreamCreate)(&mut stream, NON_BLOCKING))?;
        }
        let (context, stream) = (context as usize, stream as usize);
        let mut made = Self { api, device, context, stream, module: Err(String::new()) };
        made.module = made.find_code();
        Ok(made)
    }

    /// The context belongs to the calling thread from here on.
    fn enter(&self) -> Result<&'static Api> {
        enter(self.api, self.context)
    }

    fn attribute(&self, attribute: c_int) -> c_int {
        let mut value = 0;
        // SAFETY: no memory but `value`, which stays 0 on error.
        let _ = unsafe { (self.api.cuDeviceGetAttribute)(&mut value, attribute, self.device) };
        value
    }

    fn load_module(&self, code: &[u8]) -> Result<usize> {
        let api = self.enter()?;
        // PTX is text that ends in a zero.
        let mut text;
        let mut code = code;
        if !code.starts_with(b"\x7fELF") && code.last() != Some(&0) {
            text = code.to_vec();
            text.push(0);
            code = &text;
        }
        let mut module = std::ptr::null_mut();
        // SAFETY: a binary, whose length is in its header, or a C string.
        let loaded = unsafe { (api.cuModuleLoadData)(&mut module, code.as_ptr().cast()) };
        check(api, "cuModuleLoadData", loaded)?;
        Ok(module as usize)
    }

    /// The newest embedded kernels that this GPU takes.
    fn find_code(&self) -> std::result::Result<(String, usize), String> {
        let (major, minor) = (self.attribute(COMPUTE_MAJOR), self.attribute(COMPUTE_MINOR));
        let number = |name: &str| name.strip_prefix("sm_").and_then(|n| n.parse::<c_int>().ok());
        let fits = |name: &str| number(name).is_some_and(|n| n <= major * 10 + minor);
        let mut all: Vec<_> = embedded(&["cubin", "ptx"]).filter(|(name, _)| fits(name)).collect();
        all.sort_by_key(|(name, _)| std::cmp::Reverse(number(name)));
        let mut why =
            format!("the library was built without kernels for sm_{major}{minor}: run kernels/build first");
        for (name, code) in all {
            match self.load_module(code) {
                Ok(module) => return Ok((name.to_owned(), module)),
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    fn function(&self, module: usize, name: &CStr) -> Result<Function> {
        let api = self.enter()?;
        let mut function = std::ptr::null_mut();
        // SAFETY: a module that is never unloaded, and a C string.
        let found = unsafe { (api.cuModuleGetFunction)(&mut function, module as *mut c_void, name.as_ptr()) };
        check(api, &format!("kernel {}", name.to_string_lossy()), found)?;
        Ok(Function(function as usize))
    }
}

impl Executor for Cuda {
    fn kind(&self) -> Kind {
        Kind::Cuda
    }

    fn name(&self) -> String {
        let mut name = [0u8; 128];
        // SAFETY: as many bytes as told.
        let got =
            unsafe { (self.api.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, self.device) };
        let text = CStr::from_bytes_until_nul(&name).ok().filter(|_| got == 0);
        text.map_or_else(|| "NVIDIA GPU".into(), |text| text.to_string_lossy().into_owned())
    }

    fn clock_hz(&self) -> u64 {
        // %globaltimer counts nanoseconds.
        1_000_000_000
    }

    fn alloc(&self, len: usize) -> Result<u64> {
        let api = self.enter()?;
        let mut address = 0;
        // SAFETY: no memory but `address`.
        check(api, "cuMemAlloc", unsafe { (api.cuMemAlloc_v2)(&mut address, len) })?;
        // SAFETY: just allocated.
        let zeroed = check(api, "cuMemsetD8", unsafe { (api.cuMemsetD8_v2)(address, 0, len) });
        // Kernels run in a stream of their own, which does not wait for the default one.
        // SAFETY: no memory.
        let done = check(api, "cuMemsetD8", unsafe { (api.cuStreamSynchronize)(std::ptr::null_mut()) });
        zeroed.and(done).inspect_err(|_| {
            // SAFETY: just allocated and not given to anybody.
            unsafe { self.free(address) }
        })?;
        Ok(address)
    }

    /// Whole blocks: what is exported must begin and end with a page, and have nobody else's memory in it.
    fn alloc_shared(&self, len: usize) -> Result<u64> {
        self.alloc(len.next_multiple_of(BLOCK))
    }

    unsafe fn free(&self, address: u64) {
        if let Ok(api) = self.enter() {
            // Nothing can be done about an error here.
            // SAFETY: the caller's promise.
            let _ = unsafe { (api.cuMemFree_v2)(address) };
        }
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller's promise.
        check(api, "cuMemcpyHtoD", unsafe { (api.cuMemcpyHtoD_v2)(to, from.as_ptr().cast(), from.len()) })?;
        // The call may return before the last bytes are there, which kernels in a stream of their own, and other devices,
        // do not wait for.
        // SAFETY: no memory.
        check(api, "cuMemcpyHtoD", unsafe { (api.cuStreamSynchronize)(std::ptr::null_mut()) })
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller's promise.
        check(api, "cuMemcpyDtoH", unsafe { (api.cuMemcpyDtoH_v2)(to.as_mut_ptr().cast(), from, to.len()) })
    }

    unsafe fn register(&self, ptr: *mut u8, len: usize, how: Mapping) -> Result<u64> {
        let api = self.enter()?;
        let flags = match how {
            Mapping::Memory => PORTABLE | DEVICE_MAP,
            Mapping::IoMemory => PORTABLE | DEVICE_MAP | IO_MEMORY,
            Mapping::HsaLock => return Err(gpu("cuda", "this way is AMD's")),
        };
        let mut address = 0;
        // SAFETY: mapped by the caller's promise.
        check(api, "cuMemHostRegister", unsafe { (api.cuMemHostRegister_v2)(ptr.cast(), len, flags) })?;
        // SAFETY: just registered.
        let got = unsafe { (api.cuMemHostGetDevicePointer_v2)(&mut address, ptr.cast(), 0) };
        check(api, "cuMemHostGetDevicePointer", got).inspect_err(|_| {
            // SAFETY: just registered, and nothing uses it.
            unsafe { self.unregister(ptr, how) }
        })?;
        Ok(address)
    }

    unsafe fn unregister(&self, ptr: *mut u8, _how: Mapping) {
        if let Ok(api) = self.enter() {
            // Nothing can be done about an error here.
            // SAFETY: the caller's promise.
            let _ = unsafe { (api.cuMemHostUnregister)(ptr.cast()) };
        }
    }

    fn builtin(&self, name: &CStr) -> Result<Function> {
        let (_, module) = self.module.as_ref().map_err(|why| gpu("cuda", why.clone()))?;
        self.function(*module, name)
    }

    fn load(&self, code: &Code<'_>, name: &CStr) -> Result<Function> {
        self.function(self.load_module(code.0)?, name)
    }

    unsafe fn launch(&self, kernel: Function, grid: Grid, params: Params<'_>) -> Result<()> {
        let api = self.enter()?;
        let mut all = [params.0.as_ptr().cast_mut().cast::<c_void>()];
        let stream = self.stream as *mut c_void;
        // SAFETY: one argument by the caller's promise; the runtime copies it.
        let launched = unsafe {
            (api.cuLaunchKernel)(
                kernel.0 as *mut c_void,
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                0,
                stream,
                all.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check(api, "cuLaunchKernel", launched)?;
        // SAFETY: a stream that lives as long as the process.
        let done = wait_for(NOT_READY, || unsafe { (api.cuStreamQuery)(stream) });
        check(api, "running a kernel", done)
    }

    fn export(&self, address: u64, len: usize, _to: Importer) -> Result<DeviceDmabuf> {
        let api = self.enter()?;
        let get = api.cuMemGetHandleForAddressRange.ok_or_else(|| {
            gpu("cuda", "the driver has no cuMemGetHandleForAddressRange: take one of CUDA 11.7 or newer")
        })?;
        if self.attribute(DMA_BUF_SUPPORTED) != 1 {
            return Err(gpu("cuda", NO_EXPORT));
        }
        if address % PAGE_SIZE as u64 != 0 || len % PAGE_SIZE != 0 {
            return Err(gpu("cuda", "only memory of Gpu::alloc_shared can be exported: whole pages"));
        }
        let mut fd: c_int = -1;
        // SAFETY: the place for a file descriptor.
        let got = unsafe { get((&raw mut fd).cast(), address, len, DMA_BUF_FD, 0) };
        check(api, "cuMemGetHandleForAddressRange", got)?;
        // SAFETY: a new descriptor that is ours.
        Ok(DeviceDmabuf::new(unsafe { OwnedFd::from_raw_fd(fd) }, 0, None))
    }

    fn map_dmabuf(&self, dmabuf: OwnedFd, len: usize) -> Result<MappedDmabuf> {
        let api = self.enter()?;
        let mut external = External::import(api, self.context, dmabuf, len)?;
        let address = external.map(len)?;
        Ok(MappedDmabuf { address, _held: Box::new(external) })
    }

    fn peer_to_peer(&self) -> String {
        match (self.api.cuMemGetHandleForAddressRange.is_some(), self.attribute(DMA_BUF_SUPPORTED)) {
            (true, 1) => "dma-buf export supported".into(),
            (true, _) => "no: this GPU or its kernel driver exports no dma-buf".into(),
            (false, _) => "no: the driver is older than CUDA 11.7".into(),
        }
    }

    fn code(&self) -> String {
        self.module.as_ref().map_or_else(|why| format!("none: {why}"), |(name, _)| name.clone())
    }
}

/// Memory of another driver.
#[derive(Debug)]
struct External {
    api: &'static Api,
    context: usize,
    memory: usize,
    /// Where it is mapped, once it is.
    address: Option<u64>,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl External {
    fn import(api: &'static Api, context: usize, dmabuf: OwnedFd, len: usize) -> Result<Self> {
        let both = api.cuImportExternalMemory.zip(api.cuDestroyExternalMemory);
        let (import, destroy) =
            both.ok_or_else(|| gpu("cuda", "the driver has no cuImportExternalMemory (CUDA 10)"))?;
        let handle = ExternalHandle {
            kind: EXTERNAL_DMA_BUF,
            handle: ExternalFd { fd: dmabuf.as_raw_fd(), rest: [0; 3] },
            size: len as u64,
            flags: 0,
            reserved: [0; 16],
        };
        let mut memory = std::ptr::null_mut();
        // SAFETY: the place for a handle, and a description that is only read.
        let imported = unsafe { import(&mut memory, &handle) };
        let what = "cuImportExternalMemory of a dma-buf, which CUDA 13 documents for Jetson Thor alone";
        check(api, what, imported)?;
        // With what is a file, the driver takes the descriptor over.
        let _ = dmabuf.into_raw_fd();
        Ok(Self { api, context, memory: memory as usize, address: None, destroy })
    }

    fn map(&mut self, len: usize) -> Result<u64> {
        let map = self.api.cuExternalMemoryGetMappedBuffer;
        let map = map.ok_or_else(|| gpu("cuda", "the driver has no cuExternalMemoryGetMappedBuffer"))?;
        let range = ExternalBuffer { offset: 0, size: len as u64, flags: 0, reserved: [0; 16] };
        let mut address = 0;
        // SAFETY: the place for an address, memory that was imported, and a description that is only read.
        let mapped = unsafe { map(&mut address, self.memory as *mut c_void, &range) };
        check(self.api, "cuExternalMemoryGetMappedBuffer", mapped)?;
        self.address = Some(address);
        Ok(address)
    }
}

impl Drop for External {
    fn drop(&mut self) {
        // Nobody to tell of an error, here and below.
        if let Ok(api) = enter(self.api, self.context) {
            if let Some(address) = self.address {
                // SAFETY: mapped by `map`, and nothing uses it any more.
                let _ = unsafe { (api.cuMemFree_v2)(address) };
            }
            // SAFETY: made by `import`, and not mapped any more.
            let _ = unsafe { (self.destroy)(self.memory as *mut c_void) };
        }
    }
}

/// A C string of a kernel's name.
pub(super) fn c_name(executor: &'static str, name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| gpu(executor, format!("kernel {name:?}: no name has a zero in it")))
}
