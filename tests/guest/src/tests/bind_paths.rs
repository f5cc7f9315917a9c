// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio bind` of a disk with two controllers: in use by way of either, it is refused by both.

use crate::kernel::{self, NODE_LIMIT};
use crate::report::Report;
use crate::tests::bind::doctor;
use crate::{command, fs, pci};
use anyhow::{ensure, Context, Result};
use std::fs::File;

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("both_paths_lead_to_the_disk", |_| {
        kernel::modprobe("nvme")?;
        kernel::insmod(kernel::MODULE, "claim=override").context("insmod")?;
        fs::wait_for("both paths", NODE_LIMIT, || Ok(paths()?.len() == 2))?;
        fs::wait_for_file(&format!("/dev/nvme{}", disk()?), NODE_LIMIT)
    });
    report.case("a_disk_in_use_is_refused_by_each_path", |_| {
        for node in [format!("/dev/nvme{}", disk()?), format!("/dev/ng{}", disk()?)] {
            let open = File::open(&node)?;
            for address in pci::nvme_functions()? {
                let refused = command::run(&["xio", "bind", &address])?.expect_code(8)?.stderr;
                ensure!(refused.contains(&format!("{node} is open in init (process 1)")), "{refused}");
            }
            drop(open);
        }
        ensure!(paths()?.len() == 2, "a path is gone: {:?}", paths()?);
        Ok(())
    });
    report.case("a_path_that_nobody_uses_goes_back", |report| {
        for address in pci::nvme_functions()? {
            let refused = command::run(&["xio", "bind", &address])?.expect_code(6)?.stderr;
            report.note(&refused);
            fs::wait_for("both paths", NODE_LIMIT, || Ok(paths()?.len() == 2))?;
        }
        let found = doctor(9)?;
        report.note(&found);
        ensure!(found.matches("no Key Value controller, with nvme").count() == 2, "{found}");
        Ok(())
    });
}

/// The paths, such as `nvme0c1n1`.
fn paths() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for address in pci::nvme_functions()? {
        let folder = pci::path(&address).join("nvme");
        // There is none while nvme does not have the controller.
        for controller in std::fs::read_dir(folder).into_iter().flatten() {
            for entry in std::fs::read_dir(controller?.path())? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                found.extend(Some(name).filter(|name| name.starts_with("nvme") && name.ends_with("n1")));
            }
        }
    }
    Ok(found)
}

/// The numbers of the disk, `0n1`: those of either controller may be first.
fn disk() -> Result<String> {
    let path = paths()?.into_iter().next().context("no path")?;
    let number =
        path.strip_prefix("nvme").and_then(|rest| rest.split_once('c')).context("no path to several")?.0;
    Ok(format!("{number}n1"))
}
