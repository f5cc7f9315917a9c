// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading the value to store.

use crate::exit::Failure;
use crate::progress::Progress;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use xio::{Key, Namespace};

const CHUNK: usize = 1 << 20;

/// Where a value comes from.
pub struct Input {
    name: String,
    from: Box<dyn Read>,
    /// Bytes, when it is known beforehand.
    len: Option<u64>,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self { name: "standard input".into(), from: Box::new(io::stdin()), len: None });
        }
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        match opened {
            Ok((data, file)) => {
                let len = data.is_file().then_some(data.len());
                Ok(Self { name, from: Box::new(file), len })
            }
            Err(source) => Err(Failure::Input { name, source }),
        }
    }

    /// Reads it whole, or fails as soon as it is known to be more than the namespace takes.
    pub fn read(mut self, key: &Key, namespace: &Namespace) -> Result<Vec<u8>, Failure> {
        if let Some(len) = self.len {
            namespace.check_value(key, len)?;
        }
        let (limit, by) = namespace.max_value();
        let progress = Progress::new("reading", self.len.unwrap_or(0));
        let mut value = Vec::with_capacity(self.len.unwrap_or(0) as usize);
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match self.from.read(&mut chunk) {
                Ok(0) => return Ok(value),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Failure::Input { name: self.name, source }),
            };
            value.extend_from_slice(&chunk[..count]);
            if value.len() as u64 > limit {
                return Err(Failure::InputTooLarge { key: *key, name: self.name, limit, by });
            }
            progress.add(count as u64);
        }
    }
}
