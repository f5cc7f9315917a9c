// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demonstration: a session of an ordinary user with `xio`, shown as a transcript, each step checked.

use crate::command::Finished;
use crate::report::Report;
use crate::{command, kernel, user};
use anyhow::{ensure, Result};
use std::time::Duration;

const BIG: &str = "/data/vmlinuz";
const COPY: &str = "/tmp/copy";
const GREETING: &str = "hello from an ordinary user";
/// An emulated processor takes its time with a big value.
const LIMIT: Duration = Duration::from_secs(100);

/// Runs the session.
pub fn run(report: &mut Report, _: &[&str]) {
    report.case("module_loads_and_claims_the_controller", set_up);
    report.case("user_sees_the_controller", |report| {
        shown(report, "id")?.expect_success()?;
        let listed = shown(report, "xio list")?.expect_success()?;
        ensure!(listed.text().contains("rocm-xio0"), "the list must show rocm-xio0");
        shown(report, "xio info").and_then(Finished::expect_success).map(drop)
    });
    report.case("values_are_stored", |report| {
        shown(report, &format!("ls -l {BIG}"))?.expect_success()?;
        shown(report, &format!("xio kv store kernel -i {BIG}"))?.expect_success()?;
        shown(report, &format!("printf '{GREETING}' | xio kv store greeting -i -"))?.expect_success()?;
        Ok(())
    });
    report.case("keys_exist_and_are_listed", |report| {
        shown(report, "xio kv exist kernel greeting")?.expect_success()?;
        let keys = shown(report, "xio kv list")?.expect_success()?.text();
        ensure!(keys.contains("kernel") && keys.contains("greeting"), "both keys must be listed");
        Ok(())
    });
    report.case("values_come_back_unchanged", retrieve);
    report.case("conditions_hold", |report| {
        fails(report, "printf other | xio kv store greeting -i - --if-absent", 4)?;
        shown(report, "printf changed | xio kv store greeting -i - --if-exists")?.expect_success()?;
        Ok(())
    });
    report.case("a_manifest_goes_through_device_code", manifest);
    report.case("deleted_keys_are_gone", |report| {
        shown(report, "xio kv delete kernel greeting")?.expect_success()?;
        fails(report, "xio kv exist kernel", 3)?;
        fails(report, "xio kv retrieve greeting -o -", 3)
    });
}

fn set_up(report: &mut Report) -> Result<()> {
    ensure!(kernel::has_module(), "the machine was made without rocm_xio.ko; run ./scripts/build-kmod --vm");
    report.note("As root (on an installed system a udev rule gives the node to group render):");
    report.note("# insmod rocm_xio.ko");
    kernel::load_rocm_xio("")?;
    report.note(&format!("# chgrp render {0}; ls -l {0}", kernel::NODE));
    let listed = command::run(&["ls", "-l", kernel::NODE])?.expect_success()?;
    report.note(&listed.text());
    report.note("\nAs an ordinary user:");
    Ok(())
}

fn retrieve(report: &mut Report) -> Result<()> {
    let greeting = shown(report, "xio kv retrieve greeting -o -")?.expect_success()?;
    ensure!(greeting.stdout == GREETING.as_bytes(), "the greeting came back changed");
    shown(report, &format!("xio kv retrieve kernel -o {COPY}"))?.expect_success()?;
    let sums = shown(report, &format!("sha256sum {BIG} {COPY}"))?.expect_success()?.text();
    let digests: Vec<_> = sums.lines().filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(digests.len() == 2 && digests[0] == digests[1], "the digests differ");
    Ok(())
}

/// Shards of a file are stored and retrieved by the kernels of the device library, here as threads of the process.
fn manifest(report: &mut Report) -> Result<()> {
    shown(report, "xio gpu")?.expect_success()?;
    let lines = "for n in 0 1 2; do echo \"{\\\"key\\\":\\\"shard.$n\\\",\\\"file\\\":\\\"/tmp/shards\\\",\
                 \\\"offset\\\":$((n * 1000000)),\\\"length\\\":1000000,\\\"meta\\\":{\\\"layer\\\":$n}}\"; done";
    shown(
        report,
        &format!("head -c 3000000 {BIG} > /tmp/shards; {lines} > /tmp/manifest; cat /tmp/manifest"),
    )?
    .expect_success()?;
    shown(report, "xio kv store --gpu=host --manifest /tmp/manifest")?.expect_success()?;
    shown(report, "mv /tmp/shards /tmp/original")?.expect_success()?;
    shown(report, "xio kv retrieve --gpu=host --batch 3 --manifest /tmp/manifest")?.expect_success()?;
    shown(report, "cmp /tmp/shards /tmp/original && echo the same")?.expect_success()?;
    shown(report, "xio kv delete --gpu=host --manifest /tmp/manifest")
        .and_then(Finished::expect_success)
        .map(drop)
}

/// Runs a line of shell as the ordinary user and shows it as a terminal would.
fn shown(report: &mut Report, line: &str) -> Result<Finished> {
    report.note(&format!("$ {line}"));
    let finished = user::run_within(&["sh", "-c", line], LIMIT)?;
    report.note(&finished.text());
    report.note(&finished.stderr);
    if finished.code != 0 {
        report.note(&format!("(exit code {})", finished.code));
    }
    Ok(finished)
}

/// Shows a command that must fail with this exit code.
fn fails(report: &mut Report, line: &str, code: i32) -> Result<()> {
    shown(report, line)?.expect_code(code).map(drop)
}
