// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one virtual machine from its description to its end.

use crate::accel::Accel;
use crate::host::{dying_with_us, new_log, put_down, Controllers};
use crate::initramfs;
use crate::machine::{Machine, DISK_FILE, DISK_LEN};
use crate::setup::Setup;
use crate::tap::Tally;
use anyhow::{bail, Context, Result};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a guest that has reported everything may take to power off.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(500);

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// What the guest reported.
    pub tally: Tally,
    /// Why the run as a whole failed, if it did.
    pub fault: Option<String>,
    /// The folder with the logs; removed after a success.
    pub logs: PathBuf,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether everything was right.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.fault.is_none() && self.tally.failed == 0
    }

    /// A fault of QEMU that is known, and that ended a machine in which nothing else went wrong. Only the emulated IOMMU of AMD
    /// has one: it ends on an assertion when the guest unmaps a whole table of mappings.
    #[must_use]
    pub fn qemu_fault(&self) -> Option<&'static str> {
        const FAULT: &str = "amdvi_notify_iommu: Assertion `mapped->size > target.size' failed";
        let said = fs::read_to_string(self.logs.join("qemu.log")).unwrap_or_default();
        (self.fault.is_some() && self.tally.failed == 0 && said.contains(FAULT)).then_some(FAULT)
    }
}

/// A temporary folder for sockets (their paths must be short) and the RAM disk.
struct RunDir(PathBuf);

impl RunDir {
    fn new(name: &str) -> Result<Self> {
        remove_leftovers(&std::env::temp_dir());
        let dir = std::env::temp_dir().join(format!("xio-vm-{}-{name}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Self(dir))
    }
}

/// Removes the folders of runs that were killed, told by their process ids. What can not be removed stays: it is
/// another user's, or another run is removing it as well.
fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((id, _)) = name.strip_prefix("xio-vm-").and_then(|rest| rest.split_once('-')) else {
            continue;
        };
        if id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("xio-vm: {} could not be removed: {error}", self.0.display());
        }
    }
}

struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        put_down(&mut self.0);
    }
}

