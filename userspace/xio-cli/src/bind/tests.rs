// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binding in made-up systems.

use super::*;
use crate::exit;
use crate::system::tree::Tree;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

const DISK: &str = "0000:00:01.0";
const OWN: u32 = 10;

/// A kernel that moves links of drivers as the true one does.
#[derive(Default)]
struct Fake {
    /// Our module refuses the device, or nvme does.
    refuses: Option<&'static str>,
    claimed: Cell<bool>,
}

impl Kernel for Fake {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let root = path.ancestors().find(|path| path.join("sys/bus").exists()).unwrap();
        let file = path.file_name().unwrap().to_str().unwrap();
        let link = root.join(Tree::device(text.trim())).join("driver");
        match file {
            "driver_override" => fs::write(path, text),
            "unbind" => fs::remove_file(link),
            _ => {
                let driver = path.parent().unwrap().file_name().unwrap();
                if self.refuses.is_some_and(|name| driver == name) {
                    let said = format!(
                        "6,1,1,-;{driver:?} {}: left to other drivers\n SUBSYSTEM=pci\n6,2,2,-;else\n",
                        text.trim()
                    );
                    fs::write(root.join("dev/kmsg"), said)?;
                    return Err(Errno::ENODEV.into());
                }
                std::os::unix::fs::symlink(Path::new("../../../bus/pci/drivers").join(driver), link)
            }
        }
    }

    fn claim(&self, path: &Path, _: &Node) -> io::Result<File> {
        if self.claimed.get() {
            return Err(Errno::EBUSY.into());
        }
        File::open(path)
    }
}

/// A disk of nvme in a machine whose root is elsewhere, with our module loaded.
fn machine() -> Tree {
    let tree = Tree::new();
    tree.nvme(DISK, Some(NVME)).disk(DISK).driver(OURS).file("dev/kmsg", "");
    tree.process(OWN, "xio", 1, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n").process(11, "init", 1, "");
    tree
}

fn binder<'a>(tree: &Tree, kernel: &'a Fake) -> Binder<'a> {
    Binder { system: tree.system(), kernel, process: OWN, root: true }
}

fn bind(tree: &Tree, kernel: &Fake, address: &str) -> Result<String> {
    binder(tree, kernel).bind(address.parse().unwrap())
}

fn unbind(tree: &Tree, address: &str) -> Result<String> {
    binder(tree, &Fake::default()).unbind(address.parse().unwrap())
}

fn driver(tree: &Tree) -> Option<String> {
    Function::find(&tree.system(), DISK.parse().unwrap()).unwrap().unwrap().driver().unwrap()
}

fn driver_override(tree: &Tree) -> Option<String> {
    Function::find(&tree.system(), DISK.parse().unwrap()).unwrap().unwrap().driver_override().unwrap()
}

/// The disk is refused, with this in the message, and nothing was done.
#[track_caller]
fn refused(tree: &Tree, text: &str) {
    let error = bind(tree, &Fake::default(), DISK).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(error.to_string().contains(text), "{error}");
    assert_eq!(
        (error.code(), driver(tree).as_deref(), driver_override(tree)),
        (exit::DEVICE, Some(NVME), None)
    );
}

const NVME_DISK: &str = "sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1";

/// Something that is made of the first partition.
fn holder(tree: &Tree, name: &str) -> String {
    tree.link(&format!("{NVME_DISK}/nvme0n1p1/holders/{name}"), "elsewhere");
    tree.node(&format!("sys/class/block/{name}"), "block", "253:0");
    format!("sys/class/block/{name}")
}

