// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `scripts/setup` left in the cache, and where the checkout's own products are.

use anyhow::{bail, Context, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths of everything that a machine is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The checkout.
    pub repo: PathBuf,
    /// Where logs and this checkout's module are.
    pub target: PathBuf,
    /// The cache folder.
    pub cache: PathBuf,
    /// The Debian sysroot.
    pub sysroot: PathBuf,
    /// The kernel's version.
    pub kver: String,
    /// The kernel image.
    pub vmlinuz: PathBuf,
    /// The kernel's modules.
    pub modules: PathBuf,
    /// The program that runs QEMU.
    pub qemu: PathBuf,
    /// Whether it is the debug kernel, in which everything takes longer and needs more memory.
    pub slow: bool,
    kmod: PathBuf,
    cargo_target: PathBuf,
}

impl Setup {
    /// Asks `scripts/setup --print-env`. `ROCM_XIO_VMLINUZ` puts another kernel in the stock one's place.
    ///
    /// # Errors
    /// When set-up has not been done.
    pub fn load() -> Result<Self> {
        let repo = match std::env::var_os("ROCM_XIO_REPO") {
            Some(repo) => PathBuf::from(repo),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?,
        };
        let output = Command::new(repo.join("scripts/setup")).arg("--print-env").output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let vars = parse_assignments(&String::from_utf8(output.stdout)?);
        let get = |name: &str| vars.get(name).cloned().with_context(|| format!("setup printed no {name}"));
        let vmlinuz = std::env::var_os("ROCM_XIO_VMLINUZ").map_or(get("VMLINUZ")?.into(), PathBuf::from);
        let cargo_target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repo.join("target"), PathBuf::from);
        Ok(Self {
            target: repo.join("target"),
            cache: get("XIO_CACHE")?.into(),
            sysroot: get("SYSROOT")?.into(),
            kver: get("KVER")?,
            modules: get("MODULES")?.into(),
            qemu: get("QEMU")?.into(),
            slow: is_debug_kernel(),
            kmod: get("KMOD_OUT")?.into(),
            vmlinuz,
            cargo_target,
            repo,
        })
    }

    /// A program built by cargo for the host.
    #[must_use]
    pub fn host_program(&self, name: &str) -> PathBuf {
        self.cargo_target.join("release").join(name)
    }

    /// A statically linked program built by cargo for the guest.
    #[must_use]
    pub fn guest_program(&self, name: &str) -> PathBuf {
        self.cargo_target.join("x86_64-unknown-linux-gnu/release").join(name)
    }

    /// The kernel module; `ROCM_XIO_KO` puts another build in its place.
    #[must_use]
    pub fn kernel_module(&self) -> PathBuf {
        std::env::var_os("ROCM_XIO_KO").map_or_else(|| self.kmod.join("rocm_xio.ko"), PathBuf::from)
    }

    /// The fake GPU's driver; `ROCM_XIO_FAKEGPU_KO` puts another build in its place.
    #[must_use]
    pub fn fake_gpu_module(&self) -> PathBuf {
        std::env::var_os("ROCM_XIO_FAKEGPU_KO")
            .map_or_else(|| with_suffix(&self.kmod, "-tests").join("fakegpu.ko"), PathBuf::from)
    }
}

/// Whether machines run the debug kernel, as `scripts/lib.sh` decides it.
#[must_use]
pub fn is_debug_kernel() -> bool {
    std::env::var_os("ROCM_XIO_KERNEL").is_some_and(|kernel| kernel == "debug")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Shell assignments with backslash quoting, one a line.
fn parse_assignments(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.replace('\\', "")))
        .collect()
}
