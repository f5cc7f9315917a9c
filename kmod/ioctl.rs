// SPDX-License-Identifier: GPL-2.0
//! The requests of `xio_uapi`.

use crate::{
    buffer::{self, Buffer},
    client::Client,
    controller::{Hw, State},
    error::AdminError,
    interrupt::Interrupts,
    mediated,
    mmap::{self, Cookie},
    object::{Wanted, Where},
    state, submit,
    sys::{
        dma::Access,
        dmabuf::{Import, ImportedMemory},
        event::EventFd,
        params,
        pin::UserMemory,
    },
};
use kernel::{
    ioctl::_IOWR,
    prelude::*,
    uaccess::{UserPtr, UserSlice, UserSliceReader, UserSliceWriter},
};
use nvme_kv::{
    csi,
    identify::{cns, KvNamespace, NamespaceList},
    PAGE_SIZE,
};
use xio_uapi::{
    BufferAlloc, BufferFree, BufferImport, BufferRegister, GetInfo, GetNamespace, GetState, KvSubmit, QueueCreate,
    QueueDestroy, QueueExport, Request, IOC_TYPE,
};
use zerocopy::FromBytes;

const _: () = {
    const TYPE: u32 = IOC_TYPE as u32;
    assert!(xio_uapi::GET_INFO == _IOWR::<GetInfo>(TYPE, 0));
    assert!(xio_uapi::GET_STATE == _IOWR::<GetState>(TYPE, 10));
    assert!(xio_uapi::GET_NAMESPACE == _IOWR::<GetNamespace>(TYPE, 1));
    assert!(xio_uapi::QUEUE_CREATE == _IOWR::<QueueCreate>(TYPE, 2));
    assert!(xio_uapi::QUEUE_DESTROY == _IOWR::<QueueDestroy>(TYPE, 3));
    assert!(xio_uapi::BUFFER_ALLOC == _IOWR::<BufferAlloc>(TYPE, 4));
    assert!(xio_uapi::BUFFER_FREE == _IOWR::<BufferFree>(TYPE, 5));
    assert!(xio_uapi::BUFFER_REGISTER == _IOWR::<BufferRegister>(TYPE, 6));
    assert!(xio_uapi::BUFFER_IMPORT == _IOWR::<BufferImport>(TYPE, 7));
    assert!(xio_uapi::QUEUE_EXPORT == _IOWR::<QueueExport>(TYPE, 8));
    assert!(xio_uapi::KV_SUBMIT == _IOWR::<KvSubmit>(TYPE, 9));
};

const QUEUE_FLAGS: u32 = xio_uapi::QUEUE_SQ_CMB | xio_uapi::QUEUE_SQ_BUFFER | xio_uapi::QUEUE_CQ_BUFFER;
const IMPORT_FLAGS: u32 = xio_uapi::BUFFER_READ_ONLY | xio_uapi::BUFFER_REQUIRE_P2P;

/// `ioctl`.
pub(crate) fn ioctl(client: &Client, cmd: u32, arg: usize) -> Result {
    if !xio_uapi::ioc_is_ours(cmd) {
        return Err(ENOTTY);
    }
    match xio_uapi::ioc_nr(cmd) {
        GetInfo::NR => serve::<GetInfo>(client, cmd, arg, get_info),
        GetNamespace::NR => serve::<GetNamespace>(client, cmd, arg, get_namespace),
        QueueCreate::NR => serve_flags::<QueueCreate>(client, cmd, arg, QUEUE_FLAGS, queue_create),
        QueueDestroy::NR => serve::<QueueDestroy>(client, cmd, arg, |c, r| destroy(c, r.handle, true)),
        BufferAlloc::NR => {
            serve_flags::<BufferAlloc>(client, cmd, arg, xio_uapi::BUFFER_CMB, buffer_alloc)
        }
        BufferFree::NR => serve::<BufferFree>(client, cmd, arg, |c, r| destroy(c, r.handle, false)),
        BufferRegister::NR => {
            serve_flags::<BufferRegister>(client, cmd, arg, xio_uapi::BUFFER_READ_ONLY, buffer_register)
        }
        BufferImport::NR => serve_flags::<BufferImport>(client, cmd, arg, IMPORT_FLAGS, buffer_import),
        QueueExport::NR => serve::<QueueExport>(client, cmd, arg, queue_export),
        GetState::NR => serve_flags::<GetState>(client, cmd, arg, xio_uapi::STATE_SET_EVENTFD, |c, r| {
            state::get_state(c, r).map(|()| None)
        }),
        KvSubmit::NR => serve::<KvSubmit>(client, cmd, arg, |c, r| submit::submit(c, r).map(|()| None)),
        _ => Err(ENOTTY),
    }
}

