// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio list` and `xio info`.

use crate::args::{Format, Global};
use crate::exit::Failure;
use crate::{open, output};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use xio::{Controller, Direct, Path};

/// A namespace for printing.
#[derive(Debug, Serialize)]
struct NamespaceReport {
    nsid: u32,
    capacity: u64,
    used: u64,
    max_key: u16,
    max_value: u64,
    max_value_limited_by: String,
    max_keys: Option<u32>,
}

/// A controller memory buffer for printing.
#[derive(Debug, Serialize)]
struct CmbReport {
    size: u64,
    free: u64,
    submission_queues: bool,
    values: bool,
}

/// A controller for printing.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    pci_address: String,
    model: String,
    serial: String,
    firmware: String,
    subnqn: String,
    nvme_version: String,
    module_abi: u32,
    iommu: String,
    direct: bool,
    direct_reason: String,
    mediated: bool,
    path: String,
    max_queue_entries: u32,
    max_queues: u32,
    doorbell_stride: u32,
    max_transfer: Option<u64>,
    max_buffer: u64,
    cmb: Option<CmbReport>,
    namespaces: Vec<NamespaceReport>,
}

/// A line of `xio list`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Entry {
    Controller(Box<Report>),
    Failed { device: String, error: String },
}

/// `xio list`.
pub fn list(global: &Global, format: Format) -> Result<(), Failure> {
    let nodes = match &global.device {
        Some(path) => vec![path.clone()],
        None if global.loopback => vec![PathBuf::new()],
        None => Controller::list()?,
    };
    if nodes.is_empty() {
        output::message(&format!("xio: {}", xio::Error::NoDevice));
    }
    let (mut entries, mut worst) = (Vec::new(), None);
    for node in &nodes {
        let report = open::controller(global, Some(node)).and_then(|c| report(global, &c));
        entries.push(report.map(|r| Entry::Controller(Box::new(r))).unwrap_or_else(|failure| {
            let error = failure.to_string();
            worst = worst.or(Some(failure.code()));
            Entry::Failed { device: node.display().to_string(), error }
        }));
    }
    match format {
        Format::Json => output::json(&entries)?,
        Format::Text if entries.is_empty() => {}
        Format::Text => output::text(&table(&entries))?,
    }
    worst.map_or(Ok(()), |code| Err(Failure::Told(code)))
}

/// `xio info`.
pub fn info(global: &Global, device: Option<&PathBuf>, format: Format) -> Result<(), Failure> {
    let report = report(global, &open::controller(global, device)?)?;
    match format {
        Format::Json => output::json(&report),
        Format::Text => output::text(&describe(&report)),
    }
}

fn report(global: &Global, controller: &Controller) -> Result<Report, Failure> {
    let info = controller.info()?;
    let path = match global.path.into() {
        Path::Auto => info.preferred_path(),
        path => path,
    };
    let namespaces = controller.namespaces()?.into_iter().map(|ns| {
        let (max_value, by) = ns.max_value();
        NamespaceReport {
            nsid: ns.nsid(),
            capacity: ns.capacity(),
            used: ns.used(),
            max_key: ns.max_key(),
            max_value,
            max_value_limited_by: by.to_string(),
            max_keys: ns.max_keys(),
        }
    });
    Ok(Report {
        device: controller.path().map_or("loopback".into(), |path| path.display().to_string()),
        pci_address: controller.path().map_or("-".into(), |_| info.pci_address()),
        model: info.model(),
        serial: info.serial(),
        firmware: info.firmware(),
        subnqn: info.subnqn(),
        nvme_version: info.nvme_version(),
        module_abi: info.raw().abi_version,
        iommu: info.iommu().to_string(),
        direct: info.direct().allowed(),
        direct_reason: match info.direct() {
            Direct::Refused => format!("{}: {}", Direct::Refused, info.unconfined()),
            allowed => allowed.to_string(),
        },
        mediated: info.mediated(),
        path: path.to_string(),
        max_queue_entries: info.max_queue_entries(),
        max_queues: info.max_queues(),
        doorbell_stride: info.raw().doorbell_stride,
        max_transfer: info.max_transfer(),
        max_buffer: info.max_buffer(),
        cmb: info.cmb().map(|cmb| CmbReport {
            size: cmb.size,
            free: cmb.free,
            submission_queues: cmb.queues,
            values: cmb.values,
        }),
        namespaces: namespaces.collect(),
    })
}

