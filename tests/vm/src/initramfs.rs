// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initial RAM disk: a cpio archive ("newc"), written here. It is not compressed, since unpacking costs an
//! emulated processor more than reading.

use crate::machine::Machine;
use crate::setup::Setup;
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernel modules that the guest can load by name; dependencies come along.
const MODULES: &[&str] = &[
    "nvme",
    "virtio-iommu",
    "vfio-pci",
    "vfio_iommu_type1",
    "pci-stub",
    "loop",
    "romfs",
    "md-mod",
    "dm-mod",
];

const FOLDERS: &[&str] = &["bin", "dev", "etc", "lib", "lib/modules", "proc", "sys", "tmp", "data"];

/// A cpio archive under construction.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder and those above it, once.
    pub fn folder(&mut self, name: &str) {
        if name.is_empty() || self.folders.contains(name) {
            return;
        }
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above);
        }
        self.folders.insert(name.to_owned());
        self.entry(name, 0o040_755, &[]);
    }

    /// Adds a file with the permissions given.
    pub fn file(&mut self, name: &str, permissions: u32, data: &[u8]) {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above);
        }
        self.entry(name, 0o100_000 | permissions, data);
    }

    /// Adds a copy of a host file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn copy(&mut self, host: &Path, name: &str, permissions: u32) -> Result<()> {
        let data = fs::read(host).with_context(|| format!("reading {}", host.display()))?;
        self.file(name, permissions, &data);
        Ok(())
    }

    /// The finished archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.inode += 1;
        let (size, name_size) = (data.len(), name.len() + 1);
        let (links, zero) = (1, 0);
        let header = format!(
            "070701{:08x}{mode:08x}{zero:08x}{zero:08x}{links:08x}{zero:08x}{size:08x}{zero:08x}{zero:08x}{zero:08x}\
             {zero:08x}{name_size:08x}{zero:08x}",
            self.inode
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Writes the initial RAM disk of a machine to `path`.
///
/// # Errors
/// When a needed file is missing.
pub fn write(setup: &Setup, machine: &Machine, path: &Path) -> Result<()> {
    let mut archive = Archive::default();
    FOLDERS.iter().for_each(|folder| archive.folder(folder));
    let guest = setup.guest_program("xio-guest");
    archive.copy(&guest, "init", 0o755).context("build the guest's programs first: ./scripts/test does")?;
    archive.copy(&setup.sysroot.join("usr/bin/busybox"), "bin/busybox", 0o755)?;
    for (name, data) in [
        ("etc/passwd", "root:x:0:0:root:/tmp:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n"),
        ("etc/group", "root:x:0:\nrender:x:105:user\nuser:x:1000:\n"),
    ] {
        archive.file(name, 0o644, data.as_bytes());
    }
    add_kernel_modules(setup, &mut archive)?;
    for (host, name) in
        [(setup.kernel_module(), "lib/modules/rocm_xio.ko"), (setup.guest_program("xio"), "bin/xio")]
    {
        if host.exists() {
            archive.copy(&host, name, 0o755)?;
        }
    }
    if machine.fake_gpu {
        archive.copy(&setup.fake_gpu_module(), "lib/modules/fakegpu.ko", 0o644)?;
    }
    for (host, name) in &machine.files {
        archive.copy(&setup.repo.join(host), name.trim_start_matches('/'), 0o755)?;
    }
    if let Some(name) = &machine.kernel_image {
        archive.copy(&setup.vmlinuz, name.trim_start_matches('/'), 0o644)?;
    }
    if machine.tools {
        if let Some(folder) = std::env::var_os("ROCM_XIO_TOOLS") {
            add_tree(&mut archive, Path::new(&folder), Path::new(&folder))?;
        }
    }
    fs::write(path, archive.finish()).with_context(|| format!("writing {}", path.display()))
}

/// Adds all files below a folder, with the names that they have from `root` on.
fn add_tree(archive: &mut Archive, root: &Path, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            add_tree(archive, root, &path)?;
            continue;
        }
        let name = path.strip_prefix(root).context("a path outside its folder")?;
        archive.copy(&path, &name.to_string_lossy(), 0o755)?;
    }
    Ok(())
}

/// Adds the stock modules, and `lib/modules/order`: for each name the files to load, in order.
fn add_kernel_modules(setup: &Setup, archive: &mut Archive) -> Result<()> {
    let dependencies = fs::read_to_string(setup.modules.join("modules.dep"))?;
    let builtin = fs::read_to_string(setup.modules.join("modules.builtin"))?;
    let (mut order, mut added) = (String::new(), BTreeSet::new());
    for name in MODULES {
        let Some(files) = load_order(&dependencies, name) else {
            if builtin.lines().any(|line| stem(line) == *name) {
                continue;
            }
            bail!("kernel {} has no module {name}", setup.kver);
        };
        order.push_str(name);
        for file in files {
            let unpacked = unpacked_module(setup, &file)?;
            order.push_str(&format!(" {}", stem(&file)));
            if added.insert(stem(&file)) {
                archive.copy(&unpacked, &format!("lib/modules/{}.ko", stem(&file)), 0o644)?;
            }
        }
        order.push('\n');
    }
    archive.file("lib/modules/order", 0o644, order.as_bytes());
    Ok(())
}

/// The module and what it depends on, in the order in which to load them.
fn load_order(dependencies: &str, name: &str) -> Option<Vec<String>> {
    let (file, needs) =
        dependencies.lines().filter_map(|line| line.split_once(':')).find(|(file, _)| stem(file) == name)?;
    Some(needs.split_whitespace().rev().chain([file]).map(str::to_owned).collect())
}

fn stem(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once(".ko").map_or(name, |(stem, _)| stem).to_owned()
}

/// The module unpacked: in the cache, unless it is in the first place.
fn unpacked_module(setup: &Setup, file: &str) -> Result<PathBuf> {
    let packed = setup.modules.join(file);
    if !file.ends_with(".xz") {
        return Ok(packed);
    }
    let folder = setup.cache.join(format!("modules-{}", setup.kver));
    let unpacked = folder.join(format!("{}.ko", stem(file)));
    if unpacked.exists() {
        return Ok(unpacked);
    }
    fs::create_dir_all(&folder)?;
    let output = Command::new("xz").arg("-dc").arg(&packed).output().context("running xz")?;
    if !output.status.success() {
        bail!("xz could not unpack {}: {}", packed.display(), String::from_utf8_lossy(&output.stderr));
    }
    // Several runs may do this at once, hence the rename.
    let partial = folder.join(format!("{}.{}", stem(file), std::process::id()));
    fs::write(&partial, output.stdout)?;
    fs::rename(&partial, &unpacked)?;
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_fields_are_aligned_and_folders_come_first() {
        let mut archive = Archive::default();
        archive.file("a/b", 0o644, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"070701"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.find("a\0").unwrap() < text.find("a/b\0").unwrap());
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn modules_load_after_what_they_need() {
        let text =
            "k/nvme.ko.xz: k/nvme-core.ko.xz k/nvme-auth.ko.xz\nk/nvme-core.ko.xz: k/nvme-auth.ko.xz\n";
        assert_eq!(
            load_order(text, "nvme").unwrap(),
            ["k/nvme-auth.ko.xz", "k/nvme-core.ko.xz", "k/nvme.ko.xz"].map(str::to_owned)
        );
        assert!(load_order(text, "absent").is_none());
    }
}
