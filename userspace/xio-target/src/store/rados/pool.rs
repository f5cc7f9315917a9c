// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of a cluster: operations that are answered on a channel.
#![allow(unsafe_code)] // Calls a foreign library.

use super::library::{library, Handle, Library};
use super::RadosConfig;
use std::ffi::{c_char, c_int, c_void, CString};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Fail instead of waiting for space (LIBRADOS_OPERATION_FULL_TRY).
const FULL_TRY: c_int = 64;
/// Renew a lock that is ours, or take it (LIBRADOS_LOCK_FLAG_MAY_RENEW).
const MAY_RENEW: u8 = 1;
/// Renew a lock that is ours, and only then (LIBRADOS_LOCK_FLAG_MUST_RENEW).
const MUST_RENEW: u8 = 2;
const LOCK: &std::ffi::CStr = c"xio-target";

/// What an existing object means for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// It is replaced, if there is one.
    Any,
    /// It is needed.
    Needed,
    /// It is in the way.
    Refused,
}

/// An operation on one object; each is atomic.
#[derive(Debug)]
pub(super) enum Operation<'a> {
    Write { value: &'a [u8], existing: Existing },
    Remove,
    Stat,
    Read { offset: u64, len: usize },
    SetIndex { key: &'a str, value: &'a [u8] },
    RemoveIndex { key: &'a str },
}

/// How an operation ended: the library's result (an errno if negative), bytes that were read, size of the object.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) tag: u64,
    pub(super) result: i32,
    pub(super) bytes: Vec<u8>,
    pub(super) size: u64,
}

/// An operation that is running. It belongs to the library until the callback gets it back.
struct Running {
    library: &'static Library,
    completion: Handle,
    read_op: Handle,
    write_op: Handle,
    ended: Ended,
    read: usize,
    results: [c_int; 2],
    to: Sender<Ended>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: these are ours, and nobody uses them any more.
        unsafe {
            if !self.completion.is_null() {
                (self.library.rados_aio_release)(self.completion);
            }
            if !self.read_op.is_null() {
                (self.library.rados_release_read_op)(self.read_op);
            }
            if !self.write_op.is_null() {
                (self.library.rados_release_write_op)(self.write_op);
            }
        }
    }
}

extern "C" fn done(completion: Handle, argument: *mut c_void) {
    // SAFETY: the library calls this once, with what `start` gave it.
    let mut running = unsafe { Box::from_raw(argument.cast::<Running>()) };
    // SAFETY: the completion is done.
    running.ended.result = unsafe { (running.library.rados_aio_get_return_value)(completion) };
    running.ended.bytes.truncate(running.read);
    let empty = Ended { tag: 0, result: 0, bytes: Vec::new(), size: 0 };
    let ended = std::mem::replace(&mut running.ended, empty);
    // Nobody listens when the store is being closed.
    if running.to.send(ended).is_err() {
        log::debug!("an operation ended that nobody waits for");
    }
}

/// What a session may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    /// It has the lock.
    Locked,
    /// The user has no right to take it, and so not to write.
    ReadOnly,
}

/// A connection, and the pool and RADOS namespace that are used through it.
///
/// # Invariants
///
/// Both handles are open until this is dropped, and no operation is running then.
pub(super) struct Pool {
    library: &'static Library,
    cluster: Handle,
    io: Handle,
    cookie: CString,
}

// SAFETY: the library's handles may be used by any thread.
unsafe impl Send for Pool {}
// SAFETY: and by several at once.
unsafe impl Sync for Pool {}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text with a NUL"))
}

fn check(result: c_int, what: &str) -> io::Result<()> {
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        return Err(io::Error::new(error.kind(), format!("{what}: {error}")));
    }
    Ok(())
}

impl Pool {
    pub(super) fn connect(config: &RadosConfig) -> io::Result<Self> {
        let library = library(&config.library)?;
        let mut pool = Self {
            library,
            cluster: null_mut(),
            io: null_mut(),
            cookie: text(&format!("{}-{:p}", std::process::id(), config))?,
        };
        let user = text(&config.user)?;
        // SAFETY: all texts live through the calls; a handle is used only after the call that made it has succeeded.
        unsafe {
            check(
                (library.rados_create2)(&mut pool.cluster, c"ceph".as_ptr(), user.as_ptr(), 0),
                "rados_create",
            )?;
            let file = config.conf.as_deref().map(|path| text(&path.to_string_lossy())).transpose()?;
            let file = file.as_ref().map_or(null(), |file| file.as_ptr());
            check((library.rados_conf_read_file)(pool.cluster, file), "reading Ceph's configuration")?;
            let seconds = text(&config.timeout.as_secs().max(1).to_string())?;
            for name in [c"client_mount_timeout", c"rados_osd_op_timeout", c"rados_mon_op_timeout"] {
                check(
                    (library.rados_conf_set)(pool.cluster, name.as_ptr(), seconds.as_ptr()),
                    "a time limit",
                )?;
            }
            check((library.rados_connect)(pool.cluster), "connecting to the cluster")?;
            let name = text(&config.pool)?;
            let made = (library.rados_ioctx_create)(pool.cluster, name.as_ptr(), &mut pool.io);
            check(made, &format!("pool {}", config.pool))?;
            (library.rados_ioctx_set_namespace)(pool.io, text(&config.namespace)?.as_ptr());
        }
        Ok(pool)
    }

