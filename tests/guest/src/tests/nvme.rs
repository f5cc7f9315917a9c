// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own nvme driver on the same controller, over its passthrough ioctl, and our module: both see
//! the same data.

use crate::kernel;
use crate::passthrough;
use crate::report::Report;
use crate::session::{self, Client};
use crate::tests::bench;
use crate::{fs, pci, user};
use anyhow::{ensure, Context, Result};
use nvme_kv::kv::{Command, Condition, StoreOptions};
use nvme_kv::{DataPointer, Key, Status};
use std::fs::File;

const NODE: &str = "/dev/ng0n1";

pub const CLIENTS: &[(&str, Client)] = &[("nvme-bench", |_| benchmark())];

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("ours_stores", |_| {
        kernel::load_rocm_xio("")?;
        store("by-ours", "written through the mapped queue")?;
        kernel::rmmod("rocm_xio").context("rmmod")
    });
    report.case("nvme_makes_a_generic_node_and_no_disk", |_| {
        kernel::modprobe("nvme")?;
        fs::wait_for_file(NODE, kernel::NODE_LIMIT)?;
        ensure!(!std::path::Path::new("/dev/nvme0n1").exists(), "a block device appeared");
        Ok(())
    });
    report.case("nvme_sees_what_ours_stored", |_| {
        let value = retrieve("by-ours", 4096)?;
        ensure!(value == b"written through the mapped queue", "{:?}", String::from_utf8_lossy(&value));
        Ok(())
    });
    report.case("nvme_runs_every_command", |_| commands());
    report.case("figures_of_passthrough", |report| {
        report.note(&session::run_as_root(&["nvme-bench"])?.text());
        Ok(())
    });
    report.case("ours_sees_what_nvme_stored", |_| {
        kernel::rmmod("nvme").context("rmmod nvme")?;
        kernel::load_rocm_xio("")?;
        let got = user::run(&["xio", "kv", "retrieve", "by-nvme"])?.expect_success()?;
        ensure!(got.stdout == pattern(100_000), "{} bytes", got.stdout.len());
        Ok(())
    });
    report.case("figures_of_the_mapped_queue", |report| {
        report.note(&session::run(&["bench-direct"])?.text());
        Ok(())
    });
    report.case("nvme_and_ours_by_turns", |_| {
        let address = pci::nvme_functions()?.into_iter().next().context("no controller")?;
        kernel::modprobe("nvme")?;
        for _ in 0..3 {
            pci::unbind(&address)?;
            pci::bind(&address, "nvme")?;
            fs::wait_for_file(NODE, kernel::NODE_LIMIT)?;
            pci::unbind(&address)?;
            pci::bind(&address, "rocm_xio")?;
            fs::wait_for_file(kernel::NODE, kernel::NODE_LIMIT)?;
            kernel::give_nodes_to_render()?;
            user::run(&["xio", "kv", "exist", "by-nvme"])?.expect_success()?;
        }
        Ok(())
    });
}

fn store(key: &str, text: &str) -> Result<()> {
    let file = "/tmp/value";
    std::fs::write(file, text)?;
    user::run(&["xio", "kv", "store", key, "-i", file])?.expect_success().map(drop)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| crate::raw::pattern(11, i)).collect()
}

fn run_command(command: Command, data: &mut [u8]) -> Result<(Status, u32)> {
    let node =
        File::options().read(true).write(true).open(NODE).with_context(|| format!("opening {NODE}"))?;
    passthrough::by_ioctl(&node, &command, data)
}

fn retrieve(key: &str, room: usize) -> Result<Vec<u8>> {
    let mut data = vec![0; room];
    let command = Command::Retrieve {
        key: Key::new(key.as_bytes())?,
        len: room as u32,
        options: Default::default(),
        data: DataPointer::default(),
    };
    let (status, len) = run_command(command, &mut data)?;
    ensure!(status.is_success(), "Retrieve of {key}: {status}");
    data.truncate(len as usize);
    Ok(data)
}

fn commands() -> Result<()> {
    let key = Key::new(b"by-nvme")?;
    let data = DataPointer::default();
    let mut value = pattern(100_000);
    let store = |condition| Command::Store {
        key,
        len: 100_000,
        options: StoreOptions { condition, no_compress: false },
        data,
    };
    let run = |command, data: &mut [u8]| run_command(command, data).map(|(status, _)| status);
    ensure!(run(store(Condition::IfExists), &mut value)? == Status::KEY_NOT_FOUND, "Store if-exists");
    ensure!(run(store(Condition::Always), &mut value)?.is_success(), "Store");
    ensure!(run(store(Condition::IfAbsent), &mut value)? == Status::KEY_EXISTS, "Store if-absent");
    ensure!(retrieve("by-nvme", 131_072)? == value, "Retrieve");
    ensure!(run(Command::Exist { key }, &mut [])?.is_success(), "Exist");
    let gone = Key::new(b"gone")?;
    ensure!(run(Command::Exist { key: gone }, &mut [])? == Status::KEY_NOT_FOUND, "Exist of a missing key");
    let small = Command::Store { key: gone, len: 16, options: StoreOptions::default(), data };
    ensure!(run(small, &mut [7; 16])?.is_success(), "Store");
    ensure!(run(Command::Delete { key: gone }, &mut [])?.is_success(), "Delete");
    ensure!(run(Command::Delete { key: gone }, &mut [])? == Status::KEY_NOT_FOUND, "Delete twice");
    let mut list = vec![0; 4096];
    ensure!(run(Command::List { start: None, len: 4096, data }, &mut list)?.is_success(), "List");
    let keys: Vec<Key> = nvme_kv::list::Keys::new(&list)?.collect::<Result<_, _>>()?;
    ensure!(keys == [key, Key::new(b"by-ours")?], "List: {keys:?}");
    Ok(())
}

/// 4 KiB over the passthrough ioctl.
fn benchmark() -> Result<()> {
    let node = File::options().read(true).write(true).open(NODE)?;
    let (key, mut value) = (Key::new(b"bench")?, vec![1u8; 4096]);
    let data = DataPointer::default();
    let store = Command::Store { key, len: 4096, options: Default::default(), data };
    let retrieve = Command::Retrieve { key, len: 4096, options: Default::default(), data };
    for (name, command) in [("passthrough ioctl, Store", store), ("passthrough ioctl, Retrieve", retrieve)] {
        let line = bench::line(name, || {
            let (status, _) = passthrough::by_ioctl(&node, &command, &mut value)?;
            ensure!(status.is_success(), "{name}: {status}");
            Ok(())
        })?;
        println!("{line}");
    }
    Ok(())
}
