// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations that fail inside the kernel, one after the other, in each request and while the device is bound and let go: an
//! errno comes of it, nothing is lost, and the next attempt works. Needs a kernel that injects faults (the debug kernel).

use crate::fakegpu::{self, FakeGpu, Layout};
use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::raw::{self, entry, sized, Node};
use crate::report::Report;
use crate::session::{self, Client};
use crate::tests::share::nothing_is_left;
use crate::{fs, pci};
use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use xio_uapi::{KV_EXIST, NO_EVENTFD};

pub const CLIENTS: &[(&str, Client)] = &[("failslab-requests", |_| requests())];

/// Which of the following allocations of this thread fails; 0 for none.
const FAIL_NTH: &str = "/proc/thread-self/fail-nth";
/// No request makes more.
const MOST: u32 = 2000;

/// That file of this thread, open: opening it takes memory, too.
struct FailNth(File);

impl FailNth {
    fn open() -> Result<Self> {
        Ok(Self(File::options().read(true).write(true).open(FAIL_NTH).context(FAIL_NTH)?))
    }

    fn set(&self, nth: u32) -> Result<()> {
        let text = format!("{nth}");
        ensure!(self.0.write_at(text.as_bytes(), 0)? == text.len(), "{FAIL_NTH} takes not all of {text}");
        Ok(())
    }

    /// What is left until then; 0 when it has failed.
    fn left(&self) -> Result<u32> {
        let mut text = [0; 16];
        let len = self.0.read_at(&mut text, 0)?;
        Ok(std::str::from_utf8(&text[..len])?.trim().parse()?)
    }
}

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("modules_load", |_| {
        ensure!(std::path::Path::new(FAIL_NTH).exists(), "this kernel injects no faults");
        // All allocations may fail, and say nothing.
        for (file, value) in [
            ("failslab/ignore-gfp-wait", "N"),
            ("failslab/verbose", "0"),
            ("fail_page_alloc/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-highmem", "N"),
            ("fail_page_alloc/min-order", "0"),
            ("fail_page_alloc/verbose", "0"),
        ] {
            fs::write(format!("/sys/kernel/debug/{file}"), value)?;
        }
        fakegpu::load()?;
        kernel::load_rocm_xio("")?;
        crate::tests::share::allow_udmabuf()
    });
    report.case("requests", |report| {
        // As root, since the file is root's. The limit is for a thousand attempts.
        let said = crate::command::run_within(
            &["/init", session::ROLE, "failslab-requests"],
            Duration::from_secs(300),
        )?;
        report.note(&said.expect_success()?.text());
        nothing_is_left()
    });
    report.case("probe_and_remove", |report| {
        // The kernel removes files of an interrupt that it had no memory to make, and its checker of DMA mappings gives up.
        report.allow_kernel_message("remove_proc_entry");
        report.allow_kernel_message("DMA-API: cacheline tracking ENOMEM");
        // There are hundreds, and each takes a while.
        let address = pci::nvme_functions()?.into_iter().next().context("no controller")?;
        pci::unbind(&address)?;
        let failed = each_of(2, |fail| {
            let bound = pci::bind(&address, "rocm_xio").is_ok();
            let left = fail.left()?;
            fail.set(0)?;
            if bound {
                pci::unbind(&address)?;
            }
            fail.set(left)?;
            Ok(bound)
        })?;
        report.note(&format!("probe: {failed}"));
        pci::bind(&address, "rocm_xio").context("binding with nothing in the way")?;
        let failed = each_of(2, |fail| {
            // Where an allocation of the file system fails it is not unbound at all.
            let unbound = pci::unbind(&address).is_ok();
            let left = fail.left()?;
            fail.set(0)?;
            if unbound {
                pci::bind(&address, "rocm_xio")?;
            }
            fail.set(left)?;
            Ok(unbound)
        })?;
        report.note(&format!("remove: {failed}"));
        fs::wait_for_file(NODE, NODE_LIMIT)?;
        kernel::give_nodes_to_render()
    });
    report.case("works_afterwards", |_| {
        session::run(&["life-work"])?;
        nothing_is_left()
    });
}

