// SPDX-License-Identifier: MIT OR Apache-2.0
//! librados, opened at run time, so that this program needs Ceph only where it is used.
#![allow(unsafe_code)] // A foreign library.

use nix::libc;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// Any of the library's handles.
pub(super) type Handle = *mut c_void;
pub(super) type Text = *const c_char;
pub(super) type Callback = extern "C" fn(Handle, *mut c_void);

macro_rules! library {
    ($( $name:ident($($type:ty),*) $(-> $result:ty)?; )*) => {
        /// The functions in use, as `rados/librados.h` declares them.
        #[allow(missing_docs)]
        pub(super) struct Library {
            $( pub(super) $name: unsafe extern "C" fn($($type),*) $(-> $result)?, )*
        }

        impl Library {
            fn open(path: &Path) -> Result<Self, String> {
                let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
                // SAFETY: its initializers are those of a system library that does nothing but register its classes. It
                // has threads of its own and is therefore never closed.
                let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if library.is_null() {
                    return Err(last_error());
                }
                Ok(Self {
                    $( $name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the library is open and the name ends with a NUL.
                        let symbol = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return Err(last_error());
                        }
                        // SAFETY: the type is that of the declaration in the library's header.
                        unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($type),*) $(-> $result)?>(symbol) }
                    }, )*
                })
            }
        }
    };
}

library! {
    rados_create2(*mut Handle, Text, Text, u64) -> c_int;
    rados_conf_read_file(Handle, Text) -> c_int;
    rados_conf_set(Handle, Text, Text) -> c_int;
    rados_connect(Handle) -> c_int;
    rados_shutdown(Handle);
    rados_ioctx_create(Handle, Text, *mut Handle) -> c_int;
    rados_ioctx_destroy(Handle);
    rados_ioctx_set_namespace(Handle, Text);
    rados_lock_exclusive(Handle, Text, Text, Text, Text, *mut c_void, u8) -> c_int;
    rados_unlock(Handle, Text, Text, Text) -> c_int;
    rados_stat(Handle, Text, *mut u64, *mut i64) -> c_int;
    rados_aio_create_completion2(*mut c_void, Callback, *mut Handle) -> c_int;
    rados_aio_release(Handle);
    rados_aio_get_return_value(Handle) -> c_int;
    rados_aio_flush(Handle) -> c_int;
    rados_aio_stat(Handle, Text, Handle, *mut u64, *mut i64) -> c_int;
    rados_create_write_op() -> Handle;
    rados_release_write_op(Handle);
    rados_write_op_create(Handle, c_int, Text);
    rados_write_op_assert_exists(Handle);
    rados_write_op_write_full(Handle, *const c_char, usize);
    rados_write_op_remove(Handle);
    rados_write_op_omap_set(Handle, *const Text, *const Text, *const usize, usize);
    rados_write_op_omap_rm_keys(Handle, *const Text, usize);
    rados_aio_write_op_operate(Handle, Handle, Handle, Text, *mut i64, c_int) -> c_int;
    rados_create_read_op() -> Handle;
    rados_release_read_op(Handle);
    rados_read_op_stat(Handle, *mut u64, *mut i64, *mut c_int);
    rados_read_op_read(Handle, u64, usize, *mut c_char, *mut usize, *mut c_int);
    rados_read_op_omap_get_vals2(Handle, Text, Text, u64, *mut Handle, *mut u8, *mut c_int);
    rados_aio_read_op_operate(Handle, Handle, Handle, Text, c_int) -> c_int;
    rados_read_op_operate(Handle, Handle, Text, c_int) -> c_int;
    rados_write_op_operate(Handle, Handle, Text, *mut i64, c_int) -> c_int;
    rados_omap_get_next2(Handle, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
    rados_omap_get_end(Handle);
}

/// What the dynamic linker says about the last failure.
fn last_error() -> String {
    // SAFETY: the text belongs to this thread until its next call, and is copied before.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "librados can not be opened".into();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The library; the first path that is asked for is the one that is opened.
pub(super) fn library(path: &Path) -> io::Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let opened = LIBRARY.get_or_init(|| Library::open(path));
    opened.as_ref().map_err(|error| io::Error::new(io::ErrorKind::NotFound, error.clone()))
}