#[test]
fn an_unused_disk_is_given_to_the_module_and_back() {
    let tree = machine();
    tree.file(&format!("{}/misc/rocm-xio2/dev", Tree::device(DISK)), "10:99\n");
    let text = bind(&tree, &Fake::default(), "00:01.0").unwrap();
    assert_eq!(text, "0000:00:01.0: rocm_xio has it now, as /dev/rocm-xio2\n");
    assert_eq!((driver(&tree).as_deref(), driver_override(&tree).as_deref()), (Some(OURS), Some(OURS)));
    assert!(bind(&tree, &Fake::default(), DISK).unwrap().contains("has it already, as /dev/rocm-xio2"));
    assert_eq!(unbind(&tree, DISK).unwrap(), "0000:00:01.0: nvme has it now\n");
    assert_eq!((driver(&tree).as_deref(), driver_override(&tree)), (Some(NVME), None));
}

#[test]
fn mounts_are_named() {
    let tree = machine();
    tree.process(12, "shell", 1, "")
        .file("proc/10/task/10/mountinfo", "2 1 259:0 / /mnt/a\\040b rw - ext4 /dev/x rw\n");
    refused(&tree, "\n  /dev/nvme0n1 is mounted at /mnt/a b: unmount it");
}

#[test]
fn a_mounted_partition_and_the_root_are_named() {
    let tree = machine();
    tree.file("proc/10/task/10/mountinfo", "2 1 259:1 / / rw shared:1 - ext4 /dev/root rw\n");
    refused(&tree, "/dev/nvme0n1p1 is mounted at / (the root file system)");
}

#[test]
fn mounts_of_other_namespaces_are_named_once() {
    let tree = machine();
    for id in [13, 14] {
        tree.process(id, "container", id, "2 1 259:1 / /data rw - xfs /dev/nvme0n1p1 rw\n");
    }
    refused(&tree, "/dev/nvme0n1p1 is mounted at /data in the mount namespace of container (process 13)");
    let error = bind(&tree, &Fake::default(), DISK).unwrap_err().to_string();
    assert!(!error.contains("process 14"), "{error}");
}

#[test]
fn a_journal_for_a_file_system_elsewhere_is_a_use() {
    let tree = machine();
    tree.file("proc/10/task/10/mountinfo", "2 1 8:2 / /home rw - xfs /dev/sda2 rw,logdev=/dev/nvme0n1p1\n");
    refused(&tree, "/dev/nvme0n1p1 is mounted at /home");
}

#[test]
fn btrfs_over_several_devices_is_named() {
    let tree = machine();
    tree.folder("sys/fs/btrfs/1-2-3/devices/nvme0n1").file("sys/fs/btrfs/1-2-3/label", "pool\n");
    tree.file("sys/fs/btrfs/features/x", "");
    refused(&tree, "/dev/nvme0n1 is a device of the mounted btrfs pool");
}

#[test]
fn swap_is_named() {
    let tree = machine();
    tree.file("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1p1 partition 100 0 -2\n");
    refused(&tree, "/dev/nvme0n1p1 is swap space: swapoff");
}

#[test]
fn volumes_and_what_is_on_them_are_named() {
    let tree = machine();
    let volume = holder(&tree, "dm-0");
    tree.file(&format!("{volume}/dm/name"), "group-home\n").file(&format!("{volume}/dm/uuid"), "LVM-abc\n");
    tree.file("proc/10/task/10/mountinfo", "2 1 253:0 / /home rw - ext4 /dev/mapper/group-home rw\n");
    refused(&tree, "/dev/nvme0n1p1 is part of the LVM volume group-home");
    refused(&tree, "/dev/dm-0 is mounted at /home");
    for (kind, text) in
        [("CRYPT-LUKS2-x", "encrypted volume"), ("mpath-x", "multipath"), ("", "mapped device")]
    {
        tree.file(&format!("{volume}/dm/uuid"), kind);
        refused(&tree, text);
    }
}

#[test]
fn arrays_are_named() {
    let tree = machine();
    let array = holder(&tree, "md127");
    tree.file(&format!("{array}/md/level"), "raid1\n");
    refused(&tree, "/dev/nvme0n1p1 is part of RAID md127 raid1: take it out");
    let tree = machine();
    tree.folder(&format!("{NVME_DISK}/bcache"));
    refused(&tree, "/dev/nvme0n1 is part of a bcache");
}

