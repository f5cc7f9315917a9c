// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM or emulation: found out by booting a guest, since on some hosts /dev/kvm opens and guests hang.

use crate::machine::Machine;
use crate::run;
use crate::setup::Setup;
use anyhow::{bail, Result};
use std::fs::{self, OpenOptions};

const PROBE_SECONDS: u64 = 15;

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The host's processor.
    Kvm,
    /// QEMU's emulation.
    Tcg,
}

impl Accel {
    /// Its name, which `ROCM_XIO_ACCEL` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Kvm, Self::Tcg].into_iter().find(|accel| accel.name() == name)
    }

    pub(crate) fn qemu_arguments(self) -> [&'static str; 2] {
        ["-accel", self.name()]
    }

    /// The one to use: `ROCM_XIO_ACCEL` if set, else KVM where a guest boots under it. The answer is
    /// remembered until the host, its kernel or QEMU changes.
    ///
    /// # Errors
    /// When the variable is wrong or the trial cannot be made.
    pub fn choose(setup: &Setup) -> Result<Self> {
        if let Some(name) = std::env::var_os("ROCM_XIO_ACCEL") {
            let Some(accel) = name.to_str().and_then(Self::from_name) else {
                bail!("ROCM_XIO_ACCEL must be kvm or tcg, not {}", name.to_string_lossy());
            };
            return Ok(accel);
        }
        if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Self::Tcg);
        }
        let (key, memory) = (key(setup)?, setup.cache.join("accel"));
        if let Ok(text) = fs::read_to_string(&memory) {
            if let Some(accel) = text.strip_prefix(&key).and_then(|rest| Self::from_name(rest.trim())) {
                return Ok(accel);
            }
        }
        eprintln!("xio-vm: finding out whether KVM works here (at most {PROBE_SECONDS} s, once)");
        let machine = Machine::new().ram_mib(512).timeout(PROBE_SECONDS);
        let outcome = run::reports(setup, Self::Kvm, "kvm-probe", "xio.test=probe", &machine, &mut |_| ())?;
        let accel = if outcome.is_success() { Self::Kvm } else { Self::Tcg };
        eprintln!("xio-vm: using {} (ROCM_XIO_ACCEL=kvm or tcg overrides)", accel.name());
        if outcome.logs.exists() {
            fs::remove_dir_all(&outcome.logs)?;
        }
        fs::write(&memory, format!("{key} {}\n", accel.name()))?;
        Ok(accel)
    }
}

fn key(setup: &Setup) -> Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(format!("{} {} {}", boot.trim(), setup.kver, setup.sysroot.display()))
}
