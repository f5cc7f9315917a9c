// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes have open and see mounted.

use super::{present, Node, Result, System, Unreadable};
use procfs_core::process::{MountInfo, MountInfos};
use procfs_core::FromBufRead;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    /// What the kernel says of it.
    pub info: MountInfo,
    /// A process that sees it, if this one does not.
    pub seen_by: Option<String>,
}

/// The processes there are.
#[derive(Debug)]
pub struct Processes<'a> {
    system: &'a System,
    /// Ids; this one is the first.
    ids: Vec<u32>,
}

impl<'a> Processes<'a> {
    /// All processes; `own` is this one.
    pub fn new(system: &'a System, own: u32) -> Result<Self> {
        let others = system.names("/proc")?.into_iter().filter_map(|name| name.parse().ok());
        let ids = std::iter::once(own).chain(others.filter(|id| *id != own)).collect();
        Ok(Self { system, ids })
    }

    /// A process's name and id.
    fn describe(&self, id: u32) -> Result<String> {
        let name = self.system.read(format!("/proc/{id}/comm"))?;
        Ok(format!("{} (process {id})", name.unwrap_or_else(|| "a program".into())))
    }

    /// What is mounted in all mount namespaces that a thread is in.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        let (mut seen, mut mounts) = (BTreeSet::new(), Vec::new());
        for (index, id) in self.ids.iter().enumerate() {
            for thread in self.system.names(format!("/proc/{id}/task"))? {
                let folder = format!("/proc/{id}/task/{thread}");
                // A process that has ended and is not waited for has none.
                let Some(namespace) = self.system.link(format!("{folder}/ns/mnt"))? else { continue };
                if seen.contains(&namespace) {
                    continue;
                }
                // One that ended just now can not tell; others in its namespace can.
                let Some(infos) = self.mounts_of(&folder)? else { continue };
                seen.insert(namespace);
                let seen_by = if index == 0 { None } else { Some(self.describe(*id)?) };
                mounts.extend(infos.into_iter().map(|info| Mount { info, seen_by: seen_by.clone() }));
            }
        }
        Ok(mounts)
    }

    fn mounts_of(&self, folder: &str) -> Result<Option<Vec<MountInfo>>> {
        let path = format!("{folder}/mountinfo");
        let text = match self.system.read(&path) {
            Err(error) if error.source.kind() == io::ErrorKind::InvalidInput => None,
            read => read?,
        };
        // The parser takes text, and names of folders may be anything.
        let parsed = text.map(|text| MountInfos::from_buf_read(text.as_bytes()).map(|infos| infos.0));
        parsed.transpose().map_err(|error| Unreadable {
            path: self.system.path(path),
            source: io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        })
    }

    /// Who but this process has opened or mapped one of these nodes: `(index of the node, process)`.
    pub fn users(&self, nodes: &[Node]) -> Result<Vec<(usize, String)>> {
        let mut users = Vec::new();
        for id in &self.ids[1..] {
            let mut used = BTreeSet::new();
            for files in ["fd", "map_files"] {
                let folder = format!("/proc/{id}/{files}");
                for name in self.system.names(&folder)? {
                    used.extend(node_of(&self.system.path(&folder).join(name), nodes)?);
                }
            }
            for node in used {
                users.push((node, self.describe(*id)?));
            }
        }
        Ok(users)
    }
}

/// Which of the nodes an open file is: by its name, or by its number where a process knows it by another name.
fn node_of(file: &Path, nodes: &[Node]) -> Result<Option<usize>> {
    let Some(target) = present(std::fs::read_link(file), file)? else { return Ok(None) };
    let target = target.to_string_lossy();
    if !target.starts_with('/') {
        return Ok(None);
    }
    let name = target.strip_suffix(" (deleted)").unwrap_or(&target);
    if let Some(found) = nodes.iter().position(|node| node.path == name) {
        return Ok(Some(found));
    }
    // File systems that do not answer root, as some in user space, carry no device nodes.
    let Ok(metadata) = std::fs::metadata(file) else { return Ok(None) };
    Ok(nodes.iter().position(|node| node.is(&metadata)))
}
