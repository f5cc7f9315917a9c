// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manifests: a JSON object a line, each a key and where its value is or goes.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use xio::Key;

/// A line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_hex: Option<String>,
    file: Option<PathBuf>,
    offset: Option<u64>,
    length: Option<u64>,
    digest: Option<String>,
    meta: Option<Box<RawValue>>,
}

/// A line as it is meant.
#[derive(Debug)]
pub struct Entry {
    /// Number of the line, from 1.
    pub line: usize,
    /// Key.
    pub key: Key,
    /// File, by the folder of the manifest.
    pub file: Option<PathBuf>,
    /// Where the value begins in the file, in bytes; `None` for a file that is the value.
    pub offset: Option<u64>,
    /// Bytes.
    pub length: Option<u32>,
    /// SHA-256 of the value.
    pub digest: Option<[u8; 32]>,
    /// An object for others, as it was written.
    pub meta: Option<Box<RawValue>>,
}

/// Why a manifest is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It can not be read.
    #[error("reading {name}: {source}")]
    Input {
        /// The manifest.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A line of it.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The manifest.
        name: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// Reads a manifest.
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    let name = name(path);
    let failed = |source| Error::Input { name: name.clone(), source };
    let input: Box<dyn BufRead> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).map_err(failed)?))
    };
    read_from(input, &name, path.parent().unwrap_or(Path::new("")))
}

/// Reads a manifest of that name from wherever it comes.
pub fn read_from(input: impl BufRead, name: &str, folder: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |source| Error::Input { name: name.to_owned(), source };
    let mut entries = Vec::new();
    for (n, line) in (1..).zip(input.lines()) {
        let line = line.map_err(failed)?;
        if line.trim().is_empty() {
            continue;
        }
        let entry = parse(n, &line, folder);
        entries.push(entry.map_err(|what| Error::Line { name: name.to_owned(), line: n, what })?);
    }
    Ok(entries)
}

/// Name for messages.
pub fn name(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "standard input".into()
    } else {
        path.display().to_string()
    }
}

fn parse(number: usize, text: &str, folder: &Path) -> Result<Entry, String> {
    let line: Line = serde_json::from_str(text).map_err(|e| {
        // The library counts lines, of which it has one.
        let text = e.to_string();
        text.split(" at line ").next().map_or_else(String::new, str::to_owned)
            + &format!(" (column {})", e.column())
    })?;
    let key = match (&line.key, &line.key_hex) {
        (Some(text), None) => Key::new(text.as_bytes()).map_err(|e| e.to_string())?,
        (None, Some(digits)) => {
            format!("0x{digits}").parse().map_err(|e: xio::ParseKeyError| e.to_string())?
        }
        _ => return Err("there must be a \"key\" or a \"key_hex\", and not both".into()),
    };
    let length = match line.length {
        None => None,
        Some(n) => {
            Some(u32::try_from(n).map_err(|_| format!("a value of {n} bytes is more than any can have"))?)
        }
    };
    if line.meta.as_ref().is_some_and(|meta| !meta.get().trim_start().starts_with('{')) {
        return Err("\"meta\" must be an object".into());
    }
    if line.offset.is_some() && line.file.is_none() {
        return Err("\"offset\" is a place in a \"file\", of which there is none".into());
    }
    Ok(Entry {
        line: number,
        key,
        file: line.file.map(|file| folder.join(file)),
        offset: line.offset,
        length,
        digest: line.digest.as_deref().map(digest).transpose()?,
        meta: line.meta,
    })
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let wrong = || format!("digest {text:?}: it is written \"sha256:\" and 64 hexadecimal digits");
    let digits = text.strip_prefix("sha256:").filter(|d| d.len() == 64).ok_or_else(wrong)?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|p| p.bytes().all(|b| b.is_ascii_hexdigit()));
        *byte = pair.and_then(|p| u8::from_str_radix(p, 16).ok()).ok_or_else(wrong)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Result<Entry, String> {
        parse(7, text, Path::new("/m"))
    }

    #[test]
    fn lines_are_read() {
        let meta = r#"{"prefix": [1,  2], "x": 1.50}"#;
        let text =
            format!(r#"{{"key_hex": "00ff", "file": "a/b", "offset": 8, "length": 9, "meta": {meta}}}"#);
        let e = entry(&text).unwrap();
        assert_eq!((e.line, e.key.as_bytes(), e.offset, e.length), (7, &[0, 255][..], Some(8), Some(9)));
        assert_eq!(e.file.as_deref(), Some(Path::new("/m/a/b")));
        assert_eq!(e.meta.unwrap().get(), meta, "untouched");
        assert_eq!(entry(r#"{"key": "0xzz"}"#).unwrap().key.as_bytes(), b"0xzz");
        let digest = format!(r#"{{"key": "k", "digest": "sha256:{}"}}"#, "aB".repeat(32));
        assert_eq!(entry(&digest).unwrap().digest, Some([0xab; 32]));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, what) in [
            ("{", "column"),
            ("{}", "there must be"),
            (r#"{"key": "a", "key_hex": "00"}"#, "not both"),
            (r#"{"key": "seventeen letters"}"#, "1 to 16 bytes"),
            (r#"{"key_hex": "0"}"#, "hexadecimal"),
            (r#"{"key": "a", "length": 4294967296}"#, "4294967296"),
            (r#"{"key": "a", "size": 1}"#, "size"),
            (r#"{"key": "a", "meta": 1}"#, "object"),
            (r#"{"key": "a", "offset": 1}"#, "file"),
            (r#"{"key": "a", "digest": "md5:00"}"#, "sha256"),
        ] {
            let error = entry(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
