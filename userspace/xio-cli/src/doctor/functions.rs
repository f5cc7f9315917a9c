// SPDX-License-Identifier: MIT OR Apache-2.0
//! NVMe functions: whether they are Key Value controllers, who has them, and what confines them.

use super::bridges::{self, Acs, Bridge};
use super::Finding;
use crate::exit::Failure;
use crate::output::size;
use crate::system::{Address, Function, System, NVME, OURS};
use serde::Serialize;

/// The Key Value command set.
const KV: u8 = 1;

/// Whether a controller is one for Key Value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IsKv {
    /// It is.
    Yes,
    /// It has other namespaces, and the module refuses it.
    No,
    /// That can not be told without a reset.
    Unknown,
}

/// A namespace, as nvme shows it.
#[derive(Debug, Serialize)]
pub struct Namespace {
    name: String,
    /// Its command set, where the kernel tells it.
    csi: Option<u8>,
}

/// The IOMMU group of a function.
#[derive(Debug, Serialize)]
pub struct Group {
    number: String,
    /// Of its domain: DMA, DMA-FQ or identity.
    kind: String,
    /// The other devices in it.
    others: Vec<String>,
    /// Whether the firmware has memory mapped for it.
    reserved: bool,
}

/// A function.
#[derive(Debug, Serialize)]
pub struct Controller {
    address: Address,
    driver: Option<String>,
    driver_override: Option<String>,
    key_value: IsKv,
    /// The node of our module.
    pub node: Option<String>,
    namespaces: Vec<Namespace>,
    iommu: Option<Group>,
    bridges: Vec<Bridge>,
    /// Bytes of its controller memory buffer that other devices may reach.
    peer_memory: Option<u64>,
}

/// All NVMe functions.
pub fn all(system: &System) -> Result<Vec<Controller>, Failure> {
    let found = Function::all(system)?;
    found
        .iter()
        .filter(|function| function.is_nvme())
        .map(|function| Controller::read(system, function))
        .collect()
}

impl Controller {
    fn read(system: &System, function: &Function<'_>) -> Result<Self, Failure> {
        let driver = function.driver()?;
        let namespaces = namespaces(system, function)?;
        let key_value = match driver.as_deref() {
            Some(OURS) => IsKv::Yes,
            Some(NVME) if namespaces.iter().any(|ns| ns.csi.is_some_and(|csi| csi != KV)) => IsKv::No,
            Some(NVME) if !namespaces.is_empty() && namespaces.iter().all(|ns| ns.csi == Some(KV)) => {
                IsKv::Yes
            }
            _ => IsKv::Unknown,
        };
        Ok(Self {
            address: function.address,
            driver,
            driver_override: function.driver_override()?,
            key_value,
            node: function.our_node()?,
            namespaces,
            iommu: group(system, function)?,
            bridges: bridges::above(system, function)?,
            peer_memory: function.read("p2pmem/size")?.and_then(|text| text.parse().ok()),
        })
    }

    /// What it is and what to do with it.
    fn judge(&self, module_is_loaded: bool) -> Finding {
        let load = if module_is_loaded { "" } else { "load the module, then: " };
        let bind = format!("{load}xio bind {}", self.address);
        let text = |what: &str| format!("{}: {what}", self.address);
        let topic = "controller";
        match (self.driver.as_deref(), self.key_value) {
            (Some(OURS), _) => {
                let node = self.node.as_deref().unwrap_or("no node yet");
                Finding::ok(topic, text(&format!("a Key Value controller, with rocm_xio as {node}")))
            }
            (Some(driver), IsKv::Yes) => {
                Finding::problem(topic, text(&format!("a Key Value controller, with {driver}")), bind)
            }
            (Some(driver), IsKv::No) => {
                Finding::ok(topic, text(&format!("no Key Value controller, with {driver}: {}", self.names())))
            }
            (Some(driver), IsKv::Unknown) => {
                let what = format!("with {driver}, and no namespace tells whether it is for Key Value");
                Finding::note(
                    topic,
                    text(&what),
                    format!("if it should be: {bind} (resets it; it goes back if it is not)"),
                )
            }
            (None, _) if self.driver_override.as_deref() == Some(OURS) => {
                let remedy = format!("`dmesg` says why; xio unbind {} gives it back", self.address);
                Finding::note(
                    topic,
                    text("without driver, and meant for rocm_xio, which did not take it"),
                    remedy,
                )
            }
            (None, _) => {
                let remedy = format!("{bind} (resets it), or `modprobe nvme` and look again");
                Finding::note(topic, text("without driver: whether it is for Key Value is not known"), remedy)
            }
        }
    }