/// Boots the machine with `word` on the kernel's command line and follows the guest's reports to their end.
/// Each line of them is passed to `echo`.
///
/// # Errors
/// When the machine cannot be started at all; whatever goes wrong later is in the [`Outcome`].
pub fn reports(
    setup: &Setup,
    accel: Accel,
    name: &str,
    word: &str,
    machine: &Machine,
    echo: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    let start = Instant::now();
    let logs = fresh_logs(setup, name)?;
    let dir = RunDir::new(name)?;
    let mut controllers = Controllers::start(setup, machine.controllers(), &dir.0, &logs)?;
    let serial = logs.join("serial.log");
    let mut command = qemu_command(setup, accel, word, machine, &dir.0)?;
    command.args(["-chardev", "stdio,id=reports,signal=off", "-serial"]);
    command.arg(format!("file:{}", serial.display())).args(["-serial", "chardev:reports"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(new_log(&logs.join("qemu.log"))?);
    let mut qemu = Qemu(command.spawn().context("starting QEMU through setpriv (package util-linux)")?);

    let mut tally = Tally::default();
    let mut fault = follow(&mut qemu, &mut controllers, machine.timeout, &logs, &mut |line| {
        tally.line(line);
        echo(line);
        tally.complete()
    })?;
    if fault.is_none() {
        fault = tally.fault();
    }
    if fault.is_none() && !ended_within(&mut qemu.0, POWER_OFF_LIMIT)? {
        fault = Some(format!("the guest did not power off within {POWER_OFF_LIMIT:?}"));
    }
    drop(qemu);
    fault = fault.or(controllers.casualty()?);
    let outcome = Outcome { tally, fault, logs, took: start.elapsed() };
    if outcome.is_success() && std::env::var_os("ROCM_XIO_KEEP_LOGS").is_none() {
        fs::remove_dir_all(&outcome.logs)?;
    }
    Ok(outcome)
}

/// Boots the machine with its console on this terminal, until the user ends it.
///
/// # Errors
/// When the machine cannot be started or QEMU fails.
pub fn shell(setup: &Setup, accel: Accel, machine: &Machine) -> Result<()> {
    let logs = fresh_logs(setup, "shell")?;
    let dir = RunDir::new("shell")?;
    let _controllers = Controllers::start(setup, machine.controllers(), &dir.0, &logs)?;
    let mut command = qemu_command(setup, accel, "xio.shell", machine, &dir.0)?;
    command.args(["-serial", "mon:stdio"]);
    let mut qemu = Qemu(command.spawn().context("starting QEMU through setpriv (package util-linux)")?);
    let status = qemu.0.wait()?;
    if !status.success() {
        bail!("QEMU ended with {status}; the controller's log is in {}", logs.display());
    }
    Ok(())
}

fn fresh_logs(setup: &Setup, name: &str) -> Result<PathBuf> {
    let logs = setup.target.join("vm-logs").join(name);
    if logs.exists() {
        fs::remove_dir_all(&logs)?;
    }
    fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
    Ok(logs)
}

fn qemu_command(setup: &Setup, accel: Accel, word: &str, machine: &Machine, dir: &Path) -> Result<Command> {
    let initrd = dir.join("initrd");
    initramfs::write(setup, machine, &initrd)?;
    if machine.nvme_disk {
        fs::File::create(dir.join(DISK_FILE))?.set_len(DISK_LEN).context("making the disk")?;
    }
    let mut command = dying_with_us(&setup.qemu);
    command.args(accel.qemu_arguments()).args(machine.qemu_arguments(dir));
    command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", dir.join("qmp").display()));
    command.arg("-kernel").arg(&setup.vmlinuz).arg("-initrd").arg(initrd);
    command.arg("-append").arg(machine.kernel_cmdline(word));
    Ok(command)
}

/// Passes the guest's lines on until `line` says that it was the last. Gives the reason for an early end.
fn follow(
    qemu: &mut Qemu,
    controllers: &mut Controllers,
    limit: Duration,
    logs: &Path,
    line: &mut dyn FnMut(&str) -> bool,
) -> Result<Option<String>> {
    let end = Instant::now() + limit;
    let lines = read_lines(qemu)?;
    let mut answers = qemu.0.stdin.take().context("QEMU has no input")?;
    loop {
        match lines.recv_timeout(TICK) {
            Ok(text) => {
                if let Some(request) = text.strip_prefix("host: ") {
                    let answer = controllers.perform(request);
                    writeln!(answers, "{answer}").context("answering the guest")?;
                } else if line(&text) {
                    return Ok(None);
                }
            }
            // The tally tells whether anything is missing.
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                if fs::read_to_string(logs.join("qemu.log"))?.contains("KVM internal error") {
                    return Ok(Some("KVM cannot run this guest".to_owned()));
                }
            }
        }
        if Instant::now() > end {
            return Ok(Some(format!("the deadline of {limit:?} passed")));
        }
    }
}

/// Reads the report line in a thread of its own, so that waiting can be bounded.
fn read_lines(qemu: &mut Qemu) -> Result<Receiver<String>> {
    let mut reader = BufReader::new(qemu.0.stdout.take().context("QEMU has no output")?);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            if sender.send(text).is_err() {
                break;
            }
            bytes.clear();
        }
    });
    Ok(receiver)
}

fn ended_within(child: &mut Child, limit: Duration) -> Result<bool> {
    let end = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_removed_and_what_can_not_be_is_no_error() {
        let dir = std::env::temp_dir().join(format!("xio-vm-test.{}", std::process::id()));
        // No process has such a number; this one lives; the third is none of ours.
        let names = ["xio-vm-4294967295-a", &format!("xio-vm-{}-b", std::process::id()), "xio-vm-x-c"];
        names.iter().for_each(|name| fs::create_dir_all(dir.join(name)).unwrap());
        fs::write(dir.join("xio-vm-4294967294-d"), "").unwrap();
        remove_leftovers(&dir);
        assert_eq!(names.map(|name| dir.join(name).exists()), [false, true, true]);
        remove_leftovers(&dir.join("missing"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
