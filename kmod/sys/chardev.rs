// SPDX-License-Identifier: GPL-2.0
//! The device node: a misc device for each controller, whose operations end in safe functions of
//! [`crate::chardev`].

use super::{
    mm::{AddressSpace, Area, Fault, FaultError},
    shim,
    uring::Command,
};
use crate::{chardev, client::Client, controller::Xio};
use core::{ffi::CStr, fmt::Write};
use kernel::{
    bindings,
    error::to_result,
    ffi,
    fs::File,
    prelude::*,
    sync::{poll::PollTable, Arc},
    types::Opaque,
};

/// A table of function pointers, which the kernel only reads.
#[repr(transparent)]
pub(super) struct Sync<T>(T);

// SAFETY: Nobody writes to it, and what it points at may be used from any thread (see `new`).
unsafe impl<T> core::marker::Sync for Sync<T> {}

impl<T> Sync<T> {
    /// # Safety
    ///
    /// What the table points at may be used from any thread.
    pub(super) const unsafe fn new(table: T) -> Self {
        Self(table)
    }

    pub(super) const fn get(&self) -> *const T {
        &raw const self.0
    }
}

/// A device node.
#[pin_data]
#[repr(C)]
pub(crate) struct Node {
    // First, so that a pointer to it is one to the node.
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    name: [u8; 24],
    space: AddressSpace,
}

// SAFETY: The misc device has its own locks, the rest does not change.
unsafe impl Send for Node {}
// SAFETY: As above.
unsafe impl core::marker::Sync for Node {}

impl Node {
    /// A node that is not registered yet.
    pub(crate) fn new(space: AddressSpace, index: u32) -> Result<impl PinInit<Self>> {
        let mut name = [0u8; 24];
        let text = name.split_last_mut().ok_or(EINVAL)?.1;
        kernel::str::Formatter::new(text).write_fmt(fmt!("rocm-xio{index}")).map_err(|_| EINVAL)?;
        Ok(pin_init!(Self { misc: Opaque::new(pin_init::zeroed()), name, space }))
    }

    /// The name in /dev.
    pub(crate) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.name).unwrap_or(c"rocm-xio")
    }

    /// The address space of all mappings.
    pub(crate) fn space(&self) -> &AddressSpace {
        &self.space
    }

    /// Makes the node. From here on files can be opened.
    ///
    /// # Safety
    ///
    /// `xio.node` is this node. It is not registered, and `unregister` is called before the last reference to `xio`
    /// goes and before the device is unbound.
    pub(crate) unsafe fn register(xio: &Arc<Xio>, parent: &super::dma::DmaDevice) -> Result {
        let misc = xio.node().misc.get();
        // SAFETY: Not registered, so nobody else uses it; all it points to stays as long as `xio`.
        unsafe {
            (*misc).minor = bindings::MISC_DYNAMIC_MINOR as i32;
            (*misc).name = xio.node().name().as_char_ptr();
            (*misc).fops = FILE_OPERATIONS.get();
            (*misc).parent = parent.as_raw();
            (*misc).mode = 0o660;
            to_result(bindings::misc_register(misc))
        }
    }

    /// Removes the node. Files that are open stay; none can be opened any more.
    ///
    /// # Safety
    ///
    /// The node is registered.
    pub(crate) unsafe fn unregister(&self) {
        // SAFETY: By the contract of this function.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}

static FILE_OPERATIONS: Sync<bindings::file_operations> = {
    let mut table: bindings::file_operations = pin_init::zeroed();
    table.owner = <crate::Module as kernel::ModuleMetadata>::THIS_MODULE.as_ptr();
    table.open = Some(open);
    table.release = Some(release);
    table.unlocked_ioctl = Some(ioctl);
    table.compat_ioctl = bindings::compat_ptr_ioctl;
    table.mmap = Some(mmap);
    table.poll = Some(poll);
    table.uring_cmd = Some(uring_cmd);
    table.llseek = Some(bindings::noop_llseek);
    // SAFETY: Functions that may be called from any thread, and the module.
    unsafe { Sync::new(table) }
};

pub(super) static VM_OPERATIONS: Sync<bindings::vm_operations_struct> = {
    let mut table: bindings::vm_operations_struct = pin_init::zeroed();
    table.fault = Some(fault);
    // SAFETY: A function that may be called from any thread.
    unsafe { Sync::new(table) }
};

fn to_errno(result: Result) -> ffi::c_int {
    result.map_or_else(|e| e.to_errno(), |()| 0)
}

/// # Safety
///
/// `file` was opened by [`open`], and is not released before `'a` ends.
unsafe fn client<'a>(file: *mut bindings::file) -> &'a Client {
    // SAFETY: `open` stored a client there, and only `release` takes it.
    unsafe { &*(*file).private_data.cast::<Client>() }
}

unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> ffi::c_int {
    // SAFETY: misc_open stores the misc device, which is the first field of a `Node`, which is a field of an `Xio`
    // in an `Arc`. It holds the lock that `misc_deregister` takes, so the reference of the driver is still there.
    let xio: Arc<Xio> = unsafe {
        let node = (*file).private_data.cast::<Node>();
        let xio = node.byte_sub(Xio::NODE_OFFSET).cast::<Xio>();
        kernel::sync::ArcBorrow::from_raw(xio.cast_const()).into()
    };
    // SAFETY: The file is being opened; the address space stays as long as the client, which holds `xio`.
    unsafe { (*file).f_mapping = xio.node().space.as_raw() };
    match chardev::open(xio) {
        Ok(client) => {
            // SAFETY: The file is being opened.
            unsafe { (*file).private_data = KBox::into_raw(client).cast() };
            0
        }
        Err(e) => {
            // SAFETY: The file goes with its own address space.
            unsafe { (*file).f_mapping = (*(*file).f_inode).i_mapping };
            e.to_errno()
        }
    }
}

unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> ffi::c_int {
    // SAFETY: Stored by `open`; this is the last use of the file, and all its mappings are gone.
    let client = unsafe { KBox::from_raw((*file).private_data.cast::<Client>()) };
    // SAFETY: The private address space may go with the client.
    unsafe { (*file).f_mapping = (*(*file).f_inode).i_mapping };
    chardev::release(client);
    0
}

unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: ffi::c_uint, arg: ffi::c_ulong) -> ffi::c_long {
    // SAFETY: The file is open during the call.
    let client = unsafe { client(file) };
    to_errno(chardev::ioctl(client, cmd, arg as usize)) as ffi::c_long
}

