// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys.

use core::fmt;

/// A key of 1 to 16 bytes (KV, section 2.1); any bytes, zeros included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    // Ordered first by bytes, then by length: since unused bytes are zero, that is the order of the slices.
    // INVARIANT: bytes from `len` on are zero, 1 <= len <= 16.
    bytes: [u8; Key::MAX],
    len: u8,
}

/// A key that can not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyError {
    /// Its length in bytes.
    pub len: usize,
}

impl Key {
    /// Longest key in bytes.
    pub const MAX: usize = 16;

    /// Takes a key; never shortens one.
    pub fn new(key: &[u8]) -> Result<Self, KeyError> {
        let mut bytes = [0; Self::MAX];
        match bytes.get_mut(..key.len()) {
            Some(to) if !key.is_empty() => to.copy_from_slice(key),
            _ => return Err(KeyError { len: key.len() }),
        }
        Ok(Self { bytes, len: key.len() as u8 })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Number of bytes. (Never 0.)
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// The key as it stands in a command: padded with zeros.
    pub const fn padded(&self) -> &[u8; Self::MAX] {
        &self.bytes
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key has 1 to {} bytes, this one has {}", Key::MAX, self.len)
    }
}

impl core::error::Error for KeyError {}

/// Printable ASCII as text, all else as `0x…`, so that it can be read back without doubt.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.as_bytes();
        let plain = bytes.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
        match core::str::from_utf8(bytes) {
            Ok(text) if plain && !text.starts_with("0x") => f.pad(text),
            _ => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl TryFrom<&[u8]> for Key {
    type Error = KeyError;
    fn try_from(key: &[u8]) -> Result<Self, KeyError> {
        Self::new(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{format, vec::Vec};

    #[test]
    fn spec_kv_2_1_key_length_limits() {
        assert_eq!(Key::new(&[]), Err(KeyError { len: 0 }));
        assert_eq!(Key::new(&[0; 17]), Err(KeyError { len: 17 }));
        assert_eq!(Key::new(&[0; 16]).unwrap().len(), 16);
        assert_ne!(Key::new(&[0]).unwrap(), Key::new(&[0, 0]).unwrap());
    }

    #[test]
    fn display_is_unambiguous() {
        assert_eq!(format!("{}", Key::new(b"weights.7").unwrap()), "weights.7");
        assert_eq!(format!("{}", Key::new(&[0, 1]).unwrap()), "0x0001");
        assert_eq!(format!("{}", Key::new(b"0xab").unwrap()), "0x30786162");
    }

    proptest! {
        #[test]
        fn order_is_that_of_the_bytes(a in proptest::collection::vec(any::<u8>(), 1..=16),
                                      b in proptest::collection::vec(any::<u8>(), 1..=16)) {
            let (ka, kb) = (Key::new(&a).unwrap(), Key::new(&b).unwrap());
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            let back: Vec<u8> = ka.as_bytes().into();
            prop_assert_eq!(back, a);
        }
    }
}
