// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the module is loaded, and how.

use super::kernel::Kernel;
use super::Finding;
use crate::exit::Failure;
use crate::system::{System, OURS};
use serde::Serialize;
use std::collections::BTreeMap;

/// The module as it is loaded.
#[derive(Debug, Serialize)]
pub struct Module {
    /// Of what it was built from, where the kernel tells.
    version: Option<String>,
    srcversion: Option<String>,
    /// Letters, as in the kernel's messages: O is out of tree, E unsigned.
    taint: String,
    users: Option<String>,
    parameters: BTreeMap<String, String>,
}

impl Module {
    /// The module, if it is loaded.
    pub fn read(system: &System) -> Result<Option<Self>, Failure> {
        let folder = format!("/sys/module/{OURS}");
        if !system.has(&folder) {
            return Ok(None);
        }
        let read = |file: &str| system.read(format!("{folder}/{file}"));
        let mut parameters = BTreeMap::new();
        for name in system.names(format!("{folder}/parameters"))? {
            if let Some(value) = read(&format!("parameters/{name}"))? {
                parameters.insert(name, value);
            }
        }
        Ok(Some(Self {
            version: read("version")?,
            srcversion: read("srcversion")?,
            taint: read("taint")?.unwrap_or_default(),
            users: read("refcnt")?,
            parameters,
        }))
    }

    fn is_set(&self, parameter: &str) -> bool {
        self.parameters.get(parameter).is_some_and(|value| value == "Y")
    }
}

/// What is right and wrong with it.
pub fn judge(module: Option<&Module>, kernel: &Kernel, findings: &mut Vec<Finding>) {
    let Some(module) = module else {
        let remedy = if kernel.refuses_unsigned() {
            "sign it, then: insmod rocm_xio.ko claim=override"
        } else {
            "insmod rocm_xio.ko claim=override"
        };
        findings.push(Finding::problem("module", "rocm_xio is not loaded", remedy));
        return;
    };
    let version = module.version.as_ref().or(module.srcversion.as_ref());
    let version = version.map_or(String::new(), |version| format!(" {version}"));
    let parameters: Vec<String> =
        module.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let taint = if module.taint.is_empty() { String::new() } else { format!(", taint {}", module.taint) };
    findings
        .push(Finding::ok("module", format!("rocm_xio{version} is loaded{taint}: {}", parameters.join(" "))));
    for (parameter, what) in [
        ("unsafe_direct", "clients may have direct queues though nothing confines the device"),
        ("unsafe_interrupts", "an IOMMU that does not remap interrupts counts as confining"),
    ] {
        if module.is_set(parameter) {
            let what = format!("{parameter}=1: {what}");
            findings.push(Finding::note(
                "module",
                what,
                "load it without this where users are not trusted with all of memory",
            ));
        }
    }
}