fn yes(possible: bool) -> &'static str {
    if possible {
        "yes"
    } else {
        "no"
    }
}

fn direct(report: &Report) -> String {
    format!("{} ({})", yes(report.direct), report.direct_reason)
}

fn mediated(report: &Report) -> String {
    let why = if report.mediated { "for everybody" } else { "not offered by the module" };
    format!("{} ({why})", yes(report.mediated))
}

/// A sum, for whatever a controller says.
fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The table of `xio list`.
fn table(entries: &[Entry]) -> String {
    let head =
        ["DEVICE", "ADDRESS", "MODEL", "SERIAL", "NAMESPACES", "CAPACITY", "USED", "MEDIATED", "DIRECT"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for entry in entries {
        rows.push(match entry {
            Entry::Controller(r) => vec![
                r.device.clone(),
                r.pci_address.clone(),
                r.model.clone(),
                r.serial.clone(),
                r.namespaces.len().to_string(),
                output::size(total(r.namespaces.iter().map(|n| n.capacity))),
                output::size(total(r.namespaces.iter().map(|n| n.used))),
                yes(r.mediated).to_owned(),
                direct(r),
            ],
            Entry::Failed { device, error } => vec![device.clone(), error.clone()],
        });
    }
    output::columns(&rows)
}

/// The controller memory buffer.
fn memory_buffer(cmb: Option<&CmbReport>) -> String {
    let Some(cmb) = cmb else { return "none".into() };
    let uses = [(cmb.values, "values"), (cmb.submission_queues, "submission queues")];
    let uses: Vec<_> = uses.iter().filter(|(can, _)| *can).map(|(_, what)| *what).collect();
    let (size, free) = (output::size(cmb.size), output::size(cmb.free));
    format!("{size}, of which {free} are free; for {}", uses.join(" and "))
}

fn describe(r: &Report) -> String {
    let limit = r.max_transfer.map_or("no limit".into(), output::size);
    let lines = [
        ("Device", r.device.clone()),
        ("PCI address", r.pci_address.clone()),
        ("Model", r.model.clone()),
        ("Serial number", r.serial.clone()),
        ("Firmware", r.firmware.clone()),
        ("Subsystem", r.subnqn.clone()),
        ("NVMe version", r.nvme_version.clone()),
        ("Module interface", r.module_abi.to_string()),
        ("IOMMU", r.iommu.clone()),
        ("Direct path", direct(r)),
        ("Mediated path", mediated(r)),
        ("Path", format!("{} (what `xio kv` takes first)", r.path)),
        ("Queues", format!("{} of up to {} entries", r.max_queues, r.max_queue_entries)),
        ("Doorbell stride", format!("{} bytes", r.doorbell_stride)),
        ("Largest transfer", limit),
        ("Largest buffer", output::size(r.max_buffer)),
        ("Memory buffer", memory_buffer(r.cmb.as_ref())),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:18}{value}");
    }
    for ns in &r.namespaces {
        let keys = ns.max_keys.map_or("any number".into(), |n| format!("up to {n}"));
        let (used, capacity, value) =
            (output::size(ns.used), output::size(ns.capacity), output::size(ns.max_value));
        let _ = writeln!(
            text,
            "Namespace {:<8}{used} of {capacity} used; {keys} of keys of up to {} bytes, values of up to {value} \
             (by {})",
            ns.nsid, ns.max_key, ns.max_value_limited_by
        );
    }
    text
}
