// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use crate::system::Address;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;
use xio::gpu::Which;
use xio::Key;

const KEYS: &str = "Keys are 1 to 16 bytes: text as it is, or bytes as 0x and hexadecimal digits.";

const MANIFEST: &str = "A manifest has a JSON object a line: {\"key\": TEXT} or {\"key_hex\": DIGITS}; \"file\", relative to the \
     manifest's folder, with \"offset\" and \"length\" in bytes; \"digest\": \"sha256:HEX\", checked; \"meta\": an object that \
     comes back untouched in --results json.";

const BIND: &str = "The controller is taken from the driver that has it, and reset. If the module refuses it, since it is none for Key \
     Value, it goes back to that driver.\n\nRefused, with the name of what uses it, is a disk that is mounted (or swap, or \
     part of LVM, RAID, btrfs, ZFS or a mapped device, or exported), or a controller with a node that a program has open. There \
     is no option to do it anyway. Needs root.\n\nExit codes: 0 done, or the module had it; 6 no NVMe controller, or none for Key \
     Value; 7 not root; 8 no such function, in use, or the module is not loaded.";

const UNBIND: &str =
    "Refused while a program has its node open. Without the nvme driver it is left without any. Needs \
     root.\n\nExit codes: 0 done; 7 not root; 8 no such function, not with the module, or in use.";

const DOCTOR: &str = "Each line is ok, a note (something that not everybody needs) or a PROBLEM, with what to do about it. No \
     controller is touched. Run as the user who will use the controller; root sees more of the bridges above it.\n\nExit \
     codes: 0 no problem, 9 problems were found.";

/// NVMe Key Value storage without a file system: controllers of the rocm_xio module, and values by key.
#[derive(Debug, Parser)]
#[command(name = "xio", version, after_help = crate::exit::help())]
pub struct Args {
    /// What applies to all commands.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of all commands.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// Controller: a node, or its number or name in /dev [default: the first one]
    #[arg(short, long, global = true, value_name = "DEV", value_parser = device)]
    pub device: Option<PathBuf>,
    /// Namespace [default: the first one]
    #[arg(short, long, global = true, value_name = "N")]
    pub nsid: Option<u32>,
    /// Use a software controller inside this process, to try things without a device. It starts empty and forgets
    /// everything at the end
    #[arg(long, global = true, conflicts_with = "device")]
    pub loopback: bool,
    /// How commands get to the controller
    #[arg(long, global = true, value_enum, default_value_t)]
    pub path: PathArg,
    /// What kind of memory values go through
    #[arg(long, global = true, value_enum, default_value_t)]
    pub memory: MemoryArg,
    /// Say on standard error which path and memory are used
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// For how many seconds to try again while another process has direct queues, or something that excludes them
    #[arg(long, global = true, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub wait: Duration,
    /// For how many seconds to wait for the answer to a command
    #[arg(long, global = true, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub timeout: Duration,
}

/// `--path`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum PathArg {
    /// Direct where it may be had and is free, else mediated
    #[default]
    Auto,
    /// Queues mapped into this process
    Direct,
    /// By way of the kernel
    Mediated,
}

impl From<PathArg> for xio::Path {
    fn from(path: PathArg) -> Self {
        match path {
            PathArg::Auto => Self::Auto,
            PathArg::Direct => Self::Direct,
            PathArg::Mediated => Self::Mediated,
        }
    }
}

/// `--memory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum MemoryArg {
    /// Allocated by the module
    #[default]
    Coherent,
    /// Of this process, pinned; RLIMIT_MEMLOCK limits it
    Pinned,
    /// In the controller memory buffer
    Cmb,
    /// An imported dma-buf: with --gpu the device's own memory, else the system's, which /dev/udmabuf makes
    Dmabuf,
}

