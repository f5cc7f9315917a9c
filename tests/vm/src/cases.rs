// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of VM tests.
//!
//! To add one:
//! 1. Write the test functions in a file of `tests/guest/src/tests/` and register the group in the table of its
//!    `mod.rs` (the top of that file shows how).
//! 2. Add a line to [`CASES`]: a unique name, the guest group (with arguments after commas, as on the kernel's
//!    command line), and a function that describes the machine. Several cases may run one group in different
//!    machines.
//!
//! `./scripts/test NAME` runs one case, `./scripts/test --list` shows them.

use crate::machine::{Iommu, Machine};
use crate::setup::is_debug_kernel;

/// One machine to boot and the guest tests to run in it.
pub struct Case {
    /// The name, unique among all cases.
    pub name: &'static str,
    /// The guest group and its arguments, `GROUP[,ARG…]`.
    pub guest: &'static str,
    /// Describes the machine.
    pub machine: fn() -> Machine,
}

impl Case {
    /// Whether it belongs to a suite that gives it what it needs, and is left out unless asked for.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.guest, "interop" | "rados") || self.guest == "failslab" && !is_debug_kernel()
    }
}

const fn case(name: &'static str, guest: &'static str, machine: fn() -> Machine) -> Case {
    Case { name, guest, machine }
}

/// For the IOMMUs of QEMU that do not remap interrupts: the module is loaded with unsafe_interrupts=1.
const ACCEPT: &str = "xio.unsafe_interrupts";

/// QEMU's amd-iommu ends on an assertion when a guest unmaps a whole table of small mappings, or a large one in pieces.
const SMALL_PAGES: &str = "amd_iommu=nohugepages";

/// The machine of the demonstration.
#[must_use]
pub fn demo() -> Machine {
    let options = ["--max-value", "67108864", "--capacity", "268435456"];
    Machine::new().iommu(Iommu::Intel).controller(&options).kernel_image("/data/vmlinuz").timeout(300)
}

/// Two controllers of QEMU's that lead to the same empty disk.
fn two_paths() -> Machine {
    Machine::new().iommu(Iommu::Intel).qemu(&[
        "-blockdev",
        "driver=null-co,node-name=shared,size=16777216,read-zeroes=on",
        "-device",
        "nvme-subsys,id=subsystem,nqn=shared",
        "-device",
        "nvme,id=first,serial=shared,subsys=subsystem",
        "-device",
        "nvme,id=second,serial=shared,subsys=subsystem",
        "-device",
        "nvme-ns,drive=shared,bus=first,shared=on",
    ])
}