/// Runs something with the first allocation failing, then the second, until none is left to fail. `Ok(false)` of it is a
/// failure that is told, as it should be.
fn each(attempt: impl FnMut(&FailNth) -> Result<bool>) -> Result<String> {
    each_of(1, attempt)
}

/// The same with each so-manieth allocation.
fn each_of(step: usize, mut attempt: impl FnMut(&FailNth) -> Result<bool>) -> Result<String> {
    let fail = FailNth::open()?;
    let (mut told, mut borne) = (0, 0);
    for nth in (1..MOST).step_by(step) {
        fail.set(nth)?;
        let result = attempt(&fail);
        let left = fail.left()?;
        fail.set(0)?;
        match result.with_context(|| format!("with allocation {nth} failing"))? {
            false => told += 1,
            true if left == 0 => borne += 1,
            true => {}
        }
        if left != 0 || borne > 200 {
            return Ok(format!("{told} failures told, {borne} borne"));
        }
    }
    bail!("more than {MOST} allocations")
}

/// Errors that a failed allocation may come to.
fn request(result: Result<(), Errno>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::ENOMEM | Errno::EAGAIN | Errno::EMFILE | Errno::EFAULT) => Ok(false),
        Err(other) => Err(other).context("an errno that has no reason"),
    }
}

fn requests() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let video = gpu.export(&Layout::scattered(256 << 10))?;
    let node = Node::open(NODE)?;
    let event = EventFd::new()?;
    let memory = raw::anonymous(256 << 10, libc::PROT_READ | libc::PROT_WRITE)?;
    memory.fill(1);
    // Once as it should be, so that what is made for the first user is there.
    node.submit(&mut [entry(KV_EXIST, b"none", 0, 0, 0)], 10_000)?;
    let say = |name: &str, came: Result<String>| -> Result<()> {
        println!("{name}: {}", came.with_context(|| name.to_owned())?);
        Ok(())
    };
    say(
        "open",
        each(|_| match Node::open(NODE) {
            Ok(_) => Ok(true),
            Err(_) => Ok(false),
        }),
    )?;
    say("GET_INFO", each(|_| request(node.info().map(drop))))?;
    say("GET_STATE", each(|_| request(node.state(event.as_fd().as_raw_fd()).map(drop))))?;
    say(
        "BUFFER_ALLOC",
        each(|_| {
            let made = node.buffer_alloc(256 << 10);
            request(made.and_then(|made| node.buffer_free(made.handle)))
        }),
    )?;
    say(
        "BUFFER_REGISTER",
        each(|_| {
            let made = node.register(memory.ptr.as_ptr() as usize, memory.len, 0);
            request(made.and_then(|made| node.buffer_free(made.handle)))
        }),
    )?;
    say(
        "BUFFER_IMPORT",
        each(|_| {
            let made = node.import(&video.fd, 0, 256 << 10, 0);
            request(made.and_then(|made| node.buffer_free(made.handle)))
        }),
    )?;
    say(
        "KV_SUBMIT",
        each(|_| {
            let mut all = [entry(KV_EXIST, b"none", 0, 0, 0)];
            request(node.submit(&mut all, 10_000).map(drop))
        }),
    )?;
    say("mmap and fault", {
        let made = node.buffer_alloc(64 << 10)?;
        let came = each(|_| match node.map(made.data_offset, 64 << 10) {
            Ok(mapping) => {
                mapping.write(0, 1u8);
                Ok(true)
            }
            Err(e) => request(Err(e)),
        });
        node.buffer_free(made.handle)?;
        came
    })?;
    say(
        "QUEUE_CREATE",
        each(|_| {
            let mut created = xio_uapi::QueueCreate { entries: 64, eventfd: NO_EVENTFD, ..sized() };
            request(node.request(&mut created).and_then(|()| node.queue_destroy(created.handle)))
        }),
    )?;
    let queue = node.queue_create(64, NO_EVENTFD).context("QUEUE_CREATE")?;
    say("QUEUE_EXPORT", each(|_| request(node.export(queue.handle, xio_uapi::QUEUE_PART_CQ).map(drop))))?;
    Ok(())
}