    /// Takes the lock that keeps others from changing the same pairs, for a while.
    pub(super) fn lock(&self, object: &str, time: Duration) -> io::Result<()> {
        self.lock_if(object, time, MAY_RENEW)
    }

    /// Renews the lock. An error if it was lost in between, though nobody else may have it.
    pub(super) fn renew(&self, object: &str, time: Duration) -> io::Result<()> {
        self.lock_if(object, time, MUST_RENEW)
    }

    fn lock_if(&self, object: &str, time: Duration, flags: u8) -> io::Result<()> {
        let object = text(object)?;
        // A `struct timeval`.
        let mut time = [time.as_secs() as i64, 0];
        // SAFETY: all arguments live through the call.
        let result = unsafe {
            (self.library.rados_lock_exclusive)(
                self.io,
                object.as_ptr(),
                LOCK.as_ptr(),
                self.cookie.as_ptr(),
                c"".as_ptr(),
                time.as_mut_ptr().cast(),
                flags,
            )
        };
        match -result {
            nix::libc::EBUSY | nix::libc::EEXIST => {
                Err(io::Error::new(io::ErrorKind::AddrInUse, "another program uses this pool and namespace"))
            }
            _ => check(result, "the lock"),
        }
    }

    pub(super) fn unlock(&self, object: &str) {
        let Ok(object) = text(object) else { return };
        // SAFETY: all arguments live through the call.
        let result = unsafe {
            (self.library.rados_unlock)(self.io, object.as_ptr(), LOCK.as_ptr(), self.cookie.as_ptr())
        };
        if result < 0 {
            log::warn!("the lock is left to expire: {}", io::Error::from_raw_os_error(-result));
        }
    }

    /// Starts an operation; how it ends is sent to `to` with `tag`.
    pub(super) fn start(&self, object: &str, operation: &Operation<'_>, tag: u64, to: &Sender<Ended>) {
        if let Err(error) = self.try_start(object, operation, tag, to) {
            let result = -error.raw_os_error().unwrap_or(nix::libc::EIO);
            if to.send(Ended { tag, result, bytes: Vec::new(), size: 0 }).is_err() {
                log::debug!("an operation failed that nobody waits for");
            }
        }
    }

    fn try_start(
        &self,
        object: &str,
        operation: &Operation<'_>,
        tag: u64,
        to: &Sender<Ended>,
    ) -> io::Result<()> {
        let object = text(object)?;
        let library = self.library;
        let mut running = Box::new(Running {
            library,
            completion: null_mut(),
            read_op: null_mut(),
            write_op: null_mut(),
            ended: Ended { tag, result: 0, bytes: Vec::new(), size: 0 },
            read: 0,
            results: [0; 2],
            to: to.clone(),
        });
        let argument = std::ptr::from_mut(&mut *running).cast::<c_void>();
        // SAFETY: the box stays where it is until the callback, which gets it by this pointer, and with it all memory
        // that the library writes to; what it reads, it copies during the calls.
        unsafe {
            check(
                (library.rados_aio_create_completion2)(argument, done, &mut running.completion),
                "completion",
            )?;
            self.prepare(&mut running, operation)?;
            let (completion, name) = (running.completion, object.as_ptr());
            let running = Box::into_raw(running);
            let started = if !(*running).write_op.is_null() {
                let op = (*running).write_op;
                (library.rados_aio_write_op_operate)(op, self.io, completion, name, null_mut(), FULL_TRY)
            } else if !(*running).read_op.is_null() {
                let op = (*running).read_op;
                (library.rados_aio_read_op_operate)(op, self.io, completion, name, 0)
            } else {
                (library.rados_aio_stat)(
                    self.io,
                    name,
                    completion,
                    &raw mut (*running).ended.size,
                    null_mut(),
                )
            };
            if started < 0 {
                // Not started: the callback will not come.
                drop(Box::from_raw(running));
                return Err(io::Error::from_raw_os_error(-started));
            }
        }
        Ok(())
    }

