// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the machine itself is as the other tests expect it. Argument `iommu`: it has an IOMMU.

use crate::report::Report;
use crate::{command, fs, host, kernel, pci, user};
use anyhow::{ensure, Context, Result};
use std::time::Duration;

/// The least that a guest can do; the host uses it to find out whether KVM works.
pub fn probe(report: &mut Report, _: &[&str]) {
    report.case("guest_boots", |_| Ok(()));
}

pub fn run(report: &mut Report, arguments: &[&str]) {
    report.case("kernel_is_the_stock_one", |report| {
        report.note(&fs::read("/proc/version")?);
        Ok(())
    });
    report.case("ordinary_user_is_one", |_| ordinary_user());
    report.case("deadlines_hold", |_| {
        let late = command::run_within(&["sleep", "30"], Duration::from_millis(200));
        ensure!(late.is_err(), "a program that takes too long must be an error");
        Ok(())
    });
    report.case("host_answers", |report| {
        let status = host::qmp(report, r#"{"execute":"query-status"}"#)?;
        ensure!(status.contains("running"), "QEMU says {status}");
        ensure!(host::kill(report, 9).is_err(), "there is no controller 9");
        Ok(())
    });
    report.case("nvme_driver_serves_an_ordinary_disk", |_| {
        kernel::modprobe("nvme")?;
        fs::wait_for_file("/dev/nvme0n1", kernel::NODE_LIMIT)
    });
    report.case("disk_can_be_unbound_and_bound", |_| unbind_and_bind());
    if arguments.contains(&"iommu") {
        report.case("iommu_translates", |report| {
            let address = disk()?;
            let domain = pci::iommu_domain(&address)?.context("the disk has no IOMMU group")?;
            report.note(&format!("domain type {domain}"));
            ensure!(domain.starts_with("DMA"), "the domain is {domain}");
            Ok(())
        });
    }
    if kernel::has_module() {
        report.case("module_loads_and_unloads", |_| {
            kernel::insmod(kernel::MODULE, "").context("insmod")?;
            kernel::rmmod("rocm_xio").context("rmmod")
        });
    } else {
        report.skip("module_loads_and_unloads", "rocm_xio.ko was not built");
    }
}

fn ordinary_user() -> Result<()> {
    let finished = user::run(&["id"])?.expect_success()?;
    let text = finished.text();
    ensure!(text.contains("uid=1000(user)") && text.contains("105(render)"), "id says {text}");
    user::run_outside_render(&["sh", "-c", "! id | grep -q render"])?.expect_success()?;
    user::run(&["sh", "-c", "exit 7"])?.expect_code(7)?;
    Ok(())
}

fn disk() -> Result<String> {
    pci::nvme_functions()?.into_iter().next().context("no PCI function of class NVMe")
}

fn unbind_and_bind() -> Result<()> {
    let address = disk()?;
    ensure!(pci::driver(&address)?.as_deref() == Some("nvme"), "the disk is not the nvme driver's");
    pci::unbind(&address)?;
    ensure!(pci::driver(&address)?.is_none(), "the disk still has a driver");
    pci::bind(&address, "nvme")?;
    fs::wait_for_file("/dev/nvme0n1", kernel::NODE_LIMIT)
}
