// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data path makes no system call: 10,000 commands run in a thread whose every system call ends the process.
#![allow(unsafe_code, reason = "seccomp")]

use crate::common::{controller, key};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use xio::{Operation, QueueOptions, RetrieveOptions, StoreOptions, Wait};

/// Tells the test, run again in a process of its own, what to do.
const CHILD: &str = "XIO_NO_SYSCALL_CHILD";

/// Lets this thread do nothing but end the process, from now on.
fn forbid_system_calls() {
    const fn statement(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
    }
    let number = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let is_exit = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k: libc::SYS_exit_group as u32,
    };
    let allow = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    let kill = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS);
    let mut filter = [number, is_exit, allow, kill];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: prctl with numbers only.
    let first = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(first, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `program` and its filter live during the call, which copies them.
    let second = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(second, 0, "{}", std::io::Error::last_os_error());
}

/// Ends the process from a thread that may do nothing else.
fn leave(code: i32) -> ! {
    // SAFETY: it does not return, and there is nothing to clean up.
    unsafe { libc::_exit(code) }
}

/// All operations, blocking and with many in flight.
fn ten_thousand_commands() -> ! {
    let controller = controller();
    let ns = controller.first_namespace().unwrap();
    let options = QueueOptions { entries: 64, wait: Wait::Spin, ..QueueOptions::default() };
    let mut queue = controller.queue(options).unwrap();
    let buffer = controller.alloc(1 << 20).unwrap();
    let slice = buffer.slice(64..12_064).unwrap();
    let k = key("k");
    forbid_system_calls();
    let mut done = 0;
    for _ in 0..1_000 {
        let stored = queue.store(&ns, &k, &slice, StoreOptions::default());
        let length = queue.retrieve(&ns, &k, &slice, RetrieveOptions::default());
        let found = queue.exist(&ns, &k);
        let deleted = queue.delete_key(&ns, &k);
        if stored.is_err() || length.ok() != Some(12_000) || found.ok() != Some(true) || deleted.is_err() {
            leave(3);
        }
        for _ in 0..6 {
            if queue.submit(&ns, Operation::Exist { key: k }).is_err() {
                leave(4);
            }
        }
        queue.ring();
        let mut batch = 0;
        while batch < 6 {
            match queue.poll() {
                Ok(Some(_)) => batch += 1,
                Ok(None) => std::hint::spin_loop(),
                Err(_) => leave(5),
            }
        }
        done += 4 + batch;
    }
    leave(if done == 10_000 { 0 } else { 6 })
}

fn again(test: &str, what: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("no_syscall::{test}"), "--test-threads=1"]).env(CHILD, what);
    command.stdout(std::process::Stdio::null()).status().unwrap()
}

#[test]
fn the_data_path_makes_no_system_call() {
    match std::env::var(CHILD).as_deref() {
        Ok("run") => ten_thousand_commands(),
        Ok("control") => {
            forbid_system_calls();
            // Any other call ends the process.
            std::thread::yield_now();
            leave(0)
        }
        _ => {
            let name = "the_data_path_makes_no_system_call";
            assert_eq!(again(name, "control").signal(), Some(libc::SIGSYS), "the filter does not work");
            let status = again(name, "run");
            assert_eq!(status.code(), Some(0), "{status}");
        }
    }
}
