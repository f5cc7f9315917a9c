// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio bind` and `xio unbind`: giving a controller to the module and back, unless that takes a disk from somebody.

mod error;
mod kernel;
mod signature;
#[cfg(test)]
mod tests;
mod uses;

pub use error::Error;

use crate::exit::Failure;
use crate::output;
use crate::system::{Address, Function, Kind, Node, Processes, System, Unreadable, NVME, OURS};
use kernel::{Kernel, Messages, Running};
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use uses::Use;

type Result<T> = std::result::Result<T, Error>;

/// The end of a driver_override.
const NO_OVERRIDE: &str = "\n";

/// `xio bind`.
pub fn bind(address: Address) -> std::result::Result<(), Failure> {
    output::text(&Binder::running().bind(address)?)
}

/// `xio unbind`.
pub fn unbind(address: Address) -> std::result::Result<(), Failure> {
    output::text(&Binder::running().unbind(address)?)
}

/// What binds.
struct Binder<'a> {
    system: System,
    kernel: &'a dyn Kernel,
    /// Who asks: not looked for among those who use the disk.
    process: u32,
    root: bool,
}

impl Binder<'static> {
    fn running() -> Self {
        let root = nix::unistd::geteuid().is_root();
        Self { system: System::default(), kernel: &Running, process: std::process::id(), root }
    }
}