/// What a request made, to be undone when its result can not be told.
type Made = Option<u32>;

/// Serves a request without flags.
fn serve<T: Request>(
    client: &Client,
    cmd: u32,
    arg: usize,
    serve: impl FnOnce(&Client, &mut T) -> Result<Made>,
) -> Result {
    serve_flags(client, cmd, arg, 0, serve)
}

/// Copies the argument in, checks what is common to all requests, serves it, and copies the result out. User
/// memory is touched without any lock, since the fault handler takes it.
fn serve_flags<T: Request>(
    client: &Client,
    cmd: u32,
    arg: usize,
    flags: u32,
    serve: impl FnOnce(&Client, &mut T) -> Result<Made>,
) -> Result {
    let size = xio_uapi::ioc_size(cmd);
    let (mut reader, mut writer) = UserSlice::new(UserPtr::from_addr(arg), size).reader_writer();
    let mut request = T::new_zeroed();
    read(&mut reader, &mut request, flags)?;
    let made = serve(client, &mut request)?;
    write(&mut writer, &request).inspect_err(|_| {
        if let Some(handle) = made {
            // It was made a moment ago; if it is gone already there is nothing to undo.
            let _ = with_hw(client, |c, hw| c.xio.destroy(hw, c.id, handle));
        }
    })
}

/// Reads a request of any version, and checks it.
pub(crate) fn read<T: Request>(reader: &mut UserSliceReader, request: &mut T, flags: u32) -> Result {
    let (size, known) = (reader.len(), size_of::<T>());
    if size < T::MIN_SIZE {
        return Err(EINVAL);
    }
    let bytes = request.as_mut_bytes();
    reader.read_slice(bytes.get_mut(..size.min(known)).ok_or(EINVAL)?)?;
    while !reader.is_empty() {
        let mut unknown = [0u8; 64];
        let part = unknown.get_mut(..reader.len().min(64)).ok_or(EINVAL)?;
        reader.read_slice(part)?;
        if part.iter().any(|b| *b != 0) {
            return Err(E2BIG);
        }
    }
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| u32::read_from_bytes(b).ok());
    let reserved = bytes.get(T::MIN_SIZE..).is_some_and(|tail| tail.iter().all(|b| *b == 0));
    // `size` and `flags` come first in every request.
    match (word(0), word(4)) {
        (Some(stated), Some(set)) if stated as usize == size && set & !flags == 0 && reserved => Ok(()),
        _ => Err(EINVAL),
    }
}

fn write<T: Request>(writer: &mut UserSliceWriter, request: &T) -> Result {
    let bytes = request.as_bytes();
    let known = bytes.get(..writer.len().min(bytes.len())).ok_or(EINVAL)?;
    writer.write_slice(known)?;
    while !writer.is_empty() {
        let zeros = [0u8; 64];
        writer.write_slice(zeros.get(..writer.len().min(64)).ok_or(EINVAL)?)?;
    }
    Ok(())
}

/// Runs `f` on the hardware, under the lock; resets the controller if that lost it.
pub(crate) fn with_hw<R>(client: &Client, f: impl FnOnce(&Client, &mut Hw) -> Result<R>) -> Result<R> {
    let mut inner = client.xio.lock()?;
    let hw = inner.hw.as_mut().ok_or(ENODEV)?;
    if hw.state == State::Failed {
        return Err(ENODEV);
    }
    // Not while it is being reset: its registers do not answer then.
    if hw.state == State::Live && hw.regs.status().is_absent() {
        hw.lost = Some(AdminError::Gone);
        client.xio.recover(hw);
        return Err(ENODEV);
    }
    let result = f(client, hw);
    if hw.lost.is_some() {
        client.xio.recover(hw);
    }
    result
}

