// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each case runs in a process of its own, since a process has one handler.

use super::*;
use crate::dmabuf::sealed_memory;
use crate::mapping::Region;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::{ftruncate, Pid};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicUsize;

/// Tells the test, run again in a process of its own, which case it is.
const CHILD: &str = "XIO_SIGBUS_CHILD";

/// Pages that raise SIGBUS once `taken`.
fn lent(len: usize) -> OwnedFd {
    let file = memfd_create(c"lent", MFdFlags::MFD_CLOEXEC).unwrap();
    ftruncate(&file, len as i64).unwrap();
    file
}

fn taken(file: &OwnedFd) {
    ftruncate(file, 0).unwrap();
}

fn again(case: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sigbus::tests::cases", "--test-threads=1"]).env(CHILD, case);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}

static SEEN: AtomicUsize = AtomicUsize::new(0);
static FOREIGN: AtomicUsize = AtomicUsize::new(0);

/// Puts a page where the fault is, if that is where it was expected.
fn give_page(address: usize) {
    SEEN.fetch_add(1, Ordering::SeqCst);
    assert_eq!(address & !4095, FOREIGN.load(Ordering::SeqCst));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page of a region that the test made and lost.
    unsafe { libc::mmap((address & !4095) as *mut _, 4096, libc::PROT_READ, flags, -1, 0) };
}

extern "C" fn theirs(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: from the kernel.
    give_page(unsafe { (*info).si_addr() } as usize);
}

extern "C" fn plain(signal: i32) {
    assert_eq!(signal, libc::SIGBUS);
    give_page(FOREIGN.load(Ordering::SeqCst));
}

extern "C" fn by_call(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: from the kernel.
    let handled = handle(unsafe { (*info).si_addr() });
    SEEN.fetch_add(usize::from(handled), Ordering::SeqCst);
}

fn set_theirs(handler: usize, flags: i32) {
    let mut action = DEFAULT.0;
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    set(&raw const action).unwrap();
}

/// A region that no table has, whose pages are gone.
fn foreign() -> Region {
    let file = lent(4096);
    let region = Region::of_file(&file, 0, 4096, true, "x").unwrap();
    FOREIGN.store(region.as_ptr() as usize, Ordering::SeqCst);
    taken(&file);
    region
}

/// Loses a mapping in all ways of touching it.
fn lose() {
    let file = lent(3 * 4096);
    for touch in [
        |r: &Region| r.write(8000, &[1]),
        |r: &Region| r.read(9000, &mut [0; 3]),
        |r: &Region| {
            r.store_release(0, 1);
        },
    ] {
        ftruncate(&file, 3 * 4096).unwrap();
        let region = Region::of_device(&file, 0, 3 * 4096, true, "x").unwrap();
        let other = Region::of_device(sealed_memory(4096).unwrap(), 0, 4096, false, "x").unwrap();
        touch(&region);
        assert!(!region.look());
        taken(&file);
        assert!(!region.is_revoked(), "nobody touched it");
        touch(&region);
        assert!(region.is_revoked() && !other.look());
        // All of it is there again.
        region.write(0, &[7; 3 * 4096]);
        assert!(region.look());
    }
    let file = lent(4096);
    let region = Region::of_device(&file, 0, 4096, false, "x").unwrap();
    taken(&file);
    assert!(region.look());
}

fn run(case: &str) {
    match case {
        "revoked" => {
            lose();
            assert!(!opt_out());
        }
        "threads" => {
            let file = lent(4096);
            let region = Region::of_device(&file, 0, 4096, true, "x").unwrap();
            taken(&file);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| assert!(region.look()));
                }
            });
        }
        "siginfo" | "plain" | "once" => {
            match case {
                "siginfo" => set_theirs(theirs as extern "C" fn(_, _, _) as usize, libc::SA_SIGINFO),
                "plain" => set_theirs(plain as extern "C" fn(_) as usize, libc::SA_NODEFER),
                _ => {
                    let flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
                    set_theirs(theirs as extern "C" fn(_, _, _) as usize, flags);
                }
            }
            lose();
            assert_eq!(SEEN.load(Ordering::SeqCst), 0);
            let region = foreign();
            region.read(0, &mut [0]);
            assert_eq!(SEEN.load(Ordering::SeqCst), 1);
            lose();
            if case == "once" {
                foreign().read(0, &mut [0]);
            }
        }
        "default" | "ignored" | "sent" | "sent-ignored" => {
            let ignore = case.contains("ignored");
            set_theirs(if ignore { libc::SIG_IGN } else { libc::SIG_DFL }, 0);
            lose();
            if case.starts_with("sent") {
                kill(Pid::this(), Signal::SIGBUS).unwrap();
            } else {
                foreign().read(0, &mut [0]);
            }
        }
        "without" => {
            assert!(opt_out());
            lose();
        }
        "own" => {
            assert!(opt_out());
            set_theirs(by_call as extern "C" fn(_, _, _) as usize, libc::SA_SIGINFO);
            lose();
            assert_eq!(SEEN.load(Ordering::SeqCst), 4);
        }
        other => panic!("no case {other}"),
    }
}

#[test]
fn cases() {
    if let Ok(case) = std::env::var(CHILD) {
        return run(&case);
    }
    for case in ["revoked", "threads", "siginfo", "plain", "sent-ignored", "own"] {
        let status = again(case);
        assert!(status.success(), "{case}: {status}");
    }
    for case in ["default", "ignored", "sent", "once", "without"] {
        let status = again(case);
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{case}: {status}");
    }
}
