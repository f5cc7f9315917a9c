// SPDX-License-Identifier: MIT OR Apache-2.0
//! What binding asks of the kernel, and what tests answer in its place.

use crate::system::Node;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The kernel.
pub trait Kernel {
    /// Writes a file of sysfs in one write.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Opens a disk so that nobody else can claim it, as file systems, swap, RAID and volume managers do. Fails with
    /// `EBUSY` where somebody has. What is at `path` must be `disk`.
    fn claim(&self, path: &Path, disk: &Node) -> io::Result<File>;
}

/// The one that runs.
#[derive(Debug)]
pub struct Running;

impl Kernel for Running {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // No file is made where sysfs has none.
        File::options().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn claim(&self, path: &Path, disk: &Node) -> io::Result<File> {
        // Without O_CREAT, O_EXCL is a claim if the file is a block device.
        let file = File::options().read(true).custom_flags(OFlag::O_EXCL.bits()).open(path)?;
        if !disk.is(&file.metadata()?) {
            return Err(io::Error::other(format!("this is not the disk with the number {}", disk.dev)));
        }
        Ok(file)
    }
}

/// The kernel's messages from now on.
#[derive(Debug)]
pub struct Messages(io::Result<File>);

impl Messages {
    /// Begins to listen to `/dev/kmsg`.
    pub fn listen(kmsg: &Path) -> Self {
        let opened = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(kmsg);
        Self(opened.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file)))
    }

    /// What the kernel has said since then of any of the subjects, or why that is not known.
    pub fn about(self, subjects: &[&str]) -> io::Result<Vec<String>> {
        let (mut file, mut found, mut record) = (self.0?, Vec::new(), vec![0; 8192]);
        loop {
            match file.read(&mut record) {
                Ok(0) => return Ok(found),
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    // Lines that begin with a space are fields of a record, for programs.
                    let lines = text.lines().filter_map(|line| Some(line.split_once(';')?.1.to_owned()));
                    found.extend(lines.filter(|line| subjects.iter().any(|subject| line.contains(subject))));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(found),
                // Records were overwritten before they were read.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
    }
}
