// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket: a line of JSON asks, a line of JSON answers.

use super::serve::{about, Namespaces};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use xio_target::fault::{Script, ScriptError};
use xio_target::vfio::Handle;
use xio_target::Controller;

/// How long a client of the control socket may think.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request.
const MAX_REQUEST: u64 = 64 << 10;

/// What can be asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// All namespaces of the file, and where they are attached.
    Namespaces,
    /// Attaches a namespace to a controller.
    Attach {
        controller: String,
        namespace: String,
        #[serde(default)]
        nsid: Option<u32>,
    },
    /// Detaches the namespace of an identifier.
    Detach { controller: String, nsid: u32 },
    /// What the controllers did.
    Statistics,
    /// Bytes and pairs of all namespaces at this moment.
    Usage,
    /// Makes a controller misbehave as a script says.
    #[serde(rename = "faults-set")]
    FaultsSet { controller: String, script: String },
    /// Makes a controller, or all, behave again.
    #[serde(rename = "faults-clear")]
    FaultsClear {
        #[serde(default)]
        controller: Option<String>,
    },
    /// The rules of a controller, or of all, and how often they were met.
    #[serde(rename = "faults-show")]
    FaultsShow {
        #[serde(default)]
        controller: Option<String>,
    },
}

/// A controller that is served.
pub(crate) struct Place {
    pub(crate) handle: Handle,
    pub(crate) socket: PathBuf,
    /// Names of the attached namespaces.
    pub(crate) names: BTreeMap<u32, String>,
}

/// The socket, and what it gives access to.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    namespaces: Namespaces,
    places: Mutex<BTreeMap<String, Place>>,
}

impl Control {
    /// Listens at `path`; only the user that this program runs as may connect.
    pub(crate) fn bind(
        path: &Path,
        namespaces: Namespaces,
        places: BTreeMap<String, Place>,
    ) -> io::Result<Self> {
        let bind = || {
            // Left behind by a program that was killed, unless somebody answers.
            if path.exists() {
                if UnixStream::connect(path).is_ok() {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = bind().map_err(|error| about(&path.display(), &error))?;
        Ok(Self { listener, path: path.to_owned(), namespaces, places: Mutex::new(places) })
    }

    /// Answers until `stop` can be read.
    pub(crate) fn run(&self, stop: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let mut fds =
                [PollFd::new(stop, PollFlags::POLLIN), PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) if fds[0].any() == Some(true) => return Ok(()),
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let (stream, _) = self.listener.accept()?;
            if let Err(error) = self.serve(&stream) {
                log::warn!("control: {error}");
            }
        }
    }

    /// Answers one client.
    pub(crate) fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
        let answer = match serde_json::from_str(&line) {
            Ok(request) => self.answer(request),
            Err(error) => Err(error.to_string()),
        };
        let answer = match answer {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error }),
        };
        let mut stream = stream;
        stream.write_all(format!("{answer}\n").as_bytes())
    }

    fn answer(&self, request: Request) -> Result<Value, String> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        match request {
            Request::Namespaces => Ok(self.describe_namespaces(&places)),
            Request::Usage => Ok(self.usage()),
            Request::Statistics => Ok(statistics(&places)),
            Request::Attach { controller, namespace, nsid } => {
                let named = self.namespaces.get(&namespace);
                let (config, store) = named.ok_or_else(|| format!("there is no namespace {namespace:?}"))?;
                let place = places.get_mut(&controller).ok_or_else(|| missing(&controller))?;
                let attach = place.handle.with(|c| c.attach(nsid, config.clone(), store.clone()));
                let nsid = attach.map_err(|error| error.to_string())?;
                place.names.insert(nsid, namespace);
                Ok(json!({ "nsid": nsid }))
            }
            Request::Detach { controller, nsid } => {
                let place = places.get_mut(&controller).ok_or_else(|| missing(&controller))?;
                place.handle.with(|c| c.detach(nsid)).map_err(|error| error.to_string())?;
                Ok(json!({ "namespace": place.names.remove(&nsid) }))
            }
            Request::FaultsSet { controller, script } => {
                let script: Script = script.parse().map_err(|error: ScriptError| error.to_string())?;
                let place = places.get(&controller).ok_or_else(|| missing(&controller))?;
                place.handle.with(|c| c.set_faults(script));
                Ok(faults(&controller, place))
            }
            Request::FaultsClear { controller } => {
                let chosen = choose(&places, controller.as_deref())?;
                chosen.iter().for_each(|(_, place)| place.handle.with(Controller::clear_faults));
                Ok(chosen.iter().map(|(name, place)| faults(name, place)).collect())
            }
            Request::FaultsShow { controller } => {
                let chosen = choose(&places, controller.as_deref())?;
                Ok(chosen.iter().map(|(name, place)| faults(name, place)).collect())
            }
        }
    }

    fn describe_namespaces(&self, places: &BTreeMap<String, Place>) -> Value {
        let all = self.namespaces.iter().map(|(name, (config, _))| {
            let attached = places.iter().flat_map(|(controller, place)| {
                let here = place.names.iter().filter(|(_, n)| *n == name);
                here.map(move |(nsid, _)| json!({ "controller": controller, "nsid": nsid }))
            });
            json!({
                "name": name, "attached": attached.collect::<Vec<_>>(), "read_only": config.read_only,
                "max_value": config.max_value, "max_key": config.max_key, "max_keys": config.max_keys,
            })
        });
        all.collect()
    }

    fn usage(&self) -> Value {
        let all = self.namespaces.iter().map(|(name, (config, store))| {
            json!({
                "name": name, "used": store.usage(), "capacity": config.capacity, "pairs": store.pairs(),
                "ready": store.is_ready(),
            })
        });
        all.collect()
    }
}

