// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio kv` with kernels and with manifests.

use crate::args::{Format, Global, Many};
use crate::exit::{self, Failure};
use crate::input::Input;
use crate::manifest::{self, Entry};
use crate::runner::{Done, Job, Operation, Runner};
use crate::{open, output};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xio::{Error, Key, RetrieveOptions, StoreOptions};

/// Bytes that go through memory at once.
const GROUP_BYTES: usize = 64 << 20;
/// Keys that go at once.
const GROUP_KEYS: usize = 4096;
/// Room for values whose length is not told; longer ones are retrieved a second time.
const ROOM: u32 = 64 << 10;

fn one(global: &Global, many: &Many, operation: Operation, jobs: &[Job]) -> Result<Vec<Done>, Failure> {
    let controller = open::controller(global, None)?;
    Runner::open(global, many, &controller)?.run(operation, jobs)
}

/// Stores one value.
pub fn store(
    global: &Global,
    many: &Many,
    key: &Key,
    input: &Path,
    options: StoreOptions,
) -> Result<(), Failure> {
    let input = Input::open(input)?;
    let controller = open::controller(global, None)?;
    let namespace = open::namespace(global, &controller)?;
    namespace.check_key(key)?;
    let value = input.read(key, &namespace)?;
    let mut runner = Runner::open(global, many, &controller)?;
    for done in runner.run(Operation::Store(options), &[Job { key: *key, value, room: 0 }])? {
        eprintln!("stored {key}: {} bytes", done.result?);
    }
    Ok(())
}

/// Retrieves one value.
pub fn retrieve(
    global: &Global,
    many: &Many,
    key: &Key,
    to: &Path,
    options: RetrieveOptions,
) -> Result<(), Failure> {
    let controller = open::controller(global, None)?;
    let mut runner = Runner::open(global, many, &controller)?;
    let mut room = ROOM.min(u32::try_from(runner.namespace().max_value().0).unwrap_or(u32::MAX));
    loop {
        let job = Job { key: *key, value: vec![], room };
        let done = runner.run(Operation::Retrieve(options), &[job])?.pop();
        let Some(Done { result, value }) = done else { return Ok(()) };
        let length = result?;
        if length as usize == value.len() {
            drop(runner);
            return output::value(to, &value);
        }
        room = length;
    }
}

fn jobs(keys: &[Key]) -> Vec<Job> {
    keys.iter().map(|key| Job { key: *key, value: vec![], room: 0 }).collect()
}

/// Tells which keys exist.
pub fn exist(global: &Global, many: &Many, keys: &[Key]) -> Result<(), Failure> {
    let mut all = true;
    for (key, done) in keys.iter().zip(one(global, many, Operation::Exist, &jobs(keys))?) {
        let text = match done.result {
            Ok(_) => "exists",
            Err(Error::NotFound { .. }) => {
                all = false;
                "not found"
            }
            Err(error) => return Err(error.into()),
        };
        output::text(&format!("{key}: {text}\n"))?;
    }
    all.then_some(()).ok_or(Failure::Told(exit::NOT_FOUND))
}

/// Deletes keys.
pub fn delete(global: &Global, many: &Many, keys: &[Key]) -> Result<(), Failure> {
    let mut all = true;
    for done in one(global, many, Operation::Delete, &jobs(keys))? {
        match done.result {
            Ok(_) => {}
            Err(error @ Error::NotFound { .. }) => {
                eprintln!("xio: {error}");
                all = false;
            }
            Err(error) => return Err(error.into()),
        }
    }
    all.then_some(()).ok_or(Failure::Told(exit::NOT_FOUND))
}

/// A result for printing.
#[derive(Serialize)]
struct Report<'a> {
    line: usize,
    key: String,
    status: String,
    code: u8,
    length: Option<u32>,
    digest: Option<&'static str>,
    meta: Option<&'a RawValue>,
}

/// Carries out a manifest.
pub fn manifest(global: &Global, many: &Many, operation: Operation) -> Result<(), Failure> {
    let path = many.manifest.as_deref().unwrap_or(Path::new("-"));
    let mut work = Work { name: manifest::name(path), operation, reports: vec![], worst: None };
    let entries = manifest::read(path)?;
    let controller = open::controller(global, None)?;
    let mut runner = Runner::open(global, many, &controller)?;
    let mut rest = entries.as_slice();
    while !rest.is_empty() {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        for entry in rest.iter().take(GROUP_KEYS) {
            let job = work.job(&runner, entry)?;
            let size = job.size().next_multiple_of(4096);
            if !jobs.is_empty() && bytes + size > GROUP_BYTES {
                break;
            }
            bytes += size;
            jobs.push(job);
        }
        let (group, after) = rest.split_at(jobs.len());
        let done = runner.run(operation, &jobs)?;
        for ((entry, job), done) in group.iter().zip(&jobs).zip(done) {
            let done = work.whole(&mut runner, entry, job, done)?;
            work.finish(entry, done)?;
        }
        rest = after;
    }
    drop(runner);
    work.print(many.results)
}

/// A manifest being carried out.
struct Work<'a> {
    name: String,
    operation: Operation,
    reports: Vec<Report<'a>>,
    worst: Option<u8>,
}

impl<'a> Work<'a> {
    fn wrong(&self, entry: &Entry, what: impl Into<String>) -> Failure {
        manifest::Error::Line { name: self.name.clone(), line: entry.line, what: what.into() }.into()
    }

