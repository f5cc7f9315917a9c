// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that goes down while its controller is at work: another kernel, started by kexec, finds it quiet. Nothing but
//! the module stands between that kernel's memory and the commands under way.
#![allow(unsafe_code)] // kexec_file_load

use crate::kernel::{self, NODE};
use crate::raw::{self, Node};
use crate::report::Report;
use crate::session::{self, Session};
use crate::{command, fs, pci};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::reboot::{reboot, RebootMode};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;

const KERNEL: &str = "/data/vmlinuz";
const INITRD: &str = "/tmp/initrd";
/// Offsets of CC and CSTS in BAR 0.
const CC: usize = 0x14;
const CSTS: usize = 0x1c;

/// Arguments: none in the first kernel; in the second `after` and the number of cases of the first.
pub fn run(report: &mut Report, arguments: &[&str]) {
    if let ["after", cases] = arguments {
        report.go_on_from(cases.parse().unwrap_or(0));
        report.case("controller_is_quiet_in_the_next_kernel", |_| quiet());
        report.case("what_was_stored_is_there", |_| stored());
        return;
    }
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    // Both ways: commands are under way when the machine goes down.
    report.case("next_kernel_is_started_under_load", |report| {
        let busy = Session::start(&["life-busy"])?;
        load(report.cases() + 1)?;
        // It is not ended: that is the point.
        std::mem::forget(busy);
        Ok(())
    });
    report.drain();
    // It returns only on an error. The plan is then smaller than what the host waits for.
    let Err(error) = reboot(RebootMode::RB_KEXEC);
    report.case("next_kernel_starts", |_| Err(error.into()));
}

/// Loads the kernel that runs with a RAM disk made of this one.
fn load(cases: u32) -> Result<()> {
    let pack = format!("cd / && {{ find init bin etc lib; echo dev; echo proc; echo sys; echo tmp; }} | cpio -o -H newc >{INITRD}");
    command::run(&["sh", "-c", &pack])?.expect_success()?;
    let line = fs::read("/proc/cmdline")?;
    let line = line.replace("xio.test=kexec", &format!("xio.test=kexec,after,{cases}"));
    let line = CString::new(line.trim()).context("the command line")?;
    let (kernel, initrd) = (File::open(KERNEL)?, File::open(INITRD)?);
    let bytes = line.as_bytes_with_nul();
    // SAFETY: Two open files, and a text with its length.
    let done = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            kernel.as_raw_fd(),
            initrd.as_raw_fd(),
            bytes.len(),
            bytes.as_ptr(),
            0usize,
        )
    };
    Errno::result(done).context("kexec_file_load").map(drop)
}

/// Before any driver has touched it.
fn quiet() -> Result<()> {
    let address = pci::nvme_functions()?.into_iter().next().context("no controller")?;
    ensure!(pci::driver(&address)?.is_none(), "a driver has it already");
    fs::write(pci::path(&address).join("enable"), "1")?;
    let bar = File::options().read(true).write(true).open(pci::path(&address).join("resource0"))?;
    let registers =
        raw::map_file(&bar, 0, 4096, libc::PROT_READ, libc::MAP_SHARED).context("mapping BAR 0")?;
    let (cc, csts): (u32, u32) = (registers.read(CC), registers.read(CSTS));
    drop(registers);
    fs::write(pci::path(&address).join("enable"), "0")?;
    ensure!(cc & 1 == 0 && csts & 1 == 0, "CC {cc:#x}, CSTS {csts:#x}");
    Ok(())
}

fn stored() -> Result<()> {
    kernel::load_rocm_xio("")?;
    let node = Node::open(NODE)?;
    let mut exist = [raw::entry(xio_uapi::KV_EXIST, b"busy", 0, 0, 0)];
    node.submit(&mut exist, 10_000)?;
    ensure!((exist[0].error, exist[0].status) == (0, 0), "{:?}", exist[0]);
    drop(node);
    session::run(&["life-work"]).map(drop)
}
