// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs in a Ceph cluster: one object for each, called by the hexadecimal digits of the key.
//!
//! Sixteen objects `index-0` to `index-f` list the keys, by first digit, each with the length of its value and whether
//! that is certain. Before an object comes, changes its length or goes, its entry is made uncertain; afterwards it is
//! certain again, or gone. So the index names every object, whatever is killed and when; opening the store looks at the
//! objects of uncertain entries. While it is open, the keys are in memory (about 50 bytes each) and a lock keeps other
//! programs out. When the lock is lost, what is in memory is too: another session begins (`session`).

mod driver;
mod index;
mod library;
mod pool;
mod session;

use super::budget::Budget;
use super::mem::max_pairs;
use super::{Answer, Later, Promise, Reply, Request, Store};
use crate::NamespaceConfig;
use nvme_kv::kv::Condition;
use nvme_kv::{Key, Status};
use pool::Ended;
use session::{Session, Sessions};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Where the pairs of a namespace are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadosConfig {
    /// Pool.
    pub pool: String,
    /// RADOS namespace in it.
    pub namespace: String,
    /// Ceph's configuration file, or the usual places.
    pub conf: Option<PathBuf>,
    /// Ceph user, such as `client.admin`.
    pub user: String,
    /// When an operation has failed if the cluster says nothing.
    pub timeout: Duration,
    /// The library.
    pub library: PathBuf,
}

impl Default for RadosConfig {
    fn default() -> Self {
        Self {
            pool: "xio".into(),
            namespace: String::new(),
            conf: None,
            user: "client.admin".into(),
            timeout: Duration::from_secs(10),
            library: "librados.so.2".into(),
        }
    }
}

/// What other threads see of the store.
#[derive(Debug)]
struct Shared {
    bytes: Budget,
    pairs: Budget,
    /// The cluster has answered last time.
    ready: AtomicBool,
    /// The lock is not ours any more, or the connection is not wanted.
    lost: AtomicBool,
    stop: AtomicBool,
}

/// The way to the thread that drives operations.
#[derive(Clone, Debug)]
struct Channel {
    events: Sender<Event>,
    wake: Sender<Ended>,
}

/// What the driving thread is told.
#[derive(Debug)]
enum Event {
    Asked(Request, Promise),
    Stop,
}

/// Keeps pairs in a Ceph cluster.
pub struct RadosStore {
    shared: Arc<Shared>,
    /// `None` between two sessions.
    channel: Arc<Mutex<Option<Channel>>>,
    thread: Option<JoinHandle<()>>,
}

/// Tag that tells the thread to look for events.
const WAKE: u64 = u64::MAX;

impl RadosStore {
    /// Connects to the cluster and reads the index.
    pub fn open(rados: &RadosConfig, config: &NamespaceConfig) -> io::Result<Self> {
        let session = Session::begin(rados)?;
        let shared = Arc::new(Shared {
            bytes: Budget::starting_at(session.index.bytes(), config.capacity),
            pairs: Budget::starting_at(session.index.keys.len() as u64, max_pairs(config)),
            ready: AtomicBool::new(true),
            lost: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let channel = Arc::new(Mutex::new(Some(session.channel.clone())));
        let sessions =
            Sessions { config: rados.clone(), shared: shared.clone(), channel: Arc::clone(&channel) };
        let thread = Builder::new().name("store-rados".into()).spawn(move || sessions.run(session))?;
        Ok(Self { shared, channel, thread: Some(thread) })
    }

    /// Tells the thread; gives back what it can not be told now.
    fn tell(&self, event: Event) -> Option<Event> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(channel) = channel.as_ref() else { return Some(event) };
        if let Err(unsent) = channel.events.send(event) {
            return Some(unsent.0);
        }
        let wake = Ended { tag: WAKE, result: 0, bytes: Vec::new(), size: 0 };
        if channel.wake.send(wake).is_err() {
            // The promise in it is broken, which is an answer.
            log::error!("the thread of a store is gone");
        }
        None
    }
}

impl Store for RadosStore {
    fn admit(&self, key: &Key, len: usize, _condition: Condition) -> Result<(), Status> {
        if super::mem::cost(key, len) > self.shared.bytes.limit() {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        Ok(())
    }

    fn start(&self, request: Request, later: &Later<'_>) -> Option<Answer> {
        // What the cluster has acknowledged is durable.
        if matches!(request, Request::Flush) {
            return Some(Ok(Reply::Done));
        }
        match self.tell(Event::Asked(request, later.promise())) {
            Some(Event::Asked(_, promise)) => promise.answer(Err(Status::NAMESPACE_NOT_READY)),
            Some(Event::Stop) | None => {}
        }
        None
    }

    fn usage(&self) -> u64 {
        self.shared.bytes.used()
    }

    fn pairs(&self) -> u64 {
        self.shared.pairs.used()
    }

    fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed) && !self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for RadosStore {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Between two sessions it looks at the flag alone.
        let _untold = self.tell(Event::Stop);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread of a store has panicked");
        }
    }
}

/// What the host is told of an error of the cluster; `write`: it was asked to change something.
fn status(errno: i32, write: bool) -> Status {
    use nix::libc;
    match errno {
        libc::ENOENT => Status::KEY_NOT_FOUND,
        libc::EEXIST => Status::KEY_EXISTS,
        libc::ENOSPC | libc::EDQUOT => Status::CAPACITY_EXCEEDED,
        libc::EROFS | libc::EPERM | libc::EACCES if write => Status::WRITE_PROTECTED,
        libc::EFBIG | libc::EMSGSIZE | libc::EINVAL if write => Status::INVALID_VALUE_SIZE,
        // Down or slow, cut off, or not ours any more: later it may be well again.
        libc::ETIMEDOUT | libc::ENOTCONN | libc::ESHUTDOWN | libc::EAGAIN | libc::EPERM | libc::EACCES => {
            Status::NAMESPACE_NOT_READY
        }
        _ => Status::UNRECOVERED_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    #[test]
    fn errors_of_the_cluster_are_told_apart() {
        for (errno, write, expected) in [
            (libc::ENOENT, false, Status::KEY_NOT_FOUND),
            (libc::EEXIST, true, Status::KEY_EXISTS),
            (libc::ENOSPC, true, Status::CAPACITY_EXCEEDED),
            (libc::EDQUOT, true, Status::CAPACITY_EXCEEDED),
            (libc::EROFS, true, Status::WRITE_PROTECTED),
            (libc::EPERM, true, Status::WRITE_PROTECTED),
            (libc::EPERM, false, Status::NAMESPACE_NOT_READY),
            (libc::ETIMEDOUT, true, Status::NAMESPACE_NOT_READY),
            (libc::ESHUTDOWN, false, Status::NAMESPACE_NOT_READY),
            (libc::EIO, false, Status::UNRECOVERED_ERROR),
        ] {
            assert_eq!(status(errno, write), expected, "{errno}");
        }
    }

    #[test]
    fn without_the_library_there_is_a_sentence() {
        let config = RadosConfig { library: "/nowhere/librados.so.2".into(), ..RadosConfig::default() };
        let opened = RadosStore::open(&config, &NamespaceConfig::default());
        assert!(opened.err().is_some_and(|error| error.to_string().contains("librados")));
    }
}
