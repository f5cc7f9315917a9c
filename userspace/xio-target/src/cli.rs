// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line.

use super::control::Request;
use super::serve::about;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use xio_target::{CommandSets, Config, NamespaceConfig};

/// A software NVMe Key Value controller for virtual machines.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serves a controller over vfio-user, for QEMU's vfio-user-pci device.
    ///
    /// QEMU needs shared memory, as in `-machine q35,memory-backend=mem
    /// -object memory-backend-memfd,id=mem,size=1G,share=on`. One client is served at a time; what is stored stays
    /// until this program ends, or for good with `--data`. SIGTERM and SIGINT ask for the end.
    /// QEMU gives a message five seconds to be answered, and then the device is lost: on a busy host, set the device's
    /// property x-msg-timeout=60000 (milliseconds).
    Serve(Serve),
    /// Asks a running `xio-target serve`, or tells it to attach or detach namespaces, or to misbehave.
    Ctl(Ctl),
}

#[derive(Args)]
pub(crate) struct Ctl {
    /// The control socket.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: PathBuf,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Subcommand)]
enum CtlCommand {
    /// All namespaces, and where they are attached.
    Namespaces,
    /// Attaches a namespace; hosts are told.
    Attach {
        /// Controller by name; `0` when there is no file.
        controller: String,
        /// Namespace by name.
        namespace: String,
        /// Its identifier there. [default: the first free one]
        #[arg(long)]
        nsid: Option<u32>,
    },
    /// Detaches a namespace; hosts are told, and its pairs stay.
    Detach {
        /// Controller by name.
        controller: String,
        /// Identifier.
        nsid: u32,
    },
    /// What the controllers did since they were powered on.
    Statistics,
    /// Bytes and pairs of all namespaces, now.
    Usage,
    /// Makes controllers misbehave on purpose, or behave again.
    #[command(subcommand)]
    Faults(FaultsCommand),
}

#[derive(Subcommand)]
enum FaultsCommand {
    /// Makes a controller misbehave by these rules, instead of the ones that it had.
    ///
    /// The book's chapter about this program has all of them; `serve --help` has a list.
    Set {
        /// Controller by name; `0` when there is no file.
        controller: String,
        /// File with rules, one a line; `-` for standard input.
        #[arg(value_name = "SCRIPT", required_unless_present = "rules")]
        script: Option<PathBuf>,
        /// A rule, such as 'drop op=store every=3'; may be given several times.
        #[arg(long = "rule", value_name = "RULE", conflicts_with = "script")]
        rules: Vec<String>,
    },
    /// Makes a controller behave again: what was held back is completed, and one that has vanished is back.
    Clear {
        /// Controller by name. [default: all]
        controller: Option<String>,
    },
    /// The rules in use, and how often each was met and done.
    Show {
        /// Controller by name. [default: all]
        controller: Option<String>,
    },
}

impl FaultsCommand {
    fn request(&self) -> io::Result<Request> {
        Ok(match self {
            Self::Set { controller, script, rules } => {
                let script = script.as_deref().map_or_else(|| Ok(rules.join("\n")), read_script)?;
                Request::FaultsSet { controller: controller.clone(), script }
            }
            Self::Clear { controller } => Request::FaultsClear { controller: controller.clone() },
            Self::Show { controller } => Request::FaultsShow { controller: controller.clone() },
        })
    }
}

fn read_script(path: &Path) -> io::Result<String> {
    if path == Path::new("-") {
        return io::read_to_string(io::stdin());
    }
    std::fs::read_to_string(path).map_err(|error| about(&path.display(), &error))
}

impl Ctl {
    pub(crate) fn request(&self) -> io::Result<Request> {
        Ok(match &self.command {
            CtlCommand::Namespaces => Request::Namespaces,
            CtlCommand::Attach { controller, namespace, nsid } => {
                Request::Attach { controller: controller.clone(), namespace: namespace.clone(), nsid: *nsid }
            }
            CtlCommand::Detach { controller, nsid } => {
                Request::Detach { controller: controller.clone(), nsid: *nsid }
            }
            CtlCommand::Statistics => Request::Statistics,
            CtlCommand::Usage => Request::Usage,
            CtlCommand::Faults(faults) => return faults.request(),
        })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Sets {
    /// Key Value.
    Kv,
    /// Only NVM: a controller without a choice of command sets.
    Nvm,
    /// NVM and zoned namespaces: a choice of command sets, without Key Value.
    Zoned,
}

#[derive(Args)]
pub(crate) struct Serve {
    /// Unix socket to make and listen on.
    #[arg(long, value_name = "PATH", required_unless_present = "config")]
    pub(crate) socket: Option<PathBuf>,
    /// File that describes namespaces and controllers; nothing else but -v can be given with it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "control", "data", "rados", "serial", "namespaces",
          "capacity", "max_value", "max_key", "max_keys", "read_only", "max_queue_entries", "max_queues", "dstrd",
          "mdts", "contiguous_queues", "cmb", "msi", "idle_cpu", "css", "fault"])]
    pub(crate) config: Option<PathBuf>,
    /// Unix socket for `xio-target ctl`.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Folder that keeps what is stored, made if it is not there; a completed Store is on its medium. Without it,
    /// everything is in memory and gone with this program.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Keep what is stored in this pool of a Ceph cluster, and RADOS namespace in it.
    #[arg(long, value_name = "POOL[/NAMESPACE]", conflicts_with = "data")]
    pub(crate) rados: Option<String>,
    /// Ceph's configuration file, if it is not in a usual place.
    #[arg(long, value_name = "FILE", requires = "rados")]
    pub(crate) ceph_conf: Option<PathBuf>,
    /// Say what happens, on standard error; twice for every admin command and mapping.
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Deepest queue.
    #[arg(long, value_name = "ENTRIES", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(2..=65536))]
    max_queue_entries: u32,
    /// I/O queue pairs.
    #[arg(long, value_name = "PAIRS", default_value_t = 31, value_parser = clap::value_parser!(u16).range(1..))]
    max_queues: u16,
    /// Doorbell stride: doorbells are 4 << N bytes apart.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=15))]
    dstrd: u8,
    /// Largest transfer: 2 ^ N pages of 4 KiB, 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=51))]
    mdts: u8,
    /// Percent of a processor core that waiting for commands may cost; less makes the first one after a pause wait longer.
    #[arg(long, value_name = "PERCENT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=100))]
    idle_cpu: u8,
    /// Queues must be contiguous.
    #[arg(long)]
    contiguous_queues: bool,
    /// Controller Memory Buffer, a multiple of 2M; 0 for none. Queues, lists and values may be in it.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_bytes)]
    cmb: u64,
    /// Interrupts by MSI instead of MSI-X.
    #[arg(long)]
    msi: bool,
    /// Namespaces, all alike.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(..=1024))]
    namespaces: u16,
    /// Bytes for keys and values of each namespace.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    capacity: u64,
    /// Longest value.
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = value_len)]
    max_value: u32,
    /// Longest key.
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=16))]
    max_key: u16,
    /// Most keys of each namespace, 0 for no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    max_keys: u32,
    /// Refuse writes.
    #[arg(long)]
    read_only: bool,
    /// Serial number; the controller's and the namespaces' unique names derive from it. [default: made from process
    /// and socket]
    #[arg(long, value_name = "TEXT")]
    pub(crate) serial: Option<String>,
    /// Command sets. All but `kv` are for seeing a driver refuse the controller.
    #[arg(long, value_enum, default_value_t = Sets::Kv)]
    css: Sets,
    /// Misbehave on purpose, by the rules of this file, one a line: FAULT [CONDITION]...
    ///
    /// Faults: delay TIME, drop, reorder, duplicate, cid N, sqid N, sqhead N, dw0 [N], phase, torn [TIME], error STATUS,
    /// slow RATE, fatal, vanish, never-ready, stay-ready, identify OFFSET BYTES, limit NAME 0|max. Conditions: op=, queue=,
    /// nsid=, key=, prefix=, after=, every=, count=, chance=. A line `seed N` makes other random choices.
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) fault: Option<PathBuf>,
}

