// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which controllers the module takes. The machine has QEMU's NVMe disk, a controller without Key Value and one
//! with, in this order of their addresses.

use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::report::Report;
use crate::tests::{abi::expect, life};
use crate::{command, fs, pci, session};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

const PATTERN_LEN: usize = 1 << 20;

/// The disk under whatever number nvme gave it this time.
fn disk() -> Result<String> {
    let find = || (0..4).map(|n| format!("/dev/nvme{n}n1")).find(|disk| std::path::Path::new(disk).exists());
    fs::wait_for("the disk appearing", NODE_LIMIT, || Ok(find().is_some()))?;
    find().context("the disk vanished")
}

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_has_no_alias", |_| {
        let info = std::fs::read(kernel::MODULE)?;
        let alias = info.windows(10).any(|w| w == b"alias=pci:");
        ensure!(!alias, "udev would load the module for every NVMe disk");
        Ok(())
    });
    report.case("bad_parameter_is_refused", |_| {
        expect("claim=nonsense", kernel::insmod(kernel::MODULE, "claim=nonsense"), Errno::EINVAL)
    });
    report.case("disk_gets_data", |_| {
        kernel::modprobe("nvme")?;
        write_pattern()
    });
    report.case("nothing_is_taken_from_another_driver", |_| {
        let before = drivers()?;
        ensure!(before.iter().all(|(_, driver)| driver.as_deref() == Some("nvme")), "{before:?}");
        kernel::insmod(kernel::MODULE, "")?;
        ensure!(drivers()? == before, "{before:?} became {:?}", drivers()?);
        ensure!(!std::path::Path::new(NODE).exists(), "a node appeared");
        check_pattern()?;
        kernel::rmmod("rocm_xio").context("rmmod")
    });
    report.case("only_the_kv_controller_is_claimed", |_| {
        kernel::rmmod("nvme").context("rmmod nvme")?;
        kernel::load_rocm_xio("")?;
        let taken = drivers()?.into_iter().filter(|(_, d)| d.as_deref() == Some("rocm_xio")).count();
        ensure!(taken == 1, "{:?}", drivers()?);
        for (address, driver) in drivers()? {
            if driver.is_none() {
                life::is_quiet(&address)?;
            }
        }
        session::run(&["life-work"]).map(drop)
    });
    report.case("refused_disk_is_taken_by_nvme_with_its_data", |_| {
        kernel::modprobe("nvme")?;
        check_pattern()?;
        kernel::rmmod("nvme").context("rmmod nvme")?;
        kernel::rmmod("rocm_xio").context("rmmod")
    });
    report.case("override_claims_only_what_is_given", |_| {
        kernel::insmod(kernel::MODULE, "claim=override")?;
        ensure!(drivers()?.iter().all(|(_, d)| d.is_none()), "{:?}", drivers()?);
        let (address, _) = drivers()?.into_iter().next_back().context("no controller")?;
        pci::override_driver(&address, "rocm_xio")?;
        fs::write("/sys/bus/pci/drivers_probe", &address)?;
        fs::wait_for_file(NODE, NODE_LIMIT)?;
        kernel::give_nodes_to_render()?;
        session::run(&["life-work"])?;
        pci::override_driver(&address, "")?;
        kernel::rmmod("rocm_xio").context("rmmod")
    });
    report.case("messages_say_what_was_refused", |_| {
        let log = kernel::messages()?.join("\n");
        ensure!(log.contains("without the Key Value command set"), "nothing about the disk");
        ensure!(log.contains("CAP.CSS bit 6"), "nothing about the other controller");
        Ok(())
    });
}

fn drivers() -> Result<Vec<(String, Option<String>)>> {
    pci::nvme_functions()?.into_iter().map(|a| pci::driver(&a).map(|d| (a, d))).collect()
}

fn pattern() -> Vec<u8> {
    (0..PATTERN_LEN).map(|i| crate::raw::pattern(5, i)).collect()
}

fn write_pattern() -> Result<()> {
    let mut disk = std::fs::OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(disk()?)?;
    disk.write_all(&pattern()).context("writing to the disk")?;
    check_pattern()
}

fn check_pattern() -> Result<()> {
    // Not what the page cache remembers.
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let mut disk = std::fs::File::open(disk()?)?;
    disk.seek(SeekFrom::Start(0))?;
    let mut bytes = vec![0; PATTERN_LEN];
    disk.read_exact(&mut bytes)?;
    ensure!(bytes == pattern(), "the disk's data changed");
    command::run(&["sync"])?.expect_success().map(drop)
}
