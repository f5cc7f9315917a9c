// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device nodes by which a function is used.

use super::{Address, Function, Result, System};
use nix::sys::stat::{major, minor};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders below a device that are looked into. A partition is 4 below its function.
const DEPTH: u32 = 6;

/// What kind of node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A disk.
    Disk,
    /// A partition of a disk.
    Partition,
    /// A character device.
    Char,
}

/// A device with a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its node.
    pub path: String,
    /// Major and minor number, as sysfs writes them.
    pub dev: String,
    /// What it is.
    pub kind: Kind,
    /// Its folder in sysfs.
    pub sys: PathBuf,
}

impl Node {
    /// All nodes by which a function is used: its own, those of disks with several paths of which it has one, and that of
    /// its group where vfio has it.
    pub fn of(system: &System, function: &Function<'_>) -> Result<Vec<Self>> {
        let mut nodes = Vec::new();
        walk(system, &function.path(""), DEPTH, &mut nodes)?;
        for controller in system.names(function.path("nvme"))? {
            for path in system.names(function.path("nvme").join(controller))? {
                if let Some(head) = head(&path) {
                    walk(system, &format!("/sys/class/block/nvme{head}").into(), DEPTH, &mut nodes)?;
                    walk(system, &format!("/sys/class/nvme-generic/ng{head}").into(), DEPTH, &mut nodes)?;
                }
            }
        }
        if let Some(group) = system.link(function.path("iommu_group"))? {
            walk(system, &format!("/sys/class/vfio/{group}").into(), DEPTH, &mut nodes)?;
        }
        Ok(nodes)
    }

    /// The block device of this name, with its partitions.
    pub fn block(system: &System, name: &str) -> Result<Vec<Self>> {
        let mut nodes = Vec::new();
        walk(system, &format!("/sys/class/block/{name}").into(), DEPTH, &mut nodes)?;
        Ok(nodes)
    }

    /// Whether file systems and the like can be on it.
    pub fn is_block(&self) -> bool {
        self.kind != Kind::Char
    }

    /// Whether a file is its node.
    pub fn is(&self, file: &Metadata) -> bool {
        let kind = if self.is_block() {
            file.file_type().is_block_device()
        } else {
            file.file_type().is_char_device()
        };
        let number = file.rdev();
        kind && self.dev == format!("{}:{}", major(number), minor(number))
    }

    /// Its name in sysfs.
    pub fn name(&self) -> String {
        self.sys.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The device of this folder, if it has a node.
    fn at(system: &System, folder: &Path) -> Result<Option<Self>> {
        // The path to a disk with several, and a namespace that nvme can not show as a disk.
        if system.read(folder.join("hidden"))?.as_deref() == Some("1") {
            return Ok(None);
        }
        let Some(dev) = system.read(folder.join("dev"))? else { return Ok(None) };
        let uevent = system.read(folder.join("uevent"))?.unwrap_or_default();
        let named = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned);
        let plain = || folder.file_name().map(|name| name.to_string_lossy().replace('!', "/"));
        let kind = match system.link(folder.join("subsystem"))?.as_deref() {
            Some("block") if system.has(folder.join("partition")) => Kind::Partition,
            Some("block") => Kind::Disk,
            _ => Kind::Char,
        };
        let path = format!("/dev/{}", named.or_else(plain).unwrap_or_default());
        Ok(Some(Self { path, dev, kind, sys: folder.to_owned() }))
    }
}

/// Collects the nodes of a device and below it, not those of other functions behind it.
fn walk(system: &System, folder: &PathBuf, depth: u32, nodes: &mut Vec<Node>) -> Result<()> {
    nodes.extend(Node::at(system, folder)?.filter(|node| !nodes.contains(node)));
    for name in system.names(folder)? {
        let below = folder.join(&name);
        // Links lead elsewhere.
        let kind = std::fs::symlink_metadata(system.path(&below)).map(|metadata| metadata.is_dir());
        if depth > 0 && kind.unwrap_or(false) && name.parse::<Address>().is_err() {
            walk(system, &below, depth - 1, nodes)?;
        }
    }
    Ok(())
}

/// `0n1` of `nvme0c3n1`: the disk that this path belongs to.
fn head(path: &str) -> Option<String> {
    let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let numbers = [subsystem, controller, namespace];
    let all = numbers.iter().all(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    all.then(|| format!("{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn paths(tree: &Tree, address: &str) -> Vec<String> {
        let system = tree.system();
        let function = Function::find(&system, address.parse().unwrap()).unwrap().unwrap();
        Node::of(&system, &function).unwrap().into_iter().map(|node| node.path).collect()
    }

    #[test]
    fn all_nodes_below_a_function_are_found() {
        let tree = Tree::new();
        tree.nvme("0000:00:01.0", Some("nvme")).disk("0000:00:01.0");
        let found = paths(&tree, "00:01.0");
        assert_eq!(found, ["/dev/nvme0", "/dev/ng0n1", "/dev/nvme0n1", "/dev/nvme0n1p1"]);
    }

    #[test]
    fn a_disk_with_several_paths_is_found_by_each() {
        let tree = Tree::new();
        let hidden = format!("{}/nvme/nvme3/nvme0c3n1", Tree::device("0000:00:01.0"));
        tree.nvme("0000:00:01.0", Some("nvme")).node(&hidden, "block", "259:9");
        tree.file(&format!("{hidden}/hidden"), "1\n");
        tree.node("sys/class/block/nvme0n1", "block", "259:0");
        tree.node("sys/class/nvme-generic/ng0n1", "nvme-generic", "241:0");
        assert_eq!(paths(&tree, "00:01.0"), ["/dev/nvme0n1", "/dev/ng0n1"]);
        assert_eq!(head("nvme0c3n12").as_deref(), Some("0n12"));
        assert!(["nvme0n1", "nvme0c0", "ng0c1n1", "nvme0cn1"].iter().all(|name| head(name).is_none()));
    }

    #[test]
    fn a_group_of_vfio_is_found_and_what_is_behind_a_bridge_is_not() {
        let tree = Tree::new();
        tree.nvme("0000:00:01.0", Some("vfio-pci")).node("sys/class/vfio/7", "vfio", "240:0");
        let device = Tree::device("0000:00:01.0");
        tree.link(&format!("{device}/iommu_group"), "../../../kernel/iommu_groups/7");
        tree.node(&format!("{device}/0000:01:00.0/nvme/nvme5"), "nvme", "242:5");
        assert_eq!(paths(&tree, "00:01.0"), ["/dev/7"]);
    }
}
