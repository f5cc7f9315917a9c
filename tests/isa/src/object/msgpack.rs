// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading MessagePack, as much of it as notes of code objects use.

use crate::error::{Error, Result};

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing.
    Nil,
    /// Truth.
    Bool(bool),
    /// Whole number; none of the metadata needs more bits.
    Int(i64),
    /// Text.
    Text(String),
    /// Values in order.
    Array(Vec<Value>),
    /// Keys with values, in order.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(k, _)| matches!(k, Self::Text(text) if text == key)).map(|(_, value)| value)
    }

    /// As a number that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// As text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As values in order; none when it is something else.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

/// Reads the one value that `bytes` begin with.
pub fn parse(bytes: &[u8]) -> Result<Value> {
    Reader { rest: bytes }.value(0)
}

/// Deepest nesting that is followed.
const DEPTH: usize = 16;

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let cut = || Error::Object("its metadata is cut".into());
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A big-endian number of so many bytes.
    fn number(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, len: usize) -> Result<i64> {
        let shift = 64 - 8 * len as u32;
        Ok((self.number(len)? << shift) as i64 >> shift)
    }

    fn text(&mut self, len: u64) -> Result<Value> {
        let bytes = self.take(len as usize)?;
        Ok(Value::Text(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn array(&mut self, len: u64, depth: usize) -> Result<Value> {
        (0..len).map(|_| self.value(depth + 1)).collect::<Result<_>>().map(Value::Array)
    }

    fn map(&mut self, len: u64, depth: usize) -> Result<Value> {
        let entry = |_| Ok((self.value(depth + 1)?, self.value(depth + 1)?));
        (0..len).map(entry).collect::<Result<_>>().map(Value::Map)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH {
            return Err(Error::Object("its metadata is nested too deeply".into()));
        }
        let tag = self.number(1)?;
        match tag {
            0x00..=0x7f => Ok(Value::Int(tag as i64)),
            0x80..=0x8f => self.map(tag & 15, depth),
            0x90..=0x9f => self.array(tag & 15, depth),
            0xa0..=0xbf => self.text(tag & 31),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Bool(tag == 0xc3)),
            0xcc..=0xcf => {
                let value = self.number(1 << (tag - 0xcc))?;
                i64::try_from(value).map(Value::Int).map_err(|_| Error::Object("a number too large".into()))
            }
            0xd0..=0xd3 => self.signed(1 << (tag - 0xd0)).map(Value::Int),
            0xd9..=0xdb => {
                let len = self.number(1 << (tag - 0xd9))?;
                self.text(len)
            }
            0xdc | 0xdd => {
                let len = self.number(2 << (tag - 0xdc))?;
                self.array(len, depth)
            }
            0xde | 0xdf => {
                let len = self.number(2 << (tag - 0xde))?;
                self.map(len, depth)
            }
            0xe0..=0xff => Ok(Value::Int(i64::from(tag as u8 as i8))),
            _ => Err(Error::Object(format!("its metadata has an unknown type {tag:#x}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_notes_use() {
        let bytes = [
            0x83, 0xa1, b'a', 0x93, 0x05, 0xff, 0xcd, 0x12, 0x34, 0xa1, b'b', 0xc3, 0xa2, b'c', b'd', 0xd9,
            2, b'x', b'y',
        ];
        let value = parse(&bytes).unwrap();
        let items: Vec<_> = value.get("a").unwrap().items().to_vec();
        assert_eq!(items, [Value::Int(5), Value::Int(-1), Value::Int(0x1234)]);
        assert_eq!(value.get("b"), Some(&Value::Bool(true)));
        assert_eq!(value.get("cd").and_then(Value::as_text), Some("xy"));
        assert_eq!(value.get("e"), None);
    }

    #[test]
    fn what_is_cut_or_endless_is_an_error() {
        assert!(parse(&[]).is_err() && parse(&[0x92, 1]).is_err() && parse(&[0xd9, 5, b'a']).is_err());
        assert!(parse(&[0x91; 100]).is_err() && parse(&[0xc1]).is_err());
    }
}
