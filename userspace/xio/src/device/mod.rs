// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's node: requests by ioctl, memory by mmap.
#![allow(unsafe_code, reason = "ioctl takes a pointer")]

mod refusal;

use crate::backend::{Backend, BufferParts, Calls, QueueParts, Select};
use crate::dmabuf::{Exported, Import, QueuePart};
use crate::error::{os, Error, Result};
use crate::mapping::{Doorbell, Region};
use crate::state::ControllerState;
use crate::uring::UringCalls;
use nix::errno::Errno;
use refusal::{open_error, unfit};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use xio_uapi::{self as uapi, Request};
use zerocopy::FromZeros;

const DIRECTORY: &str = "/dev";
const PREFIX: &str = "rocm-xio";

/// An open node.
#[derive(Debug)]
pub(crate) struct Device {
    file: File,
    path: PathBuf,
}

/// The nodes there are, in the order of their numbers.
pub(crate) fn nodes() -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Os { what: "reading /dev", source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).map(str::parse::<u32>);
        if let Some(Ok(number)) = number {
            found.push((number, Path::new(DIRECTORY).join(name)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

impl Device {
    /// Opens a node and asks whether it is one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path).map_err(|e| open_error(path, e))?;
        let device = Self { file, path: path.to_owned() };
        device.check_interface()?;
        Ok(device)
    }

    fn check_interface(&self) -> Result<()> {
        let interface = |reason: String| Error::Interface { path: self.path.clone(), reason };
        let mut info = uapi::GetInfo::new_zeroed();
        info.size = uapi::GetInfo::LAYOUT.size as u32;
        match self.request(&mut info) {
            Ok(()) => {}
            Err(Errno::ENOTTY | Errno::EINVAL | Errno::E2BIG) => {
                return Err(interface("it does not answer as a node of the rocm_xio module does".into()));
            }
            Err(errno) => return Err(self.failed("asking the module for the controller", errno)),
        }
        unfit(&info).map_or(Ok(()), |reason| Err(interface(reason)))
    }

    /// `GET_STATE`, with the eventfd that `event` sets.
    fn get_state(&self, event: Option<i32>) -> Result<ControllerState> {
        let mut state = uapi::GetState::new_zeroed();
        state.size = uapi::GetState::LAYOUT.size as u32;
        state.flags = event.map_or(0, |_| uapi::STATE_SET_EVENTFD);
        state.eventfd = event.unwrap_or(uapi::NO_EVENTFD);
        match self.request(&mut state) {
            Ok(()) => Ok(ControllerState::new(&state)),
            Err(Errno::ENOTTY) => Err(Error::NoState),
            Err(errno) => Err(os("asking for the controller's state", errno)),
        }
    }

    /// One ioctl; all of ours read and write their structure.
    fn request<R: Request>(&self, argument: &mut R) -> nix::Result<()> {
        // SAFETY: CMD carries the size of R, so the module reads and writes within `argument`, which is
        // borrowed exclusively; every bit pattern is a value of R (FromBytes).
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), R::CMD.into(), argument as *mut R) };
        Errno::result(done).map(drop)
    }

    fn map(&self, offset: u64, len: u64, writable: bool, what: &'static str) -> Result<Arc<Region>> {
        let len = usize::try_from(len).map_err(|_| os(what, Errno::EOVERFLOW))?;
        let mapped = Region::of_device(&self.file, offset, len, writable, what).map(Arc::new);
        mapped.map_err(|error| match &error {
            // It went with a reset since it was made.
            Error::Os { source, .. } if source.raw_os_error() == Some(Errno::ENXIO as i32) => self.lost(what),
            _ => error,
        })
    }

    fn doorbell(&self, offset: u64, at: u32) -> Result<Doorbell> {
        let page = self.map(offset, uapi::PAGE_SIZE.into(), true, "mapping a doorbell")?;
        Doorbell::new(page, at as usize)
            .ok_or_else(|| Error::Protocol(format!("the module puts a doorbell at {at} of its page")))
    }

    fn map_queue(&self, made: &uapi::QueueCreate) -> Result<QueueParts> {
        let entries = u64::from(made.entries);
        if u64::from(made.sq_len) < entries * 64 || u64::from(made.cq_len) < entries * 16 {
            return Err(Error::Protocol("the module's queue is shorter than its entries".into()));
        }
        let qid = u16::try_from(made.qid)
            .map_err(|_| Error::Protocol(format!("the module's queue has the identifier {}", made.qid)))?;
        Ok(QueueParts {
            handle: made.handle,
            qid,
            entries: made.entries,
            sq: self.map(made.sq_offset, made.sq_len.into(), true, "mapping a submission queue")?,
            cq: self.map(made.cq_offset, made.cq_len.into(), true, "mapping a completion queue")?,
            sq_doorbell: self.doorbell(made.sq_doorbell_offset, made.sq_doorbell_in_page)?,
            cq_doorbell: self.doorbell(made.cq_doorbell_offset, made.cq_doorbell_in_page)?,
        })
    }

    fn map_buffer(&self, made: &uapi::BufferAlloc) -> Result<BufferParts> {
        let table = made.len / u64::from(uapi::PAGE_SIZE) * uapi::Page::LAYOUT.size as u64;
        if made.len == 0 || made.len % u64::from(uapi::PAGE_SIZE) != 0 || made.table_len < table {
            return Err(Error::Protocol("the module's buffer and its table do not fit together".into()));
        }
        Ok(BufferParts {
            handle: made.handle,
            data: Some(self.map(made.data_offset, made.len, true, "mapping a buffer")?),
            len: made.len as usize,
            table: self.map_table(made.table_offset, made.table_len)?,
            writable: true,
            imported: false,
        })
    }

    /// A buffer's table; `None` where this client may not have direct queues, and so may not know addresses.
    fn map_table(&self, offset: u64, len: u64) -> Result<Option<Arc<Region>>> {
        match self.map(offset, len, false, "mapping a buffer's table") {
            Ok(table) => Ok(Some(table)),
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(Errno::EPERM as i32) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Backend for Device {
    fn info(&self) -> Result<uapi::GetInfo> {
        let mut info = uapi::GetInfo::new_zeroed();
        info.size = uapi::GetInfo::LAYOUT.size as u32;
        self.request(&mut info).map_err(|e| self.failed("asking the module for the controller", e))?;
        Ok(info)
    }

    fn state(&self) -> Result<ControllerState> {
        self.get_state(None)
    }

    fn set_state_event(&self, event: Option<BorrowedFd<'_>>) -> Result<()> {
        let fd = event.map_or(uapi::NO_EVENTFD, |fd| fd.as_raw_fd());
        self.get_state(Some(fd)).map(drop)
    }

    fn namespace(&self, which: Select) -> Result<Option<uapi::GetNamespace>> {
        let mut namespace = uapi::GetNamespace::new_zeroed();
        namespace.size = uapi::GetNamespace::LAYOUT.size as u32;
        match which {
            // In the request, 0 stands for "by index".
            Select::Nsid(0) => return Ok(None),
            Select::Nsid(nsid) => namespace.nsid = nsid,
            Select::Index(index) => namespace.index = index,
        }
        match self.request(&mut namespace) {
            Ok(()) => Ok(Some(namespace)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed("asking for a namespace", errno)),
        }
    }

    fn create_queue(&self, entries: u32, event: Option<BorrowedFd<'_>>, cmb: bool) -> Result<QueueParts> {
        let mut made = uapi::QueueCreate::new_zeroed();
        made.size = uapi::QueueCreate::LAYOUT.size as u32;
        made.entries = entries;
        made.eventfd = event.map_or(uapi::NO_EVENTFD, |fd| fd.as_raw_fd());
        made.flags = if cmb { uapi::QUEUE_SQ_CMB } else { 0 };
        self.request(&mut made).map_err(|e| {
            // The same errno says that there is no queue left.
            let full = e != Errno::ENOSPC || self.info().is_ok_and(|i| u64::from(entries) * 64 > i.cmb_free);
            self.cmb_error(cmb && full, "submission queues", e)
                .unwrap_or_else(|| self.refused("making a queue", e))
        })?;
        self.map_queue(&made).inspect_err(|_| {
            // The first error is the one to report; what is left goes with the file.
            let _ = self.destroy_queue(made.handle);
        })
    }

    fn destroy_queue(&self, handle: u32) -> Result<()> {
        let mut destroy = uapi::QueueDestroy::new_zeroed();
        (destroy.size, destroy.handle) = (uapi::QueueDestroy::LAYOUT.size as u32, handle);
        match self.request(&mut destroy) {
            // The queue went when the controller was reset.
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.failed("deleting a queue", errno)),
        }
    }

    fn alloc_buffer(&self, len: u64, cmb: bool) -> Result<BufferParts> {
        let mut made = uapi::BufferAlloc::new_zeroed();
        (made.size, made.len) = (uapi::BufferAlloc::LAYOUT.size as u32, len);
        made.flags = if cmb { uapi::BUFFER_CMB } else { 0 };
        self.request(&mut made).map_err(|e| {
            self.cmb_error(cmb, "values", e).unwrap_or_else(|| self.refused("allocating a buffer", e))
        })?;
        self.map_buffer(&made).inspect_err(|_| {
            // As above.
            let _ = self.free_buffer(made.handle);
        })
    }

    fn register_buffer(&self, memory: Arc<Region>, writable: bool) -> Result<BufferParts> {
        let mut made = uapi::BufferRegister::new_zeroed();
        made.size = uapi::BufferRegister::LAYOUT.size as u32;
        made.flags = if writable { 0 } else { uapi::BUFFER_READ_ONLY };
        (made.address, made.len) = (memory.as_ptr() as u64, memory.len() as u64);
        self.request(&mut made).map_err(|e| self.register_error(memory.len() as u64, e))?;
        let table = memory.len() as u64 / u64::from(uapi::PAGE_SIZE) * uapi::Page::LAYOUT.size as u64;
        let table = match (made.first, made.table_len >= table) {
            (0, true) => self.map_table(made.table_offset, made.table_len),
            _ => Err(Error::Protocol("the module's buffer and the memory do not fit together".into())),
        };
        let table = table.inspect_err(|_| {
            // As above.
            let _ = self.free_buffer(made.handle);
        })?;
        let len = memory.len();
        Ok(BufferParts { handle: made.handle, data: Some(memory), len, table, writable, imported: false })
    }

    fn import_buffer(&self, dmabuf: BorrowedFd<'_>, import: &Import) -> Result<BufferParts> {
        let mut made = uapi::BufferImport::new_zeroed();
        made.size = uapi::BufferImport::LAYOUT.size as u32;
        made.flags = if import.read_only { uapi::BUFFER_READ_ONLY } else { 0 };
        made.flags |= if import.require_peer { uapi::BUFFER_REQUIRE_P2P } else { 0 };
        made.fd = dmabuf.as_raw_fd();
        (made.offset, made.len) = (import.offset, import.len as u64);
        self.request(&mut made).map_err(|e| self.import_error(e))?;
        let table = self.map_table(made.table_offset, made.table_len).inspect_err(|_| {
            // As above.
            let _ = self.free_buffer(made.handle);
        })?;
        // Not every exporter lets a processor see its memory.
        let data =
            Region::of_device(dmabuf, import.offset, import.len, !import.read_only, "mapping a dma-buf");
        Ok(BufferParts {
            handle: made.handle,
            data: data.ok().map(Arc::new),
            len: import.len,
            table,
            writable: !import.read_only,
            imported: true,
        })
    }

    fn export_queue(&self, handle: u32, part: QueuePart) -> Result<Exported> {
        let mut made = uapi::QueueExport::new_zeroed();
        (made.size, made.handle) = (uapi::QueueExport::LAYOUT.size as u32, handle);
        made.part = part.raw();
        self.request(&mut made).map_err(|e| self.refused("exporting a queue", e))?;
        // SAFETY: the module just made it for this process, and nothing else knows it.
        let dmabuf = unsafe { OwnedFd::from_raw_fd(made.fd) };
        Ok(Exported { dmabuf, len: made.len, at: made.in_page })
    }

    fn submit(&self, entries: &mut [uapi::KvEntry], timeout: Duration) -> nix::Result<()> {
        let mut submit = uapi::KvSubmit::new_zeroed();
        submit.size = uapi::KvSubmit::LAYOUT.size as u32;
        // `entries` is borrowed exclusively for the call, and every bit pattern is an entry.
        (submit.entries, submit.count) = (entries.as_mut_ptr() as u64, entries.len() as u32);
        submit.timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        match self.request(&mut submit) {
            // The entries tell which were answered, which are under way, and which were not started.
            Err(Errno::EINTR | Errno::ETIMEDOUT) => Ok(()),
            done => done,
        }
    }

    fn calls(self: Arc<Self>) -> Result<Box<dyn Calls>> {
        Ok(Box::new(UringCalls::new(&self.file)?))
    }

    fn free_buffer(&self, handle: u32) -> Result<()> {
        let mut free = uapi::BufferFree::new_zeroed();
        (free.size, free.handle) = (uapi::BufferFree::LAYOUT.size as u32, handle);
        self.request(&mut free).map_err(|e| self.failed("freeing a buffer", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_there_says_what_to_do() {
        let error = Device::open(Path::new("/dev/rocm-xio-none")).unwrap_err();
        assert!(matches!(error, Error::NoNode { .. }));
        assert!(error.to_string().contains("insmod rocm_xio.ko"), "{error}");
    }

    #[test]
    fn another_kind_of_node_is_told_apart() {
        let error = Device::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, Error::Interface { .. }), "{error}");
    }
}