    /// # Safety
    /// `running` must not move until its operation has ended.
    unsafe fn prepare(&self, running: &mut Running, operation: &Operation<'_>) -> io::Result<()> {
        let library = self.library;
        if let Operation::Stat = operation {
            return Ok(());
        }
        // SAFETY: as the caller promises; operations are made and filled before they are used.
        unsafe {
            if let Operation::Read { offset, len } = operation {
                running.ended.bytes = vec![0; *len];
                running.read_op = (library.rados_create_read_op)();
                let (op, [of_stat, of_read]) = (running.read_op, &mut running.results);
                (library.rados_read_op_stat)(op, &mut running.ended.size, null_mut(), of_stat);
                let to = running.ended.bytes.as_mut_ptr().cast::<c_char>();
                (library.rados_read_op_read)(op, *offset, *len, to, &mut running.read, of_read);
                return Ok(());
            }
            running.write_op = (library.rados_create_write_op)();
            self.fill(running.write_op, operation)
        }
    }

    /// # Safety
    /// `op` must be a write operation.
    unsafe fn fill(&self, op: Handle, operation: &Operation<'_>) -> io::Result<()> {
        let library = self.library;
        // SAFETY: the library copies what it is given.
        unsafe {
            match operation {
                Operation::Write { value, existing } => {
                    match existing {
                        Existing::Any => {}
                        Existing::Needed => (library.rados_write_op_assert_exists)(op),
                        Existing::Refused => (library.rados_write_op_create)(op, 1, null()),
                    }
                    (library.rados_write_op_write_full)(op, value.as_ptr().cast(), value.len());
                }
                Operation::SetIndex { key, value } => {
                    let key = text(key)?;
                    let (key, value, len) = (key.as_ptr(), value.as_ptr().cast::<c_char>(), value.len());
                    (library.rados_write_op_omap_set)(op, &key, &value, &len, 1);
                }
                Operation::RemoveIndex { key } => {
                    let key = text(key)?;
                    (library.rados_write_op_omap_rm_keys)(op, &key.as_ptr(), 1);
                }
                _ => (library.rados_write_op_remove)(op),
            }
        }
        Ok(())
    }

    /// Does a change and waits for its end.
    pub(super) fn change(&self, object: &str, operation: &Operation<'_>) -> io::Result<()> {
        let object = text(object)?;
        // SAFETY: the operation is ours alone.
        unsafe {
            let op = (self.library.rados_create_write_op)();
            let filled = self.fill(op, operation);
            let result = (self.library.rados_write_op_operate)(op, self.io, object.as_ptr(), null_mut(), 0);
            (self.library.rados_release_write_op)(op);
            filled?;
            check(result, "changing the index")
        }
    }

    /// Size of an object, and whether it is there; waits.
    pub(super) fn stat(&self, object: &str) -> io::Result<Option<u64>> {
        let (object, mut size, mut time) = (text(object)?, 0, 0);
        // SAFETY: all arguments live through the call.
        let result = unsafe { (self.library.rados_stat)(self.io, object.as_ptr(), &mut size, &mut time) };
        match -result {
            nix::libc::ENOENT => Ok(None),
            _ => check(result, "stat").map(|()| Some(size)),
        }
    }

    /// Entries of an object's index behind `after`, at most `max` of them; waits.
    pub(super) fn index(&self, object: &str, after: &str, max: u64) -> io::Result<Vec<(String, Vec<u8>)>> {
        let (object, after) = (text(object)?, text(after)?);
        let (mut entries, mut all, mut more, mut result) = (null_mut(), Vec::new(), 0, 0);
        // SAFETY: all arguments live through the calls; an entry is copied before the next one is asked for.
        unsafe {
            let op = (self.library.rados_create_read_op)();
            (self.library.rados_read_op_omap_get_vals2)(
                op,
                after.as_ptr(),
                c"".as_ptr(),
                max,
                &mut entries,
                &mut more,
                &mut result,
            );
            let read = (self.library.rados_read_op_operate)(op, self.io, object.as_ptr(), 0);
            (self.library.rados_release_read_op)(op);
            let missing = read == -nix::libc::ENOENT;
            if read >= 0 {
                loop {
                    let (mut key, mut value, mut key_len, mut len) = (null_mut(), null_mut(), 0, 0);
                    let next = (self.library.rados_omap_get_next2)(
                        entries,
                        &mut key,
                        &mut value,
                        &mut key_len,
                        &mut len,
                    );
                    if next < 0 || key.is_null() {
                        break;
                    }
                    all.push((
                        String::from_utf8_lossy(bytes(key, key_len)).into_owned(),
                        bytes(value, len).to_vec(),
                    ));
                }
            }
            if !entries.is_null() {
                (self.library.rados_omap_get_end)(entries);
            }
            if !missing {
                check(read, "reading the index")?;
            }
        }
        Ok(all)
    }
}

/// # Safety
/// `len` bytes from `start` on must be there as long as the result is used.
unsafe fn bytes<'a>(start: *const c_char, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: by the invariant; a handle that was never made is not closed.
        unsafe {
            if !self.io.is_null() {
                (self.library.rados_aio_flush)(self.io);
                (self.library.rados_ioctx_destroy)(self.io);
            }
            if !self.cluster.is_null() {
                (self.library.rados_shutdown)(self.cluster);
            }
        }
    }
}
