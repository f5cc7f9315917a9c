// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio bind`, `xio unbind` and `xio doctor`. The machine has QEMU's NVMe disk, and after it a Key Value controller.
//! Group `bind-paths`: two controllers that lead to the same disk.

use crate::kernel::{self, NODE, NODE_LIMIT};
use crate::report::Report;
use crate::session::{self, Client, Session};
use crate::{command, fs, pci, user};
use anyhow::{ensure, Context, Result};
use nix::mount::{mount, umount, umount2, MntFlags, MsFlags};
use nix::sched::{unshare, CloneFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;

const DISK: &str = "/dev/nvme0n1";
const PARTITION: &str = "/dev/nvme0n1p1";
const FOLDER: &str = "/tmp/mounted";
/// Where the partition begins, and the file system in it.
const PARTITION_AT: u64 = 1 << 20;
const DATA_AT: u64 = 32 << 20;
const DATA_LEN: usize = 1 << 20;

pub const CLIENTS: &[(&str, Client)] = &[("bind-mounted-elsewhere", |_| mounted_elsewhere())];

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("doctor_without_the_module", |report| {
        let found = command::run(&["xio", "doctor"])?.expect_code(9)?.text();
        report.note(&found);
        ensure!(found.contains("rocm_xio is not loaded") && found.contains("insmod rocm_xio.ko"), "{found}");
        let refused = command::run(&["xio", "bind", &kv()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains("the module is not loaded"), "{refused}");
        Ok(())
    });
    report.case("doctor_tells_the_disk_from_the_controller", |report| {
        kernel::modprobe("nvme")?;
        kernel::modprobe("romfs")?;
        kernel::modprobe("loop")?;
        kernel::insmod(kernel::MODULE, "claim=override").context("insmod")?;
        prepare()?;
        let found = doctor(9)?;
        report.note(&found);
        let lines = [
            format!("{}: no Key Value controller, with nvme: nvme0n1", disk()?),
            format!("{}: a Key Value controller, with nvme", kv()?),
            format!("-> xio bind {}", kv()?),
        ];
        ensure!(lines.iter().all(|line| found.contains(line)), "{lines:?}");
        let json = user::run(&["xio", "doctor", "-o", "json"])?.expect_code(9)?.text();
        ensure!(json.contains(r#""key_value": "no""#) && json.contains(r#""key_value": "yes""#), "{json}");
        Ok(())
    });
    report.case("only_root_may_bind", |_| {
        let refused = user::run(&["xio", "bind", &disk()?])?.expect_code(7)?.stderr;
        ensure!(refused.contains("only root may"), "{refused}");
        Ok(())
    });
    refusals(report);
    report.case("what_is_no_controller_is_refused", |_| {
        let other = pci::functions_with("class", "0x060000")?.into_iter().next().context("no bridge")?;
        let refused = command::run(&["xio", "bind", &other])?.expect_code(6)?.stderr;
        ensure!(refused.contains("is no NVMe controller: its class is 0x060000"), "{refused}");
        command::run(&["xio", "bind", "00:1d.7"])?.expect_code(8)?;
        command::run(&["xio", "bind", "00:1d"])?.expect_code(2)?;
        let refused = command::run(&["xio", "unbind", &disk()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains("is not with rocm_xio: nvme has it"), "{refused}");
        Ok(())
    });
    report.case("a_disk_that_nobody_uses_goes_back_to_nvme_with_its_data", |report| {
        let refused = command::run(&["xio", "bind", &disk()?])?.expect_code(6)?.stderr;
        report.note(&refused);
        ensure!(
            refused.contains("rocm_xio did not take it") && refused.contains("; nvme has it, as before"),
            "{refused}"
        );
        ensure!(refused.contains("without the Key Value command set"), "{refused}");
        is_whole()?;
        is_mounted_and(PARTITION, || Ok(()))
    });
    report.case("a_controller_is_given_to_the_module_and_used", |_| {
        // Domain 0000 is meant.
        let address = kv()?;
        let given =
            command::run(&["xio", "bind", address.trim_start_matches("0000:")])?.expect_success()?.text();
        ensure!(given.contains(&format!("{address}: rocm_xio has it now, as {NODE}")), "{given}");
        let again = command::run(&["xio", "bind", &address])?.expect_success()?.text();
        ensure!(again.contains("has it already"), "{again}");
        kernel::give_nodes_to_render()?;
        work("first")
    });
    report.case("doctor_finds_no_problem", |report| {
        let found = doctor(0)?;
        report.note(&found);
        let line = format!("{}: a Key Value controller, with rocm_xio as {NODE}", kv()?);
        ensure!(
            found.contains(&line) && found.contains("no problems") && found.contains("this user may open it"),
            "{line}"
        );
        let outside = user::run_outside_render(&["xio", "doctor"])?.expect_code(9)?.text();
        ensure!(outside.contains("is not in group render"), "{outside}");
        Ok(())
    });
    report.case("a_controller_in_use_is_not_taken_back", |_| {
        let node = File::options().read(true).write(true).open(NODE)?;
        let refused = command::run(&["xio", "unbind", &kv()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains(&format!("{NODE} is open in init (process 1)")), "{refused}");
        drop(node);
        work("still there")
    });
    report.case("a_controller_goes_back_and_forth", |_| {
        for _ in 0..3 {
            let given = command::run(&["xio", "unbind", &kv()?])?.expect_success()?.text();
            ensure!(given.contains("nvme has it now"), "{given}");
            fs::wait_for("a generic node", NODE_LIMIT, || Ok(generic()?.is_some()))?;
            ensure!(pci::driver(&kv()?)?.as_deref() == Some("nvme"), "nvme does not have it");
            command::run(&["xio", "bind", &kv()?])?.expect_success()?;
            kernel::give_nodes_to_render()?;
            user::run(&["xio", "kv", "exist", "still there"])?.expect_success()?;
        }
        Ok(())
    });
    report.case("an_open_generic_node_is_named", |_| {
        command::run(&["xio", "unbind", &kv()?])?.expect_success()?;
        fs::wait_for("a generic node", NODE_LIMIT, || Ok(generic()?.is_some()))?;
        let path = generic()?.context("the generic node vanished")?;
        let node = File::open(&path)?;
        let refused = command::run(&["xio", "bind", &kv()?])?.expect_code(8)?.stderr;
        ensure!(refused.contains(&format!("{path} is open in init (process 1)")), "{refused}");
        drop(node);
        command::run(&["xio", "bind", &kv()?])?.expect_success().map(drop)
    });
    report.case("a_controller_that_vfio_lends_out_is_named", |_| {
        kernel::modprobe("vfio-pci")?;
        let address = kv()?;
        command::run(&["xio", "unbind", &address])?.expect_success()?;
        pci::override_driver(&address, "vfio-pci")?;
        pci::unbind(&address)?;
        pci::bind(&address, "vfio-pci")?;
        let group = std::fs::read_link(pci::path(&address).join("iommu_group"))?;
        let group = format!("/dev/vfio/{}", group.file_name().context("no group")?.to_string_lossy());
        fs::wait_for_file(&group, NODE_LIMIT)?;
        let open = File::options().read(true).write(true).open(&group)?;
        let refused = command::run(&["xio", "bind", &address])?.expect_code(8)?.stderr;
        ensure!(refused.contains(&format!("{group} is open in init (process 1)")), "{refused}");
        drop(open);
        command::run(&["xio", "bind", &address])?.expect_success().map(drop)
    });
    report.case("without_nvme_a_controller_is_left_without_driver", |_| {
        kernel::rmmod("nvme").context("rmmod nvme")?;
        let given = command::run(&["xio", "unbind", &kv()?])?.expect_success()?.text();
        ensure!(given.contains("no driver has it now"), "{given}");
        ensure!(doctor(9)?.contains("whether it is for Key Value is not known"), "doctor");
        Ok(())
    });
}

/// A disk with two controllers: in use by either, it is refused by both.
pub fn run_paths(report: &mut Report, _: &[&str]) {
    report.case("both_paths_lead_to_the_disk", |_| {
        kernel::modprobe("nvme")?;
        kernel::insmod(kernel::MODULE, "claim=override").context("insmod")?;
        fs::wait_for_file(DISK, NODE_LIMIT)?;
        fs::wait_for("both paths", NODE_LIMIT, || Ok(paths_of_disk()? == 2))
    });
    report.case("a_disk_in_use_is_refused_by_each_path", |_| {
        for node in [DISK, "/dev/ng0n1"] {
            let open = File::open(node)?;
            for address in pci::nvme_functions()? {
                let refused = command::run(&["xio", "bind", &address])?.expect_code(8)?.stderr;
                ensure!(refused.contains(&format!("{node} is open in init (process 1)")), "{refused}");
            }
            drop(open);
        }
        ensure!(paths_of_disk()? == 2, "a path is gone");
        Ok(())
    });
    report.case("a_path_that_nobody_uses_goes_back", |report| {
        for address in pci::nvme_functions()? {
            let refused = command::run(&["xio", "bind", &address])?.expect_code(6)?.stderr;
            report.note(&refused);
            fs::wait_for("both paths", NODE_LIMIT, || Ok(paths_of_disk()? == 2))?;
        }
        let found = doctor(9)?;
        report.note(&found);
        ensure!(found.matches("no Key Value controller, with nvme").count() == 2, "{found}");
        Ok(())
    });
}

/// How many controllers lead to the disk.
fn paths_of_disk() -> Result<usize> {
    let mut count = 0;
    for address in pci::nvme_functions()? {
        let folder = pci::path(&address).join("nvme");
        for controller in std::fs::read_dir(folder).into_iter().flatten() {
            for entry in std::fs::read_dir(controller?.path())? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                count += usize::from(name.starts_with("nvme0c") && name.ends_with("n1"));
            }
        }
    }
    Ok(count)
}

/// All that the disk is refused for.
fn refusals(report: &mut Report) {
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
    let refused = command::run(&["xio", "bind", &disk()?])?.expect_code(8)?.stderr;
    ensure!(refused.contains(text), "{text:?} is not in {refused}");
    is_whole()
}

/// The disk is with nvme, for nobody else, and its data are there.
fn is_whole() -> Result<()> {
    let address = disk()?;
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

fn disk() -> Result<String> {
    pci::nvme_functions()?.into_iter().next().context("no disk")
}

fn kv() -> Result<String> {
    pci::nvme_functions()?.into_iter().next_back().context("no controller")
}

/// The generic node of the controller, when nvme has it.
fn generic() -> Result<Option<String>> {
    let folder = pci::path(&kv()?).join("nvme");
    let Some(controller) = std::fs::read_dir(folder)?.next() else { return Ok(None) };
    for entry in std::fs::read_dir(controller?.path())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("ng") {
            return Ok(Some(format!("/dev/{name}")));
        }
    }
    Ok(None)
}

/// What the ordinary user is told.
fn doctor(code: i32) -> Result<String> {
    Ok(user::run(&["xio", "doctor"])?.expect_code(code)?.text())
}

/// Stores and retrieves.
fn work(key: &str) -> Result<()> {
    std::fs::write("/tmp/value", key)?;
    user::run(&["xio", "kv", "store", key, "-i", "/tmp/value"])?.expect_success()?;
    let got = user::run(&["xio", "kv", "retrieve", key])?.expect_success()?;
    ensure!(got.stdout == key.as_bytes(), "{:?}", got.text());
    Ok(())
}

fn pattern() -> Vec<u8> {
    (0..DATA_LEN).map(|i| crate::raw::pattern(7, i)).collect()
}

/// Puts a file system, a partition with another and a pattern on the disk, and has the partition found.
fn prepare() -> Result<()> {
    fs::wait_for_file(DISK, NODE_LIMIT)?;
    write_file_system(0)?;
    write_file_system(PARTITION_AT)?;
    let disk = File::options().write(true).open(DISK)?;
    disk.write_all_at(&partition_table(), 446)?;
    disk.write_all_at(&pattern(), DATA_AT)?;
    disk.sync_all()?;
    drop(disk);
    let address = self::disk()?;
    pci::unbind(&address)?;
    pci::bind(&address, "nvme")?;
    fs::wait_for_file(PARTITION, NODE_LIMIT)?;
    fs::wait_for("a generic node", NODE_LIMIT, || Ok(generic()?.is_some()))?;
    is_whole()
}

/// One partition of 16 MiB: type, first sector and their number; and the mark at the end of the sector.
fn partition_table() -> [u8; 66] {
    let mut table = [0; 66];
    table[4] = 0x83;
    table[8..12].copy_from_slice(&((PARTITION_AT / 512) as u32).to_le_bytes());
    table[12..16].copy_from_slice(&32768u32.to_le_bytes());
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

fn is_mounted_and(node: &str, test: impl FnOnce() -> Result<()>) -> Result<()> {
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
