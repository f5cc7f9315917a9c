// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio gpu`: which devices run kernels, and how fast.

use crate::args::{Format, Global, GpuCommand};
use crate::exit::Failure;
use crate::{open, output};
use serde::Serialize;
use std::fmt::Write;
use xio::gpu::bench::{self, Rate, Style};
use xio::gpu::{Gpu, GpuInfo, GpuQueue, GpuQueueOptions, Kind, Which};

/// A device for printing.
#[derive(Debug, Serialize)]
struct Device {
    name: String,
    device: String,
    kernels: String,
    peer_to_peer: String,
    doorbell: String,
}

/// What `xio gpu` prints for programs.
#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Device>,
    absent: Vec<String>,
}

/// Runs a command.
pub fn run(global: &Global, command: Option<&GpuCommand>, format: Format) -> Result<(), Failure> {
    match command {
        None => list(global, format),
        Some(GpuCommand::Bench { on, controllers, rounds }) => {
            bench(on.unwrap_or_default(), *controllers, *rounds)
        }
    }
}

fn list(global: &Global, format: Format) -> Result<(), Failure> {
    let (found, errors) = Gpu::list();
    let devices = found.into_iter().map(|info| device(global, info)).collect();
    let report = Report { devices, absent: errors.iter().map(ToString::to_string).collect() };
    if format == Format::Json {
        return output::json(&report);
    }
    let mut rows =
        vec![["DEVICE", "NAME", "KERNELS", "PEER-TO-PEER", "DOORBELL"].map(str::to_owned).to_vec()];
    for d in report.devices {
        rows.push(vec![d.device, d.name, d.kernels, d.peer_to_peer, d.doorbell]);
    }
    output::text(&output::columns(&rows))?;
    for why in report.absent {
        eprintln!("xio: {why}");
    }
    Ok(())
}

fn device(global: &Global, info: GpuInfo) -> Device {
    let doorbell = doorbell(global, info.which).unwrap_or_else(|failure| format!("not known: {failure}"));
    Device {
        name: info.name,
        device: info.which.to_string(),
        kernels: info.kernels,
        peer_to_peer: info.peer_to_peer,
        doorbell,
    }
}

/// How the device reaches the doorbells of the controller: tried with a queue of its own.
fn doorbell(global: &Global, which: Which) -> Result<String, Failure> {
    let controller = open::controller(global, None)?;
    let options = GpuQueueOptions { entries: 2, ..GpuQueueOptions::default() };
    let gpu = Gpu::open(which)?;
    let queue = open::retry(global, || GpuQueue::new(&gpu, &controller, &options))?;
    let refused: String = queue.refused().iter().map(|why| format!("; not {why}")).collect();
    Ok(format!("{}{refused}", queue.doorbell()))
}

/// The middle one of three measurements.
fn middle(mut measure: impl FnMut() -> xio::Result<Rate>) -> Result<Rate, Failure> {
    let mut all = [measure()?, measure()?, measure()?];
    all.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    Ok(all[1])
}

/// Millions a second.
fn millions(rate: &Rate) -> String {
    format!("{:.2}", rate.per_second() / 1e6)
}

fn bench(which: Which, controllers: u32, rounds: u64) -> Result<(), Failure> {
    let gpu = Gpu::open(which)?;
    let info = gpu.info();
    output::text(&format!("{} ({}), kernels {}\n\n", info.name, info.which, info.kernels))?;
    queues(&gpu, rounds)?;
    values(which, controllers, rounds)?;
    bytes(which, controllers)
}

fn queues(gpu: &Gpu, rounds: u64) -> Result<(), Failure> {
    output::text("One queue of 1024 entries; a thread that answers every command at once. Million commands a second, the middle \
         of three measurements:\n")?;
    let head = [
        "BATCH",
        "PLAIN",
        "LIBRARY",
        "OF PLAIN",
        "PER DOORBELL",
        "CALLS",
        "LOCK",
        "PLAIN ROUND",
        "LIBRARY ROUND",
        "CALLS ROUND",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    // On the host each thread of a block is one of the operating system.
    let batches: &[u32] = if gpu.kind() == Kind::Host { &[1, 4, 16] } else { &[1, 32, 64, 128, 256] };
    for &batch in batches {
        let echo = |style, rounds| middle(|| bench::echo(gpu, style, batch, rounds));
        let (plain, library) = (echo(Style::Plain, rounds)?, echo(Style::Batch, rounds)?);
        let (calls, lock) = (echo(Style::Call, rounds)?, echo(Style::Lock, rounds / 20 + 1)?);
        rows.push(vec![
            batch.to_string(),
            millions(&plain),
            millions(&library),
            format!("{:.0} %", 100.0 * library.per_second() / plain.per_second()),
            format!("{:.1}", library.per_doorbell()),
            millions(&calls),
            millions(&lock),
            format!("{:.2?}", plain.round(batch)),
            format!("{:.2?}", library.round(batch)),
            format!("{:.2?}", calls.round(batch)),
        ]);
    }
    output::text(&(output::columns(&rows) + "\n"))
}

fn values(which: Which, controllers: u32, rounds: u64) -> Result<(), Failure> {
    let mut text =
        String::from("Retrieve of 64-byte values, 256 at a time; each controller a thread with one queue:\n");
    for count in [1, controllers] {
        let rate = middle(|| bench::retrieve(which, count, 256, 64, rounds))?;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{count} controllers: {} million a second, {:.1} per doorbell",
            millions(&rate),
            rate.per_doorbell()
        );
    }
    output::text(&(text + "\n"))
}

fn bytes(which: Which, controllers: u32) -> Result<(), Failure> {
    let gigabytes = |rate: &Rate| rate.bytes_per_second() / 1e9;
    let limit = gigabytes(&bench::copy_limit(which, 64 << 20, 20)?);
    let host = gigabytes(&bench::host_limit(controllers, 64 << 20, 8)?);
    output::text(&format!(
        "Retrieve into the device's memory, {controllers} controllers; the runtime copies {limit:.1} GB/s, {controllers} threads \
         copy {host:.1} GB/s in the host's memory. GB/s of the controllers alone, of the kernels that copy alone, of both at \
         the same time:\n"
    ))?;
    let mut rows = vec![["VALUE", "CONTROLLERS", "COPY", "BOTH", "OF THE LIMIT"].map(str::to_owned).to_vec()];
    for shift in 17..=24 {
        let len = 1u32 << shift;
        let rates = bench::bandwidth(which, controllers, len, 8)?;
        let mut row = vec![output::size(u64::from(len))];
        row.extend(
            [rates.controllers, rates.pull, rates.both].map(|rate| format!("{:.1}", gigabytes(&rate))),
        );
        row.push(format!("{:.0} %", 100.0 * gigabytes(&rates.both) / limit));
        rows.push(row);
    }
    output::text(&output::columns(&rows))
}
