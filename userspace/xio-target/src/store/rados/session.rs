// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: from the lock being taken until it is lost. Then all that is known of the index may be wrong, and another
//! session begins with a connection of its own, as soon as the cluster lets it.

use super::driver::Driver;
use super::index::{Index, LEASE, LOCKED};
use super::pool::{Ended, Held, Pool};
use super::{Channel, Event, RadosConfig, Shared};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two renewals of the lock, and between two attempts to begin a session.
const RENEW: Duration = Duration::from_secs(3);

/// What a session begins with.
pub(super) struct Session {
    pool: Arc<Pool>,
    pub(super) index: Index,
    held: Held,
    /// The way to it, and the other ends.
    pub(super) channel: Channel,
    asked: Receiver<Event>,
    ended: Receiver<Ended>,
}

impl Session {
    /// Connects, takes the lock and reads the index. Without the right to take it, what is there can be read all the same.
    pub(super) fn begin(config: &RadosConfig) -> io::Result<Self> {
        let pool = Arc::new(Pool::connect(config)?);
        let held = Index::lock(&pool)?;
        let index = Index::load(&pool, held)?;
        log::info!(
            "pool {} namespace {:?}: {} pairs, {held:?}",
            config.pool,
            config.namespace,
            index.keys.len()
        );
        let ((events, asked), (wake, ended)) = (channel(), channel());
        Ok(Self { pool, index, held, channel: Channel { events, wake }, asked, ended })
    }
}

/// The thread of a store: one session after the other.
pub(super) struct Sessions {
    pub(super) config: RadosConfig,
    pub(super) shared: Arc<Shared>,
    /// The way to the session that is running.
    pub(super) channel: Arc<Mutex<Option<Channel>>>,
}

impl Sessions {
    pub(super) fn run(self, first: Session) {
        let mut session = Some(first);
        while !self.shared.stop.load(Ordering::Acquire) {
            match session.take().map_or_else(|| Session::begin(&self.config), Ok) {
                Ok(session) => self.serve(session),
                Err(error) => log::warn!("the cluster can not be used: {error}"),
            }
            if !self.shared.stop.load(Ordering::Acquire) {
                thread::park_timeout(RENEW);
            }
        }
    }

    fn set_channel(&self, channel: Option<Channel>) {
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    fn serve(&self, session: Session) {
        let Session { pool, index, held, channel, asked, ended } = session;
        let shared = &self.shared;
        shared.bytes.set(index.bytes());
        shared.pairs.set(index.keys.len() as u64);
        shared.lost.store(false, Ordering::Release);
        shared.ready.store(true, Ordering::Relaxed);
        let stop = Arc::new(AtomicBool::new(false));
        let keeper = match held {
            Held::Locked => keep_lock(pool.clone(), shared.clone(), stop.clone()),
            Held::ReadOnly => look_for_rights(self.config.clone(), shared.clone(), stop.clone()),
        };
        let mut driver = Driver::new(pool.clone(), index, shared.clone(), asked, channel.wake.clone());
        self.set_channel(Some(channel));
        driver.run(&ended);
        self.set_channel(None);
        driver.refuse_rest();
        stop.store(true, Ordering::Release);
        let kept = keeper.map(|thread| {
            thread.thread().unpark();
            thread.join()
        });
        match (kept, held) {
            (Ok(Ok(())), Held::Locked) => pool.unlock(LOCKED),
            (Ok(Ok(())), Held::ReadOnly) => {}
            _ => log::error!("nobody has kept the lock of a store"),
        }
    }
}

/// Renews the lock until `stop`, or until it is lost.
fn keep_lock(pool: Arc<Pool>, shared: Arc<Shared>, stop: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    repeat("store-lock", stop, move || match pool.renew(LOCKED, LEASE) {
        Ok(()) => {}
        // It can still be renewed, or will be found lost.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            log::warn!("the lock was not renewed: {error}")
        }
        Err(error) => {
            log::error!("the lock of a store was lost: {error}");
            shared.lost.store(true, Ordering::Release);
        }
    })
}

/// Tries to get the lock until `stop`. A connection keeps the rights that it began with, so a new one is made each time.
fn look_for_rights(
    config: RadosConfig,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    repeat("store-rights", stop, move || {
        let held = Pool::connect(&config).and_then(|pool| {
            pool.lock(LOCKED, LEASE)?;
            pool.unlock(LOCKED);
            Ok(())
        });
        match held {
            Ok(()) => shared.lost.store(true, Ordering::Release),
            Err(error) => log::debug!("still read-only: {error}"),
        }
    })
}

/// Does something every now and then in a thread of its own.
fn repeat(name: &str, stop: Arc<AtomicBool>, work: impl Fn() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(move || loop {
        thread::park_timeout(RENEW);
        if stop.load(Ordering::Acquire) {
            return;
        }
        work();
    })
}
