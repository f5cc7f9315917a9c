// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions and their drivers.
#![allow(dead_code)] // a toolbox: not each tool is in use at any time

use crate::fs;
use anyhow::{bail, Context, Result};
use std::path::PathBuf;

const DEVICES: &str = "/sys/bus/pci/devices";
/// The class of NVMe controllers.
pub const NVME: &str = "0x010802";

/// The addresses (`0000:00:03.0`) of all functions of class NVMe, in order.
pub fn nvme_functions() -> Result<Vec<String>> {
    functions_with("class", NVME)
}

/// The addresses of all functions whose file of this name in sysfs says `value`, in order.
pub fn functions_with(file: &str, value: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(DEVICES)? {
        let path = entry?.path();
        // One that is going has no files any more.
        if fs::read(path.join(file)).is_ok_and(|text| text == value) {
            found.push(path.file_name().context("no name")?.to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// An address as one number: domain, bus, slot, function.
pub fn number(address: &str) -> Result<u32> {
    let digits =
        |text: &str| u32::from_str_radix(text, 16).with_context(|| format!("{address} is no address"));
    let parts: Vec<u32> = address.split([':', '.']).map(digits).collect::<Result<_>>()?;
    match parts[..] {
        [domain, bus, slot, function] => Ok(domain << 16 | bus << 8 | slot << 3 | function),
        _ => bail!("{address} is no address"),
    }
}

/// The folder of a function in sysfs.
pub fn path(address: &str) -> PathBuf {
    PathBuf::from(DEVICES).join(address)
}

/// The driver that has the function, if one has.
pub fn driver(address: &str) -> Result<Option<String>> {
    match std::fs::read_link(path(address).join("driver")) {
        Ok(link) => Ok(link.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("reading a driver link"),
    }
}

/// Takes the function from its driver.
pub fn unbind(address: &str) -> Result<()> {
    fs::write(path(address).join("driver/unbind"), address)
}

/// Gives the function to a driver.
pub fn bind(address: &str, driver: &str) -> Result<()> {
    fs::write(format!("/sys/bus/pci/drivers/{driver}/bind"), address)
}

/// Says which driver alone may have the function; an empty name lifts that.
pub fn override_driver(address: &str, driver: &str) -> Result<()> {
    fs::write(path(address).join("driver_override"), &format!("{driver}\n"))
}

/// Removes the function, as by an unplugging that comes as a surprise to nobody.
pub fn remove(address: &str) -> Result<()> {
    fs::write(path(address).join("remove"), "1")
}

/// Looks for new functions.
pub fn rescan() -> Result<()> {
    fs::write("/sys/bus/pci/rescan", "1")
}

/// Whether the function is behind a translating or identity IOMMU domain, and of which type.
pub fn iommu_domain(address: &str) -> Result<Option<String>> {
    let file = path(address).join("iommu_group/type");
    if file.exists() {
        return fs::read(file).map(Some);
    }
    Ok(None)
}
