// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio-target.toml`: namespaces by name, and the controllers that have them.

use super::cli::{parse_bytes, unique_serial};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xio_target::store::RadosConfig;
use xio_target::{Config, NamespaceConfig};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Socket for `xio-target ctl`.
    pub(crate) control: Option<PathBuf>,
    /// Namespaces by name.
    #[serde(default)]
    pub(crate) namespace: BTreeMap<String, Namespace>,
    /// Controllers by name.
    pub(crate) controller: BTreeMap<String, ControllerTable>,
}

/// Where pairs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// In memory.
    Mem,
    /// In a folder.
    Embedded {
        /// Folder.
        path: PathBuf,
    },
    /// In a Ceph cluster.
    Rados(RadosConfig),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Mem,
    Embedded,
    Rados,
}

/// A namespace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Namespace {
    backend: Kind,
    /// Folder of an embedded one.
    path: Option<PathBuf>,
    /// Pool of one in a Ceph cluster, and the RADOS namespace in it.
    pool: Option<String>,
    rados_namespace: Option<String>,
    /// Ceph's configuration file, user, library, and seconds until an operation fails.
    ceph_conf: Option<PathBuf>,
    ceph_user: Option<String>,
    librados: Option<PathBuf>,
    timeout: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    capacity: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    max_value: Option<u64>,
    max_key: Option<u16>,
    max_keys: Option<u32>,
    #[serde(default)]
    read_only: bool,
}

/// A controller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControllerTable {
    /// Its vfio-user socket.
    pub(crate) socket: PathBuf,
    /// Names of its namespaces 1, 2, ….
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
    serial: Option<String>,
    model: Option<String>,
    max_queue_entries: Option<u32>,
    max_queues: Option<u16>,
    dstrd: Option<u8>,
    mdts: Option<u8>,
    contiguous_queues: Option<bool>,
    #[serde(default, deserialize_with = "bytes")]
    cmb: Option<u64>,
    msi: Option<bool>,
    idle_cpu: Option<u8>,
    /// Script by which it misbehaves.
    pub(crate) faults: Option<PathBuf>,
}

impl File {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    /// Reads its text.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let file: Self = toml::from_str(text).map_err(io::Error::other)?;
        for (name, controller) in &file.controller {
            if let Some(missing) = controller.namespaces.iter().find(|n| !file.namespace.contains_key(*n)) {
                let text = format!("controller {name}: there is no namespace {missing:?}");
                return Err(io::Error::other(text));
            }
        }
        Ok(file)
    }
}

impl Namespace {
    /// Where its pairs are.
    pub(crate) fn backend(&self) -> io::Result<Backend> {
        let error = |text: &str| Err(io::Error::other(text));
        let ceph = self.pool.is_some() || self.rados_namespace.is_some() || self.ceph_conf.is_some();
        let ceph = ceph || self.ceph_user.is_some() || self.librados.is_some() || self.timeout.is_some();
        match (self.backend, &self.path) {
            (Kind::Mem | Kind::Embedded, _) if ceph => error("only the backend rados has a pool"),
            (Kind::Mem, None) => Ok(Backend::Mem),
            (Kind::Embedded, Some(path)) => Ok(Backend::Embedded { path: path.clone() }),
            (Kind::Rados, None) => self.rados().map(Backend::Rados),
            (Kind::Mem | Kind::Rados, Some(_)) => error("path is for the backend embedded"),
            (Kind::Embedded, None) => error("path is missing"),
        }
    }

    fn rados(&self) -> io::Result<RadosConfig> {
        let default = RadosConfig::default();
        Ok(RadosConfig {
            pool: self.pool.clone().ok_or_else(|| io::Error::other("pool is missing"))?,
            namespace: self.rados_namespace.clone().unwrap_or(default.namespace),
            conf: self.ceph_conf.clone(),
            user: self.ceph_user.clone().unwrap_or(default.user),
            library: self.librados.clone().unwrap_or(default.library),
            timeout: self.timeout.map_or(default.timeout, Duration::from_secs),
        })
    }

    /// Its limits.
    pub(crate) fn config(&self) -> io::Result<NamespaceConfig> {
        let default = NamespaceConfig::default();
        let max_value = self.max_value.map(u32::try_from).transpose();
        let max_value = max_value.map_err(|_| io::Error::other("max_value must be below 4G"))?;
        Ok(NamespaceConfig {
            capacity: self.capacity.unwrap_or(default.capacity),
            max_value: max_value.unwrap_or(default.max_value),
            max_key: self.max_key.unwrap_or(default.max_key),
            max_keys: self.max_keys.unwrap_or(default.max_keys),
            read_only: self.read_only,
        })
    }
}

