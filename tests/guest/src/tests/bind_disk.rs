// SPDX-License-Identifier: MIT OR Apache-2.0
//! The disk of the group `bind`, in every use that it is refused for.

use crate::kernel::NODE_LIMIT;
use crate::mapper::Mapped;
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::tests::bind::disk as address;
use crate::{command, fs, pci};
use anyhow::{ensure, Context, Result};
use nix::mount::{mount, umount, umount2, MntFlags, MsFlags};
use nix::sched::{unshare, CloneFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;

pub const DISK: &str = "/dev/nvme0n1";
pub const PARTITION: &str = "/dev/nvme0n1p1";
const FOLDER: &str = "/tmp/mounted";
/// Where the partition begins, and the file system in it.
const PARTITION_AT: u64 = 1 << 20;
const PARTITION_SECTORS: u32 = 32768;
const DATA_AT: u64 = 32 << 20;
const DATA_LEN: usize = 1 << 20;

pub const CLIENTS: &[(&str, Client)] = &[("bind-mounted-elsewhere", |_| mounted_elsewhere())];

/// All that the disk is refused for.
pub fn refusals(report: &mut Report) {
    report.case("a_mounted_disk_is_refused", |_| {
        is_mounted_and(DISK, || is_refused(&format!("{DISK} is mounted at {FOLDER}: unmount it")))
    });
    report.case("a_mounted_partition_is_refused", |_| {
        is_mounted_and(PARTITION, || is_refused(&format!("{PARTITION} is mounted at {FOLDER}: unmount it")))
    });
    report.case("a_mount_in_another_namespace_is_refused", |_| {
        let elsewhere = Session::start_as_root(&["bind-mounted-elsewhere"])?;
        is_refused(&format!("{PARTITION} is mounted at {FOLDER} in the mount namespace of init (process "))?;
        elsewhere.finish()
    });
    report.case("a_mount_that_nobody_sees_is_refused", |_| {
        mount_at_folder(PARTITION)?;
        let inside = File::open(FOLDER)?;
        umount2(FOLDER, MntFlags::MNT_DETACH).context("unmounting lazily")?;
        is_refused(&format!("{DISK} is claimed in the kernel by something"))?;
        drop(inside);
        Ok(())
    });
    report.case("swap_is_refused", |_| {
        command::run(&["mkswap", PARTITION])?.expect_success()?;
        command::run(&["swapon", PARTITION])?.expect_success()?;
        is_refused(&format!("{PARTITION} is swap space: swapoff"))?;
        command::run(&["swapoff", PARTITION])?.expect_success()?;
        write_file_system(PARTITION_AT)
    });
    report.case("open_nodes_are_refused", |_| {
        for node in [DISK, PARTITION, "/dev/nvme0", "/dev/ng0n1"] {
            let open = File::open(node)?;
            is_refused(&format!("{node} is open in init (process 1)"))?;
            drop(open);
        }
        Ok(())
    });
    report.case("a_node_open_under_another_name_is_refused", |_| {
        let numbers = fs::read("/sys/class/block/nvme0n1/dev")?;
        let (major, minor) = numbers.split_once(':').context("no number")?;
        command::run(&["mknod", "/tmp/other", "b", major, minor])?.expect_success()?;
        let open = File::open("/tmp/other")?;
        is_refused(&format!("{DISK} is open in init (process 1)"))?;
        drop(open);
        Ok(())
    });
    report.case("a_disk_behind_a_loop_device_is_refused", |_| {
        command::run(&["losetup", "/dev/loop0", PARTITION])?.expect_success()?;
        is_refused(&format!("{PARTITION} is behind a loop device"))?;
        command::run(&["losetup", "-d", "/dev/loop0"])?.expect_success().map(drop)
    });
    report.case("a_volume_and_what_is_on_it_are_named", |_| {
        let numbers = fs::read("/sys/class/block/nvme0n1p1/dev")?;
        for (uuid, what) in [
            ("LVM-test", "the LVM volume group-data"),
            ("CRYPT-LUKS2-test", "the encrypted volume group-data"),
        ] {
            let volume = Mapped::new("group-data", uuid, &numbers, PARTITION_SECTORS.into())?;
            fs::wait_for_file("/dev/dm-0", NODE_LIMIT)?;
            is_refused(&format!("{PARTITION} is part of {what}"))?;
            is_mounted_and("/dev/dm-0", || is_refused(&format!("/dev/dm-0 is mounted at {FOLDER}")))?;
            volume.remove()?;
        }
        Ok(())
    });
    report.case("a_member_of_an_array_is_refused", |_| {
        let numbers = fs::read("/sys/class/block/nvme0n1p1/dev")?;
        fs::write("/sys/module/md_mod/parameters/new_array", "md_test")?;
        let array = "/sys/class/block/md_test/md";
        fs::write(format!("{array}/metadata_version"), "external:test")?;
        fs::write(format!("{array}/level"), "raid1")?;
        fs::write(format!("{array}/new_dev"), &numbers)?;
        is_refused(&format!("{PARTITION} is part of RAID md_test raid1"))?;
        fs::write(format!("{array}/array_state"), "clear")
    });
    report.case("a_physical_volume_is_refused", |_| {
        let disk = File::options().write(true).open(PARTITION)?;
        disk.write_all_at(b"LABELONE", 512)?;
        disk.write_all_at(b"LVM2 001", 536)?;
        drop(disk);
        is_refused("is a physical volume of LVM in no volume group")?;
        File::options().write(true).open(PARTITION)?.write_all_at(&[0; 512], 512)?;
        Ok(())
    });
}

/// The disk is refused for this, and stays as it is.
fn is_refused(text: &str) -> Result<()> {
    let refused = command::run(&["xio", "bind", &address()?])?.expect_code(8)?.stderr;
    ensure!(refused.contains(text), "{text:?} is not in {refused}");
    is_whole()
}

/// The disk is with nvme, for nobody else, and its data are there.
pub fn is_whole() -> Result<()> {
    let address = address()?;
    ensure!(pci::driver(&address)?.as_deref() == Some("nvme"), "nvme does not have the disk");
    let reserved = fs::read(pci::path(&address).join("driver_override"))?;
    ensure!(reserved == "(null)", "the disk is for {reserved} alone");
    fs::wait_for_file(PARTITION, NODE_LIMIT)?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let mut data = vec![0; DATA_LEN];
    File::open(DISK)?.read_exact_at(&mut data, DATA_AT)?;
    ensure!(data == pattern(), "the disk's data changed");
    Ok(())
}

fn pattern() -> Vec<u8> {
    (0..DATA_LEN).map(|i| crate::raw::pattern(7, i)).collect()
}

/// Puts a file system, a partition with another and a pattern on the disk, and has the partition found.
pub fn prepare() -> Result<()> {
    fs::wait_for_file(DISK, NODE_LIMIT)?;
    write_file_system(0)?;
    write_file_system(PARTITION_AT)?;
    let disk = File::options().write(true).open(DISK)?;
    disk.write_all_at(&partition_table(), 446)?;
    disk.write_all_at(&pattern(), DATA_AT)?;
    disk.sync_all()?;
    drop(disk);
    let address = address()?;
    pci::unbind(&address)?;
    pci::bind(&address, "nvme")?;
    fs::wait_for_file(PARTITION, NODE_LIMIT)?;
    is_whole()
}

/// One partition of 16 MiB: type, first sector and their number; and the mark at the end of the sector.
fn partition_table() -> [u8; 66] {
    let mut table = [0; 66];
    table[4] = 0x83;
    table[8..12].copy_from_slice(&((PARTITION_AT / 512) as u32).to_le_bytes());
    table[12..16].copy_from_slice(&PARTITION_SECTORS.to_le_bytes());
    table[64..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// The smallest file system that Linux knows to make by hand: romfs with an empty root folder.
fn write_file_system(at: u64) -> Result<()> {
    let mut image = [0u8; 64];
    image[..8].copy_from_slice(b"-rom1fs-");
    image[8..12].copy_from_slice(&64u32.to_be_bytes());
    image[16..19].copy_from_slice(b"xio");
    // The root: no next file, a folder that may be entered; its first file is itself.
    image[32..36].copy_from_slice(&9u32.to_be_bytes());
    image[36..40].copy_from_slice(&32u32.to_be_bytes());
    image[48] = b'.';
    let words = image.chunks(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let sum = words.fold(0u32, u32::wrapping_add);
    image[12..16].copy_from_slice(&sum.wrapping_neg().to_be_bytes());
    let disk = File::options().write(true).open(DISK)?;
    disk.write_all_at(&image, at)?;
    disk.sync_all().context("writing a file system")
}

fn mount_at_folder(node: &str) -> Result<()> {
    std::fs::create_dir_all(FOLDER)?;
    mount(Some(node), FOLDER, Some("romfs"), MsFlags::MS_RDONLY, None::<&str>)
        .with_context(|| format!("mounting {node}"))
}

pub fn is_mounted_and(node: &str, test: impl FnOnce() -> Result<()>) -> Result<()> {
    mount_at_folder(node)?;
    let result = test();
    umount(FOLDER).context("unmounting")?;
    result
}

/// Has the partition mounted where only this process sees it.
fn mounted_elsewhere() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    mount_at_folder(PARTITION)?;
    session::ready()
}
