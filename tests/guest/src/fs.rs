// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of sysfs, procfs and debugfs, and waiting for them.
#![allow(dead_code)] // a toolbox: not each tool is in use at any time

use anyhow::{bail, Context, Result};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Reads a file, less the white space at its end.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

/// Writes a file in one write.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    // Not fs::write, which would create a missing file of sysfs' name elsewhere.
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))?;
    std::io::Write::write_all(&mut file, text.as_bytes())
        .with_context(|| format!("writing {text:?} to {}", path.display()))
}

/// Reads a number, decimal or hexadecimal with 0x, such as a counter of debugfs.
pub fn number(path: impl AsRef<Path>) -> Result<u64> {
    let text = read(&path)?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("{} holds {text:?}, no number", path.as_ref().display()))
}

/// Waits until the condition holds; an error at the deadline.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let limit = longer(limit);
    let end = Instant::now() + limit;
    while !condition()? {
        if Instant::now() > end {
            bail!("{what} did not happen within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until a file is there.
pub fn wait_for_file(path: &str, limit: Duration) -> Result<()> {
    wait_for(&format!("{path} appearing"), limit, || Ok(Path::new(path).exists()))
}

/// Waits until a file is gone.
pub fn wait_for_absence(path: &str, limit: Duration) -> Result<()> {
    wait_for(&format!("{path} vanishing"), limit, || Ok(!Path::new(path).exists()))
}

/// A time limit for this machine: with the kernel's own checkers everything takes longer (`xio.slower=N` on the kernel's command
/// line).
pub fn longer(limit: Duration) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    let factor = FACTOR.get_or_init(|| {
        let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
        line.split_whitespace().find_map(|word| word.strip_prefix("xio.slower=")?.parse().ok()).unwrap_or(1)
    });
    limit * *factor
}
