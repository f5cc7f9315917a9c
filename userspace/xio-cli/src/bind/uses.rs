// SPDX-License-Identifier: MIT OR Apache-2.0
//! What uses the nodes of a function, by name.

use super::signature;
use crate::system::{Kind, Mount, Node, Processes, Result, System, Unreadable};
use std::fmt;
use std::fs::File;

/// A use of a function, and what ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// What uses it.
    pub what: String,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of programs and folders are their owners' choice, and terminals obey control characters.
        let plain = |c: char| if c.is_control() { '?' } else { c };
        write!(f, "{}: {}", self.what.chars().map(plain).collect::<String>(), self.remedy)
    }
}

/// Files in which the kernel names the block device behind something, and what that is.
const BEHIND: &[(&str, &str)] = &[
    ("/sys/class/block/*/loop/backing_file", "is behind a loop device"),
    ("/sys/class/block/*/backing_dev", "is behind a zram device"),
    ("/sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path", "is exported by the NVMe target"),
    ("/sys/kernel/config/nvmet/subsystems/*/passthru/device_path", "is exported by the NVMe target"),
    ("/sys/kernel/config/target/core/*/*/udev_path", "is exported by the SCSI target"),
];

/// All uses that can be told.
pub fn all(system: &System, nodes: &[Node], own: u32) -> Result<Vec<Use>> {
    let mut uses = held(system, nodes)?;
    let stack = stacked(system, nodes)?;
    let processes = Processes::new(system, own)?;
    uses.extend(mounted(&processes, &stack)?);
    uses.extend(btrfs(system, &stack)?);
    uses.extend(swapped(system, &stack)?);
    uses.extend(behind(system, &stack)?);
    uses.extend(opened(&processes, &stack)?);
    for node in nodes.iter().filter(|node| node.is_block()) {
        uses.extend(member(system, node)?);
    }
    Ok(uses)
}

/// Nodes that processes have open.
pub fn opened(processes: &Processes<'_>, nodes: &[Node]) -> Result<Vec<Use>> {
    let used = processes.users(nodes)?.into_iter();
    let text = |(node, who): (usize, String)| format!("{} is open in {who}", nodes[node].path);
    Ok(used.map(|user| Use { what: text(user), remedy: "end that program" }).collect())
}

/// The nodes, and those of the block devices that are made of them.
fn stacked(system: &System, nodes: &[Node]) -> Result<Vec<Node>> {
    let (mut all, mut next) = (nodes.to_vec(), 0);
    while next < all.len() {
        for name in system.names(all[next].sys.join("holders"))? {
            let above = Node::block(system, &name)?;
            let new: Vec<Node> = above.into_iter().filter(|node| !all.contains(node)).collect();
            all.extend(new);
        }
        next += 1;
    }
    Ok(all)
}

/// Block devices that are made of these.
fn held(system: &System, nodes: &[Node]) -> Result<Vec<Use>> {
    let mut uses = Vec::new();
    for node in nodes {
        for name in system.names(node.sys.join("holders"))? {
            let (what, remedy) = holder(system, &name)?;
            uses.push(Use { what: format!("{} is part of {what}", node.path), remedy });
        }
        if system.has(node.sys.join("bcache")) {
            let what = format!("{} is part of a bcache", node.path);
            uses.push(Use { what, remedy: "detach it and stop the bcache" });
        }
    }
    Ok(uses)
}

/// What a block device is that is made of others.
fn holder(system: &System, name: &str) -> Result<(String, &'static str)> {
    let read = |file: &str| system.read(format!("/sys/class/block/{name}/{file}"));
    if let Some(level) = read("md/level")? {
        return Ok((format!("RAID {name} {level}"), "take it out of the array, or stop the array"));
    }
    let Some(map) = read("dm/name")? else { return Ok((name.to_owned(), "stop that device")) };
    let kind = read("dm/uuid")?.unwrap_or_default();
    Ok(match kind.split('-').next() {
        Some("LVM") => (
            format!("the LVM volume {map}"),
            "move the volume away (pvmove, vgreduce), or deactivate and remove it",
        ),
        Some("CRYPT") => (format!("the encrypted volume {map}"), "close it (cryptsetup close)"),
        Some("mpath") => (format!("the multipath device {map}"), "flush it (multipath -f)"),
        _ => (format!("the mapped device {map}"), "remove it (dmsetup remove)"),
    })
}

