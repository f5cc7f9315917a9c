// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel is one that the module runs in, and lets it be loaded.

use super::Finding;
use crate::exit::Failure;
use crate::system::{System, Unreadable};
use flate2::read::GzDecoder;
use procfs_core::{ConfigSetting, FromBufRead, KernelConfig};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, BufReader};

/// The series that the module builds for.
const SERIES: &str = "7.3";
/// What the module needs, as its Kbuild file checks.
const NEEDED: &[&str] = &["CONFIG_RUST", "CONFIG_PCI_P2PDMA", "CONFIG_DMA_SHARED_BUFFER"];
/// What else is told: how modules are checked, and who may confine a device.
const TOLD: &[&str] = &[
    "CONFIG_MODULE_SIG",
    "CONFIG_MODULE_SIG_FORCE",
    "CONFIG_IOMMU_SUPPORT",
    "CONFIG_INTEL_IOMMU",
    "CONFIG_AMD_IOMMU",
];
/// The variable of the firmware: 4 bytes of attributes, and the value.
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// The kernel.
#[derive(Debug, Serialize)]
pub struct Kernel {
    release: String,
    /// Where the configuration was found, if anywhere.
    config_file: Option<String>,
    config: BTreeMap<&'static str, String>,
    secure_boot: Option<bool>,
    lockdown: Option<String>,
    signatures_enforced: Option<bool>,
}

impl Kernel {
    /// What the kernel says of itself.
    pub fn read(system: &System) -> Result<Self, Failure> {
        let release = system.read("/proc/sys/kernel/osrelease")?.unwrap_or_default();
        let (config_file, config) = match config(system, &release)? {
            Some((file, config)) => (Some(file), config),
            None => (None, KernelConfig(Default::default())),
        };
        let told = NEEDED.iter().chain(TOLD).map(|name| (*name, setting(config.0.get(*name))));
        let lockdown = system.read("/sys/kernel/security/lockdown")?;
        let enforced = system.read("/sys/module/module/parameters/sig_enforce")?;
        Ok(Self {
            config: if config_file.is_some() { told.collect() } else { BTreeMap::new() },
            config_file,
            secure_boot: secure_boot(system)?,
            lockdown: lockdown.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            signatures_enforced: enforced.map(|text| text == "Y"),
            release,
        })
    }

    /// Whether a module without a signature that the kernel knows can not be loaded.
    pub fn refuses_unsigned(&self) -> bool {
        self.signatures_enforced == Some(true) || self.lockdown.as_deref().is_some_and(|mode| mode != "none")
    }

    /// What is right and wrong with it.
    pub fn judge(&self, module_is_loaded: bool, findings: &mut Vec<Finding>) {
        let release = &self.release;
        if release.starts_with(&format!("{SERIES}.")) {
            findings.push(Finding::ok("kernel", format!("Linux {release}")));
        } else if module_is_loaded {
            findings.push(Finding::note(
                "kernel",
                format!("Linux {release}, not {SERIES}"),
                "the module is loaded all the same",
            ));
        } else {
            let what = format!("Linux {release}: the module builds for {SERIES} only");
            findings.push(Finding::problem(
                "kernel",
                what,
                format!("boot a kernel of that series (Debian's backports: linux-image-amd64 {SERIES})"),
            ));
        }
        self.judge_config(module_is_loaded, findings);
        self.judge_checks(findings);
    }

    fn judge_config(&self, module_is_loaded: bool, findings: &mut Vec<Finding>) {
        let Some(file) = &self.config_file else {
            if module_is_loaded {
                return;
            }
            let what = "the kernel's configuration is not known: neither /proc/config.gz nor a file config-* in /boot";
            findings.push(Finding::note("config", what, format!("it needs {}=y", NEEDED.join("=y, "))));
            return;
        };
        let lacks: Vec<&str> = NEEDED
            .iter()
            .copied()
            .filter(|name| self.config.get(name).is_none_or(|set| set != "y"))
            .collect();
        findings.push(if lacks.is_empty() {
            Finding::ok("config", format!("{}=y ({file})", NEEDED.join("=y, ")))
        } else {
            let remedy = "use Debian's kernel, or build one with these options";
            Finding::problem("config", format!("not set to y: {} ({file})", lacks.join(", ")), remedy)
        });
    }

    fn judge_checks(&self, findings: &mut Vec<Finding>) {
        let secure = match self.secure_boot {
            Some(true) => "on",
            Some(false) => "off",
            None => "not known (no EFI variables)",
        };
        let lockdown = self.lockdown.as_deref().unwrap_or("not known");
        let signed =
            if self.refuses_unsigned() { "modules must be signed" } else { "modules need no signature" };
        let what = format!("Secure Boot {secure}, lockdown {lockdown}, {signed}");
        findings.push(if self.refuses_unsigned() {
            let remedy = "sign the module with a key of this machine, as docs/src/install.md shows. Direct queues need an IOMMU \
                 that confines the device: a locked-down kernel makes no exceptions";
            Finding::note("checks", what, remedy)
        } else {
            Finding::ok("checks", what)
        });
    }
}

fn setting(found: Option<&ConfigSetting>) -> String {
    match found {
        None => "n".into(),
        Some(ConfigSetting::Yes) => "y".into(),
        Some(ConfigSetting::Module) => "m".into(),
        Some(ConfigSetting::Value(text)) => text.clone(),
    }
}

/// The kernel's configuration, and the file that it is in.
fn config(system: &System, release: &str) -> Result<Option<(String, KernelConfig)>, Unreadable> {
    let parsed = |file: &str, parsed: procfs_core::ProcResult<KernelConfig>| match parsed {
        Ok(config) => Ok(Some((file.to_owned(), config))),
        Err(error) => {
            Err(Unreadable { path: system.path(file), source: io::Error::other(error.to_string()) })
        }
    };
    let packed = "/proc/config.gz";
    if let Some(bytes) = system.bytes(packed)? {
        return parsed(packed, KernelConfig::from_buf_read(BufReader::new(GzDecoder::new(bytes.as_slice()))));
    }
    for file in [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")] {
        if let Some(bytes) = system.bytes(&file)? {
            return parsed(&file, KernelConfig::from_buf_read(bytes.as_slice()));
        }
    }
    Ok(None)
}

/// Whether Secure Boot is on; `None` where the firmware's variables are not to be seen.
fn secure_boot(system: &System) -> Result<Option<bool>, Unreadable> {
    if !system.has("/sys/firmware/efi") {
        return Ok(Some(false));
    }
    Ok(system.bytes(SECURE_BOOT)?.and_then(|bytes| bytes.get(4).map(|value| *value == 1)))
}
