// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks in use.

use super::*;

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
