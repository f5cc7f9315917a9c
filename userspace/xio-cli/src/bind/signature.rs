// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks that are parts of something, told by what is written on them: it may be at rest, and unknown to the kernel.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

const SECTOR: u64 = 512;
/// Linux RAID.
const MD: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// Where ZFS keeps names and values in a label, and their length.
const ZFS_VALUES: (u64, usize) = (16 << 10, 112 << 10);
/// Where ZFS keeps the list of states in a label; a state is at least this long.
const ZFS_STATES: (u64, u64) = (128 << 10, 1 << 10);
const ZFS_LABEL: u64 = 256 << 10;
const ZFS: u64 = 0x00ba_b10c;

/// What a disk or partition is a part of, if anything.
pub fn member(disk: &mut File) -> io::Result<Option<String>> {
    let size = disk.seek(SeekFrom::End(0))?;
    if let Some(text) = lvm(disk)? {
        return Ok(Some(text));
    }
    if is_md(disk, size)? {
        return Ok(Some("a member of a RAID (md)".into()));
    }
    zfs(disk, size)
}

/// Up to `length` bytes; fewer at the end.
fn bytes(disk: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let (mut data, mut have) = (vec![0; length], 0);
    while have < length {
        match disk.read_at(&mut data[have..], at + have as u64)? {
            0 => break,
            more => have += more,
        }
    }
    data.truncate(have);
    Ok(data)
}

/// A physical volume of LVM: its label is in one of the first four sectors.
fn lvm(disk: &File) -> io::Result<Option<String>> {
    for sector in 0..4 {
        let label = bytes(disk, sector * SECTOR, SECTOR as usize)?;
        if label.starts_with(b"LABELONE") && label.get(24..32) == Some(b"LVM2 001") {
            let group =
                volume_group(disk)?.map_or("in no volume group".into(), |name| format!("of group {name}"));
            return Ok(Some(format!("a physical volume of LVM {group}")));
        }
    }
    Ok(None)
}

/// The volume group, with which the description begins that the usual metadata area points at.
fn volume_group(disk: &File) -> io::Result<Option<String>> {
    const AREA: u64 = 4096;
    let header = bytes(disk, AREA, SECTOR as usize)?;
    let Some(at) = header.get(40..48).and_then(|field| field.try_into().ok()).map(u64::from_le_bytes) else {
        return Ok(None);
    };
    if at == 0 || header.get(4..9) != Some(b" LVM2") {
        return Ok(None);
    }
    let text = bytes(disk, AREA.saturating_add(at), 128)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.split_once(" {").map(|(name, _)| name.to_owned()))
}

/// The places of the superblock: versions 1.1, 1.2, 1.0 and 0.90.
fn is_md(disk: &File, size: u64) -> io::Result<bool> {
    let last = |grain: u64, back: u64| (size / grain * grain).checked_sub(back);
    for at in [Some(0), Some(4096), last(4096, 8192), last(65536, 65536)].into_iter().flatten() {
        if bytes(disk, at, MD.len())? == MD {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A device of a ZFS pool: one of its four labels has a state.
fn zfs(disk: &File, size: u64) -> io::Result<Option<String>> {
    let end = size / ZFS_LABEL * ZFS_LABEL;
    let last = [2, 1].map(|labels| end.checked_sub(labels * ZFS_LABEL));
    for label in [Some(0), Some(ZFS_LABEL)].into_iter().chain(last).flatten() {
        let states = bytes(disk, label + ZFS_STATES.0, (ZFS_LABEL - ZFS_STATES.0) as usize)?;
        let state =
            |bytes: &[u8]| bytes.get(..8).and_then(|first| first.try_into().ok()).map(u64::from_ne_bytes);
        if states
            .chunks(ZFS_STATES.1 as usize)
            .any(|chunk| state(chunk).is_some_and(|n| n == ZFS || n == ZFS.swap_bytes()))
        {
            let values = bytes(disk, label + ZFS_VALUES.0, ZFS_VALUES.1)?;
            let pool = pool(&values).map_or(String::new(), |name| format!(" {name}"));
            return Ok(Some(format!("a device of ZFS pool{pool}")));
        }
    }
    Ok(None)
}

/// The value of `name`, a string, in the form of XDR.
fn pool(values: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01";
    let at = values.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let length = u32::from_be_bytes(values.get(at..at + 4)?.try_into().ok()?) as usize;
    values.get(at + 4..(at + 4).checked_add(length)?).map(|name| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tree::Tree;

    fn of(content: &[(usize, &[u8])]) -> Option<String> {
        let mut disk = vec![0u8; 2 << 20];
        for (at, bytes) in content {
            disk[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let tree = Tree::new();
        tree.file("disk", &disk);
        member(&mut File::open(tree.system().path("disk")).unwrap()).unwrap()
    }

    #[test]
    fn an_empty_disk_is_part_of_nothing() {
        assert_eq!(of(&[]), None);
        let tree = Tree::new();
        tree.file("small", b"LABELONE");
        assert_eq!(member(&mut File::open(tree.system().path("small")).unwrap()).unwrap(), None);
    }

    #[test]
    fn physical_volumes_are_told_with_their_group() {
        let label: &[(usize, &[u8])] = &[(512, b"LABELONE"), (536, b"LVM2 001")];
        assert_eq!(of(label).unwrap(), "a physical volume of LVM in no volume group");
        let pointer = 512u64.to_le_bytes();
        let area: &[(usize, &[u8])] =
            &[(4100, b" LVM2 x[5A%r0N*>"), (4136, &pointer), (4608, b"data {\nid = \"x\"\n")];
        assert_eq!(of(&[label, area].concat()).unwrap(), "a physical volume of LVM of group data");
    }

    #[test]
    fn members_of_raids_are_told_by_each_version() {
        for at in [0, 4096, (2 << 20) - 8192, (2 << 20) - 65536] {
            assert_eq!(of(&[(at, &MD)]).unwrap(), "a member of a RAID (md)", "{at}");
        }
    }

    #[test]
    fn devices_of_pools_are_told_by_each_label_and_byte_order() {
        let name = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01\0\0\0\x04tank";
        for label in [0, 256 << 10, (2 << 20) - (512 << 10), (2 << 20) - (256 << 10)] {
            for state in [ZFS.to_le_bytes(), ZFS.to_be_bytes()] {
                let found = of(&[(label + (131 << 10), &state), (label + (17 << 10), name)]);
                assert_eq!(found.unwrap(), "a device of ZFS pool tank");
            }
        }
    }
}