fn get_info(client: &Client, info: &mut GetInfo) -> Result<Made> {
    with_hw(client, |_, hw| {
        let (cap, id) = (hw.regs.cap(), &hw.identity);
        let direct = hw.direct(false);
        let cmb = hw.place.cmb.as_ref();
        *info = GetInfo {
            size: info.size,
            flags: 0,
            abi_version: xio_uapi::ABI_VERSION,
            nvme_version: hw.regs.version().0,
            features: xio_uapi::FEATURE_DIRECT_QUEUE
                | xio_uapi::FEATURE_EVENTFD
                | xio_uapi::FEATURE_BUFFER_TABLE
                | xio_uapi::FEATURE_BUFFER_REGISTER
                | xio_uapi::FEATURE_MEDIATED
                | xio_uapi::FEATURE_MEDIATED_URING
                | xio_uapi::FEATURE_BUFFER_IMPORT
                | xio_uapi::FEATURE_QUEUE_IN_BUFFER
                | xio_uapi::FEATURE_STATE
                | hw.place.peers.as_ref().map_or(0, |_| xio_uapi::FEATURE_QUEUE_EXPORT)
                | cmb.map_or(0, |_| xio_uapi::FEATURE_CMB),
            cap: cap.0,
            max_transfer: id.max_transfer,
            max_buffer: buffer::MAX_LEN,
            max_client_memory: params::max_client_memory(),
            max_queue_entries: cap.max_queue_entries(),
            max_queues: id.max_queues.into(),
            doorbell_stride: cap.doorbells().stride() as u32,
            namespaces: id.namespaces,
            iommu: hw.iommu(),
            direct,
            queue_kinds: match direct {
                xio_uapi::DIRECT_REFUSED => xio_uapi::QUEUE_KIND_MEDIATED,
                _ => xio_uapi::QUEUE_KIND_DIRECT | xio_uapi::QUEUE_KIND_MEDIATED,
            },
            event_vectors: Interrupts::event_vectors(&hw.interrupts),
            numa_node: hw.dev.node(),
            pci_domain: hw.place.address.domain,
            pci_bus: hw.place.address.bus,
            pci_device: hw.place.address.device,
            pci_function: hw.place.address.function,
            doorbell_pages: cap.doorbells().have_own_pages().into(),
            vendor_id: id.vendor_id,
            subsystem_vendor_id: id.subsystem_vendor_id,
            controller_id: id.controller_id,
            reserved0: [0; 3],
            serial: id.serial,
            model: id.model,
            firmware: id.firmware,
            subnqn: id.subnqn,
            mediated_depth: mediated::depth(hw),
            max_user_memory: params::max_user_memory(),
            max_client_queues: params::max_client_queues(),
            unconfined: hw.unconfined(),
            cmb_size: cmb.map_or(0, |cmb| cmb.memory.len()),
            cmb_free: cmb.map_or(0, |cmb| cmb.memory.free()),
            cmb: cmb.map_or(0, |cmb| cmb.uses),
            reserved: [0; 5],
        };
        Ok(None)
    })
}

