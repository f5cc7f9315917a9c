// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading ELF: segments, symbols, notes. 64 bit, little-endian.

use crate::error::{Error, Result};

/// An ELF file.
#[derive(Clone, Debug)]
pub struct Elf {
    data: Vec<u8>,
    sections: Vec<Section>,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    kind: u32,
    addr: u64,
    offset: u64,
    size: u64,
    link: u32,
}

/// What is loaded into memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Address relative to where the object is loaded.
    pub addr: u64,
    /// Contents of the file.
    pub bytes: &'a [u8],
    /// Bytes in memory; what goes beyond the contents is zero.
    pub size: u64,
    /// Whether it may be written.
    pub writable: bool,
}

const LOAD: u32 = 1;
const WRITABLE: u32 = 2;
const SYMBOLS: u32 = 2;
const NOTES: u32 = 7;

fn cut() -> Error {
    Error::Object("it is cut".into())
}

/// A little-endian number of `len` bytes at an offset.
fn number(data: &[u8], at: u64, len: usize) -> Result<u64> {
    let at = usize::try_from(at).map_err(|_| cut())?;
    let bytes = at.checked_add(len).and_then(|end| data.get(at..end)).ok_or_else(cut)?;
    Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

impl Elf {
    /// Reads a file's contents.
    pub fn new(data: Vec<u8>) -> Result<Self> {
        if !data.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]) {
            return Err(Error::Object("it is no 64-bit little-endian ELF file".into()));
        }
        let (table, size, count) =
            (number(&data, 0x28, 8)?, number(&data, 0x3a, 2)?, number(&data, 0x3c, 2)?);
        let section = |n: u64| {
            let at = table + n * size;
            Ok(Section {
                kind: number(&data, at + 4, 4)? as u32,
                addr: number(&data, at + 16, 8)?,
                offset: number(&data, at + 24, 8)?,
                size: number(&data, at + 32, 8)?,
                link: number(&data, at + 40, 4)? as u32,
            })
        };
        let sections = (0..count).map(section).collect::<Result<_>>()?;
        Ok(Self { data, sections })
    }

    fn slice(&self, offset: u64, len: u64) -> Result<&[u8]> {
        let (at, len) = (offset as usize, len as usize);
        at.checked_add(len).and_then(|end| self.data.get(at..end)).ok_or_else(cut)
    }

    /// What is loaded into memory.
    pub fn segments(&self) -> Result<Vec<Segment<'_>>> {
        let data = &self.data;
        let (table, size, count) = (number(data, 0x20, 8)?, number(data, 0x36, 2)?, number(data, 0x38, 2)?);
        let mut segments = Vec::new();
        for at in (0..count).map(|n| table + n * size) {
            if number(data, at, 4)? as u32 == LOAD {
                segments.push(Segment {
                    addr: number(data, at + 16, 8)?,
                    bytes: self.slice(number(data, at + 8, 8)?, number(data, at + 32, 8)?)?,
                    size: number(data, at + 40, 8)?,
                    writable: number(data, at + 4, 4)? as u32 & WRITABLE != 0,
                });
            }
        }
        Ok(segments)
    }

    /// Bytes at an address of a section.
    pub fn bytes_at(&self, addr: u64, len: u64) -> Result<&[u8]> {
        let holds = |s: &&Section| s.addr != 0 && addr >= s.addr && addr + len <= s.addr + s.size;
        let section = self.sections.iter().find(holds).ok_or_else(cut)?;
        self.slice(section.offset + (addr - section.addr), len)
    }

    /// Address of a symbol.
    pub fn symbol(&self, name: &str) -> Result<u64> {
        for table in self.sections.iter().filter(|s| s.kind == SYMBOLS) {
            let names = self.sections.get(table.link as usize).ok_or_else(cut)?;
            for at in (table.offset..table.offset + table.size).step_by(24) {
                let begin = names.offset + number(&self.data, at, 4)?;
                let text = self.data.get(begin as usize..).ok_or_else(cut)?;
                if text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)) {
                    return number(&self.data, at + 8, 8);
                }
            }
        }
        Err(Error::Object(format!("it has no symbol {name}")))
    }

    /// Contents of the note of that owner and type.
    pub fn note(&self, owner: &str, kind: u32) -> Result<&[u8]> {
        for section in self.sections.iter().filter(|s| s.kind == NOTES) {
            let (mut at, end) = (section.offset, section.offset + section.size);
            while at + 12 <= end {
                let (name, len) = (number(&self.data, at, 4)?, number(&self.data, at + 4, 4)?);
                let contents = at + 12 + name.next_multiple_of(4);
                let found = self.slice(at + 12, name)?.strip_suffix(b"\0") == Some(owner.as_bytes());
                if found && number(&self.data, at + 8, 4)? == u64::from(kind) {
                    return self.slice(contents, len);
                }
                at = contents + len.next_multiple_of(4);
            }
        }
        Err(Error::Object(format!("it has no note {kind} of {owner}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(Elf::new(b"MZ".to_vec()).is_err());
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        let empty = Elf::new(header.clone()).unwrap();
        assert!(empty.symbol("x").is_err() && empty.note("AMDGPU", 32).is_err());
        assert!(empty.segments().unwrap().is_empty());
        header[0x3c] = 3;
        header[0x3a] = 64;
        header[0x28] = 60;
        assert!(Elf::new(header).is_err());
    }
}
