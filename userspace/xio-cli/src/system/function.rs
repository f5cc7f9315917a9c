// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions in sysfs.

use super::{Address, Result, System};
use std::path::PathBuf;

const DEVICES: &str = "/sys/bus/pci/devices";
/// The class of NVMe controllers.
const NVME_CLASS: &str = "0x010802";

/// A function that is there.
#[derive(Debug)]
pub struct Function<'a> {
    system: &'a System,
    /// Its address.
    pub address: Address,
    /// Its class, as sysfs writes it.
    pub class: String,
}

impl<'a> Function<'a> {
    /// The function at an address, if there is one.
    pub fn find(system: &'a System, address: Address) -> Result<Option<Self>> {
        let class = system.read(format!("{DEVICES}/{address}/class"))?;
        Ok(class.map(|class| Self { system, address, class }))
    }

    /// All functions, in order.
    pub fn all(system: &'a System) -> Result<Vec<Self>> {
        let mut addresses: Vec<Address> =
            system.names(DEVICES)?.iter().filter_map(|name| name.parse().ok()).collect();
        addresses.sort();
        let found = addresses.into_iter().map(|address| Self::find(system, address));
        found.filter_map(Result::transpose).collect()
    }

    /// Whether it is an NVMe controller.
    pub fn is_nvme(&self) -> bool {
        self.class == NVME_CLASS
    }

    /// A file of it.
    pub fn path(&self, file: &str) -> PathBuf {
        format!("{DEVICES}/{}/{file}", self.address).into()
    }

    /// A file's text.
    pub fn read(&self, file: &str) -> Result<Option<String>> {
        self.system.read(self.path(file))
    }

    /// The driver that has it.
    pub fn driver(&self) -> Result<Option<String>> {
        self.system.link(self.path("driver"))
    }

    /// The driver that alone may have it.
    pub fn driver_override(&self) -> Result<Option<String>> {
        Ok(self.read("driver_override")?.filter(|name| !matches!(name.as_str(), "" | "(null)")))
    }

    /// The node that our module made for it.
    pub fn our_node(&self) -> Result<Option<String>> {
        let names = self.system.names(self.path("misc"))?;
        Ok(names.into_iter().find(|name| name.starts_with("rocm-xio")).map(|name| format!("/dev/{name}")))
    }

    /// The bridges above it, the nearest one first.
    pub fn bridges(&self) -> Result<Vec<Address>> {
        let path = self.system.path(self.path(""));
        let Some(path) = super::present(std::fs::canonicalize(&path), &path)? else { return Ok(Vec::new()) };
        let names = path.ancestors().skip(1).map(|path| path.file_name().and_then(|name| name.to_str()));
        Ok(names.map_while(|name| name?.parse().ok()).collect())
    }
}
