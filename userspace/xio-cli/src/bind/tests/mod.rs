// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binding in made-up systems.

mod uses;

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
