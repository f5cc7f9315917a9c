// SPDX-License-Identifier: MIT OR Apache-2.0
//! The groups of tests. To add tests:
//!
//! 1. Write a file here, `tests/NAME.rs`, with a function that runs its cases:
//!
//!    ```ignore
//!    pub fn run(report: &mut Report, arguments: &[&str]) {
//!        report.case("rule_that_it_proves", |report| {
//!            kernel::load_rocm_xio("")?;                        // errors fail the case
//!            let listed = user::run(&["xio", "list"])?.expect_success()?;
//!            assert!(listed.text().contains("rocm-xio0"));      // so do panics
//!            Ok(())
//!        });
//!    }
//!    ```
//! 2. Add `mod NAME;` and a line to [`GROUPS`].
//! 3. Add a case with a machine to `tests/vm/src/cases.rs`.
//!
//! What must run as a process of its own, as the ordinary user mostly, is a client: a line in the group's `CLIENTS`,
//! started by the functions of `session`.
//!
//! Cases of a group share one machine and run in order. At the end the kernel's messages are checked; messages
//! that belong to a test are announced with `report.allow_kernel_message`.

pub mod abi;
pub mod bench;
mod bind;
mod bind_disk;
mod bind_paths;
mod claim;
mod cmb;
mod direct;
mod failslab;
mod fakegpu;
mod faults;
mod gpu;
mod interop;
mod kexec;
mod kv;
mod kv_command;
mod kv_ways;
pub mod life;
mod lifecycle;
mod mediated;
mod nvme;
mod peer;
mod rados;
mod recover;
mod share;
mod smoke;
mod trust;

use crate::demo;
use crate::report::Report;
use crate::session::Client;

type Group = fn(&mut Report, &[&str]);

/// All groups by name.
const GROUPS: &[(&str, Group)] = &[
    ("abi", abi::run),
    ("bind", bind::run),
    ("bind-paths", bind_paths::run),
    ("claim", claim::run),
    ("cmb", cmb::run),
    ("demo", demo::run),
    ("direct", direct::run),
    ("fakegpu", fakegpu::run),
    ("failslab", failslab::run),
    ("faults", faults::run),
    ("gpu", gpu::run),
    ("interop", interop::run),
    ("kexec", kexec::run),
    ("kv", kv::run),
    ("kv-small", kv::run_small),
    ("kv-two", kv::run_two),
    ("kv-ways", kv_ways::run),
    ("life", life::run),
    ("lifecycle", lifecycle::run),
    ("mediated", mediated::run),
    ("mediated-small", mediated::run_small),
    ("nvme", nvme::run),
    ("peer", peer::run),
    ("probe", smoke::probe),
    ("rados", rados::run),
    ("recover", recover::run),
    ("share", share::run),
    ("smoke", smoke::run),
    ("trust", trust::run),
];

/// The clients of all groups.
const CLIENTS: &[&[(&str, Client)]] = &[
    abi::CLIENTS,
    bench::CLIENTS,
    bind_disk::CLIENTS,
    cmb::CLIENTS,
    direct::CLIENTS,
    failslab::CLIENTS,
    faults::CLIENTS,
    gpu::CLIENTS,
    interop::CLIENTS,
    kv::CLIENTS,
    kv_ways::CLIENTS,
    life::CLIENTS,
    lifecycle::CLIENTS,
    mediated::CLIENTS,
    nvme::CLIENTS,
    peer::CLIENTS,
    recover::CLIENTS,
    share::CLIENTS,
    trust::CLIENTS,
];

/// The client of this name.
pub fn client(name: &str) -> Option<Client> {
    CLIENTS.iter().copied().flatten().find(|(client, _)| *client == name).map(|(_, run)| *run)
}

/// Runs the group of this name.
pub fn run(name: &str, arguments: &[&str], report: &mut Report) {
    match GROUPS.iter().find(|(group, _)| *group == name) {
        Some((_, run)) => run(report, arguments),
        None => report.case(name, |_| anyhow::bail!("there is no group of tests of this name")),
    }
}
