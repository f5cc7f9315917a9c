// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMD GPUs, through HIP, and the layer below it for what HIP lacks.
#![allow(unsafe_code, reason = "calls into AMD's runtime")]

use super::code::{embedded, Code};
use super::executor::{Executor, Function, Grid, Importer, Kind, MappedDmabuf, Mapping, Params};
use super::hsa;
use super::library::{failed, functions, open, wait_for};
use super::memory::DeviceDmabuf;
use crate::error::{gpu, Result};
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

functions! {
    /// HIP, of ROCm 5 or newer. Functions that came later are not needed.
    Api {
        needed hipInit: fn(c_uint) -> c_int;
        needed hipGetDeviceCount: fn(*mut c_int) -> c_int;
        needed hipSetDevice: fn(c_int) -> c_int;
        needed hipDeviceGetName: fn(*mut c_char, c_int, c_int) -> c_int;
        needed hipDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> c_int;
        needed hipMalloc: fn(*mut *mut c_void, usize) -> c_int;
        needed hipFree: fn(*mut c_void) -> c_int;
        needed hipMemset: fn(*mut c_void, c_int, usize) -> c_int;
        needed hipMemcpy: fn(*mut c_void, *const c_void, usize, c_int) -> c_int;
        needed hipHostRegister: fn(*mut c_void, usize, c_uint) -> c_int;
        needed hipHostUnregister: fn(*mut c_void) -> c_int;
        needed hipHostGetDevicePointer: fn(*mut *mut c_void, *mut c_void, c_uint) -> c_int;
        needed hipModuleLoadData: fn(*mut *mut c_void, *const c_void) -> c_int;
        needed hipModuleGetFunction: fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
        needed hipModuleLaunchKernel: fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
        needed hipStreamCreateWithFlags: fn(*mut *mut c_void, c_uint) -> c_int;
        needed hipStreamQuery: fn(*mut c_void) -> c_int;
        needed hipDeviceSynchronize: fn() -> c_int;
        needed hipGetErrorString: fn(c_int) -> *const c_char;
        maybe hipExtMallocWithFlags: fn(*mut *mut c_void, usize, c_uint) -> c_int;
        maybe hipMemGetHandleForAddressRange: fn(*mut c_void, *mut c_void, usize, c_int, u64) -> c_int;
    }
}

const NAMES: &[&str] = &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
const NON_BLOCKING: c_uint = 1;
const NOT_READY: c_int = 600;
const COPY_BY_ADDRESS: c_int = 4;
const REGISTER_MAPPED: c_uint = 0x2;
const REGISTER_IO_MEMORY: c_uint = 0x4;
const MALLOC_UNCACHED: c_uint = 0x3;
const PCI_BUS: c_int = 67;
const PCI_DEVICE: c_int = 68;
const PCI_DOMAIN: c_int = 69;
const WALL_CLOCK_KHZ: c_int = 10017;
const LARGE_BAR: c_int = 10011;
const DMA_BUF_FD: c_int = 1;
const MAPPING_PCIE: u64 = 1;

/// The runtime, once it was opened.
fn api() -> Result<&'static Api> {
    static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = API.get_or_init(|| {
        // SAFETY: a vendor's runtime.
        let library = unsafe { open(NAMES)? };
        // SAFETY: signatures of HIP's headers, which a test compares; the library is never closed.
        unsafe { Api::find(library) }.map_err(|name| format!("the runtime has no {name}: it is too old"))
    });
    opened.as_ref().map_err(|why| gpu("hip", why.clone()))
}

fn check(api: &Api, what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: gives a text that is never freed, or null, for any number.
    Err(unsafe { failed("hip", what, code, (api.hipGetErrorString)(code)) })
}

/// Number of GPUs.
pub(super) fn count() -> Result<u32> {
    let api = api()?;
    let mut count = 0;
    // SAFETY: no memory but `count`.
    unsafe {
        check(api, "hipInit", (api.hipInit)(0))?;
        check(api, "hipGetDeviceCount", (api.hipGetDeviceCount)(&mut count))?;
    }
    Ok(count.max(0) as u32)
}

/// A GPU.
#[derive(Debug)]
pub(super) struct Hip {
    api: &'static Api,
    device: c_int,
    stream: usize,
    agent: std::result::Result<hsa::Agent, String>,
    /// The library's kernels: name of the code, and module.
    module: std::result::Result<(String, usize), String>,
}

impl Hip {
    pub(super) fn new(index: u32) -> Result<Self> {
        let there = count()?;
        if index >= there {
            return Err(gpu("hip", format!("there is no GPU {index}: there are {there}")));
        }
        let (api, device, mut stream) = (api()?, index as c_int, std::ptr::null_mut());
        // SAFETY: no memory but `stream`.
        unsafe {
            check(api, "hipSetDevice", (api.hipSetDevice)(device))?;
            check(
                api,
                "hipStreamCreateWithFlags",
                (api.hipStreamCreateWithFlags)(&mut stream, NON_BLOCKING),
            )?;
        }
        let (agent, module) = (Err(String::new()), Err(String::new()));
        let mut made = Self { api, device, stream: stream as usize, agent, module };
        let [domain, bus, slot] = [PCI_DOMAIN, PCI_BUS, PCI_DEVICE].map(|a| made.attribute(a) as u32);
        made.agent = hsa::Agent::find(domain, bus << 8 | slot << 3);
        made.module = made.find_code();
        Ok(made)
    }