#[test]
fn members_at_rest_are_named() {
    let tree = machine();
    let mut label = vec![0; 8192];
    label[512..520].copy_from_slice(b"LABELONE");
    label[536..544].copy_from_slice(b"LVM2 001");
    tree.file("dev/nvme0n1p1", label);
    refused(&tree, "/dev/nvme0n1p1, a partition, is a physical volume of LVM");
}

#[test]
fn programs_with_a_node_open_are_named() {
    for node in ["nvme0n1", "nvme0n1p1", "ng0n1", "nvme0"] {
        for (folder, end) in [("fd/3", ""), ("map_files/0-1", " (deleted)")] {
            let tree = machine();
            tree.process(20, "reader", 1, "")
                .link(&format!("proc/20/{folder}"), &format!("/dev/{node}{end}"));
            tree.link("proc/20/fd/4", "socket:[1]");
            refused(&tree, &format!("/dev/{node} is open in reader (process 20)"));
        }
    }
}

#[test]
fn names_of_others_do_not_reach_the_terminal_as_they_are() {
    let tree = machine();
    tree.process(20, "\x1b[2Jx", 1, "").link("proc/20/fd/3", "/dev/nvme0n1");
    refused(&tree, "/dev/nvme0n1 is open in ?[2Jx (process 20)");
}

#[test]
fn what_this_program_has_open_is_no_use() {
    let tree = machine();
    tree.link(&format!("proc/{OWN}/fd/3"), "/dev/nvme0n1");
    bind(&tree, &Fake::default(), DISK).unwrap();
}

#[test]
fn exports_and_loop_devices_are_named() {
    let tree = machine();
    tree.file("sys/kernel/config/nvmet/subsystems/s/namespaces/1/device_path", "/dev/by-id/x\n");
    tree.link("dev/by-id/x", "../nvme0n1");
    refused(&tree, "/dev/nvme0n1 is exported by the NVMe target (/sys/kernel/config/nvmet/subsystems/s/");
    let tree = machine();
    tree.file("sys/class/block/loop0/loop/backing_file", "/dev/nvme0n1p1\n");
    refused(&tree, "/dev/nvme0n1p1 is behind a loop device");
}

#[test]
fn a_claim_by_nobody_who_is_seen_is_a_use() {
    let tree = machine();
    let kernel = Fake::default();
    kernel.claimed.set(true);
    let error = bind(&tree, &kernel, DISK).unwrap_err();
    assert!(error.to_string().contains("/dev/nvme0n1 is claimed in the kernel by something"), "{error}");
    assert_eq!((error.code(), driver(&tree).as_deref()), (exit::DEVICE, Some(NVME)));
}

#[test]
fn a_disk_without_a_node_is_left_alone() {
    let tree = machine();
    tree.remove("dev/nvme0n1");
    let error = bind(&tree, &Fake::default(), DISK).unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    assert_eq!((error.code(), driver(&tree).as_deref()), (exit::OTHER, Some(NVME)));
}

#[test]
fn what_the_module_refuses_goes_back_to_its_driver() {
    let tree = machine();
    tree.file(&format!("{}/driver_override", Tree::device(DISK)), "nvme\n");
    let kernel = Fake { refuses: Some(OURS), ..Fake::default() };
    let error = bind(&tree, &kernel, DISK).unwrap_err();
    let text = error.to_string();
    let head = "0000:00:01.0: rocm_xio did not take it (No such device (os error 19)); nvme has it, as before. The kernel's messages:\n  ";
    assert!(text.starts_with(head) && text.ends_with(": left to other drivers"), "{text}");
    assert!(!text.contains("SUBSYSTEM") && !text.contains("else\n"), "{text}");
    assert_eq!((driver(&tree).as_deref(), driver_override(&tree).as_deref()), (Some(NVME), Some(NVME)));
    assert_eq!(error.code(), exit::UNSUPPORTED);
}

