// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an administrator does and sees beside the host: namespaces come and go, and are counted.

use crate::config::MAX_NAMESPACES;
use crate::controller::Controller;
use crate::kv::Namespace;
use crate::store::Store;
use crate::{ConfigError, NamespaceConfig};
use nvme_kv::admin::event;
use std::sync::Arc;

/// Why a namespace can not be attached or detached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachError {
    /// The identifier is not one that a namespace can have.
    #[error("namespace identifiers are 1 to {MAX_NAMESPACES}, not {0}")]
    Range(u32),
    /// There is a namespace of this identifier.
    #[error("a namespace {0} is attached already")]
    Attached(u32),
    /// There is none.
    #[error("no namespace {0} is attached")]
    NotAttached(u32),
    /// All identifiers are in use.
    #[error("all {MAX_NAMESPACES} namespace identifiers are in use")]
    Full,
    /// Its limits are impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What a controller did since power on, and does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Commands that gave the host data: Retrieve and List.
    pub reads: u64,
    /// Bytes of it.
    pub bytes_read: u64,
    /// Stores.
    pub writes: u64,
    /// Bytes of values.
    pub bytes_written: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Commands that stores have not answered yet.
    pub under_way: u64,
    /// Enabled and not failed.
    pub running: bool,
    /// I/O submission queues.
    pub queues: u64,
}

/// An attached namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Identifier.
    pub nsid: u32,
    /// Limits.
    pub config: NamespaceConfig,
    /// Bytes in use.
    pub used: u64,
    /// Pairs.
    pub pairs: u64,
    /// The medium can be reached.
    pub ready: bool,
}

impl Controller {
    /// Attaches a namespace, with the first free identifier if none is given. A host that wants to know is told.
    pub fn attach(
        &mut self,
        nsid: Option<u32>,
        config: NamespaceConfig,
        store: Arc<dyn Store>,
    ) -> Result<u32, AttachError> {
        config.check()?;
        let free = self.namespaces.iter().position(Option::is_none).unwrap_or(self.namespaces.len());
        let nsid = nsid.unwrap_or(free as u32 + 1);
        let index = (nsid as usize).checked_sub(1).ok_or(AttachError::Range(nsid))?;
        if u64::from(nsid) > MAX_NAMESPACES {
            let full = free as u64 >= MAX_NAMESPACES;
            return Err(if full { AttachError::Full } else { AttachError::Range(nsid) });
        }
        if self.namespaces.len() <= index {
            self.namespaces.resize_with(index + 1, || None);
        }
        match self.namespaces.get_mut(index) {
            Some(place @ None) => *place = Some(Namespace::new(config, store)),
            _ => return Err(AttachError::Attached(nsid)),
        }
        self.namespace_changed(nsid);
        Ok(nsid)
    }

    /// Detaches a namespace. Commands under way come to their end; its pairs stay where they are.
    pub fn detach(&mut self, nsid: u32) -> Result<(), AttachError> {
        let index = (nsid as usize).checked_sub(1).ok_or(AttachError::Range(nsid))?;
        let place = self.namespaces.get_mut(index).filter(|place| place.is_some());
        *place.ok_or(AttachError::NotAttached(nsid))? = None;
        self.namespace_changed(nsid);
        Ok(())
    }

    fn namespace_changed(&mut self, nsid: u32) {
        log::info!("namespace {nsid} changed");
        let tell = self.features.wanted_events() & event::CONFIG_NAMESPACE != 0;
        self.events.namespace_changed(nsid, tell);
    }

    /// The attached namespaces.
    pub fn attached(&self) -> Vec<Attached> {
        let describe = |nsid, namespace: &Namespace| Attached {
            nsid,
            config: namespace.config.clone(),
            used: namespace.store.usage(),
            pairs: namespace.store.pairs(),
            ready: namespace.store.is_ready(),
        };
        let all = (1..).zip(&self.namespaces);
        all.filter_map(|(nsid, place)| place.as_ref().map(|namespace| describe(nsid, namespace))).collect()
    }

    /// What was done.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            reads: self.counters.reads,
            bytes_read: self.counters.bytes_read,
            writes: self.counters.writes,
            bytes_written: self.counters.bytes_written,
            failed: self.counters.failed,
            under_way: self.flights.count(),
            running: self.is_running(),
            queues: self.queues.io_queues(),
        }
    }
}
