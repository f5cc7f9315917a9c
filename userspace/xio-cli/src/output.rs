// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing to standard output and to files.

use crate::exit::Failure;
use crate::progress::Progress;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const CHUNK: usize = 1 << 20;
/// Most symbolic links that are followed.
const LINKS: usize = 40;

fn failed(name: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    |source| Failure::Output { name: name.into(), source }
}

/// Says something on standard error. Nobody may be listening there, which is no reason to fail.
pub fn message(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints text.
pub fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed("standard output"))
}

/// Prints JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|e| failed("standard output")(e.into()))?;
    text(&(json + "\n"))
}

/// Prints JSON in a line of its own.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string(value).map_err(|e| failed("standard output")(e.into()))?;
    text(&(json + "\n"))
}

/// Writes a value to a file, or to standard output for `-`.
///
/// A file appears or changes at once, when it is complete: the value goes to a file beside it first. What is
/// no plain file (a pipe, a terminal) is written to.
pub fn value(path: &Path, value: &[u8]) -> Result<(), Failure> {
    let progress = Progress::new("writing", value.len() as u64);
    if path.as_os_str() == "-" {
        return copy(&mut io::stdout().lock(), value, &progress).map_err(failed("standard output"));
    }
    let name = path.display().to_string();
    let written = match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            File::options().write(true).open(path).and_then(|mut file| copy(&mut file, value, &progress))
        }
        Ok(found) => target(path)
            .and_then(|path| replace(&path, Some(found.permissions()), |file| copy(file, value, &progress))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            target(path).and_then(|path| replace(&path, None, |file| copy(file, value, &progress)))
        }
        Err(error) => Err(error),
    };
    written.map_err(failed(name))
}

fn copy(to: &mut impl Write, value: &[u8], progress: &Progress) -> io::Result<()> {
    for chunk in value.chunks(CHUNK) {
        to.write_all(chunk)?;
        progress.add(chunk.len() as u64);
    }
    to.flush()
}

/// Fills a file beside `path` and puts it in its place.
fn replace(
    path: &Path,
    permissions: Option<fs::Permissions>,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (beside, mut file) = beside(path)?;
    let filled = permissions.map_or(Ok(()), |p| file.set_permissions(p)).and_then(|()| fill(&mut file));
    let done = filled.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, path));
    done.inspect_err(|_| {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
    })
}

/// Where symbolic links lead to, whether there is something or not.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            // From the folder of the link on, unless it is absolute.
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// A new file in the same folder.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut number = 0u32;
    loop {
        let name = path.with_file_name(format!(".xio-{}-{number}", std::process::id()));
        match File::options().write(true).create_new(true).open(&name) {
            // Another process of this number, in another container or one that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < u32::MAX => number += 1,
            opened => return opened.map(|file| (name, file)),
        }
    }
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(units.len() as u32);
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    format!("{value:.1} {}", units[power as usize - 1])
}

/// Rows with their columns under each other. The last cell of a row takes no part in the widths.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| column + 1 < row.len()).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let all = [0, 1023, 1024, 1536, 1 << 20, 64 << 20, 1 << 40, u64::MAX].map(size);
        assert_eq!(
            all,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "64.0 MiB", "1.0 TiB", "16.0 EiB"]
        );
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect();
        let text =
            columns(&[row(&["A", "BB", "C"]), row(&["long", "x", "y"]), row(&["z", "a whole sentence"])]);
        assert_eq!(text, "A     BB  C\nlong  x   y\nz     a whole sentence\n");
    }

    #[test]
    fn values_go_where_links_lead_and_past_files_left_over() {
        let folder = std::env::temp_dir().join(format!("xio-output-{}", std::process::id()));
        fs::create_dir_all(folder.join("far")).unwrap();
        let content = |name: &str| fs::read(folder.join(name)).unwrap();
        let left = folder.join(format!("far/.xio-{}-0", std::process::id()));
        fs::write(&left, "left over").unwrap();
        std::os::unix::fs::symlink("far/there", folder.join("link")).unwrap();
        std::os::unix::fs::symlink("link", folder.join("other")).unwrap();
        // Nothing is there yet, then something is.
        for text in [b"first", b"later"] {
            value(&folder.join("other"), text).unwrap();
            assert_eq!(content("far/there"), text);
        }
        assert!(folder.join("link").is_symlink() && folder.join("other").is_symlink());
        assert_eq!(fs::read(&left).unwrap(), b"left over");
        assert_eq!(fs::read_dir(folder.join("far")).unwrap().count(), 2);
        std::os::unix::fs::symlink("round", folder.join("round")).unwrap();
        assert!(value(&folder.join("round"), b"").is_err());
        value(&folder.join(format!("{:a<255}", "")), b"a name of 255 bytes").unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
