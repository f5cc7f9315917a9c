// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of the loopback controller share.
#![allow(dead_code, reason = "each test uses a part")]

use std::time::Duration;
use xio::loopback::{Config, NamespaceConfig};
use xio::{Controller, Key, Kv, KvOptions, MemoryKind, Namespace, Path, Queue, QueueOptions, Wait};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Options for few processors.
pub fn options(entries: u32) -> QueueOptions {
    QueueOptions { entries, wait: Wait::Yield, timeout: PATIENCE, ..QueueOptions::default() }
}

/// A controller with one namespace.
pub fn controller_with(namespace: NamespaceConfig) -> Controller {
    Controller::loopback(Config { namespaces: vec![namespace], ..Config::default() }).unwrap()
}

/// A controller.
pub fn controller() -> Controller {
    controller_with(NamespaceConfig::default())
}

/// A path, and memory to use it with.
#[derive(Clone, Copy, Debug)]
pub struct Way(pub Path, pub MemoryKind);

/// All there are.
pub const WAYS: [Way; 4] = [
    Way(Path::Direct, MemoryKind::Coherent),
    Way(Path::Mediated, MemoryKind::Coherent),
    Way(Path::Direct, MemoryKind::Pinned),
    Way(Path::Mediated, MemoryKind::Pinned),
];

impl Way {
    /// The first namespace of a controller.
    pub fn kv(self, controller: &Controller) -> Kv {
        let entries = controller.info().unwrap().max_queue_entries().min(8);
        let options = KvOptions { path: self.0, memory: self.1, queue: options(entries) };
        Kv::with_options(controller, None, options).unwrap()
    }
}

/// Runs a test in every way.
pub fn every_way(test: impl Fn(Way)) {
    for way in WAYS {
        println!("{way:?}");
        test(way);
    }
}

/// The first namespace of a controller, over direct queues.
pub fn kv(controller: &Controller) -> Kv {
    WAYS[0].kv(controller)
}

/// A queue and the first namespace of a controller.
pub fn queue(controller: &Controller, entries: u32) -> (Queue, Namespace) {
    (controller.queue(options(entries)).unwrap(), controller.first_namespace().unwrap())
}

/// A key from text.
pub fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// A key of 8 bytes from a number.
pub fn numbered(n: u64) -> Key {
    Key::new(&n.to_be_bytes()).unwrap()
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