fn get_namespace(client: &Client, request: &mut GetNamespace) -> Result<Made> {
    with_hw(client, |_, hw| {
        let nsid = match request.nsid {
            0 => hw.nth_namespace(request.index)?,
            // All namespaces, which is none (Base, section 3.2.1.2).
            u32::MAX => return Err(ENOENT),
            nsid => {
                // Identifiers above the one before it: is this one active, and for Key Value?
                let page = hw.namespaces(cns::CSI_ACTIVE_NAMESPACES, nsid.wrapping_sub(1))?;
                let list = NamespaceList::ref_from_bytes(&page).map_err(|_| EIO)?;
                let first = list.iter().next();
                first.filter(|n| *n == nsid).ok_or(ENOENT)?
            }
        };
        let what =
            nvme_kv::admin::Identify { cns: cns::CSI_NAMESPACE, csi: csi::KV, nsid, ..Default::default() };
        let data = hw.identify(what)?;
        let ns = KvNamespace::ref_from_bytes(&data).map_err(|_| EIO)?;
        let (format, limits) = ns.format().ok_or(EIO)?;
        *request = GetNamespace {
            size: request.size,
            flags: 0,
            nsid,
            index: request.index,
            capacity: ns.nsze.get(),
            used: ns.nuse.get(),
            max_key: limits.kvkml.get(),
            formats: u16::from(ns.nkvf) + 1,
            format: format.into(),
            reserved0: 0,
            max_value: limits.kvvml.get(),
            max_keys: limits.mnks.get(),
            nguid: ns.nguid,
            eui64: ns.eui64,
            reserved: [0; 14],
        };
        Ok(None)
    })
}

fn queue_create(client: &Client, request: &mut QueueCreate) -> Result<Made> {
    let eventfd = match request.eventfd {
        xio_uapi::NO_EVENTFD => None,
        fd => Some(EventFd::from_fd(fd)?),
    };
    let flags = request.flags;
    let sq = match flags & (xio_uapi::QUEUE_SQ_CMB | xio_uapi::QUEUE_SQ_BUFFER) {
        0 => Where::Kernel,
        xio_uapi::QUEUE_SQ_CMB => Where::Cmb,
        xio_uapi::QUEUE_SQ_BUFFER => Where::Buffer(request.sq_buffer, request.sq_buffer_offset),
        _ => return Err(EINVAL),
    };
    let cq = match flags & xio_uapi::QUEUE_CQ_BUFFER {
        0 => Where::Kernel,
        _ => Where::Buffer(request.cq_buffer, request.cq_buffer_offset),
    };
    with_hw(client, |client, hw| {
        let id = hw.create_queue(client, Wanted { entries: request.entries, eventfd, sq, cq })?;
        let queue = hw.queue(client.id, id)?;
        let (tail, head) = queue.doorbells(hw.regs.cap().doorbells());
        request.handle = id;
        request.qid = queue.qid.into();
        request.sq_offset = queue_offset(id, mmap::SQ, flags & xio_uapi::QUEUE_SQ_BUFFER);
        request.cq_offset = queue_offset(id, mmap::CQ, flags & xio_uapi::QUEUE_CQ_BUFFER);
        request.sq_doorbell_offset = Cookie::new(id, mmap::SQ_DOORBELL).offset();
        request.cq_doorbell_offset = Cookie::new(id, mmap::CQ_DOORBELL).offset();
        request.sq_len = (queue.sq.pages() * PAGE_SIZE) as u32;
        request.cq_len = (queue.cq.pages() * PAGE_SIZE) as u32;
        request.sq_doorbell_in_page = (tail % PAGE_SIZE) as u32;
        request.cq_doorbell_in_page = (head % PAGE_SIZE) as u32;
        Ok(Some(id))
    })
}

/// mmap offset of a queue; 0 when it is in a buffer.
fn queue_offset(id: u32, part: u64, in_buffer: u32) -> u64 {
    if in_buffer == 0 {
        Cookie::new(id, part).offset()
    } else {
        0
    }
}

fn buffer_alloc(client: &Client, request: &mut BufferAlloc) -> Result<Made> {
    with_hw(client, |client, hw| {
        let in_cmb = request.flags & xio_uapi::BUFFER_CMB != 0;
        let id = hw.alloc_buffer(client, request.len, in_cmb)?;
        let buffer = hw.buffer(client.id, id)?;
        request.handle = id;
        request.len = (buffer.pages() * PAGE_SIZE) as u64;
        request.data_offset = Cookie::new(id, mmap::DATA).offset();
        request.table_offset = Cookie::new(id, mmap::TABLE).offset();
        request.table_len = (buffer.table.len() * PAGE_SIZE) as u64;
        Ok(Some(id))
    })
}

