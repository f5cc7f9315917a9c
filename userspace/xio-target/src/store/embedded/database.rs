// SPDX-License-Identifier: MIT OR Apache-2.0
//! The database: lengths of values by key, and the values in chunks.
//!
//! A value is cut into chunks of about 1 MiB, so that its place on the medium need not be in one piece and a part of it
//! can be read alone. Listing keys reads lengths alone.
#![allow(unsafe_code)] // Opens a database that is mapped into memory.

use super::super::{Answer, Reply, Value};
use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions, MdbError, RwTxn};
use nix::fcntl::{Flock, FlockArg};
use nvme_kv::{list, Key, Status};
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::Path;

/// Bytes of a chunk: with the header of the database's page, whole pages.
pub(super) const CHUNK: usize = (1 << 20) - 16;
/// Format of the database.
const VERSION: u32 = 1;
/// Chunk numbers follow a key of 16 bytes and its length.
const CHUNK_KEY: usize = Key::MAX + 1 + 4;

type Table = heed::Database<Bytes, Bytes>;

/// An open database.
pub(super) struct Database {
    env: Env,
    /// Length of the value of each key, 8 bytes little endian.
    lengths: Table,
    chunks: Table,
    /// Dropped last: nobody else opens the database as long as it is held.
    _lock: Flock<File>,
}

/// What is stored is not what this program stores.
fn broken(what: &str) -> heed::Error {
    heed::Error::Io(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

impl Database {
    /// Opens or makes the database in `folder`, for pairs of `capacity` bytes.
    pub(super) fn open(folder: &Path, capacity: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let file = File::options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| io::Error::from(errno))
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::new(error.kind(), "another program has it open"),
                _ => error,
            })?;
        // Address space, not memory. Small pairs take many times their own bytes.
        let map = capacity.saturating_mul(4).saturating_add(16 << 30).min(16 << 40);
        let map = usize::try_from(map).map_err(io::Error::other)? & !0xffff;
        let mut options = EnvOpenOptions::new();
        options.map_size(map).max_dbs(3).max_readers(64);
        // SAFETY: the lock keeps other programs and other stores of this one from opening the files, and nobody else
        // has a reason to change them; these flags do not weaken what the database does for durability.
        let env = unsafe { options.flags(EnvFlags::NO_READ_AHEAD).open(folder) }.map_err(to_io)?;
        let (lengths, chunks) = Self::tables(&env).map_err(to_io)?;
        // The files' names are to last as well.
        File::open(folder)?.sync_all()?;
        Ok(Self { env, lengths, chunks, _lock: lock })
    }

    fn tables(env: &Env) -> heed::Result<(Table, Table)> {
        let mut txn = env.write_txn()?;
        let about: Table = env.create_database(&mut txn, Some("about"))?;
        match about.get(&txn, b"version")? {
            None => about.put(&mut txn, b"version", &VERSION.to_le_bytes())?,
            Some(version) if version == VERSION.to_le_bytes() => {}
            Some(_) => return Err(broken("it was written by another version of this program")),
        }
        let lengths = env.create_database(&mut txn, Some("lengths"))?;
        let chunks = env.create_database(&mut txn, Some("chunks"))?;
        txn.commit()?;
        Ok((lengths, chunks))
    }

    /// Bytes in use, and pairs.
    pub(super) fn count(&self) -> io::Result<(u64, u64)> {
        let count = || {
            let txn = self.env.read_txn()?;
            let (mut bytes, mut pairs) = (0, 0);
            for entry in self.lengths.iter(&txn)? {
                let (key, len) = entry?;
                bytes += key.len() as u64 + length(len)?;
                pairs += 1;
            }
            Ok((bytes, pairs))
        };
        count().map_err(to_io)
    }

    /// A part of a value.
    pub(super) fn get(&self, key: &Key, offset: usize, len: usize) -> Answer {
        let read = || {
            let txn = self.env.read_txn()?;
            let Some(total) = self.lengths.get(&txn, key.as_bytes())? else { return Ok(None) };
            let total = usize::try_from(length(total)?).map_err(|_| broken("a length"))?;
            let start = offset.min(total);
            let end = start.saturating_add(len).min(total);
            let mut value = Vec::with_capacity(end - start);
            while start + value.len() < end {
                let at = start + value.len();
                let chunk = self.chunks.get(&txn, &chunk_key(key, at / CHUNK))?;
                let chunk = chunk.and_then(|chunk| chunk.get(at % CHUNK..)).filter(|rest| !rest.is_empty());
                let chunk = chunk.ok_or_else(|| broken("a chunk is missing"))?;
                value.extend_from_slice(chunk.get(..end - at).unwrap_or(chunk));
            }
            Ok(Some(Value::part(value, total)))
        };
        match read() {
            Ok(Some(value)) => Ok(Reply::Value(value)),
            Ok(None) => Err(Status::KEY_NOT_FOUND),
            Err(error) => Err(status(&error)),
        }
    }

    pub(super) fn exists(&self, key: &Key) -> Answer {
        let read = || {
            let txn = self.env.read_txn()?;
            Ok(self.lengths.get(&txn, key.as_bytes())?.is_some())
        };
        match read() {
            Ok(true) => Ok(Reply::Done),
            Ok(false) => Err(Status::KEY_NOT_FOUND),
            Err(error) => Err(status(&error)),
        }
    }

    /// The keys from `start` on that fit a list of `room` bytes.
    pub(super) fn list(&self, start: Option<&Key>, room: usize) -> Answer {
        let read = || {
            let txn = self.env.read_txn()?;
            let from = start.map_or(Bound::Unbounded, |key| Bound::Included(key.as_bytes()));
            let (mut keys, mut left) = (Vec::new(), room.saturating_sub(list::EMPTY_LEN));
            for entry in self.lengths.range(&txn, &(from, Bound::Unbounded))? {
                let key = Key::new(entry?.0).map_err(|_| broken("a key"))?;
                let Some(rest) = left.checked_sub(list::entry_len(key.len().into())) else { break };
                left = rest;
                keys.push(key);
            }
            Ok(keys)
        };
        read().map(Reply::Keys).map_err(|error: heed::Error| status(&error))
    }

    /// Begins a change.
    pub(super) fn change(&self) -> heed::Result<Change<'_>> {
        Ok(Change { txn: self.env.write_txn()?, lengths: self.lengths, chunks: self.chunks })
    }
}

