// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel modules and the kernel's messages.
#![allow(dead_code)] // a toolbox: not each tool is in use at any time

use crate::{fs, user};
use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::kmod::{delete_module, finit_module, DeleteModuleFlags, ModuleInitFlags};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Our module's file.
pub const MODULE: &str = "/lib/modules/rocm_xio.ko";
/// The first controller's device node.
pub const NODE: &str = "/dev/rocm-xio0";
/// How long a controller may take to come up, on a busy emulating host.
pub const NODE_LIMIT: Duration = Duration::from_secs(30);

/// What in the kernel's messages is a fault.
const FAULTS: &[&str] = &[
    "WARNING:",
    "BUG:",
    "BUG at",
    "Oops",
    "cut here",
    "Bad page",
    "Bad rss",
    "general protection fault",
    "kernel panic",
    "Kernel panic",
    "Call Trace:",
    "possible recursive locking",
    "blocked for more than",
    "stall detected",
    "unreferenced object",
    "DMA-API:",
    "UBSAN:",
    "ODEBUG:",
    "suspicious RCU usage",
    "refcount_t:",
    "list_add corruption",
    "list_del corruption",
    "Poison overwritten",
];

/// What looks like one and is none: the checker of DMA mappings says that it is there.
const NO_FAULTS: &[&str] = &["DMA-API: preallocated", "DMA-API: debugging enabled"];

/// Loads a module from a file, with parameters (`name=value …`).
pub fn insmod(path: &str, parameters: &str) -> Result<(), Errno> {
    let file = File::open(path).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let parameters = CString::new(parameters).map_err(|_| Errno::EINVAL)?;
    finit_module(&file, &parameters, ModuleInitFlags::empty())
}

/// Unloads a module; does not wait for its users.
pub fn rmmod(name: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
    delete_module(&name, DeleteModuleFlags::O_NONBLOCK)
}

/// Loads a stock module by name after what it needs. Loaded ones stay as they are.
pub fn modprobe(name: &str) -> Result<()> {
    let order = fs::read("/lib/modules/order")?;
    let Some(files) = order.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')) else {
        return Ok(()); // built into this kernel: the host has checked that it exists
    };
    for file in files.split(' ') {
        match insmod(&format!("/lib/modules/{file}.ko"), "") {
            Ok(()) | Err(Errno::EEXIST) => (),
            Err(error) => bail!("loading {file} for {name}: {error}"),
        }
    }
    Ok(())
}

/// Whether the module was built into this RAM disk.
pub fn has_module() -> bool {
    Path::new(MODULE).exists()
}

/// Loads our module with parameters, waits for the first node and gives it to group `render`, as the udev
/// rule does on an installed system.
pub fn load_rocm_xio(parameters: &str) -> Result<()> {
    let accepting = if fs::read("/proc/cmdline")?.contains("xio.unsafe_interrupts") {
        format!("{parameters} unsafe_interrupts=1")
    } else {
        parameters.to_owned()
    };
    let parameters = accepting.trim_start();
    insmod(MODULE, parameters).with_context(|| format!("insmod rocm_xio.ko {parameters}"))?;
    fs::wait_for_file(NODE, NODE_LIMIT)?;
    give_nodes_to_render()
}

/// Gives all device nodes there are now to group `render`.
pub fn give_nodes_to_render() -> Result<()> {
    for entry in std::fs::read_dir("/dev")? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("rocm-xio")) {
            std::os::unix::fs::chown(&path, None, Some(user::RENDER))?;
        }
    }
    Ok(())
}

/// All kernel messages so far, one a line, oldest first.
pub fn messages() -> Result<Vec<String>> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits()).open("/dev/kmsg")?;
    let (mut messages, mut buffer) = (Vec::new(), vec![0; 8192]);
    loop {
        match file.read(&mut buffer) {
            Ok(count) => {
                let record = String::from_utf8_lossy(&buffer[..count]).into_owned();
                let text = record.split_once(';').map_or("", |(_, text)| text);
                messages.push(text.lines().next().unwrap_or_default().to_owned());
            }
            Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => return Ok(messages),
            // The oldest records were overwritten while we read: go on with the next.
            Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => (),
            Err(error) => return Err(error).context("reading /dev/kmsg"),
        }
    }
}

/// An error that shows the faults among the kernel's messages, each with some lines of context.
pub fn check_messages(allowed: &[String]) -> Result<()> {
    let messages = messages()?;
    let faults = faults(&messages, allowed);
    let Some(&first) = faults.first() else { return Ok(()) };
    let shown = &messages[first.saturating_sub(2)..messages.len().min(first + 40)];
    bail!("{} suspicious kernel messages, from the first on:\n{}", faults.len(), shown.join("\n"))
}

/// An error that shows what kmemleak, if the kernel has it, found of ours.
pub fn check_leaks() -> Result<()> {
    const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";
    if !Path::new(KMEMLEAK).exists() {
        return Ok(());
    }
    // What is younger than 5 seconds does not count, and a pointer may be in a register during one look.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(6));
        fs::write(KMEMLEAK, "scan")?;
    }
    let found = fs::read(KMEMLEAK)?;
    let ours: Vec<&str> = found
        .split("unreferenced object")
        .filter(|object| ["[rocm_xio]", "[fakegpu]"].iter().any(|module| object.contains(module)))
        .collect();
    match ours.first() {
        None => Ok(()),
        Some(first) => bail!("{} objects are lost, the first:{first}", ours.len()),
    }
}

fn faults(messages: &[String], allowed: &[String]) -> Vec<usize> {
    let bad = |text: &str| FAULTS.iter().any(|fault| text.contains(fault));
    let fine = |text: &str| {
        NO_FAULTS.iter().copied().chain(allowed.iter().map(String::as_str)).any(|part| text.contains(part))
    };
    let mut found = Vec::new();
    let mut index = 0;
    while let Some(message) = messages.get(index) {
        // A report from its first line to its last is one thing.
        let report = message.contains("cut here").then(|| &messages[index..]);
        let len = report.and_then(|lines| lines.iter().position(|line| line.contains("end trace")));
        if let Some(len) = len.filter(|len| messages[index..index + len].iter().any(|line| fine(line))) {
            index += len;
        } else if bad(message) && !fine(message) {
            found.push(index);
        }
        index += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_seen_unless_allowed() {
        let messages = ["all is well", "WARNING: at x", "BUG: y"].map(str::to_owned);
        assert_eq!(faults(&messages, &[]), [1, 2]);
        assert_eq!(faults(&messages, &["at x".to_owned()]), [2]);
        let report = ["cut here", "name x", "WARNING: at x", "Call Trace:", "end trace 0", "Call Trace:"];
        let report = report.map(str::to_owned);
        assert_eq!(faults(&report, &[]), [0, 2, 3, 5]);
        assert_eq!(faults(&report, &["at x".to_owned()]), [5]);
    }
}