    /// The calling thread works on this GPU from here on.
    fn enter(&self) -> Result<&'static Api> {
        // SAFETY: no memory.
        check(self.api, "hipSetDevice", unsafe { (self.api.hipSetDevice)(self.device) })?;
        Ok(self.api)
    }

    fn attribute(&self, attribute: c_int) -> c_int {
        let mut value = 0;
        // SAFETY: no memory but `value`, which stays 0 on error.
        let _ = unsafe { (self.api.hipDeviceGetAttribute)(&mut value, attribute, self.device) };
        value
    }

    fn load_module(&self, code: &[u8]) -> Result<usize> {
        let api = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: a code object, whose length is in its header.
        let loaded = unsafe { (api.hipModuleLoadData)(&mut module, code.as_ptr().cast()) };
        check(api, "hipModuleLoadData", loaded)?;
        Ok(module as usize)
    }

    /// The embedded kernels that this GPU takes: by the name of its agent, or by trying when that is not known.
    fn find_code(&self) -> std::result::Result<(String, usize), String> {
        let name = self.agent.as_ref().ok().map(|agent| agent.name.clone());
        let fits = |code: &str| name.as_ref().is_none_or(|name| name == code);
        let what = name.as_deref().unwrap_or("this GPU");
        let mut why = format!("the library was built without kernels for {what}: run kernels/build first");
        for (name, code) in embedded(&["co"]).filter(|(code, _)| fits(code)) {
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
        let found =
            unsafe { (api.hipModuleGetFunction)(&mut function, module as *mut c_void, name.as_ptr()) };
        check(api, &format!("kernel {}", name.to_string_lossy()), found)?;
        Ok(Function(function as usize))
    }

    fn agent(&self) -> Result<&hsa::Agent> {
        self.agent.as_ref().map_err(|why| gpu("hip", why.clone()))
    }

    /// For runtimes whose lower layer exports nothing. The dma-buf is of this range alone.
    fn export_by_hip(&self, address: u64, len: usize) -> Result<DeviceDmabuf> {
        let get = self.api.hipMemGetHandleForAddressRange;
        let get =
            get.ok_or_else(|| gpu("hip", "the runtime has no hipMemGetHandleForAddressRange (HIP 7.0)"))?;
        let mut fd: c_int = -1;
        // SAFETY: the place for a file descriptor.
        let got = unsafe { get((&raw mut fd).cast(), address as *mut c_void, len, DMA_BUF_FD, MAPPING_PCIE) };
        check(self.api, "hipMemGetHandleForAddressRange", got)?;
        // SAFETY: a new descriptor that is ours.
        Ok(DeviceDmabuf::new(unsafe { OwnedFd::from_raw_fd(fd) }, 0, None))
    }
}

impl Executor for Hip {
    fn kind(&self) -> Kind {
        Kind::Hip
    }

    fn name(&self) -> String {
        let mut name = [0u8; 128];
        // SAFETY: as many bytes as told.
        let got = unsafe {
            (self.api.hipDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, self.device)
        };
        let text = CStr::from_bytes_until_nul(&name).ok().filter(|text| got == 0 && !text.is_empty());
        text.map_or_else(|| "AMD GPU".into(), |text| text.to_string_lossy().into_owned())
    }

    fn clock_hz(&self) -> u64 {
        // The constant clock runs at 100 MHz on all GPUs up to now; the runtime tells since ROCm 5.5.
        match self.attribute(WALL_CLOCK_KHZ) {
            khz @ 1.. => khz as u64 * 1000,
            _ => 100_000_000,
        }
    }

    /// Uncached where the runtime has it, so that a device's writes into it are seen without further ado.
    fn alloc(&self, len: usize) -> Result<u64> {
        let api = self.enter()?;
        let mut address = std::ptr::null_mut();
        // SAFETY: no memory but `address`.
        let uncached = api
            .hipExtMallocWithFlags
            .is_some_and(|malloc| unsafe { malloc(&mut address, len, MALLOC_UNCACHED) } == 0);
        if !uncached {
            // SAFETY: as above.
            check(api, "hipMalloc", unsafe { (api.hipMalloc)(&mut address, len) })?;
        }
        // SAFETY: just allocated. Kernels run in a stream that does not wait for the default one, hence the wait.
        let zeroed = unsafe { (api.hipMemset)(address, 0, len) };
        // SAFETY: no memory.
        let waited = unsafe { (api.hipDeviceSynchronize)() };
        check(api, "hipMemset", zeroed).and(check(api, "hipMemset", waited)).inspect_err(|_| {
            // SAFETY: just allocated and not given to anybody.
            unsafe { self.free(address as u64) }
        })?;
        Ok(address as u64)
    }