unsafe extern "C" fn poll(file: *mut bindings::file, table: *mut bindings::poll_table) -> bindings::__poll_t {
    // SAFETY: The file is open during the call, and so is the table.
    let (client, file, table) = unsafe { (client(file), File::from_raw_file(file), PollTable::from_raw(table)) };
    table.register_wait(file, &client.xio.news.poll);
    let (news, gone) = chardev::poll(client);
    let bits = |set: bool, bits: u32| if set { bits } else { 0 };
    bits(news, bindings::POLLPRI) | bits(gone, bindings::POLLERR | bindings::POLLHUP)
}

unsafe extern "C" fn mmap(file: *mut bindings::file, vma: *mut bindings::vm_area_struct) -> ffi::c_int {
    // SAFETY: The file is open during the call, the area is the one being made.
    let (client, area) = unsafe { (client(file), Area::new(vma)) };
    to_errno(chardev::mmap(client, &area))
}

unsafe extern "C" fn uring_cmd(cmd: *mut bindings::io_uring_cmd, issue_flags: ffi::c_uint) -> ffi::c_int {
    // SAFETY: The command is alive during the call, and so is its file.
    let (client, op, argument) = unsafe {
        (
            client(shim::rocm_xio_uring_file(cmd)),
            shim::rocm_xio_uring_op(cmd),
            shim::rocm_xio_uring_argument(cmd),
        )
    };
    // SAFETY: These only look at the flags.
    let (cancel, must_not_block) = unsafe {
        (shim::rocm_xio_uring_is_cancel(issue_flags), shim::rocm_xio_uring_must_not_block(issue_flags))
    };
    if cancel {
        chardev::uring_cancel(client, cmd as usize);
        return 0;
    }
    if must_not_block {
        // io_uring calls again from a thread that may wait for locks.
        return EAGAIN.to_errno();
    }
    // SAFETY: Just issued; marked before anybody can complete it, and without a lock that cancelling takes.
    let command = unsafe {
        shim::rocm_xio_uring_mark_cancelable(cmd, issue_flags);
        Command::new(cmd)
    };
    if let Err((e, command)) = chardev::uring_submit(client, op, argument as usize, command) {
        // Not by the return value: a command that is marked must be completed, else it stays among the marked ones.
        command.fail(e, issue_flags);
    }
    -(bindings::EIOCBQUEUED as i32)
}

unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: The area holds its file, which was opened by `open`.
    let client = unsafe { client((*(*vmf).__bindgen_anon_1.vma).vm_file) };
    // SAFETY: This is the fault operation.
    let fault = unsafe { Fault::new(vmf) };
    let reason = match chardev::fault(client, &fault) {
        Ok(()) => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
        Err(FaultError::NotThere) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        Err(FaultError::NoMemory) => bindings::vm_fault_reason_VM_FAULT_OOM,
    };
    reason as bindings::vm_fault_t
}

/// Whether the caller may do raw I/O; `audit` when something is refused for lack of it.
pub(crate) fn has_rawio(audit: bool) -> bool {
    let capability = bindings::CAP_SYS_RAWIO as i32;
    // SAFETY: The first user namespace is always there.
    unsafe {
        if audit {
            bindings::capable(capability)
        } else {
            bindings::ns_capable_noaudit(&raw mut bindings::init_user_ns, capability)
        }
    }
}
