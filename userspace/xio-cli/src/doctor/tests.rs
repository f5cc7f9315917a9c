// SPDX-License-Identifier: MIT OR Apache-2.0
//! Examinations of made-up systems.

use super::*;
use crate::system::tree::Tree;
use crate::system::{NVME, OURS};
use std::io::Write;

const CONFIG: &str =
    "# a comment\nCONFIG_RUST=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_MODULE_SIG=y\n";
const KV: &str = "0000:00:03.0";

/// A machine with a kernel of the right kind.
fn machine() -> Tree {
    let tree = Tree::new();
    tree.file("proc/sys/kernel/osrelease", "7.3.4-x\n").file("boot/config-7.3.4-x", CONFIG);
    tree.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    tree.file("sys/module/module/parameters/sig_enforce", "N\n");
    tree
}

/// Loads the module.
fn load(tree: &Tree) {
    tree.file("sys/module/rocm_xio/taint", "OE\n").file("sys/module/rocm_xio/parameters/claim", "override\n");
    tree.file("sys/module/rocm_xio/parameters/unsafe_direct", "N\n").driver(OURS);
}

/// A controller with our module, in a group of its own.
fn ours(tree: &Tree) {
    tree.nvme(KV, Some(OURS)).node(&format!("{}/misc/rocm-xio0", Tree::device(KV)), "misc", "10:99");
    tree.link(&format!("{}/iommu_group", Tree::device(KV)), "../../../kernel/iommu_groups/7");
    tree.file("sys/kernel/iommu_groups/7/type", "DMA-FQ\n")
        .folder(&format!("sys/kernel/iommu_groups/7/devices/{KV}"));
    tree.file("sys/kernel/iommu_groups/7/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi\n");
}

fn text(tree: &Tree) -> String {
    examine(&tree.system()).unwrap().text()
}