    unsafe fn free(&self, address: u64) {
        // Nothing can be done about an error here.
        // SAFETY: the caller's promise.
        let _ = unsafe { (self.api.hipFree)(address as *mut c_void) };
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller's promise.
        let copied =
            unsafe { (api.hipMemcpy)(to as *mut c_void, from.as_ptr().cast(), from.len(), COPY_BY_ADDRESS) };
        check(api, "hipMemcpy", copied)
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller's promise.
        let copied = unsafe {
            (api.hipMemcpy)(to.as_mut_ptr().cast(), from as *const c_void, to.len(), COPY_BY_ADDRESS)
        };
        check(api, "hipMemcpy", copied)
    }

    unsafe fn register(&self, ptr: *mut u8, len: usize, how: Mapping) -> Result<u64> {
        let api = self.enter()?;
        let flags = match how {
            Mapping::Memory => REGISTER_MAPPED,
            Mapping::IoMemory => REGISTER_IO_MEMORY,
            // SAFETY: mapped by the caller's promise.
            Mapping::HsaLock => return unsafe { self.agent()?.lock(ptr, len) },
        };
        // SAFETY: mapped by the caller's promise.
        check(api, "hipHostRegister", unsafe { (api.hipHostRegister)(ptr.cast(), len, flags) })?;
        let mut address = std::ptr::null_mut();
        // SAFETY: just registered.
        let got = unsafe { (api.hipHostGetDevicePointer)(&mut address, ptr.cast(), 0) };
        check(api, "hipHostGetDevicePointer", got).inspect_err(|_| {
            // SAFETY: just registered, and nothing uses it.
            unsafe { self.unregister(ptr, how) }
        })?;
        Ok(address as u64)
    }

    unsafe fn unregister(&self, ptr: *mut u8, how: Mapping) {
        // Nothing can be done about an error here.
        match (how, &self.agent) {
            // SAFETY: the caller's promise.
            (Mapping::HsaLock, Ok(agent)) => unsafe { agent.unlock(ptr) },
            // SAFETY: the caller's promise.
            _ => drop(unsafe { (self.api.hipHostUnregister)(ptr.cast()) }),
        }
    }

    fn builtin(&self, name: &CStr) -> Result<Function> {
        let (_, module) = self.module.as_ref().map_err(|why| gpu("hip", why.clone()))?;
        self.function(*module, name)
    }

    fn load(&self, code: &Code<'_>, name: &CStr) -> Result<Function> {
        self.function(self.load_module(code.0)?, name)
    }

    unsafe fn launch(&self, kernel: Function, grid: Grid, params: Params<'_>) -> Result<()> {
        let api = self.enter()?;
        let mut all = [params.0.as_ptr().cast_mut().cast::<c_void>()];
        let (stream, none) = (self.stream as *mut c_void, std::ptr::null_mut());
        let (blocks, threads, all) = (grid.blocks, grid.threads, all.as_mut_ptr());
        // SAFETY: one argument by the caller's promise; the runtime copies it.
        let launched = unsafe {
            (api.hipModuleLaunchKernel)(
                kernel.0 as *mut c_void,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                all,
                none,
            )
        };
        check(api, "hipModuleLaunchKernel", launched)?;
        // SAFETY: a stream that lives as long as the process.
        let done = wait_for(NOT_READY, || unsafe { (api.hipStreamQuery)(stream) });
        check(api, "running a kernel", done)
    }

    fn export(&self, address: u64, len: usize, _to: Importer) -> Result<DeviceDmabuf> {
        self.enter()?;
        let by_agent = self.agent().and_then(|agent| agent.export(address, len));
        by_agent.or_else(|first| {
            self.export_by_hip(address, len).map_err(|second| {
                let what = "memory of the GPU can not be exported as a dma-buf: take a newer ROCm, or memory of the controller";
                gpu("hip", format!("{what} ({first}; {second})"))
            })
        })
    }

    fn map_dmabuf(&self, dmabuf: OwnedFd, len: usize) -> Result<MappedDmabuf> {
        self.enter()?;
        self.agent()?.map(&dmabuf, len)
    }

    fn peer_to_peer(&self) -> String {
        let export = self.api.hipMemGetHandleForAddressRange.is_some()
            || self.agent.as_ref().is_ok_and(hsa::Agent::exports);
        match (export, self.attribute(LARGE_BAR)) {
            (false, _) => "no: the runtime exports no dma-buf".into(),
            (true, 0) => "no: the GPU's memory is not visible on the bus (no large BAR)".into(),
            (true, _) => "dma-buf export supported".into(),
        }
    }

    fn code(&self) -> String {
        self.module.as_ref().map_or_else(|why| format!("none: {why}"), |(name, _)| name.clone())
    }
}
