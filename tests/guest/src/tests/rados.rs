// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller whose pairs are in a Ceph cluster: what is stored here is looked for there by the host.

use crate::report::Report;
use crate::{kernel, user};
use anyhow::ensure;

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("stores_and_retrieves", |_| {
        kernel::load_rocm_xio("")?;
        let value: Vec<u8> = (0..1_000_000).map(|n| crate::raw::pattern(5, n)).collect();
        std::fs::write("/tmp/value", &value)?;
        user::run(&["xio", "kv", "store", "from-the-vm", "-i", "/tmp/value"])?.expect_success()?;
        user::run(&["xio", "kv", "exist", "from-the-vm"])?.expect_success()?;
        let got = user::run(&["xio", "kv", "retrieve", "from-the-vm"])?.expect_success()?;
        ensure!(got.stdout == value, "{} bytes", got.stdout.len());
        let listed = user::run(&["xio", "kv", "list"])?.expect_success()?.text();
        ensure!(listed.contains("from-the-vm"), "{listed}");
        Ok(())
    });
}