impl Serve {
    /// The controller that is asked for.
    pub(crate) fn config(&self) -> Config {
        let namespace = NamespaceConfig {
            capacity: self.capacity,
            max_value: self.max_value,
            max_key: self.max_key,
            max_keys: self.max_keys,
            read_only: self.read_only,
        };
        Config {
            serial: self
                .serial
                .clone()
                .unwrap_or_else(|| unique_serial(self.socket.as_deref().unwrap_or(Path::new("")))),
            max_queue_entries: self.max_queue_entries,
            max_queues: self.max_queues,
            dstrd: self.dstrd,
            mdts: self.mdts,
            contiguous_queues: self.contiguous_queues,
            cmb: self.cmb,
            msi: self.msi,
            idle_cpu: self.idle_cpu,
            namespaces: vec![namespace; self.namespaces.into()],
            css: match self.css {
                Sets::Kv => CommandSets::KeyValue,
                Sets::Nvm => CommandSets::Nvm,
                Sets::Zoned => CommandSets::NvmAndZoned,
            },
            ..Config::default()
        }
    }
}

/// A serial number: two controllers of one machine must differ in it, also when their processes have the same
/// identifier, each in its own container.
pub(crate) fn unique_serial(socket: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    (socket, std::process::id()).hash(&mut hasher);
    format!("XIO{:016X}", hasher.finish())
}

/// A number of bytes, with an optional suffix K, M, G or T for powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let shift = match suffix {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err("expected digits and an optional suffix K, M, G or T".into()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number of bytes".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".into())
}

fn value_len(text: &str) -> Result<u32, String> {
    match u32::try_from(parse_bytes(text)?) {
        Ok(0) => Err("must be at least 1".into()),
        Ok(len) => Ok(len),
        Err(_) => Err("must be below 4G".into()),
    }
}

struct Stderr(Instant);

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let (time, level) = (self.0.elapsed().as_secs_f64(), record.level());
        // Nobody may be listening any more, which is no reason to end.
        let _ = writeln!(std::io::stderr(), "[{time:10.4}] {level:5} {}", record.args());
    }

    fn flush(&self) {}
}

/// Logs to standard error: warnings, with `verbose` more.
pub(crate) fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    // Fails only when there is a logger already.
    if log::set_boxed_logger(Box::new(Stderr(Instant::now()))).is_ok() {
        log::set_max_level(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_have_suffixes() {
        assert_eq!((parse_bytes("0"), parse_bytes("7K"), parse_bytes("2g")), (Ok(0), Ok(7168), Ok(2 << 30)));
        for bad in ["", "K", "1.5G", "1KB", "-1", "99999999T", "18446744073709551616"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert!(value_len("4G").is_err() && value_len("0").is_err());
        assert_eq!(value_len("64M"), Ok(64 << 20));
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let cli = Cli::try_parse_from(["xio-target", "serve", "--socket", "s"]).unwrap();
        let Command::Serve(options) = cli.command else { panic!("another command") };
        let serial = options.config().serial;
        assert_eq!(options.config(), Config { serial, ..Config::default() });
        assert_eq!(options.config().check(), Ok(()));
        assert!(Cli::try_parse_from(["xio-target", "serve", "--socket", "s", "--dstrd", "16"]).is_err());
    }
}
