// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel shows of itself in files, below a root that tests make up.

mod address;
mod function;
mod nodes;
mod processes;
#[cfg(test)]
pub mod tree;

pub use address::Address;
pub use function::Function;
pub use nodes::{Kind, Node};
pub use processes::{Mount, Processes};

use std::io;
use std::path::{Path, PathBuf};

/// The module, as the kernel names its driver.
pub const OURS: &str = "rocm_xio";
/// The kernel's own driver.
pub const NVME: &str = "nvme";

/// A file that should be readable and is not.
#[derive(Debug, thiserror::Error)]
#[error("reading {}: {source}", path.display())]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// `Ok`, or a file that can not be read.
pub type Result<T> = std::result::Result<T, Unreadable>;

/// A root with `/sys`, `/proc`, `/dev` and `/boot`.
#[derive(Debug)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self::at("/")
    }
}

impl System {
    /// The system below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where a path is that the kernel or a program names.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's text without white space around it; `None` where there is no such file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        Ok(self.bytes(path)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// A file's bytes; `None` where there is no such file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Result<Option<Vec<u8>>> {
        let path = self.path(path);
        present(std::fs::read(&path), &path)
    }

    /// The last part of what a symbolic link names; `None` where there is no such link.
    pub fn link(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        let path = self.path(path);
        let target = present(std::fs::read_link(&path), &path)?;
        Ok(target.and_then(|to| to.file_name().map(|name| name.to_string_lossy().into_owned())))
    }

    /// The names in a folder, sorted; none where there is no such folder.
    pub fn names(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = self.path(path);
        let Some(entries) = present(std::fs::read_dir(&path), &path)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for entry in entries {
            match present(entry, &path)? {
                Some(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
                None => break,
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether there is such a file.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The paths that match a pattern, in which `*` stands for any one name.
    pub fn matching(&self, pattern: &str) -> Result<Vec<PathBuf>> {
        let mut found = vec![PathBuf::from("/")];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for folder in found {
                match part {
                    "*" => next.extend(self.names(&folder)?.into_iter().map(|name| folder.join(name))),
                    name => next.push(folder.join(name)),
                }
            }
            next.retain(|path| self.has(path));
            found = next;
        }
        Ok(found)
    }

    /// Whether two paths lead to the same file, be it by links.
    pub fn same(&self, one: &str, other: &str) -> bool {
        let real = |path: &str| std::fs::canonicalize(self.path(path)).ok();
        one == other || real(one).is_some_and(|path| Some(path) == real(other))
    }
}

/// What is gone is none: files of sysfs and processes come and go.
fn present<T>(result: io::Result<T>, path: &Path) -> Result<Option<T>> {
    use nix::errno::Errno;
    let gone = [Errno::ENOENT, Errno::ESRCH, Errno::ENODEV, Errno::ENOTDIR].map(|errno| Some(errno as i32));
    match result {
        Ok(value) => Ok(Some(value)),
        Err(source) if gone.contains(&source.raw_os_error()) => Ok(None),
        Err(source) => Err(Unreadable { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::tree::Tree;

    #[test]
    fn patterns_match_names() {
        let tree = Tree::new();
        tree.file("sys/a/1/x", "").file("sys/a/2/x", "").file("sys/a/3/y", "").file("sys/b", "");
        let found = tree.system().matching("/sys/a/*/x").unwrap();
        assert_eq!(found, ["/sys/a/1/x", "/sys/a/2/x"].map(std::path::PathBuf::from));
        assert!(tree.system().matching("/sys/*/1/*/z").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_there_is_none_and_what_can_not_be_read_is_an_error() {
        let tree = Tree::new();
        tree.file("proc/1/comm", " init\n");
        let system = tree.system();
        assert_eq!(system.read("/proc/1/comm").unwrap().as_deref(), Some("init"));
        assert!(
            system.read("/proc/2/comm").unwrap().is_none() && system.names("/proc/2").unwrap().is_empty()
        );
        let error = system.read("/proc/1").unwrap_err();
        assert!(error.to_string().contains("proc/1: "), "{error}");
    }
}
