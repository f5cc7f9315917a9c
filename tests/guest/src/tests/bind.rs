// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio bind`, `xio unbind` and `xio doctor`. The machine has QEMU's NVMe disk, and after it a Key Value controller.

use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::report::Report;
use crate::tests::bind_disk::{self, DISK, PARTITION};
use crate::{command, fs, pci, user};
use anyhow::{ensure, Context, Result};
use std::fs::File;

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("doctor_without_the_module", |report| {
        let found = command::run(&["xio", "doctor"])?.expect_code(9)?.text();
        report.note(&found);
        ensure!(found.contains("rocm_xio is not loaded") && found.contains("insmod rocm_xio.ko"), "{found}");
        let refused = command::run(&["xio", "bind", &kv()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains("the module is not loaded"), "{refused}");
        Ok(())
    });
    report.case("doctor_tells_the_disk_from_the_controller", |report| {
        ["romfs", "loop", "md-mod", "dm-mod"].into_iter().try_for_each(kernel::modprobe)?;
        kernel::insmod(kernel::MODULE, "claim=override").context("insmod")?;
        // The first, and so number 0.
        pci::override_driver(&kv()?, "none")?;
        kernel::modprobe("nvme")?;
        fs::wait_for_file(DISK, NODE_LIMIT)?;
        pci::override_driver(&kv()?, "")?;
        pci::bind(&kv()?, "nvme")?;
        bind_disk::prepare()?;
        fs::wait_for("a generic node", NODE_LIMIT, || Ok(generic()?.is_some()))?;
        let found = doctor(9)?;
        report.note(&found);
        let lines = [
            format!("{}: no Key Value controller, with nvme: nvme0n1", disk()?),
            format!("{}: a Key Value controller, with nvme", kv()?),
            format!("-> xio bind {}", kv()?),
        ];
        ensure!(lines.iter().all(|line| found.contains(line)), "{lines:?}");
        let json = user::run(&["xio", "doctor", "-o", "json"])?.expect_code(9)?.text();
        ensure!(json.contains(r#""key_value": "no""#) && json.contains(r#""key_value": "yes""#), "{json}");
        Ok(())
    });
    report.case("only_root_may_bind", |_| {
        let refused = user::run(&["xio", "bind", &disk()?])?.expect_code(7)?.stderr;
        ensure!(refused.contains("only root may"), "{refused}");
        Ok(())
    });
    bind_disk::refusals(report);
    report.case("what_is_no_controller_is_refused", |_| {
        let other = pci::functions_with("class", "0x060000")?.into_iter().next().context("no bridge")?;
        let refused = command::run(&["xio", "bind", &other])?.expect_code(6)?.stderr;
        ensure!(refused.contains("is no NVMe controller: its class is 0x060000"), "{refused}");
        command::run(&["xio", "bind", "00:1d.7"])?.expect_code(8)?;
        command::run(&["xio", "bind", "00:1d"])?.expect_code(2)?;
        let refused = command::run(&["xio", "unbind", &disk()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains("is not with rocm_xio: nvme has it"), "{refused}");
        Ok(())
    });
    report.case("a_disk_that_nobody_uses_goes_back_to_nvme_with_its_data", |report| {
        let refused = command::run(&["xio", "bind", &disk()?])?.expect_code(6)?.stderr;
        report.note(&refused);
        ensure!(
            refused.contains("rocm_xio did not take it") && refused.contains("; nvme has it, as before"),
            "{refused}"
        );
        ensure!(refused.contains("without the Key Value command set"), "{refused}");
        bind_disk::is_whole()?;
        bind_disk::is_mounted_and(PARTITION, || Ok(()))
    });
    report.case("a_controller_is_given_to_the_module_and_used", |_| {
        // Domain 0000 is meant.
        let address = kv()?;
        let given =
            command::run(&["xio", "bind", address.trim_start_matches("0000:")])?.expect_success()?.text();
        ensure!(given.contains(&format!("{address}: rocm_xio has it now, as {NODE}")), "{given}");
        let again = command::run(&["xio", "bind", &address])?.expect_success()?.text();
        ensure!(again.contains("has it already"), "{again}");
        kernel::give_nodes_to_render()?;
        work("first")
    });
    report.case("doctor_finds_no_problem", |report| {
        let found = doctor(0)?;
        report.note(&found);
        let line = format!("{}: a Key Value controller, with rocm_xio as {NODE}", kv()?);
        ensure!(
            found.contains(&line) && found.contains("no problems") && found.contains("this user may open it"),
            "{line}"
        );
        let outside = user::run_outside_render(&["xio", "doctor"])?.expect_code(9)?.text();
        ensure!(outside.contains("is not in group render"), "{outside}");
        Ok(())
    });
    report.case("a_controller_in_use_is_not_taken_back", |_| {
        let node = File::options().read(true).write(true).open(NODE)?;
        let refused = command::run(&["xio", "unbind", &kv()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains(&format!("{NODE} is open in init (process 1)")), "{refused}");
        drop(node);
        work("still there")
    });
    report.case("a_controller_goes_back_and_forth", |_| {
        for _ in 0..3 {
            let given = command::run(&["xio", "unbind", &kv()?])?.expect_success()?.text();
            ensure!(given.contains("nvme has it now"), "{given}");
            fs::wait_for("a generic node", NODE_LIMIT, || Ok(generic()?.is_some()))?;
            ensure!(pci::driver(&kv()?)?.as_deref() == Some("nvme"), "nvme does not have it");
            command::run(&["xio", "bind", &kv()?])?.expect_success()?;
            kernel::give_nodes_to_render()?;
            user::run(&["xio", "kv", "exist", "still there"])?.expect_success()?;
        }
        Ok(())
    });
    report.case("an_open_generic_node_is_named", |_| {
        command::run(&["xio", "unbind", &kv()?])?.expect_success()?;
        fs::wait_for("a generic node", NODE_LIMIT, || Ok(generic()?.is_some()))?;
        let path = generic()?.context("the generic node vanished")?;
        let node = File::open(&path)?;
        let refused = command::run(&["xio", "bind", &kv()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains(&format!("{path} is open in init (process 1)")), "{refused}");
        drop(node);
        command::run(&["xio", "bind", &kv()?])?.expect_success().map(drop)
    });
    report.case("a_controller_that_vfio_lends_out_is_named", |_| {
        kernel::modprobe("vfio-pci")?;
        let address = kv()?;
        command::run(&["xio", "unbind", &address])?.expect_success()?;
        pci::override_driver(&address, "vfio-pci")?;
        pci::unbind(&address)?;
        pci::bind(&address, "vfio-pci")?;
        let group = std::fs::read_link(pci::path(&address).join("iommu_group"))?;
        let group = format!("/dev/vfio/{}", group.file_name().context("no group")?.to_string_lossy());
        fs::wait_for_file(&group, NODE_LIMIT)?;
        let open = File::options().read(true).write(true).open(&group)?;
        let refused = command::run(&["xio", "bind", &address])?.expect_code(8)?.stderr;
        ensure!(refused.contains(&format!("{group} is open in init (process 1)")), "{refused}");
        drop(open);
        command::run(&["xio", "bind", &address])?.expect_success().map(drop)
    });
    report.case("without_nvme_a_controller_is_left_without_driver", |_| {
        kernel::rmmod("nvme").context("rmmod nvme")?;
        let given = command::run(&["xio", "unbind", &kv()?])?.expect_success()?.text();
        ensure!(given.contains("no driver has it now"), "{given}");
        ensure!(doctor(9)?.contains("whether it is for Key Value is not known"), "doctor");
        Ok(())
    });
}

/// The disk's address.
pub fn disk() -> Result<String> {
    pci::nvme_functions()?.into_iter().next().context("no disk")
}

fn kv() -> Result<String> {
    pci::nvme_functions()?.into_iter().next_back().context("no controller")
}

/// The generic node of the controller, when nvme has it.
fn generic() -> Result<Option<String>> {
    let folder = pci::path(&kv()?).join("nvme");
    let Some(controller) = std::fs::read_dir(folder)?.next() else { return Ok(None) };
    for entry in std::fs::read_dir(controller?.path())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("ng") {
            return Ok(Some(format!("/dev/{name}")));
        }
    }
    Ok(None)
}

/// What the ordinary user is told.
pub fn doctor(code: i32) -> Result<String> {
    Ok(user::run(&["xio", "doctor"])?.expect_code(code)?.text())
}

/// Stores and retrieves.
fn work(key: &str) -> Result<()> {
    std::fs::write("/tmp/value", key)?;
    user::run(&["xio", "kv", "store", key, "-i", "/tmp/value"])?.expect_success()?;
    let got = user::run(&["xio", "kv", "retrieve", key])?.expect_success()?;
    ensure!(got.stdout == key.as_bytes(), "{:?}", got.text());
    Ok(())
}
