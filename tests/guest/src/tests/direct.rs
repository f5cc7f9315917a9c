// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may have direct queues where no IOMMU confines the device.

use crate::kernel::{self, NODE};
use crate::raw::{Buffer, Node, Queue};
use crate::report::Report;
use crate::session::{self, Client};
use crate::tests::abi::expect;
use crate::tests::life;
use crate::{fs, user};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;

pub const CLIENTS: &[(&str, Client)] = &[
    ("direct-refused", |_| refused()),
    ("direct-unsafe", |_| unsafe_direct()),
    ("direct-freed", |_| freed()),
];

/// The machine has no IOMMU, or one that passes everything through (argument `identity`), does not remap
/// interrupts (`interrupts`), or has the controller in a group with another (`group`).
pub fn run(report: &mut Report, arguments: &[&str]) {
    let untranslated = xio_uapi::UNCONFINED_NOT_TRANSLATED;
    let (kind, gap) = match arguments {
        ["identity"] => (xio_uapi::IOMMU_IDENTITY, untranslated),
        ["interrupts"] => (xio_uapi::IOMMU_TRANSLATED_LAZY, xio_uapi::UNCONFINED_INTERRUPTS),
        ["group"] => (xio_uapi::IOMMU_TRANSLATED, xio_uapi::UNCONFINED_GROUP),
        _ => (xio_uapi::IOMMU_NONE, untranslated),
    };
    report.case("module_loads", |_| kernel::load_rocm_xio(""));
    report.case("what_is_missing_is_said", |_| {
        let info = Node::open(NODE)?.info()?;
        ensure!(info.iommu == kind, "iommu {}", info.iommu);
        ensure!(info.unconfined & gap != 0, "unconfined {:#x}", info.unconfined);
        Ok(())
    });
    report.case("ordinary_user_is_refused", |_| session::run(&["direct-refused"]).map(drop));
    report.case("command_says_why_and_what_to_do", |_| {
        let refused = user::run(&["xio", "kv", "exist", "key"])?.expect_code(7)?;
        for word in ["IOMMU", "unsafe_direct", "CAP_SYS_RAWIO"] {
            ensure!(refused.stderr.contains(word), "the message does not name {word}: {}", refused.stderr);
        }
        Ok(())
    });
    report.case("rawio_may_and_that_taints", |_| {
        ensure!(!is_tainted_by_user()?, "tainted before");
        session::run_as_root(&["life-work"])?;
        ensure!(is_tainted_by_user()?, "an unconfined device in use does not taint the kernel");
        Ok(())
    });
    if gap == untranslated {
        report.case("freed_memory_is_kept_while_a_queue_could_reach_it", |_| {
            session::run_as_root(&["direct-freed"]).map(drop)
        });
    }
    report.case("nothing_is_left", |_| life::nothing_is_left());
    report.case("unsafe_direct_lets_everybody", |_| {
        kernel::rmmod("rocm_xio").context("rmmod")?;
        kernel::load_rocm_xio("unsafe_direct=1")?;
        session::run(&["direct-unsafe"])?;
        session::run(&["life-work"]).map(drop)
    });
}

/// TAINT_USER, "taint requested by userspace application".
fn is_tainted_by_user() -> Result<bool> {
    Ok(fs::number("/proc/sys/kernel/tainted")? >> 6 & 1 == 1)
}

fn refused() -> Result<()> {
    let node = Node::open(NODE)?;
    let info = node.info()?;
    let kinds = info.queue_kinds == xio_uapi::QUEUE_KIND_MEDIATED;
    ensure!(info.direct == xio_uapi::DIRECT_REFUSED && kinds, "direct {}", info.direct);
    expect("QUEUE_CREATE", node.queue_create(8, -1), Errno::EPERM)?;
    // Memory for the kernel's queue, whose physical addresses are not told.
    let buffer = node.buffer_alloc(4096)?;
    node.map(buffer.data_offset, 4096).context("mapping the data")?;
    let table = node.map_with(buffer.table_offset, 4096, libc::PROT_READ, libc::MAP_SHARED);
    expect("mapping the table", table, Errno::EPERM)
}

fn unsafe_direct() -> Result<()> {
    let direct = Node::open(NODE)?.info()?.direct;
    ensure!(direct == xio_uapi::DIRECT_UNSAFE, "direct {direct}");
    Ok(())
}

/// Without IOMMU a queue could still write to a buffer after it was freed, so the memory waits for the queue.
fn freed() -> Result<()> {
    let node = Node::open(NODE)?;
    ensure!(node.info()?.direct == xio_uapi::DIRECT_RAWIO, "direct {}", node.info()?.direct);
    let queue = Queue::new(&node, 8)?;
    let pages = || Ok::<_, anyhow::Error>(life::counters("rocm-xio0")?["pages"]);
    let without = pages()?;
    let buffer = Buffer::new(&node, 1 << 20)?;
    let with = pages()?;
    ensure!(with == without + 256, "{without} pages, then {with}");
    node.buffer_free(buffer.allocated.handle)?;
    expect("freed twice", node.buffer_free(buffer.allocated.handle), Errno::ENOENT)?;
    ensure!(pages()? == with, "the pages were given back while the queue could reach them");
    node.queue_destroy(queue.created.handle)?;
    ensure!(pages()? == 0, "{} pages are left", pages()?);
    Ok(())
}
