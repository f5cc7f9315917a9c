// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layer below HIP: locking of mapped registers, and dma-bufs.
#![allow(unsafe_code, reason = "calls into AMD's runtime")]

use super::executor::MappedDmabuf;
use super::library::{functions, open};
use super::memory::DeviceDmabuf;
use crate::error::{gpu, Result};
use std::ffi::{c_int, c_uint, c_void, CStr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Called for each agent.
type Callback = unsafe extern "C" fn(u64, *mut c_void) -> c_uint;

functions! {
    /// HSA runtime 1.x.
    Api {
        needed hsa_init: fn() -> c_uint;
        needed hsa_iterate_agents: fn(Callback, *mut c_void) -> c_uint;
        needed hsa_agent_get_info: fn(u64, c_uint, *mut c_void) -> c_uint;
        needed hsa_amd_memory_lock: fn(*mut c_void, usize, *mut u64, c_int, *mut *mut c_void) -> c_uint;
        needed hsa_amd_memory_unlock: fn(*mut c_void) -> c_uint;
        maybe hsa_amd_portable_export_dmabuf: fn(*const c_void, usize, *mut c_int, *mut u64) -> c_uint;
        maybe hsa_amd_portable_export_dmabuf_v2: fn(*const c_void, usize, *mut c_int, *mut u64, u64) -> c_uint;
        maybe hsa_amd_portable_close_dmabuf: fn(c_int) -> c_uint;
        maybe hsa_amd_interop_map_buffer: fn(c_uint, *mut u64, c_int, c_uint, *mut usize, *mut *mut c_void,
            *mut usize, *mut *const c_void) -> c_uint;
        maybe hsa_amd_interop_unmap_buffer: fn(*mut c_void) -> c_uint;
    }
}

const NAMES: &[&str] = &["libhsa-runtime64.so.1", "libhsa-runtime64.so"];
const INFO_NAME: c_uint = 0;
const INFO_DEVICE: c_uint = 17;
const INFO_BDF: c_uint = 0xa006;
const INFO_DOMAIN: c_uint = 0xa00f;
const DEVICE_GPU: c_uint = 1;
const MAPPING_PCIE: u64 = 1;

fn api() -> std::result::Result<&'static Api, String> {
    static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let opened = API.get_or_init(|| {
        // SAFETY: a vendor's runtime.
        let library = unsafe { open(NAMES)? };
        // SAFETY: signatures of HSA's headers, which a test compares; the library is never closed.
        let api = unsafe { Api::find(library) }.map_err(|name| format!("the HSA runtime has no {name}"))?;
        // SAFETY: no memory.
        match unsafe { (api.hsa_init)() } {
            0 => Ok(api),
            code => Err(format!("hsa_init: status {code:#x}")),
        }
    });
    opened.as_ref().map_err(Clone::clone)
}

/// A GPU of the lower layer.
#[derive(Debug)]
pub(super) struct Agent {
    api: &'static Api,
    handle: u64,
    /// Name of the architecture, such as `gfx942`.
    pub(super) name: String,
}

/// What is searched, and what was found.
struct Search {
    api: &'static Api,
    domain: u32,
    function: u32,
    found: Option<u64>,
}

/// A number that an agent tells; 0 when it does not.
fn info(api: &Api, agent: u64, what: c_uint) -> u32 {
    let mut value = 0u32;
    // SAFETY: these attributes are 32 bits wide.
    let _ = unsafe { (api.hsa_agent_get_info)(agent, what, (&raw mut value).cast()) };
    value
}

unsafe extern "C" fn look(agent: u64, search: *mut c_void) -> c_uint {
    // SAFETY: `find` gives the address of its variable, which nothing else uses meanwhile.
    let search = unsafe { &mut *search.cast::<Search>() };
    let place = (info(search.api, agent, INFO_DOMAIN), info(search.api, agent, INFO_BDF));
    if info(search.api, agent, INFO_DEVICE) == DEVICE_GPU && place == (search.domain, search.function) {
        search.found = Some(agent);
    }
    0
}

impl Agent {
    /// The GPU at a place on the bus.
    pub(super) fn find(domain: u32, function: u32) -> std::result::Result<Self, String> {
        let api = api()?;
        let mut search = Search { api, domain, function, found: None };
        // SAFETY: `look` takes what it is given here.
        let code = unsafe { (api.hsa_iterate_agents)(look, (&raw mut search).cast()) };
        let handle = search.found.ok_or_else(|| format!("no HSA agent is this GPU (status {code:#x})"))?;
        let mut name = [0u8; 64];
        // SAFETY: this attribute is 64 bytes.
        let _ = unsafe { (api.hsa_agent_get_info)(handle, INFO_NAME, name.as_mut_ptr().cast()) };
        let name = CStr::from_bytes_until_nul(&name).map_or("", |name| name.to_str().unwrap_or(""));
        Ok(Self { api, handle, name: name.to_owned() })
    }