impl From<MemoryArg> for xio::MemoryKind {
    fn from(memory: MemoryArg) -> Self {
        match memory {
            MemoryArg::Coherent => Self::Coherent,
            MemoryArg::Pinned => Self::Pinned,
            MemoryArg::Cmb => Self::Cmb,
            MemoryArg::Dmabuf => Self::Dmabuf,
        }
    }
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List controllers
    List {
        /// Format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Show what a controller is and can do
    Info {
        /// Controller, as for --device
        #[arg(value_name = "DEV", value_parser = device, conflicts_with_all = ["device", "loopback"])]
        controller: Option<PathBuf>,
        /// Format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Give an NVMe controller to the module, for Key Value
    #[command(after_help = BIND)]
    Bind {
        /// Its PCI address, as lspci shows it; without a domain, 0000 is meant
        #[arg(value_name = "PCI-ADDRESS")]
        address: Address,
    },
    /// Give a controller of the module back to the kernel's nvme driver
    #[command(after_help = UNBIND)]
    Unbind {
        /// Its PCI address, as for bind
        #[arg(value_name = "PCI-ADDRESS")]
        address: Address,
    },
    /// Look at kernel, module, controllers, rights and GPUs, and say what keeps them from being used
    #[command(after_help = DOCTOR)]
    Doctor {
        /// Format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// List devices that run kernels, and how they reach the controller
    Gpu {
        /// Format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
        /// The command.
        #[command(subcommand)]
        command: Option<GpuCommand>,
    },
    /// Show who has what of controllers, live; root alone may read that
    Top(Top),
    /// Store, retrieve, find, delete and list values by key
    Kv {
        /// The command.
        #[command(subcommand)]
        command: Kv,
    },
}

/// `xio top`.
#[derive(Debug, clap::Args)]
pub struct Top {
    /// Controllers, as for --device [default: all]
    #[arg(value_name = "DEV", value_parser = device, conflicts_with_all = ["device", "loopback"])]
    pub controllers: Vec<PathBuf>,
    /// Show it once, without rates, and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval, conflicts_with = "once")]
    pub interval: Duration,
    /// Format; json without --once is an object a line
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Commands on devices that run kernels.
#[derive(Debug, Subcommand)]
pub enum GpuCommand {
    /// Measure rates against software controllers, beside those of a bare queue
    Bench {
        /// Device: host, hip:N, cuda:N, or a number [default: the first GPU]
        #[arg(long, value_name = "GPU")]
        on: Option<Which>,
        /// Software controllers, a thread each
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
        controllers: u32,
        /// Rounds of each measurement
        #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
        rounds: u64,
    },
}

/// Many keys at once, and kernels.
#[derive(Clone, Debug, clap::Args)]
pub struct Many {
    /// Let a kernel do it: on the first GPU, GPU N, hip:N, cuda:N, or host for threads of this process. With --memory dmabuf
    /// values go between the controller and the GPU's own memory
    #[arg(long, value_name = "GPU", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub gpu: Option<Which>,
    /// With --gpu: keys that share a doorbell
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub batch: u32,
    /// Take keys from a file of JSON lines, - for standard input
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// With --manifest: format of the results
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub results: Format,
}

impl Many {
    /// Whether one key is meant, without a kernel.
    pub const fn is_plain(&self) -> bool {
        self.gpu.is_none() && self.manifest.is_none()
    }
}

/// Commands on values.
#[derive(Debug, Subcommand)]
pub enum Kv {
    /// Store a value
    #[command(after_help = format!("{KEYS}\n{MANIFEST}"))]
    Store {
        /// Key
        #[arg(required_unless_present = "manifest", conflicts_with = "manifest")]
        key: Option<Key>,
        /// File with the value, - for standard input
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        input: PathBuf,
        /// Many keys at once.
        #[command(flatten)]
        many: Many,
        /// Only if the key does not exist
        #[arg(long)]
        if_absent: bool,
        /// Only if the key exists
        #[arg(long, conflicts_with = "if_absent")]
        if_exists: bool,
        /// Ask the controller not to compress the value
        #[arg(long)]
        no_compress: bool,
    },
    /// Retrieve a value
    #[command(after_help = format!("{KEYS}\n{MANIFEST}"))]
    Retrieve {
        /// Key
        #[arg(required_unless_present = "manifest", conflicts_with = "manifest")]
        key: Option<Key>,
        /// Many keys at once.
        #[command(flatten)]
        many: Many,
        /// File for the value, replaced at once when it is complete; - for standard output
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Ask for the value as it is stored, not decompressed
        #[arg(long)]
        raw: bool,
    },
    /// Tell which keys exist, a line each
    #[command(after_help = format!("{KEYS}\n{MANIFEST}"))]
    Exist {
        /// Keys
        #[arg(required_unless_present = "manifest", conflicts_with = "manifest", value_name = "KEY")]
        keys: Vec<Key>,
        /// Many keys at once.
        #[command(flatten)]
        many: Many,
    },
    /// Delete keys and their values
    #[command(after_help = format!("{KEYS}\n{MANIFEST}"))]
    Delete {
        /// Keys
        #[arg(required_unless_present = "manifest", conflicts_with = "manifest", value_name = "KEY")]
        keys: Vec<Key>,
        /// Many keys at once.
        #[command(flatten)]
        many: Many,
    },
    /// List keys in the controller's order
    #[command(after_help = KEYS)]
    List {
        /// Key to start at, or the one that follows it
        #[arg(long, value_name = "KEY")]
        start: Option<Key>,
        /// Most keys to list
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Store, read back and delete values of many sizes under a key of their own
    Selftest,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(number).map_err(|e| e.to_string())?;
    if duration > YEAR {
        return Err("more than a year".into());
    }
    Ok(duration)
}

/// Time between two looks, which cost the controller's other users a little.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = seconds(text)?;
    if interval < Duration::from_millis(50) {
        return Err("less than 0.05 seconds".into());
    }
    Ok(interval)
}

/// A path, or a number or name in /dev.
fn device(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("empty".into());
    }
    if text.contains('/') {
        return Ok(text.into());
    }
    let number = text.bytes().all(|b| b.is_ascii_digit());
    Ok(Path::new("/dev").join(if number { format!("rocm-xio{text}") } else { text.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn devices_by_path_name_and_number() {
        let path = |text| device(text).unwrap();
        assert_eq!(path("3"), Path::new("/dev/rocm-xio3"));
        assert_eq!(path("rocm-xio3"), Path::new("/dev/rocm-xio3"));
        assert_eq!(path("./x"), Path::new("./x"));
    }

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("31536000").is_ok() && seconds("31536001").is_err() && seconds("1e18").is_err());
        assert!(seconds("-1").is_err() && seconds("x").is_err() && seconds("inf").is_err());
    }
}