impl ControllerTable {
    /// The controller with these namespaces.
    pub(crate) fn config(&self, namespaces: Vec<NamespaceConfig>) -> Config {
        let default = Config::default();
        Config {
            serial: self.serial.clone().unwrap_or_else(|| unique_serial(&self.socket)),
            model: self.model.clone().unwrap_or(default.model),
            max_queue_entries: self.max_queue_entries.unwrap_or(default.max_queue_entries),
            max_queues: self.max_queues.unwrap_or(default.max_queues),
            dstrd: self.dstrd.unwrap_or(default.dstrd),
            mdts: self.mdts.unwrap_or(default.mdts),
            contiguous_queues: self.contiguous_queues.unwrap_or(default.contiguous_queues),
            cmb: self.cmb.unwrap_or(0),
            msi: self.msi.unwrap_or(default.msi),
            idle_cpu: self.idle_cpu.unwrap_or(default.idle_cpu),
            namespaces,
            css: default.css,
        }
    }
}

/// A number of bytes, or a text with a suffix.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Bytes {
        Number(u64),
        Text(String),
    }
    match Bytes::deserialize(from)? {
        Bytes::Number(number) => Ok(Some(number)),
        Bytes::Text(text) => parse_bytes(&text).map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
        control = "/run/xio-target/control"

        [namespace.models]
        backend = "embedded"
        path = "/var/lib/xio-target/models"
        capacity = "2T"
        max_value = 67108864

        [namespace.scratch]
        backend = "mem"
        capacity = "1G"
        max_keys = 1000
        read_only = true

        [controller.vm1]
        socket = "/run/xio-target/vm1"
        serial = "VM1"
        namespaces = ["models", "scratch"]
        dstrd = 10
        cmb = "4M"
        idle_cpu = 10
        faults = "/etc/xio-target/vm1.faults"

        [controller.vm2]
        socket = "/run/xio-target/vm2"
        namespaces = ["models"]
    "#;

    #[test]
    fn a_file_with_everything() {
        let file = File::parse(EXAMPLE).unwrap();
        let models = &file.namespace["models"];
        assert_eq!(
            models.backend().unwrap(),
            Backend::Embedded { path: "/var/lib/xio-target/models".into() }
        );
        assert_eq!(models.config().unwrap().capacity, 2 << 40);
        let scratch = file.namespace["scratch"].config().unwrap();
        assert_eq!((scratch.max_keys, scratch.read_only, scratch.max_value), (1000, true, 64 << 20));
        let config = file.controller["vm1"].config(vec![scratch]);
        assert_eq!((&*config.serial, config.dstrd, config.cmb, config.idle_cpu), ("VM1", 10, 4 << 20, 10));
        assert_eq!(config.check(), Ok(()));
        let script = file.controller["vm1"].faults.as_deref();
        assert_eq!(script, Some(Path::new("/etc/xio-target/vm1.faults")));
        let other = file.controller["vm2"].config(vec![]);
        assert_ne!(other.serial, config.serial);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("[controller.a]\nsocket = \"s\"\nnamespaces = [\"x\"]", "no namespace \"x\""),
            ("[controller.a]\nsocket = \"s\"\nsocks = 1", "socks"),
            ("[controller.a]\nsocket = \"s\"\ncmb = \"4X\"", "suffix"),
            ("[namespace.a]\nbackend = \"disk\"\n[controller]", "disk"),
            ("[namespace.a]\nbackend = \"mem\"\ncapasity = 1\n[controller]", "capasity"),
            ("", "controller"),
        ] {
            let error = File::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let rados = "[namespace.a]\nbackend = \"rados\"\npool = \"p\"\nrados_namespace = \"n\"\ntimeout = 3\n[controller]";
        let expected = RadosConfig {
            pool: "p".into(),
            namespace: "n".into(),
            timeout: Duration::from_secs(3),
            ..RadosConfig::default()
        };
        assert_eq!(File::parse(rados).unwrap().namespace["a"].backend().unwrap(), Backend::Rados(expected));
        let poolless = File::parse("[namespace.a]\nbackend = \"rados\"\n[controller]").unwrap();
        assert!(poolless.namespace["a"].backend().is_err());
        let pathless = File::parse("[namespace.a]\nbackend = \"embedded\"\n[controller]").unwrap();
        assert!(pathless.namespace["a"].backend().is_err());
        let large = "[namespace.a]\nbackend = \"mem\"\nmax_value = \"4G\"\n[controller]";
        assert!(File::parse(large).unwrap().namespace["a"].config().is_err());
    }
}
