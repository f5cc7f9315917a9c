// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others wrote, on our controller: the kernel's nvme driver, for root and for an ordinary user, with ioctls and
//! io_uring commands, and Debian's nvme-cli.

use crate::command::{self, Finished};
use crate::report::Report;
use crate::session::{self, Client};
use crate::{fs, kernel, passthrough};
use anyhow::{bail, ensure, Context, Result};
use nvme_kv::kv::{Command, Condition, StoreOptions};
use nvme_kv::{list, DataPointer, Key, Status};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;

const NODES: [&str; 2] = ["/dev/ng0n1", "/dev/ng0n2"];
const CONTROLLER: &str = "/dev/nvme0";
const NVME: &str = "/usr/sbin/nvme";

pub const CLIENTS: &[(&str, Client)] =
    &[("interop-commands", |words| commands(words)), ("interop-read-only", |_| read_only())];

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("nvme_finds_both_namespaces", |_| {
        kernel::modprobe("nvme")?;
        for node in NODES {
            fs::wait_for_file(node, kernel::NODE_LIMIT)?;
            std::fs::set_permissions(node, std::fs::Permissions::from_mode(0o666)).context("chmod")?;
        }
        Ok(())
    });
    for how in ["ioctl", "uring"] {
        report.case(&format!("root_with_{how}"), |_| {
            session::run_as_root(&["interop-commands", how]).map(drop)
        });
        report.case(&format!("user_with_{how}"), |_| session::run(&["interop-commands", how]).map(drop));
    }
    report.case("user_without_write_access_reads_only", |_| session::run(&["interop-read-only"]).map(drop));
    if !std::path::Path::new(NVME).exists() {
        report.skip("nvme_cli", "nvme-cli is not in this machine: run the suite interop");
        return;
    }
    report.case("nvme_cli_identifies", |_| identify());
    report.case("nvme_cli_reads_logs_and_features", |_| logs());
    report.case("nvme_cli_runs_every_command", |_| nvme_cli());
}

/// The node of namespace 1: the driver numbers nodes in the order in which it happens to find the namespaces.
fn node() -> Result<&'static str> {
    for node in NODES {
        if passthrough::namespace(&File::open(node)?)? == 1 {
            return Ok(node);
        }
    }
    bail!("no node of namespace 1")
}

type Passthrough = fn(&File, &Command, &mut [u8]) -> Result<(Status, u32)>;

fn key(text: &str) -> Result<Key> {
    Ok(Key::new(text.as_bytes())?)
}

/// Every command, in the way named.
fn commands(words: &[&str]) -> Result<()> {
    let pass: Passthrough = match words {
        ["ioctl"] => passthrough::by_ioctl,
        ["uring"] => passthrough::by_uring,
        _ => bail!("no way named"),
    };
    let node = File::options().read(true).write(true).open(node()?)?;
    let (key, data) = (key("interop key 0123")?, DataPointer::default());
    let mut value: Vec<u8> = (0..100_000).map(|n| crate::raw::pattern(3, n)).collect();
    let store = |condition| Command::Store {
        key,
        len: 100_000,
        options: StoreOptions { condition, no_compress: false },
        data,
    };
    let status = |command, data: &mut [u8]| pass(&node, &command, data).map(|(status, _)| status);
    ensure!(status(store(Condition::IfExists), &mut value)? == Status::KEY_NOT_FOUND, "Store if-exists");
    ensure!(status(store(Condition::IfAbsent), &mut value)?.is_success(), "Store if-absent");
    ensure!(status(store(Condition::IfAbsent), &mut value)? == Status::KEY_EXISTS, "Store twice");
    let mut small = vec![0; 4096];
    let retrieve = |len| Command::Retrieve { key, len, options: Default::default(), data };
    let (done, len) = pass(&node, &retrieve(4096), &mut small)?;
    ensure!(done.is_success() && len == 100_000 && small == value[..4096], "a cut Retrieve: {done}, {len}");
    let mut all = vec![0; 100_000];
    ensure!(status(retrieve(100_000), &mut all)?.is_success() && all == value, "Retrieve");
    ensure!(status(Command::List { start: None, len: 4096, data }, &mut small)?.is_success(), "List");
    ensure!(list::Keys::new(&small)?.next() == Some(Ok(key)), "the list");
    ensure!(status(Command::Exist { key }, &mut [])?.is_success(), "Exist");
    ensure!(status(Command::Delete { key }, &mut [])?.is_success(), "Delete");
    ensure!(status(Command::Exist { key }, &mut [])? == Status::KEY_NOT_FOUND, "Exist of nothing");
    Ok(())
}