    fn names(&self) -> String {
        self.namespaces.iter().map(|ns| ns.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether an IOMMU confines it, as far as sysfs shows. (Whether interrupts are remapped it does not; `xio info` does.)
    fn judge_iommu(&self) -> Finding {
        const MEDIATED: &str = "until then the kernel submits for clients (--path mediated)";
        let note = |what: &str, remedy: &str| {
            Finding::note("iommu", format!("{}: {what}", self.address), format!("{remedy}; {MEDIATED}"))
        };
        let Some(group) = &self.iommu else {
            return note("no IOMMU", "direct queues need one: switch it on in the firmware, and for Intel boot with intel_iommu=on");
        };
        let kind = &group.kind;
        if !kind.starts_with("DMA") {
            return note(
                &format!("the IOMMU does not translate ({kind})"),
                "boot without iommu=pt (iommu.passthrough=0)",
            );
        }
        if !group.others.is_empty() {
            let off = self.bridges.iter().any(|bridge| matches!(bridge.acs, Acs::Off | Acs::Absent));
            let acs = if off {
                " below a bridge with Access Control Services (here one has none, or they are off)"
            } else {
                ""
            };
            let what = format!("shares IOMMU group {} with {}", group.number, group.others.join(", "));
            return note(&what, &format!("put it into another slot{acs}"));
        }
        if group.reserved {
            return note(
                "the firmware has memory mapped for it",
                "look for a switch in the firmware's settings (RMRR)",
            );
        }
        Finding::ok(
            "iommu",
            format!("{}: translated ({kind}), alone in group {}", self.address, group.number),
        )
    }
}

/// What is right and wrong with them.
pub fn judge(all: &[Controller], module_is_loaded: bool, findings: &mut Vec<Finding>) {
    for controller in all {
        findings.push(controller.judge(module_is_loaded));
        if controller.key_value == IsKv::Yes {
            findings.push(controller.judge_iommu());
        }
        if let Some(bytes) = controller.peer_memory {
            let what =
                format!("{}: {} of its memory buffer for other devices", controller.address, size(bytes));
            findings.push(Finding::ok("p2pdma", what));
        }
    }
    if all.iter().all(|controller| controller.key_value != IsKv::Yes) {
        let (what, remedy) = if all.is_empty() {
            ("there is no NVMe controller", "plug one in, or try the software controller: docs/src/target.md")
        } else {
            ("no controller is known to be for Key Value", "bind the right one: xio bind PCI-ADDRESS")
        };
        findings.push(Finding::problem("controller", what, remedy));
    }
}

/// The namespaces that nvme shows, by the disk or, for other command sets, the generic node of each.
fn namespaces(system: &System, function: &Function<'_>) -> Result<Vec<Namespace>, Failure> {
    let mut found = Vec::new();
    for controller in system.names(function.path("nvme"))? {
        let folder = function.path("nvme").join(controller);
        for name in system.names(&folder)?.into_iter().filter(|name| is_namespace(name)) {
            let csi = system.read(folder.join(&name).join("csi"))?.and_then(|text| text.parse().ok());
            found.push(Namespace { name, csi });
        }
    }
    Ok(found)
}

/// `nvme0n1`, or `nvme0c1n1` for a path to it.
fn is_namespace(name: &str) -> bool {
    let parts = name.strip_prefix("nvme").and_then(|rest| rest.rsplit_once('n'));
    parts.is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn group(system: &System, function: &Function<'_>) -> Result<Option<Group>, Failure> {
    let Some(number) = system.link(function.path("iommu_group"))? else { return Ok(None) };
    let folder = format!("/sys/kernel/iommu_groups/{number}");
    let mut others = system.names(format!("{folder}/devices"))?;
    others.retain(|name| *name != function.address.to_string());
    let regions = system.read(format!("{folder}/reserved_regions"))?.unwrap_or_default();
    Ok(Some(Group {
        kind: system.read(format!("{folder}/type"))?.unwrap_or_else(|| "unknown".into()),
        others,
        reserved: regions.lines().any(|line| line.ends_with(" direct")),
        number,
    }))
}
