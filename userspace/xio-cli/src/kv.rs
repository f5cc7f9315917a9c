// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio kv`.

use crate::args::{Format, Global, Kv as Command};
use crate::exit::{self, Failure};
use crate::input::Input;
use crate::progress::Progress;
use crate::runner::Operation;
use crate::{many, open, output, selftest};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use xio::{Condition, Error, Key, RetrieveOptions, StoreOptions};

/// Runs a command.
pub fn run(global: &Global, command: &Command) -> Result<(), Failure> {
    if global.loopback {
        output::message("xio: note: --loopback starts empty and forgets everything at the end");
    }
    match command {
        Command::Store { key, input, many, if_absent, if_exists, no_compress } => {
            let condition = match (if_absent, if_exists) {
                (true, _) => Condition::IfAbsent,
                (_, true) => Condition::IfExists,
                _ => Condition::Always,
            };
            let options = StoreOptions { condition, no_compress: *no_compress };
            match key {
                Some(key) if many.is_plain() => store(global, key, input, options),
                Some(key) => many::store(global, many, key, input, options),
                None => many::manifest(global, many, Operation::Store(options)),
            }
        }
        Command::Retrieve { key, many, output, raw } => {
            let options = RetrieveOptions { raw: *raw };
            match key {
                Some(key) if many.is_plain() => retrieve(global, key, output, options),
                Some(key) => many::retrieve(global, many, key, output, options),
                None => many::manifest(global, many, Operation::Retrieve(options)),
            }
        }
        Command::Exist { many, .. } if many.manifest.is_some() => {
            many::manifest(global, many, Operation::Exist)
        }
        Command::Delete { many, .. } if many.manifest.is_some() => {
            many::manifest(global, many, Operation::Delete)
        }
        Command::Exist { keys, many } if many.is_plain() => exist(global, keys),
        Command::Delete { keys, many } if many.is_plain() => delete(global, keys),
        Command::Exist { keys, many } => many::exist(global, many, keys),
        Command::Delete { keys, many } => many::delete(global, many, keys),
        Command::List { start, limit, output } => list(global, *start, *limit, *output),
        Command::Selftest => selftest::run(&mut open::kv(global, &open::controller(global, None)?)?),
    }
}

/// The value is read before the direct queues are taken: others may need them meanwhile.
fn store(global: &Global, key: &Key, input: &Path, options: StoreOptions) -> Result<(), Failure> {
    let input = Input::open(input)?;
    let controller = open::controller(global, None)?;
    let namespace = open::namespace(global, &controller)?;
    namespace.check_key(key)?;
    let value = input.read(key, &namespace)?;
    let mut kv = open::kv(global, &controller)?;
    let progress = Progress::command("storing", Some(value.len() as u64));
    let stored = kv.store(key, &value, options);
    drop(progress);
    stored?;
    output::message(&format!("stored {key}: {} bytes", value.len()));
    Ok(())
}

/// The direct queues are given back before the value is written out.
fn retrieve(global: &Global, key: &Key, to: &Path, options: RetrieveOptions) -> Result<(), Failure> {
    let mut kv = open::kv(global, &open::controller(global, None)?)?;
    let progress = Progress::command("retrieving", None);
    let value = kv.retrieve_with(key, options);
    drop((progress, kv));
    output::value(to, &value?)
}

fn exist(global: &Global, keys: &[Key]) -> Result<(), Failure> {
    let mut kv = open::kv(global, &open::controller(global, None)?)?;
    let mut all = true;
    for key in keys {
        let exists = kv.exist(key)?;
        all &= exists;
        output::text(&format!("{key}: {}\n", if exists { "exists" } else { "not found" }))?;
    }
    if all {
        Ok(())
    } else {
        Err(Failure::Told(exit::NOT_FOUND))
    }
}

fn delete(global: &Global, keys: &[Key]) -> Result<(), Failure> {
    let mut kv = open::kv(global, &open::controller(global, None)?)?;
    let mut all = true;
    for key in keys {
        match kv.delete(key) {
            Ok(()) => {}
            Err(error @ Error::NotFound { .. }) => {
                output::message(&format!("xio: {error}"));
                all = false;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if all {
        Ok(())
    } else {
        Err(Failure::Told(exit::NOT_FOUND))
    }
}

/// A key for programs: as it can be given to the command line, and its bytes.
#[derive(Serialize)]
struct KeyReport {
    key: String,
    hex: String,
}

impl KeyReport {
    fn new(key: &Key) -> Self {
        let hex = key.as_bytes().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Self { key: key.to_string(), hex }
    }
}

fn list(global: &Global, start: Option<Key>, limit: Option<usize>, format: Format) -> Result<(), Failure> {
    let mut kv = open::kv(global, &open::controller(global, None)?)?;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut reports = Vec::new();
    for page in kv.list(start) {
        let mut page = page?;
        page.truncate(left);
        left -= page.len();
        match format {
            Format::Json => reports.extend(page.iter().map(KeyReport::new)),
            Format::Text => output::text(&page.iter().map(|key| format!("{key}\n")).collect::<String>())?,
        }
        if left == 0 {
            break;
        }
    }
    match format {
        Format::Json => output::json(&reports),
        Format::Text => Ok(()),
    }
}