fn buffer_register(client: &Client, request: &mut BufferRegister) -> Result<Made> {
    let (address, len) = (usize::try_from(request.address)?, usize::try_from(request.len)?);
    let end = address.checked_add(len).filter(|end| *end <= isize::MAX as usize);
    if len == 0 || request.len > buffer::MAX_LEN || address % 4 != 0 || end.is_none() {
        return Err(EINVAL);
    }
    // Before what may take long.
    with_hw(client, |client, hw| hw.admit_shared(client, request.len))?;
    let memory = UserMemory::pin(address, len, request.flags & xio_uapi::BUFFER_READ_ONLY == 0)?;
    with_hw(client, |client, hw| {
        let id = hw.register_buffer(client, memory)?;
        request.handle = id;
        request.first = (address % PAGE_SIZE) as u32;
        request.table_offset = Cookie::new(id, mmap::TABLE).offset();
        request.table_len = (hw.buffer(client.id, id)?.table.len() * PAGE_SIZE) as u64;
        Ok(Some(id))
    })
}

fn buffer_import(client: &Client, request: &mut BufferImport) -> Result<Made> {
    // What was mapped and then refused is unmapped when the call returns.
    import(client, request).inspect_err(|_| client.xio.settle())
}

fn import(client: &Client, request: &mut BufferImport) -> Result<Made> {
    let page = PAGE_SIZE as u64;
    if request.len == 0 || request.len > buffer::MAX_LEN || (request.len | request.offset) % page != 0 {
        return Err(EINVAL);
    }
    // Before what may take long.
    with_hw(client, |client, hw| hw.admit_shared(client, 0))?;
    let read_only = request.flags & xio_uapi::BUFFER_READ_ONLY != 0;
    let what = Import {
        fd: request.fd,
        offset: request.offset,
        pages: (request.len / page) as usize,
        access: if read_only { Access::Read } else { Access::ReadWrite },
    };
    // The device is not unbound meanwhile.
    let device = client.xio.device.lock();
    let memory = ImportedMemory::new(device.as_ref().copied().ok_or(ENODEV)?, client.xio.clone(), &what)?;
    let peer = memory.is_peer();
    if !peer && request.flags & xio_uapi::BUFFER_REQUIRE_P2P != 0 {
        return Err(EREMOTEIO);
    }
    with_hw(client, |client, hw| {
        let id = hw.import_buffer(client, memory)?;
        request.handle = id;
        request.memory = if peer { xio_uapi::MEMORY_PEER } else { xio_uapi::MEMORY_SYSTEM };
        request.table_offset = Cookie::new(id, mmap::TABLE).offset();
        request.table_len = (Buffer::table_pages(what.pages) * PAGE_SIZE) as u64;
        Ok(Some(id))
    })
}

fn queue_export(client: &Client, request: &mut QueueExport) -> Result<Made> {
    with_hw(client, |client, hw| {
        let (tail, head) = hw.queue(client.id, request.handle)?.doorbells(hw.regs.cap().doorbells());
        request.in_page = match request.part {
            xio_uapi::QUEUE_PART_SQ_DOORBELL => tail % PAGE_SIZE,
            xio_uapi::QUEUE_PART_CQ_DOORBELL => head % PAGE_SIZE,
            _ => 0,
        } as u32;
        let (fd, len) = hw.export_queue(client.id, request.handle, request.part)?;
        (request.fd, request.len) = (fd, len as u64);
        Ok(None)
    })
}

/// Ends a queue or a buffer; `ENOENT` for a handle of the other kind.
fn destroy(client: &Client, handle: u32, queue: bool) -> Result<Made> {
    with_hw(client, |client, hw| {
        if hw.find(client.id, handle)?.is_queue() != queue {
            return Err(ENOENT);
        }
        client.xio.destroy(hw, client.id, handle)
    })?;
    // What was imported is unmapped.
    client.xio.settle();
    Ok(None)
}
