// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signal SIGBUS, which memory of the module raises once its controller was reset or is gone.
//!
//! With the first queue or buffer of a device node, this library installs a handler. A touch of memory that was revoked then
//! reads zeros, or writes to nowhere, and the call that did it fails with [`Error::Revoked`](crate::Error::Revoked) or
//! [`Error::Gone`](crate::Error::Gone). Any other SIGBUS goes on to the handler that was there before; without one the process
//! ends, as ever.
//!
//! What programs should know:
//! * A handler that a program installs later is in the place of this one. It should hand on to the one it finds there, or call
//!   [`handle`] itself.
//! * In a thread that blocks SIGBUS a fault ends the process whatever the handlers.
//! * A program that wants no handler calls [`opt_out`] before it makes its first queue or buffer.
#![allow(unsafe_code, reason = "signal handlers")]

use crate::error::{os, Result};
use crate::revocation;
use nix::errno::Errno;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

/// What is done about the signal, which is decided once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    /// Nothing.
    Left,
    /// The handler is there.
    Installed,
    /// It could not be.
    Failed(Errno),
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// What was there before, never freed; null before anything was.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

/// Keeps this library from installing a handler, in this process, for good: whether that is so. It is not when the handler
/// is there already.
pub fn opt_out() -> bool {
    *CHOICE.get_or_init(|| Choice::Left) == Choice::Left
}

/// What the handler does, for programs with one of their own: whether `address`, the `si_addr` of a SIGBUS with the `si_code`
/// `BUS_ADRERR`, is in memory of this library that was revoked. If so, the touch can go on when the program's handler
/// returns. It may be called in signal handlers.
///
/// Calling it for addresses that did not fault makes what is there lost: its users get an error.
pub fn handle(address: *const std::ffi::c_void) -> bool {
    let errno = Errno::last_raw();
    let handled = revocation::fault(address as usize);
    Errno::set_raw(errno);
    handled
}

/// Installs the handler, unless it is there or the program does not want it.
pub(crate) fn install() -> Result<()> {
    match CHOICE.get_or_init(|| replace().map_or_else(Choice::Failed, |()| Choice::Installed)) {
        Choice::Left | Choice::Installed => Ok(()),
        Choice::Failed(errno) => Err(os("installing a handler of SIGBUS", *errno)),
    }
}

fn replace() -> nix::Result<()> {
    // Asked for first, so that it is known when the handler is called for the first time.
    keep(set(null())?);
    let mut action = DEFAULT.0;
    action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    keep(set(&raw const action)?);
    Ok(())
}

fn keep(action: libc::sigaction) {
    // Not freed: a handler may be reading the one before.
    BEFORE.store(Box::into_raw(Box::new(action)), Ordering::Release);
}

/// Sets an action unless it is null; the one before.
fn set(action: *const libc::sigaction) -> nix::Result<libc::sigaction> {
    let mut before = DEFAULT.0;
    // SAFETY: null, or an action whose handler does only what handlers may; `before` is written to.
    Errno::result(unsafe { libc::sigaction(libc::SIGBUS, action, &raw mut before) })?;
    Ok(before)
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    // Not the other codes: pages that the machine lost (BUS_MCEERR_*) are no matter of controllers.
    if code == libc::BUS_ADRERR && handle(address) {
        return;
    }
    // SAFETY: never freed.
    let before = unsafe { BEFORE.load(Ordering::Acquire).as_ref() };
    match before {
        Some(action) if action.sa_sigaction == libc::SIG_IGN && code <= 0 => {}
        Some(action) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) => {
            call(action, signal, info, context);
        }
        // A fault of a process that ignores the signal ends it, too.
        _ => end(code),
    }
}

/// Calls a handler under the mask that it wanted.
fn call(action: &libc::sigaction, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        // Once only.
        BEFORE.store((&raw const DEFAULT.0).cast_mut(), Ordering::Release);
    }
    let mut mask = DEFAULT.0.sa_mask;
    // SAFETY: masks that live here; unblocking is what the handler asked for.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const action.sa_mask, &raw mut mask);
        if action.sa_flags & libc::SA_NODEFER != 0 {
            let mut this = DEFAULT.0.sa_mask;
            libc::sigaddset(&raw mut this, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const this, null_mut());
        }
    }
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: neither SIG_DFL nor SIG_IGN, and with this flag a handler of three arguments.
        unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction)(signal, info, context) }
    } else {
        // SAFETY: as above, without the flag one of one argument.
        unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(action.sa_sigaction)(signal) }
    }
    // SAFETY: the mask that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut()) };
}

/// Lets the system end the process.
fn end(code: i32) {
    // It fails for no valid signal.
    let _ = set(&raw const DEFAULT.0);
    // A fault comes again when the handler returns, with all that the system tells of it. What somebody sent does not, and neither
    // does the news of a broken page that nobody touched.
    if code <= 0 || code == BUS_MCEERR_AO {
        // SAFETY: it is blocked until the handler returns.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

const BUS_MCEERR_AO: i32 = 5;

struct Action(libc::sigaction);

// SAFETY: numbers that nobody changes.
unsafe impl Sync for Action {}

/// The end of the process.
// SAFETY: a plain structure, of which all zeros are SIG_DFL without flags and with an empty mask.
static DEFAULT: Action = Action(unsafe { std::mem::zeroed() });

#[cfg(test)]
mod tests;