    /// What to do for a line; a value to store is read here, and its digest compared.
    fn job(&self, runner: &Runner, entry: &Entry) -> Result<Job, Failure> {
        let namespace = runner.namespace();
        let refused = |error: Error| self.wrong(entry, error.to_string());
        namespace.check_key(&entry.key).map_err(refused)?;
        let mut job = Job { key: entry.key, value: vec![], room: 0 };
        let limit = u32::try_from(namespace.max_value().0).unwrap_or(u32::MAX);
        match self.operation {
            Operation::Store(_) => {
                job.value = self.read(entry, limit)?;
                namespace.check_value(&entry.key, job.value.len() as u64).map_err(refused)?;
                if entry.digest.is_some_and(|digest| digest != sha256(&job.value)) {
                    return Err(self.wrong(entry, format!("key {}: the file's digest is another", entry.key)));
                }
            }
            Operation::Retrieve(_) => {
                job.room = entry.length.unwrap_or(ROOM.min(limit));
                let room = u64::from(job.room);
                namespace.check_value(&entry.key, room).map_err(refused)?;
            }
            Operation::Exist | Operation::Delete => {}
        }
        Ok(job)
    }

    fn read(&self, entry: &Entry, limit: u32) -> Result<Vec<u8>, Failure> {
        let path =
            entry.file.as_ref().ok_or_else(|| self.wrong(entry, "to store, there must be a \"file\""))?;
        let failed = |e: std::io::Error| self.wrong(entry, format!("{}: {e}", path.display()));
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let offset = entry.offset.unwrap_or(0);
        let there = size.saturating_sub(offset);
        let length = entry.length.map_or(there, u64::from);
        if offset > size || length > there {
            let what = format!("{}: {length} bytes at {offset} are more than its {size}", path.display());
            return Err(self.wrong(entry, what));
        }
        if length > u64::from(limit) {
            let what = format!("key {}: a value of {length} bytes is more than {limit}", entry.key);
            return Err(self.wrong(entry, what));
        }
        let mut value = vec![0; length as usize];
        file.read_exact_at(&mut value, offset).map_err(failed)?;
        Ok(value)
    }

    /// A value whose length was not told is retrieved again when it was cut.
    fn whole(&self, runner: &mut Runner, entry: &Entry, job: &Job, done: Done) -> Result<Done, Failure> {
        match done.result {
            Ok(length) if entry.length.is_none() && job.room > 0 && length > job.room => {
                let again = Job { key: job.key, value: vec![], room: length };
                runner.run(self.operation, &[again])?.pop().ok_or(Failure::Told(exit::OTHER))
            }
            _ => Ok(done),
        }
    }

    /// Writes a value that was retrieved, and takes note of the result.
    fn finish(&mut self, entry: &'a Entry, done: Done) -> Result<(), Failure> {
        let retrieve = matches!(self.operation, Operation::Retrieve(_));
        let told = entry.length.filter(|_| retrieve);
        let (mut code, mut status, mut length, mut digest) = (0, "success".to_owned(), None, None);
        match &done.result {
            Ok(true_length) if told.is_some_and(|told| *true_length > told) => {
                (code, length) = (exit::OTHER, Some(*true_length));
                status = format!("longer than the line's {} bytes", told.unwrap_or(0));
            }
            Ok(true_length) => {
                length = (*true_length > 0 || !done.value.is_empty()).then_some(*true_length);
                if matches!(self.operation, Operation::Store(_) | Operation::Retrieve(_)) {
                    length = Some(*true_length);
                }
                digest = entry.digest.map(|_| "right");
                if retrieve && entry.digest.is_some_and(|digest| digest != sha256(&done.value)) {
                    (code, status, digest) = (exit::OTHER, "digest differs".into(), Some("wrong"));
                } else if retrieve {
                    self.write(entry, &done.value)?;
                }
            }
            Err(error) => (code, status) = (exit::of_library(error), error.to_string()),
        }
        if code != 0 {
            self.worst = self.worst.or(Some(code));
            eprintln!("xio: {}, line {}: key {}: {status}", self.name, entry.line, entry.key);
        }
        let (line, key, meta) = (entry.line, entry.key.to_string(), entry.meta.as_deref());
        self.reports.push(Report { line, key, status, code, length, digest, meta });
        Ok(())
    }

    fn write(&self, entry: &Entry, value: &[u8]) -> Result<(), Failure> {
        let Some(path) = &entry.file else { return Ok(()) };
        let Some(offset) = entry.offset else { return output::value(path, value) };
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let written = opened.and_then(|file| file.write_all_at(value, offset));
        written.map_err(|e| self.wrong(entry, format!("{}: {e}", path.display())))
    }

    fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            output::json(&self.reports)?;
        } else {
            let mut rows = vec![["LINE", "KEY", "LENGTH", "DIGEST", "STATUS"].map(str::to_owned).to_vec()];
            for r in &self.reports {
                let length = r.length.map_or("-".into(), |length| length.to_string());
                let digest = r.digest.unwrap_or("-").to_owned();
                rows.push(vec![r.line.to_string(), r.key.clone(), length, digest, r.status.clone()]);
            }
            output::text(&output::columns(&rows))?;
        }
        self.worst.map_or(Ok(()), |code| Err(Failure::Told(code)))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