/// All cases, in the order in which they run.
pub const CASES: &[Case] = &[
    case("smoke", "smoke", || Machine::new().nvme_disk()),
    case("smoke-intel", "smoke,iommu", || Machine::new().iommu(Iommu::Intel).nvme_disk()),
    case("smoke-amd", "smoke,iommu", || Machine::new().iommu(Iommu::Amd).nvme_disk()),
    case("smoke-virtio", "smoke,iommu", || Machine::new().iommu(Iommu::Virtio).nvme_disk()),
    case("bind", "bind", || Machine::new().iommu(Iommu::Intel).nvme_disk().controller(&[]).timeout(300)),
    case("bind-paths", "bind-paths", two_paths),
    case("claim", "claim", || {
        Machine::new().iommu(Iommu::Intel).nvme_disk().controller(&["--css", "nvm"]).controller(&[])
    }),
    case("demo", "demo", demo),
    case("kv", "kv", || Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(300)),
    case("kv-dstrd10", "kv", || {
        Machine::new().iommu(Iommu::Intel).controller(&["--dstrd", "10"]).timeout(300)
    }),
    case("kv-small", "kv-small", || {
        let limits = "--max-queue-entries 16 --mdts 3 --namespaces 3 --capacity 1M --max-value 64K";
        Machine::new().iommu(Iommu::Intel).controller(&limits.split(' ').collect::<Vec<_>>())
    }),
    case("kv-two", "kv-two", || Machine::new().iommu(Iommu::Intel).controller(&[]).controller(&[])),
    case("gpu", "gpu", || Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(300)),
    case("gpu-dstrd10", "gpu", || {
        Machine::new().iommu(Iommu::Intel).controller(&["--dstrd", "10"]).timeout(300)
    }),
    case("kv-mediated", "kv-ways,mediated/coherent,direct/pinned,iommu", || {
        Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(300)
    }),
    case("kv-no-iommu", "kv-ways,auto/coherent,mediated/pinned", || {
        Machine::new().controller(&[]).timeout(300)
    }),
    case("kv-virtio", "kv-ways,direct/pinned,mediated/pinned,iommu", || {
        Machine::new().iommu(Iommu::Virtio).cmdline(ACCEPT).controller(&["--dstrd", "10"]).timeout(300)
    }),
    case("nvme", "nvme", || Machine::new().iommu(Iommu::Intel).controller(&[])),
    case("nvme-cmb", "nvme", || Machine::new().iommu(Iommu::Intel).controller(&["--cmb", "4M"])),
    case("nvme-private", "nvme", || Machine::new().iommu(Iommu::Intel).private_memory().controller(&[])),
    case("interop", "interop", || Machine::new().controller(&["--namespaces", "2"]).tools()),
    case("rados", "rados", || {
        // The suite `rados` says where the cluster is.
        let conf =
            std::env::var("XIO_CEPH").map_or_else(|_| "ceph.conf".to_owned(), |dir| dir + "/ceph.conf");
        Machine::new().iommu(Iommu::Intel).controller(&["--rados", "xio/vm", "--ceph-conf", &conf])
    }),
    case("abi", "abi", || Machine::new().iommu(Iommu::Intel).controller(&[])),
    case("abi-dstrd10", "abi", || Machine::new().iommu(Iommu::Intel).controller(&["--dstrd", "10"])),
    case("direct", "direct", || Machine::new().controller(&[])),
    case("direct-interrupts", "direct,interrupts", || Machine::new().iommu(Iommu::Virtio).controller(&[])),
    case("direct-group", "direct,group", || {
        Machine::new().iommu(Iommu::Intel).controller(&[]).controller(&[]).one_slot()
    }),
    case("direct-identity", "direct,identity", || {
        Machine::new().iommu(Iommu::Intel).cmdline("iommu=pt").controller(&[])
    }),
    case("fakegpu", "fakegpu", || Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&[])),
    case("fakegpu-no-iommu", "fakegpu", || Machine::new().fake_gpu().controller(&[])),
    case("fakegpu-virtio", "fakegpu", || Machine::new().iommu(Iommu::Virtio).fake_gpu().controller(&[])),
    case("fakegpu-no-peers", "fakegpu,no-peers", || Machine::new().fake_gpu().no_peers().controller(&[])),
    case("life", "life", || Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(300)),
    // After a sleep QEMU's amd-iommu no longer tells devices of vfio-user of any mapping.
    case("life-dstrd10", "life,no-sleep,short", || {
        Machine::new().iommu(Iommu::Amd).cmdline(ACCEPT).controller(&["--dstrd", "10"])
    }),
    case("life-lazy", "life,lazy,short", || Machine::new().iommu(Iommu::Intel).controller(&[])),
    // A virtio-iommu that was suspended answers no more, and whoever unmaps something waits for it.
    case("life-virtio", "life,no-suspend,short", || {
        Machine::new().iommu(Iommu::Virtio).cmdline(ACCEPT).controller(&[])
    }),
    case("life-no-iommu", "life,root", || Machine::new().controller(&[]).timeout(300)),
    case("faults", "faults", || Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(900)),
    // Only the debug kernel makes allocations fail.
    case("failslab", "failslab", || {
        Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&["--max-queues", "2"]).timeout(600)
    }),
    case("lifecycle", "lifecycle", || {
        let options = ["--msi", "--cmb", "4M", "--dstrd", "10"];
        Machine::new().iommu(Iommu::Intel).fake_gpu().root_ports().controller(&options).timeout(900)
    }),
    case("recover", "recover", || Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(300)),
    case("kexec", "kexec", || {
        Machine::new()
            .iommu(Iommu::Intel)
            .kernel_image("/data/vmlinuz")
            .ram_mib(2048)
            .controller(&[])
            .timeout(300)
    }),
    case("mediated", "mediated,iommu", || Machine::new().iommu(Iommu::Intel).controller(&[]).timeout(300)),
    case("mediated-no-iommu", "mediated", || Machine::new().controller(&[]).timeout(300)),
    case("mediated-virtio", "mediated,iommu", || {
        Machine::new().iommu(Iommu::Virtio).cmdline(ACCEPT).controller(&[]).timeout(300)
    }),
    case("share", "share,iommu", || {
        Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&[]).timeout(400)
    }),
    case("share-virtio", "share,iommu,as-ram", || {
        Machine::new().iommu(Iommu::Virtio).cmdline(ACCEPT).fake_gpu().controller(&[]).timeout(400)
    }),
    case("share-amd", "share,iommu,small", || {
        Machine::new().iommu(Iommu::Amd).cmdline(ACCEPT).cmdline(SMALL_PAGES).fake_gpu().controller(&[])
    }),
    case("share-no-iommu", "share", || Machine::new().fake_gpu().controller(&[]).timeout(400)),
    case("peer", "peer", || {
        Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&["--dstrd", "10"]).timeout(300)
    }),
    case("peer-contiguous", "peer,contiguous", || {
        Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&["--contiguous-queues"]).timeout(300)
    }),
    case("peer-amd", "peer", || {
        Machine::new().iommu(Iommu::Amd).cmdline(ACCEPT).cmdline(SMALL_PAGES).fake_gpu().controller(&[])
    }),
    case("cmb", "cmb,iommu", || {
        Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&["--cmb", "4M"]).timeout(300)
    }),
    case("cmb-no-iommu", "cmb", || Machine::new().controller(&["--cmb", "4M"]).timeout(300)),
    case("trust", "trust", || {
        Machine::new().iommu(Iommu::Intel).fake_gpu().controller(&["--cmb", "4M"]).timeout(600)
    }),
    case("mediated-amd", "mediated,iommu,small", || {
        Machine::new().iommu(Iommu::Amd).cmdline(ACCEPT).cmdline(SMALL_PAGES).controller(&[]).timeout(300)
    }),
    case("mediated-small", "mediated-small", || {
        let limits = "--max-queue-entries 16 --mdts 3 --max-queues 1";
        Machine::new().controller(&limits.split(' ').collect::<Vec<_>>())
    }),
];

/// The case of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(
                CASES[..index].iter().all(|other| other.name != case.name),
                "{} is there twice",
                case.name
            );
            assert!(case.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", case.name);
        }
    }
}