/// What changes nothing is allowed on a node that was opened for reading, and nothing else.
fn read_only() -> Result<()> {
    let node = File::options().read(true).open(node()?)?;
    let (status, _) = passthrough::by_ioctl(&node, &Command::Exist { key: key("nothing")? }, &mut [])?;
    ensure!(status == Status::KEY_NOT_FOUND, "Exist: {status}");
    let delete = passthrough::by_ioctl(&node, &Command::Delete { key: key("nothing")? }, &mut []);
    ensure!(delete.is_err(), "Delete on a node that was opened for reading");
    Ok(())
}

fn nvme(words: &[&str]) -> Result<Finished> {
    command::run(&[&[NVME], words].concat())
}

fn says(words: &[&str], expected: &[&str]) -> Result<()> {
    let text = nvme(words)?.expect_success()?.text();
    for part in expected {
        ensure!(text.contains(part), "`nvme {}` does not say {part:?}:\n{text}", words.join(" "));
    }
    Ok(())
}

fn identify() -> Result<()> {
    says(
        &["id-ctrl", CONTROLLER],
        &["rocm-xio software KV controller", "cntrltype : 1", "oacs      : 0x100"],
    )?;
    says(&["list-ns", CONTROLLER, "--csi=1"], &["0x1", "0x2"])?;
    says(&["ns-descs", CONTROLLER, "-n", "1"], &["csi", "uuid"])?;
    // Identify of a namespace for command set 1: capacity in the first 8 bytes, one format of 16-byte keys.
    let words = ["admin-passthru", CONTROLLER, "-O", "0x06", "-n", "1", "--cdw10=0x05", "--cdw11=0x01000000"];
    let raw = nvme(&[&words[..], &["-l", "4096", "-r", "-b"]].concat())?.expect_success()?.stdout;
    ensure!(raw.len() == 4096 && raw[..8] == (1u64 << 30).to_le_bytes() && raw[72] == 16, "{:?}", &raw[..90]);
    Ok(())
}

fn logs() -> Result<()> {
    says(&["smart-log", CONTROLLER], &["critical_warning", "host_read_commands", "media_errors"])?;
    says(&["error-log", CONTROLLER], &["Error Log Entries"])?;
    says(&["fw-log", CONTROLLER], &["frs1"])?;
    says(&["supported-log-pages", CONTROLLER], &["0x5"])?;
    // ACS, then the commands of command set 1.
    says(&["effects-log", CONTROLLER, "--csi=1"], &["ACS6", "IOCS1"])?;
    says(&["get-feature", CONTROLLER, "-f", "7"], &["0x001e001e"])
}

fn nvme_cli() -> Result<()> {
    let node = node()?;
    std::fs::write("/tmp/value", "a value from nvme-cli")?;
    // The key "hello".
    let io = |opcode: &str, more: &[&str]| {
        let words = ["io-passthru", node, "-O", opcode, "-n", "1", "--cdw2=0x6c6c6568", "--cdw3=0x6f"];
        nvme(&[&words[..], more].concat())
    };
    let key = "--cdw11=5";
    io("0x01", &["--cdw10=21", key, "-l", "21", "-w", "-i", "/tmp/value"])?.expect_success()?;
    let got = io("0x02", &["--cdw10=4096", key, "-l", "4096", "-r", "-b"])?.expect_success()?;
    ensure!(got.stdout.starts_with(b"a value from nvme-cli\0"), "{:?}", got.text());
    io("0x14", &[key])?.expect_success()?;
    let listed = io("0x06", &["--cdw10=4096", "--cdw11=0", "-l", "4096", "-r", "-b"])?.expect_success()?;
    ensure!(listed.stdout.starts_with(b"\x01\0\0\0\x05\0hello\0"), "{:?}", &listed.stdout[..16]);
    // Only if it is not there.
    let again = io("0x01", &["--cdw10=21", "--cdw11=0x205", "-l", "21", "-w", "-i", "/tmp/value"])?;
    ensure!(again.code != 0 && (again.stderr.clone() + &again.text()).contains("89"), "{again:?}");
    io("0x10", &[key])?.expect_success()?;
    let gone = io("0x14", &[key])?;
    ensure!(gone.code != 0 && (gone.stderr.clone() + &gone.text()).contains("87"), "{gone:?}");
    says(&["flush", node, "-n", "1"], &["success"])?;
    says(&["reset", CONTROLLER], &[])?;
    fs::wait_for_file(node, kernel::NODE_LIMIT)
}
