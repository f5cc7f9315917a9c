// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serving: what the command line or the file asks for, until a signal asks for the end.

use super::cli::Serve;
use super::control::{Control, Place};
use super::file::{Backend, ControllerTable, File};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xio_target::fault::Script;
use xio_target::store::{EmbeddedStore, MemStore, RadosConfig, RadosStore, Store};
use xio_target::vfio::{Listener, Server};
use xio_target::{Config, NamespaceConfig};

/// A namespace by name: its limits and its pairs.
pub(crate) type Namespaces = BTreeMap<String, (NamespaceConfig, Arc<dyn Store>)>;

/// All that is served.
struct Plan {
    control: Option<PathBuf>,
    namespaces: Namespaces,
    controllers: Vec<Plugged>,
}

/// A controller, and where it is plugged in.
struct Plugged {
    name: String,
    socket: PathBuf,
    config: Config,
    /// Names of its namespaces.
    namespaces: Vec<String>,
    /// How it misbehaves.
    faults: Option<Script>,
}

/// Says what an error is about.
pub(crate) fn about(what: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Serves until a signal asks for the end.
pub(crate) fn serve(options: &Serve) -> io::Result<()> {
    // Before there are threads, so that they inherit the mask and the signals come here.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let plan = match &options.config {
        Some(path) => from_file(File::read(path).map_err(|error| about(&path.display(), &error))?)?,
        None => from_options(options)?,
    };
    run(plan, &stop)
}

fn run(plan: Plan, stop: &SignalFd) -> io::Result<()> {
    let mut served = Vec::new();
    let mut places = BTreeMap::new();
    for Plugged { name, socket, config, namespaces, faults } in plan.controllers {
        let stores = namespaces.iter().filter_map(|name| plan.namespaces.get(name));
        let stores = stores.map(|(_, store)| store.clone()).collect();
        let server = Server::with_stores(config, stores)
            .map_err(|error| about(&format!("controller {name}"), &error))?;
        if let Some(script) = faults {
            server.handle().with(|controller| controller.set_faults(script));
        }
        let listener = Listener::bind(&socket).map_err(|error| about(&socket.display(), &error))?;
        log::info!("listening on {}", socket.display());
        let names = (1..).zip(namespaces).collect();
        places.insert(name, Place { handle: server.handle(), socket, names });
        served.push((server, listener));
    }
    let control = plan.control.as_deref().map(|path| Control::bind(path, plan.namespaces, places));
    let control = control.transpose()?;
    // One thread each; the first to fail or to be stopped ends them all, since all watch `stop`.
    std::thread::scope(|scope| {
        let control = control.as_ref().map(|control| scope.spawn(move || control.run(stop.as_fd())));
        let threads: Vec<_> = served
            .iter_mut()
            .map(|(server, listener)| scope.spawn(move || server.run(listener, stop.as_fd())))
            .collect();
        let ended = threads
            .into_iter()
            .chain(control)
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked"))));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

fn from_file(file: File) -> io::Result<Plan> {
    let mut namespaces = Namespaces::new();
    for (name, namespace) in &file.namespace {
        let opened =
            namespace.config().and_then(|config| Ok((open(&namespace.backend()?, &config)?, config)));
        let (store, config) = opened.map_err(|error| about(&format!("namespace {name}"), &error))?;
        namespaces.insert(name.clone(), (config, store));
    }
    let plug = |(name, table): (String, ControllerTable)| {
        let limits = table.namespaces.iter().filter_map(|name| namespaces.get(name));
        let config = table.config(limits.map(|(config, _)| config.clone()).collect());
        let faults = table.faults.as_deref().map(script).transpose()?;
        Ok(Plugged { name, socket: table.socket, config, namespaces: table.namespaces, faults })
    };
    let controllers = file.controller.into_iter().map(plug).collect::<io::Result<_>>()?;
    Ok(Plan { control: file.control, namespaces, controllers })
}

/// One controller, `0`, whose namespaces are called by their identifiers.
fn from_options(options: &Serve) -> io::Result<Plan> {
    let mut config = options.config();
    if let Some(folder) = &options.data {
        std::fs::create_dir_all(folder).map_err(|error| about(&folder.display(), &error))?;
        if options.serial.is_none() {
            config.serial = kept_serial(folder, &config.serial)?;
        }
    }
    let mut namespaces = Namespaces::new();
    let mut names = Vec::new();
    for (nsid, limits) in (1..).zip(&config.namespaces) {
        let backend = match (&options.data, &options.rados) {
            (Some(folder), _) => Backend::Embedded { path: folder.join(format!("namespace-{nsid}")) },
            (None, Some(pool)) => Backend::Rados(rados(pool, nsid, options)),
            (None, None) => Backend::Mem,
        };
        let name = nsid.to_string();
        namespaces.insert(name.clone(), (limits.clone(), open(&backend, limits)?));
        names.push(name);
    }
    let socket = options.socket.clone().ok_or_else(|| io::Error::other("--socket or --config is needed"))?;
    let faults = options.fault.as_deref().map(script).transpose()?;
    let controllers = vec![Plugged { name: "0".into(), socket, config, namespaces: names, faults }];
    Ok(Plan { control: options.control.clone(), namespaces, controllers })
}

/// Reads a script of faults.
fn script(path: &Path) -> io::Result<Script> {
    let script = std::fs::read_to_string(path).and_then(|text| text.parse().map_err(io::Error::other));
    script.map_err(|error| about(&path.display(), &error))
}

/// What `--rados POOL[/NAMESPACE]` means for a namespace; those after the first have their number behind the name.
fn rados(pool: &str, nsid: u32, options: &Serve) -> RadosConfig {
    let (pool, namespace) = pool.split_once('/').unwrap_or((pool, ""));
    let namespace = match nsid {
        1 => namespace.to_owned(),
        n => format!("{namespace}.{n}"),
    };
    RadosConfig { pool: pool.into(), namespace, conf: options.ceph_conf.clone(), ..RadosConfig::default() }
}

fn open(backend: &Backend, config: &NamespaceConfig) -> io::Result<Arc<dyn Store>> {
    Ok(match backend {
        Backend::Mem => Arc::new(MemStore::new(config)),
        Backend::Embedded { path } => {
            let store = EmbeddedStore::open(path, config);
            Arc::new(store.map_err(|error| about(&path.display(), &error))?)
        }
        Backend::Rados(rados) => {
            let store = RadosStore::open(rados, config);
            Arc::new(store.map_err(|error| about(&format!("pool {}", rados.pool), &error))?)
        }
    })
}

/// The serial number that belongs to a folder, so that hosts find the same namespaces again.
fn kept_serial(folder: &Path, new: &str) -> io::Result<String> {
    let file = folder.join("serial");
    match std::fs::read_to_string(&file) {
        Ok(serial) => Ok(serial.trim_end().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Whole or not at all, also when this program is killed.
            let fresh = folder.join("serial.new");
            std::fs::write(&fresh, format!("{new}\n"))?;
            std::fs::File::open(&fresh)?.sync_all()?;
            std::fs::rename(&fresh, &file)?;
            std::fs::File::open(folder)?.sync_all()?;
            Ok(new.to_owned())
        }
        Err(error) => Err(error),
    }
}
