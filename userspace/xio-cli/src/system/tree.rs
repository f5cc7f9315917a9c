// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made-up systems for tests.

use super::System;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A made-up system in a folder of its own, which goes with it.
pub struct Tree(PathBuf);

impl Tree {
    /// An empty one.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("xio-tree-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    /// The system.
    pub fn system(&self) -> System {
        System::at(&self.0)
    }

    /// Adds a file, or replaces it.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Adds a symbolic link.
    pub fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
        self
    }

    /// Adds a folder.
    pub fn folder(&self, path: &str) -> &Self {
        fs::create_dir_all(self.0.join(path)).unwrap();
        self
    }

    /// Removes a file or link.
    pub fn remove(&self, path: &str) -> &Self {
        fs::remove_file(self.0.join(path)).unwrap();
        self
    }

    /// Where a function is in `sys/devices`, without a bridge above it.
    pub fn device(address: &str) -> String {
        format!("sys/devices/pci0000:00/{address}")
    }

    /// Adds an NVMe function, and its driver if it has one.
    pub fn nvme(&self, address: &str, driver: Option<&str>) -> &Self {
        let device = Self::device(address);
        self.link(
            &format!("sys/bus/pci/devices/{address}"),
            &format!("../../../devices/pci0000:00/{address}"),
        );
        self.file(&format!("{device}/class"), "0x010802\n");
        self.file(&format!("{device}/driver_override"), "(null)\n");
        if let Some(driver) = driver {
            self.driver(driver);
            self.link(&format!("{device}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        }
        self
    }

    /// Adds a driver that is loaded.
    pub fn driver(&self, name: &str) -> &Self {
        self.file(&format!("sys/bus/pci/drivers/{name}/bind"), "");
        self.file(&format!("sys/bus/pci/drivers/{name}/unbind"), "")
    }

    /// Adds a device below a path of `sys`, with its node in `/dev`.
    pub fn node(&self, folder: &str, subsystem: &str, dev: &str) -> &Self {
        let name = folder.rsplit('/').next().unwrap();
        self.file(&format!("{folder}/dev"), format!("{dev}\n"));
        self.file(&format!("{folder}/uevent"), format!("MAJOR=1\nDEVNAME={name}\n"));
        self.link(&format!("{folder}/subsystem"), &format!("../../../class/{subsystem}"));
        self.file(&format!("dev/{name}"), vec![0; 8192])
    }

    /// Adds the usual disk `nvme0n1` with a partition to a function of the nvme driver.
    pub fn disk(&self, address: &str) -> &Self {
        let controller = format!("{}/nvme/nvme0", Self::device(address));
        self.node(&controller, "nvme", "242:0");
        self.node(&format!("{controller}/ng0n1"), "nvme-generic", "241:0");
        self.node(&format!("{controller}/nvme0n1"), "block", "259:0");
        self.node(&format!("{controller}/nvme0n1/nvme0n1p1"), "block", "259:1");
        self.file(&format!("{controller}/nvme0n1/csi"), "0\n");
        self.file(&format!("{controller}/nvme0n1/nvme0n1p1/partition"), "1\n")
    }

    /// Adds a process with its mounts, lines of `mountinfo`.
    pub fn process(&self, id: u32, name: &str, namespace: u32, mounts: &str) -> &Self {
        self.file(&format!("proc/{id}/comm"), format!("{name}\n"));
        self.link(&format!("proc/{id}/task/{id}/ns/mnt"), &format!("mnt:[{namespace}]"));
        self.file(&format!("proc/{id}/task/{id}/mountinfo"), mounts);
        self.folder(&format!("proc/{id}/fd")).folder(&format!("proc/{id}/map_files"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Left over in the temporary folder at worst.
        let _ = fs::remove_dir_all(&self.0);
    }
}