    /// Maps host pages, registers included, for the GPU.
    ///
    /// # Safety
    /// They stay mapped until `unlock`.
    pub(super) unsafe fn lock(&self, ptr: *mut u8, len: usize) -> Result<u64> {
        let (mut agent, mut address) = (self.handle, std::ptr::null_mut());
        // SAFETY: mapped by the caller's promise; one agent.
        match unsafe { (self.api.hsa_amd_memory_lock)(ptr.cast(), len, &mut agent, 1, &mut address) } {
            0 => Ok(address as u64),
            code => Err(gpu("hip", format!("hsa_amd_memory_lock: status {code:#x}"))),
        }
    }

    /// Takes it back.
    ///
    /// # Safety
    /// It was locked, and nothing uses it.
    pub(super) unsafe fn unlock(&self, ptr: *mut u8) {
        // Nothing can be done about an error here.
        // SAFETY: the caller's promise.
        let _ = unsafe { (self.api.hsa_amd_memory_unlock)(ptr.cast()) };
    }

    /// Whether dma-bufs can be exported.
    pub(super) fn exports(&self) -> bool {
        self.api.hsa_amd_portable_export_dmabuf.is_some()
    }

    /// Exports memory of the GPU, within one allocation: for the bus, where runtime and GPU can say so.
    pub(super) fn export(&self, address: u64, len: usize) -> Result<DeviceDmabuf> {
        let (mut fd, mut offset) = (-1, 0);
        let ptr = address as *const c_void;
        let (newer, older) =
            (self.api.hsa_amd_portable_export_dmabuf_v2, self.api.hsa_amd_portable_export_dmabuf);
        // SAFETY: the places for a file descriptor and a number.
        let mut code = newer.map(|export| unsafe { export(ptr, len, &mut fd, &mut offset, MAPPING_PCIE) });
        if code != Some(0) {
            // SAFETY: as above.
            code = older.map(|export| unsafe { export(ptr, len, &mut fd, &mut offset) }).or(code);
        }
        match code {
            Some(0) => {}
            Some(code) => {
                return Err(gpu("hip", format!("hsa_amd_portable_export_dmabuf: status {code:#x}")))
            }
            None => {
                return Err(gpu("hip", "the HSA runtime has no hsa_amd_portable_export_dmabuf (ROCm 5.6)"))
            }
        }
        // SAFETY: a new descriptor that is ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(DeviceDmabuf::new(fd, offset, self.api.hsa_amd_portable_close_dmabuf))
    }

    /// Maps a dma-buf of another driver for the GPU.
    pub(super) fn map(&self, dmabuf: &OwnedFd, len: usize) -> Result<MappedDmabuf> {
        let both = self.api.hsa_amd_interop_map_buffer.zip(self.api.hsa_amd_interop_unmap_buffer);
        let (map, unmap) =
            both.ok_or_else(|| gpu("hip", "the HSA runtime has no hsa_amd_interop_map_buffer"))?;
        let (mut agent, mut size, mut address) = (self.handle, 0, std::ptr::null_mut());
        let (fd, none, nothing) = (dmabuf.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: one agent, and the places for a size and an address; nobody asks for metadata.
        match unsafe { map(1, &mut agent, fd, 0, &mut size, &mut address, none, nothing) } {
            0 => {}
            code => return Err(gpu("hip", format!("hsa_amd_interop_map_buffer: status {code:#x}"))),
        }
        let address = address as u64;
        let held = Box::new(Interop { unmap, address });
        if size < len {
            return Err(gpu("hip", format!("hsa_amd_interop_map_buffer: {size} bytes of {len}")));
        }
        Ok(MappedDmabuf { address, _held: held })
    }
}

/// A dma-buf that is mapped for a GPU.
#[derive(Debug)]
struct Interop {
    unmap: unsafe extern "C" fn(*mut c_void) -> c_uint,
    address: u64,
}

impl Drop for Interop {
    fn drop(&mut self) {
        // SAFETY: mapped by `Agent::map`, and nothing uses it any more. Nobody to tell of an error.
        let _ = unsafe { (self.unmap)(self.address as *mut c_void) };
    }
}