/// Mounted file systems: by number; by source and options where the number is no device's, or a journal is elsewhere.
fn mounted(processes: &Processes<'_>, nodes: &[Node]) -> Result<Vec<Use>> {
    let mut uses: Vec<(String, Use)> = Vec::new();
    for Mount { info, seen_by } in processes.mounts()? {
        let options = info.super_options.values().flatten();
        let names: Vec<&str> =
            info.mount_source.iter().flat_map(|s| s.split(':')).chain(options.map(String::as_str)).collect();
        let mut named = nodes.iter().filter(|node| {
            node.is_block() && (node.dev == info.majmin || names.contains(&node.path.as_str()))
        });
        let Some(node) = named.next() else { continue };
        // Once is enough for what other namespaces see as well.
        if seen_by.is_some() && uses.iter().any(|(dev, _)| *dev == info.majmin) {
            continue;
        }
        let at = unescape(&info.mount_point.to_string_lossy());
        let root = if at == "/" { " (the root file system)" } else { "" };
        let seen = seen_by.map_or(String::new(), |who| format!(" in the mount namespace of {who}"));
        let what = format!("{} is mounted at {at}{root}{seen}", node.path);
        let remedy = if at == "/" { "use another disk" } else { "unmount it" };
        if uses.iter().all(|(_, other)| other.what != what) {
            uses.push((info.majmin, Use { what, remedy }));
        }
    }
    Ok(uses.into_iter().map(|(_, one)| one).collect())
}

/// File systems of several devices, of which mountinfo names one.
fn btrfs(system: &System, nodes: &[Node]) -> Result<Vec<Use>> {
    let mut uses = Vec::new();
    for path in system.matching("/sys/fs/btrfs/*/devices/*")? {
        let name = path.file_name().unwrap_or_default();
        let Some(node) = nodes.iter().find(|node| node.is_block() && node.name() == name.to_string_lossy())
        else {
            continue;
        };
        let folder = path.ancestors().nth(2).unwrap_or(&path);
        let label = system.read(folder.join("label"))?.filter(|label| !label.is_empty());
        let id = folder.file_name().unwrap_or_default().to_string_lossy();
        let what = format!(
            "{} is a device of the mounted btrfs {}",
            node.path,
            label.unwrap_or_else(|| id.into_owned())
        );
        uses.push(Use { what, remedy: "unmount it, or take the device out (btrfs device remove)" });
    }
    Ok(uses)
}

fn swapped(system: &System, nodes: &[Node]) -> Result<Vec<Use>> {
    let table = system.read("/proc/swaps")?.unwrap_or_default();
    let paths = table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescape);
    let used = paths.filter_map(|path| {
        let name = path.strip_suffix(" (deleted)").unwrap_or(&path);
        nodes.iter().find(|node| node.is_block() && system.same(&node.path, name))
    });
    Ok(used.map(|node| Use { what: format!("{} is swap space", node.path), remedy: "swapoff" }).collect())
}

/// Parts of the kernel that use a node without claiming it, as if a program had it open.
fn behind(system: &System, nodes: &[Node]) -> Result<Vec<Use>> {
    let mut uses = Vec::new();
    for (pattern, what) in BEHIND {
        for file in system.matching(pattern)? {
            let text = system.read(&file)?.unwrap_or_default();
            let text = text.trim_matches('"');
            for node in nodes.iter().filter(|node| !text.is_empty() && system.same(&node.path, text)) {
                let what = format!("{} {what} ({})", node.path, file.display());
                uses.push(Use { what, remedy: "stop that" });
            }
        }
    }
    Ok(uses)
}

/// Parts of something that may be at rest.
fn member(system: &System, node: &Node) -> Result<Option<Use>> {
    let path = system.path(&node.path);
    let found = File::open(&path).and_then(|mut file| signature::member(&mut file));
    let found = found.map_err(|source| Unreadable { path, source })?;
    let place = if node.kind == Kind::Partition { "partition" } else { "disk" };
    Ok(found.map(|what| Use {
        what: format!("{}, a {place}, is {what}", node.path),
        remedy: "take it out with the tools of LVM, mdadm or ZFS (or, if nobody needs what is on it, wipefs)",
    }))
}

/// Text of the kernel with what it escapes: spaces, tabs, newlines and backslashes, as three octal digits.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
