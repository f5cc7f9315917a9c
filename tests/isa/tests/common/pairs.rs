// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the controller keeps, as tests see it without any command.

use nvme_kv::kv::Condition;
use nvme_kv::Key;
use std::sync::Arc;
use xio_target::store::{Answer, Later, MemStore, Reply, Request, Store};
use xio_target::NamespaceConfig;

/// The pairs of a namespace.
pub struct Pairs(Arc<MemStore>);

impl Pairs {
    pub fn new(config: &NamespaceConfig) -> Self {
        Self(Arc::new(MemStore::new(config)))
    }

    /// For the controller.
    pub fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn ask(&self, request: Request) -> Answer {
        self.0.start(request, &Later::new(0, &Arc::default())).expect("memory answers at once")
    }

    /// The value of a key.
    pub fn value(&self, key: &Key) -> Option<Vec<u8>> {
        match self.ask(Request::Get { key: *key, offset: 0, len: usize::MAX }) {
            Ok(Reply::Value(value)) => Some(value.bytes().to_vec()),
            _ => None,
        }
    }

    /// Adds a pair.
    pub fn add(&self, key: &Key, value: &[u8]) {
        let put = Request::Put { key: *key, value: value.to_vec(), condition: Condition::Always };
        self.ask(put).unwrap();
    }
}