/// The report's lines have these.
#[track_caller]
fn says(tree: &Tree, lines: &[&str]) {
    let text = text(tree);
    for line in lines {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn a_machine_that_is_ready_has_no_problem() {
    let tree = machine();
    load(&tree);
    ours(&tree);
    let report = examine(&tree.system()).unwrap();
    assert_eq!(report.problems, 0, "{}", report.text());
    says(
        &tree,
        &[
            "Linux 7.3.4-x\n",
            "CONFIG_RUST=y, CONFIG_PCI_P2PDMA=y, CONFIG_DMA_SHARED_BUFFER=y (/boot/config-7.3.4-x)",
            "Secure Boot off, lockdown none, modules need no signature",
            "rocm_xio is loaded, taint OE: claim=override unsafe_direct=N",
            "0000:00:03.0: a Key Value controller, with rocm_xio as /dev/rocm-xio0",
            "0000:00:03.0: translated (DMA-FQ), alone in group 7",
            "no problems\n",
        ],
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["problems"], &json["functions"][0]["key_value"]), (&0.into(), &"yes".into()));
    assert_eq!(
        (&json["functions"][0]["address"], &json["kernel"]["config"]["CONFIG_RUST"]),
        (&KV.into(), &"y".into())
    );
}

#[test]
fn a_wrong_kernel_is_a_problem_unless_the_module_runs_in_it() {
    let tree = machine();
    tree.file("proc/sys/kernel/osrelease", "6.12.1-x\n")
        .file("boot/config-6.12.1-x", "CONFIG_RUST=y\nCONFIG_PCI_P2PDMA=m\n");
    says(
        &tree,
        &[
            "PROBLEM  kernel      Linux 6.12.1-x: the module builds for 7.3 only",
            "PROBLEM  config      not set to y: CONFIG_PCI_P2PDMA, CONFIG_DMA_SHARED_BUFFER",
            "PROBLEM  module      rocm_xio is not loaded",
            "-> insmod rocm_xio.ko claim=override",
        ],
    );
    load(&tree);
    says(&tree, &["note     kernel      Linux 6.12.1-x, not 7.3"]);
}

#[test]
fn the_packed_configuration_comes_first_and_none_is_no_problem() {
    let tree = machine();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(CONFIG.as_bytes()).unwrap();
    tree.file("proc/config.gz", packed.finish().unwrap());
    says(&tree, &["CONFIG_DMA_SHARED_BUFFER=y (/proc/config.gz)"]);
    tree.remove("proc/config.gz").remove("boot/config-7.3.4-x");
    says(&tree, &["note     config      the kernel's configuration is not known"]);
    tree.file("proc/config.gz", "not packed");
    assert!(examine(&tree.system()).unwrap_err().to_string().contains("config.gz: "));
}

#[test]
fn signatures_are_asked_for_where_the_kernel_does() {
    let tree = machine();
    tree.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    tree.file("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", [6, 0, 0, 0, 1]);
    says(
        &tree,
        &[
            "Secure Boot on, lockdown integrity, modules must be signed",
            "-> sign it, then: insmod rocm_xio.ko",
        ],
    );
    tree.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    tree.file("sys/module/module/parameters/sig_enforce", "Y\n");
    tree.remove("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
    says(&tree, &["Secure Boot not known (no EFI variables), lockdown none, modules must be signed"]);
}

#[test]
fn a_disk_is_told_from_a_controller_for_key_value() {
    let tree = machine();
    load(&tree);
    tree.nvme("0000:00:01.0", Some(NVME)).disk("0000:00:01.0");
    says(
        &tree,
        &[
            "ok       controller  0000:00:01.0: no Key Value controller, with nvme: nvme0n1",
            "PROBLEM  controller  no controller is known to be for Key Value",
        ],
    );
    let hidden = format!("{}/nvme/nvme1", Tree::device(KV));
    tree.nvme(KV, Some(NVME)).file(&format!("{hidden}/nvme1n1/csi"), "1\n");
    let report = text(&tree);
    assert!(
        report.contains("PROBLEM  controller  0000:00:03.0: a Key Value controller, with nvme"),
        "{report}"
    );
    assert!(report.contains("-> xio bind 0000:00:03.0") && report.ends_with("1 problem\n"), "{report}");
    // One namespace for blocks, and the module refuses it.
    tree.file(&format!("{hidden}/nvme1c1n2/csi"), "0\n");
    says(&tree, &["0000:00:03.0: no Key Value controller, with nvme: nvme1c1n2, nvme1n1"]);
}

#[test]
fn what_can_not_be_told_is_said_with_what_to_do() {
    let tree = machine();
    load(&tree);
    tree.nvme("0000:00:01.0", None).nvme("0000:00:02.0", Some(NVME)).nvme(KV, None);
    tree.file(&format!("{}/driver_override", Tree::device(KV)), "rocm_xio\n");
    says(
        &tree,
        &[
            "0000:00:01.0: without driver: whether it is for Key Value is not known",
            "-> xio bind 0000:00:01.0 (resets it)",
            "0000:00:02.0: with nvme, and no namespace tells whether it is for Key Value",
            "0000:00:03.0: without driver, and meant for rocm_xio, which did not take it",
            "xio unbind 0000:00:03.0 gives it back",
        ],
    );
}

#[test]
fn what_does_not_confine_is_said_with_what_to_do() {
    let tree = machine();
    load(&tree);
    ours(&tree);
    tree.folder("sys/kernel/iommu_groups/7/devices/0000:00:04.0");
    says(&tree, &["note     iommu       0000:00:03.0: shares IOMMU group 7 with 0000:00:04.0"]);
    std::fs::remove_dir(tree.system().path("/sys/kernel/iommu_groups/7/devices/0000:00:04.0")).unwrap();
    tree.file("sys/kernel/iommu_groups/7/reserved_regions", "0x0 0xfff direct\n");
    says(&tree, &["the firmware has memory mapped for it"]);
    tree.file("sys/kernel/iommu_groups/7/type", "identity\n");
    says(&tree, &["the IOMMU does not translate (identity)", "-> boot without iommu=pt"]);
    tree.remove(&format!("{}/iommu_group", Tree::device(KV)));
    says(&tree, &["0000:00:03.0: no IOMMU", "(--path mediated)", "no problems\n"]);
}

#[test]
fn memory_for_peers_and_bridges_are_told() {
    let tree = machine();
    load(&tree);
    ours(&tree);
    tree.file(&format!("{}/p2pmem/size", Tree::device(KV)), "4194304\n");
    says(&tree, &["ok       p2pdma      0000:00:03.0: 4.0 MiB of its memory buffer for other devices"]);
    // A function behind a bridge that does not keep devices apart, with another there.
    let below = "sys/devices/pci0000:00/0000:00:1c.0/0000:01:00.0";
    tree.link("sys/bus/pci/devices/0000:01:00.0", &format!("../../../../{below}"));
    tree.file(&format!("{below}/class"), "0x010802\n").link(&format!("{below}/driver"), "../x/rocm_xio");
    tree.link("sys/bus/pci/devices/0000:00:1c.0", "../../../../sys/devices/pci0000:00/0000:00:1c.0");
    tree.file("sys/devices/pci0000:00/0000:00:1c.0/config", vec![0; 4096]);
    tree.link(&format!("{below}/iommu_group"), "../x/9").file("sys/kernel/iommu_groups/9/type", "DMA\n");
    tree.folder("sys/kernel/iommu_groups/9/devices/0000:01:00.1");
    says(
        &tree,
        &[
            "0000:01:00.0: shares IOMMU group 9 with 0000:01:00.1",
            "below a bridge with Access Control Services (here one has none, or they are off)",
        ],
    );
    let json = serde_json::to_value(examine(&tree.system()).unwrap()).unwrap();
    let bridge = &json["functions"][1]["bridges"][0];
    assert_eq!((&bridge["address"], &bridge["acs"]), (&"0000:00:1c.0".into(), &"absent".into()));
}

#[test]
fn unsafe_parameters_and_missing_nodes_are_told() {
    let tree = machine();
    load(&tree);
    ours(&tree);
    tree.file("sys/module/rocm_xio/parameters/unsafe_direct", "Y\n");
    says(&tree, &["note     module      unsafe_direct=1: "]);
    tree.remove("dev/rocm-xio0");
    says(&tree, &["PROBLEM  node        /dev/rocm-xio0 does not exist"]);
}