/// One controller by name, or all.
fn choose<'a>(
    places: &'a BTreeMap<String, Place>,
    name: Option<&str>,
) -> Result<Vec<(&'a String, &'a Place)>, String> {
    let chosen: Vec<_> = places.iter().filter(|(n, _)| name.is_none_or(|name| name == *n)).collect();
    match name {
        Some(name) if chosen.is_empty() => Err(missing(name)),
        _ => Ok(chosen),
    }
}

fn missing(name: &str) -> String {
    format!("there is no controller {name:?}")
}

fn faults(name: &str, place: &Place) -> Value {
    let (absent, faults) = place.handle.with(|controller| (controller.is_absent(), controller.faults()));
    let (seed, rules) = faults.map_or((None, Vec::new()), |(seed, rules)| (Some(seed), rules));
    let rules = rules
        .iter()
        .map(|rule| json!({ "line": rule.line, "rule": rule.rule, "met": rule.met, "done": rule.done }));
    let rules: Vec<_> = rules.collect();
    json!({ "name": name, "absent": absent, "seed": seed, "rules": rules })
}

fn statistics(places: &BTreeMap<String, Place>) -> Value {
    let all = places.iter().map(|(name, place)| {
        let s = place.handle.with(|controller| controller.statistics());
        json!({
            "name": name, "socket": place.socket, "running": s.running, "queues": s.queues,
            "reads": s.reads, "bytes_read": s.bytes_read, "writes": s.writes, "bytes_written": s.bytes_written,
            "failed": s.failed, "under_way": s.under_way,
        })
    });
    all.collect()
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{}: {error}", self.path.display());
        }
    }
}

/// Asks a running program.
pub(crate) fn ask(path: &Path, request: &Request) -> io::Result<Value> {
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    if line.len() as u64 > MAX_REQUEST {
        let text =
            format!("a request of {} bytes is longer than the {MAX_REQUEST} that are read", line.len());
        return Err(io::Error::other(text));
    }
    let mut stream = UnixStream::connect(path).map_err(|error| about(&path.display(), &error))?;
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let mut answer: Value = serde_json::from_str(&answer)?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(io::Error::other(error.to_owned())),
        None => Ok(answer.get_mut("ok").map(Value::take).unwrap_or_default()),
    }
}
