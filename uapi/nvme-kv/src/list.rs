// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data of the List command (KV, section 3.2.4): a count, then each key with its length, padded to 4 bytes.

use crate::Key;

const HEADER: usize = 4;
const KEY_HEADER: usize = 2;

/// Bytes that a key of `len` bytes takes in a list.
pub const fn entry_len(len: usize) -> usize {
    (KEY_HEADER + len).div_ceil(4) * 4
}

/// Bytes of a list without keys.
pub const EMPTY_LEN: usize = HEADER;

/// Smallest buffer that holds any one key.
pub const MIN_LEN: usize = HEADER + entry_len(Key::MAX);

/// Writes a list into a buffer.
#[derive(Debug)]
pub struct Builder<'a> {
    buf: &'a mut [u8],
    end: usize,
    count: u32,
}

impl<'a> Builder<'a> {
    /// Starts an empty list; `None` when not even the count fits.
    pub fn new(buf: &'a mut [u8]) -> Option<Self> {
        buf.get_mut(..HEADER)?.fill(0);
        Some(Self { buf, end: HEADER, count: 0 })
    }

    /// Appends a key; `false` when it does not fit whole, and the list is full.
    pub fn push(&mut self, key: &Key) -> bool {
        let bytes = key.as_bytes();
        let len = entry_len(bytes.len());
        let Some(entry) = self.buf.get_mut(self.end..self.end.saturating_add(len)) else {
            return false;
        };
        let (header, rest) = entry.split_at_mut(KEY_HEADER);
        header.copy_from_slice(&u16::from(key.len()).to_le_bytes());
        let (text, padding) = rest.split_at_mut(bytes.len());
        text.copy_from_slice(bytes);
        padding.fill(0);
        self.end += len;
        self.count += 1;
        if let Some(header) = self.buf.get_mut(..HEADER) {
            header.copy_from_slice(&self.count.to_le_bytes());
        }
        true
    }

    /// Bytes in use.
    pub const fn len(&self) -> usize {
        self.end
    }

    /// Whether no key was pushed.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What is wrong with a list that a controller returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListError {
    /// The list ends before the number of keys that it states.
    Truncated,
    /// A key of this length, which is 0 or more than 16.
    KeyLength(u16),
}

impl core::fmt::Display for ListError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => f.write_str("the list states more keys than it holds"),
            Self::KeyLength(n) => write!(f, "the list holds a key of {n} bytes"),
        }
    }
}

impl core::error::Error for ListError {}

/// Keys of a list, in its order. Stops after the first error.
#[derive(Clone, Debug)]
pub struct Keys<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Keys<'a> {
    /// Reads a list.
    pub fn new(list: &'a [u8]) -> Result<Self, ListError> {
        let (header, rest) = list.split_at_checked(HEADER).ok_or(ListError::Truncated)?;
        let mut count = [0; HEADER];
        count.copy_from_slice(header);
        Ok(Self { rest, left: u32::from_le_bytes(count) })
    }

    /// Keys not yet returned, as the list states.
    pub const fn remaining(&self) -> u32 {
        self.left
    }

    fn take(&mut self) -> Result<Key, ListError> {
        let (header, _) = self.rest.split_at_checked(KEY_HEADER).ok_or(ListError::Truncated)?;
        let len = u16::from_le_bytes([header[0], header[1]]);
        if len == 0 || usize::from(len) > Key::MAX {
            return Err(ListError::KeyLength(len));
        }
        let len = usize::from(len);
        let bytes = self.rest.get(KEY_HEADER..KEY_HEADER + len).ok_or(ListError::Truncated)?;
        let key = Key::new(bytes).map_err(|e| ListError::KeyLength(e.len as u16))?;
        // The padding of the last key may be missing.
        self.rest = self.rest.get(entry_len(len)..).unwrap_or(&[]);
        Ok(key)
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Key, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let key = self.take();
        if key.is_err() {
            self.left = 0;
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::tests::any_key;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    #[test]
    fn spec_kv_3_2_4_layout() {
        let mut buf = [0xff; 24];
        let mut list = Builder::new(&mut buf).unwrap();
        assert!(list.push(&Key::new(b"ab").unwrap()));
        assert!(list.push(&Key::new(b"abc").unwrap()));
        assert_eq!(list.len(), 16);
        assert!(!list.push(&Key::new(b"0123456").unwrap()));
        assert_eq!(buf[..16], *b"\x02\0\0\0\x02\0ab\x03\0abc\0\0\0");
        assert!(Builder::new(&mut [0; 3]).is_none());
    }

    #[test]
    fn a_bad_list_is_an_error_once() {
        let mut keys = Keys::new(b"\xff\xff\xff\xff\x01\0a\0\x11\0").unwrap();
        assert_eq!(keys.next(), Some(Ok(Key::new(b"a").unwrap())));
        assert_eq!(keys.next(), Some(Err(ListError::KeyLength(17))));
        assert_eq!(keys.next(), None);
        assert_eq!(Keys::new(b"\x01\0\0").err(), Some(ListError::Truncated));
        assert_eq!(Keys::new(b"\x01\0\0\0").unwrap().next(), Some(Err(ListError::Truncated)));
    }

    proptest! {
        #[test]
        fn lists_round_trip(keys in proptest::collection::vec(any_key(), 0..100), room in 4usize..2000) {
            let mut buf = vec![0xaa; room];
            let mut list = Builder::new(&mut buf).unwrap();
            let fit = keys.iter().take_while(|k| list.push(k)).count();
            let end = list.len();
            let back: Result<Vec<Key>, _> = Keys::new(&buf[..end]).unwrap().collect();
            prop_assert_eq!(back.unwrap(), &keys[..fit]);
            prop_assert!(fit == keys.len() || end + entry_len(keys[fit].as_bytes().len()) > room);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(keys) = Keys::new(&bytes) {
                prop_assert!(keys.count() <= bytes.len());
            }
        }
    }
}