impl Binder<'_> {
    /// Gives the controller to our module; says how things are then.
    fn bind(&self, address: Address) -> Result<String> {
        let function = self.find(address)?;
        let driver = function.driver()?;
        if driver.as_deref() == Some(OURS) {
            return Ok(format!("{address}: {OURS} has it already, as {}\n", our_node(&function)?));
        }
        if !self.system.has(driver_file(OURS, "bind")) {
            return Err(Error::NoModule);
        }
        self.need_root()?;
        // Kept until it is done, so that nobody mounts the disk meanwhile.
        let claims = self.claim(&function)?;
        let before = function.driver_override()?;
        let messages = Messages::listen(&self.system.path("/dev/kmsg"));
        let switched = self.switch(&function, driver.as_deref());
        let Err(source) = switched else {
            return Ok(format!("{address}: {OURS} has it now, as {}\n", our_node(&function)?));
        };
        let messages = said(messages, address);
        // What is open of the disk that went would have it come back under another name.
        drop(claims);
        let after = self.restore(&function, before, driver);
        Err(Error::Refused { address, driver: OURS, source, messages, after })
    }

    /// Gives the controller back; says how things are then.
    fn unbind(&self, address: Address) -> Result<String> {
        let function = self.find(address)?;
        let driver = function.driver()?;
        let ours = driver.as_deref() == Some(OURS);
        let reserved = driver.is_none() && function.driver_override()?.as_deref() == Some(OURS);
        if !ours && !reserved {
            return Err(Error::NotOurs { address, driver });
        }
        self.need_root()?;
        if ours {
            let nodes = Node::of(&self.system, &function)?;
            let processes = Processes::new(&self.system, self.process).map_err(Error::Unknown)?;
            refuse_if_any(address, uses::opened(&processes, &nodes).map_err(Error::Unknown)?)?;
            self.write(driver_file(OURS, "unbind"), &address.to_string())?;
        }
        self.write(function.path("driver_override"), NO_OVERRIDE)?;
        self.give_to_default(&function)
    }

    /// Gives a function without driver to the one that it had if this program had not come.
    fn give_to_default(&self, function: &Function<'_>) -> Result<String> {
        let address = function.address;
        // Not by a probe of all drivers: with claim=auto the module would take it again.
        if !self.system.has(driver_file(NVME, "bind")) {
            return Ok(format!("{address}: no driver has it now; with `modprobe nvme`, nvme takes it\n"));
        }
        let messages = Messages::listen(&self.system.path("/dev/kmsg"));
        let taken = self.write_io(&driver_file(NVME, "bind"), &address.to_string());
        taken.map_err(|source| Error::Refused {
            address,
            driver: NVME,
            source,
            messages: said(messages, address),
            after: "no driver has it now".into(),
        })?;
        Ok(format!("{address}: {NVME} has it now\n"))
    }

    fn find(&self, address: Address) -> Result<Function<'_>> {
        let Some(function) = Function::find(&self.system, address)? else {
            let all = Function::all(&self.system)?.into_iter().map(|function| function.address);
            return Err(Error::NoFunction {
                address,
                elsewhere: all.filter(|a| a.is_elsewhere(&address)).collect(),
            });
        };
        if !function.is_nvme() {
            return Err(Error::NotNvme { address, class: function.class });
        }
        Ok(function)
    }

    fn need_root(&self) -> Result<()> {
        self.root.then_some(()).ok_or(Error::NotRoot)
    }

    /// Refuses a function in use; claims its disks, so that it does not come into use.
    fn claim(&self, function: &Function<'_>) -> Result<Vec<File>> {
        let nodes = Node::of(&self.system, function).map_err(Error::Unknown)?;
        let look = || uses::all(&self.system, &nodes, self.process).map_err(Error::Unknown);
        refuse_if_any(function.address, look()?)?;
        let mut claims = Vec::new();
        for disk in nodes.iter().filter(|node| node.kind == Kind::Disk) {
            let path = self.system.path(&disk.path);
            match self.kernel.claim(&path, disk) {
                Ok(file) => claims.push(file),
                Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                    refuse_if_any(function.address, vec![unseen(disk)])?;
                }
                Err(source) => return Err(Error::Unknown(Unreadable { path, source })),
            }
        }
        // What came before the claims.
        refuse_if_any(function.address, look()?)?;
        Ok(claims)
    }

    /// Takes a function from its driver and gives it to ours.
    fn switch(&self, function: &Function<'_>, driver: Option<&str>) -> io::Result<()> {
        let address = function.address.to_string();
        self.write_io(&function.path("driver_override").to_string_lossy(), &format!("{OURS}\n"))?;
        if let Some(driver) = driver {
            self.write_io(&driver_file(driver, "unbind"), &address)?;
        }
        self.write_io(&driver_file(OURS, "bind"), &address)
    }

    /// Undoes what was done of a switch; says how things are then.
    fn restore(&self, function: &Function<'_>, before: Option<String>, driver: Option<String>) -> String {
        let before = before.map_or(NO_OVERRIDE.into(), |name| format!("{name}\n"));
        let undone = self.write(function.path("driver_override"), &before).and_then(|()| {
            match (&driver, function.driver()?) {
                (Some(driver), None) => {
                    self.write(driver_file(driver, "bind"), &function.address.to_string())
                }
                _ => Ok(()),
            }
        });
        let now = function.driver().map(|driver| error::with(driver.as_ref()));
        match (undone, now) {
            (Ok(()), Ok(now)) => format!("{now}, as before"),
            (Err(error), Ok(now)) => format!("{now}, and putting things back failed: {error}"),
            (_, Err(error)) => format!("who has it now is not known: {error}"),
        }
    }

    fn write(&self, file: impl AsRef<Path>, text: &str) -> Result<()> {
        let path = self.system.path(file);
        self.kernel.write(&path, text).map_err(|source| Error::Write { path, source })
    }

    fn write_io(&self, file: &str, text: &str) -> io::Result<()> {
        self.kernel.write(&self.system.path(file), text)
    }
}

fn driver_file(driver: &str, file: &str) -> String {
    format!("/sys/bus/pci/drivers/{driver}/{file}")
}

fn our_node(function: &Function<'_>) -> Result<String> {
    Ok(function.our_node()?.unwrap_or_else(|| "no node yet".into()))
}

fn refuse_if_any(address: Address, uses: Vec<Use>) -> Result<()> {
    if uses.is_empty() {
        return Ok(());
    }
    Err(Error::InUse { address, uses })
}

/// A claim by nobody who can be named.
fn unseen(disk: &Node) -> Use {
    let what = format!("{} is claimed in the kernel by something that can not be seen from here", disk.path);
    let remedy =
        "look for mounts in namespaces without a process, file systems unmounted lazily, volumes and targets";
    Use { what, remedy }
}

/// What the kernel said of a function, or why that is not known.
fn said(messages: Messages, address: Address) -> Vec<String> {
    let subjects = [address.to_string(), format!("{OURS}: ")];
    let found = messages.about(&subjects.each_ref().map(String::as_str));
    found.unwrap_or_else(|error| vec![format!("(the kernel's messages can not be read: {error}; see dmesg)")])
}