#[test]
fn what_had_no_driver_gets_none_after_a_refusal() {
    let tree = machine();
    tree.remove(&format!("{}/driver", Tree::device(DISK)));
    let text = bind(&tree, &Fake { refuses: Some(OURS), ..Fake::default() }, DISK).unwrap_err().to_string();
    assert!(text.contains("no driver has it, as before") && driver_override(&tree).is_none(), "{text}");
}

#[test]
fn what_is_no_nvme_controller_is_refused() {
    let tree = machine();
    let place = |address: &str| address.parse::<Address>().unwrap();
    for address in ["0000:00:02.0", "10000:05:00.0"] {
        tree.nvme(address, None).file(&format!("{}/class", Tree::device(address)), "0x030000\n");
    }
    let error = bind(&tree, &Fake::default(), "00:02.0").unwrap_err();
    assert!(
        error.to_string().contains("0000:00:02.0 is no NVMe controller: its class is 0x030000"),
        "{error}"
    );
    assert_eq!(error.code(), exit::UNSUPPORTED);
    let error = bind(&tree, &Fake::default(), "05:00.0").unwrap_err();
    assert!(error.to_string().ends_with("in other domains there is 10000:05:00.0"), "{error}");
    let error = bind(&tree, &Fake::default(), "09:00.0").unwrap_err();
    assert!(error.to_string().contains("there is no such PCI function: lspci"), "{error}");
    assert!(matches!(error, Error::NoFunction { address, .. } if address == place("09:00.0")));
    assert_eq!(error.code(), exit::DEVICE);
}

#[test]
fn module_and_root_are_needed() {
    let tree = machine();
    let ordinary = |tree: &Tree| {
        Binder { root: false, ..binder(tree, &Fake { refuses: None, claimed: Cell::new(false) }) }
            .bind(DISK.parse().unwrap())
    };
    let error = ordinary(&tree).unwrap_err();
    assert_eq!(error.to_string(), "only root may give a controller to another driver: run this with sudo");
    assert_eq!(error.code(), exit::PERMISSION);
    fs::remove_dir_all(tree.system().path("/sys/bus/pci/drivers/rocm_xio")).unwrap();
    let error = bind(&tree, &Fake::default(), DISK).unwrap_err();
    assert_eq!(error.to_string(), "the module is not loaded: insmod rocm_xio.ko claim=override");
    assert_eq!(error.code(), exit::DEVICE);
}

#[test]
fn only_what_the_module_has_and_nobody_uses_is_given_back() {
    let tree = machine();
    let error = unbind(&tree, DISK).unwrap_err();
    assert_eq!(error.to_string(), "0000:00:01.0 is not with rocm_xio: nvme has it");
    let kv = "0000:00:03.0";
    tree.nvme(kv, Some(OURS)).node(&format!("{}/misc/rocm-xio0", Tree::device(kv)), "misc", "10:99");
    tree.process(30, "trainer", 1, "").link("proc/30/fd/5", "/dev/rocm-xio0");
    let error = unbind(&tree, kv).unwrap_err();
    assert!(
        error.to_string().contains("/dev/rocm-xio0 is open in trainer (process 30): end that program"),
        "{error}"
    );
}

#[test]
fn without_nvme_a_controller_stays_without_driver() {
    let tree = machine();
    tree.nvme("0000:00:03.0", Some(OURS));
    let drivers: PathBuf = tree.system().path("/sys/bus/pci/drivers/nvme");
    fs::remove_dir_all(drivers).unwrap();
    let text = unbind(&tree, "00:03.0").unwrap();
    assert_eq!(text, "0000:00:03.0: no driver has it now; with `modprobe nvme`, nvme takes it\n");
}

#[test]
fn a_controller_that_was_meant_for_the_module_is_given_back() {
    let tree = machine();
    tree.nvme("0000:00:03.0", None)
        .file(&format!("{}/driver_override", Tree::device("0000:00:03.0")), "rocm_xio\n");
    assert_eq!(unbind(&tree, "00:03.0").unwrap(), "0000:00:03.0: nvme has it now\n");
}