/// A change under way; without a commit nothing has happened.
pub(super) struct Change<'a> {
    txn: RwTxn<'a>,
    lengths: Table,
    chunks: Table,
}

impl Change<'_> {
    /// Length of a value.
    pub(super) fn len(&self, key: &Key) -> heed::Result<Option<u64>> {
        self.lengths.get(&self.txn, key.as_bytes())?.map(length).transpose()
    }

    /// Stores a value in place of one of `old` bytes.
    pub(super) fn put(&mut self, key: &Key, value: &[u8], old: Option<u64>) -> heed::Result<()> {
        let kept = value.len().div_ceil(CHUNK);
        self.delete_chunks(key, kept, old)?;
        for (n, chunk) in value.chunks(CHUNK).enumerate() {
            self.chunks.put(&mut self.txn, &chunk_key(key, n), chunk)?;
        }
        self.lengths.put(&mut self.txn, key.as_bytes(), &(value.len() as u64).to_le_bytes())
    }

    /// Deletes a value of `old` bytes.
    pub(super) fn delete(&mut self, key: &Key, old: u64) -> heed::Result<()> {
        self.delete_chunks(key, 0, Some(old))?;
        self.lengths.delete(&mut self.txn, key.as_bytes()).map(drop)
    }

    fn delete_chunks(&mut self, key: &Key, kept: usize, old: Option<u64>) -> heed::Result<()> {
        let chunks = old.unwrap_or(0).div_ceil(CHUNK as u64);
        for n in kept..usize::try_from(chunks).map_err(|_| broken("a length"))? {
            if !self.chunks.delete(&mut self.txn, &chunk_key(key, n))? {
                return Err(broken("a chunk is missing"));
            }
        }
        Ok(())
    }

    /// Makes it durable.
    pub(super) fn commit(self) -> heed::Result<()> {
        self.txn.commit()
    }
}

fn chunk_key(key: &Key, n: usize) -> [u8; CHUNK_KEY] {
    let mut all = [0; CHUNK_KEY];
    let parts = key.padded().iter().copied().chain([key.len()]).chain((n as u32).to_be_bytes());
    for (to, from) in all.iter_mut().zip(parts) {
        *to = from;
    }
    all
}

fn length(bytes: &[u8]) -> heed::Result<u64> {
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| broken("a length"))
}

fn to_io(error: heed::Error) -> io::Error {
    match error {
        heed::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// What the host is told.
pub(super) fn status(error: &heed::Error) -> Status {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    log::error!("store: {error}");
    match error {
        heed::Error::Mdb(MdbError::MapFull | MdbError::TxnFull) => Status::CAPACITY_EXCEEDED,
        heed::Error::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
            Status::CAPACITY_EXCEEDED
        }
        heed::Error::Io(error) if error.kind() == ReadOnlyFilesystem => Status::WRITE_PROTECTED,
        _ => Status::UNRECOVERED_ERROR,
    }
}
