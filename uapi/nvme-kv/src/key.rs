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

/// Text that stands for no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseKeyError {
    /// It stands for a key of a length that there is not.
    Length(KeyError),
    /// After `0x` there is something else than pairs of hexadecimal digits.
    Hex,
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

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(e) => e.fmt(f),
            Self::Hex => f.write_str("a key that starts with 0x goes on with pairs of hexadecimal digits"),
        }
    }
}

impl core::error::Error for ParseKeyError {}

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

/// What `Display` writes: `0x` and pairs of hexadecimal digits are bytes, all else is taken as it is.
impl core::str::FromStr for Key {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let Some(digits) = text.strip_prefix("0x") else {
            return Self::new(text.as_bytes()).map_err(ParseKeyError::Length);
        };
        let digit = |b: u8| char::from(b).to_digit(16).ok_or(ParseKeyError::Hex);
        let pairs = digits.as_bytes().chunks(2);
        let (len, mut bytes) = (pairs.len(), [0; Self::MAX]);
        for (n, pair) in pairs.enumerate() {
            let &[high, low] = pair else { return Err(ParseKeyError::Hex) };
            let byte = digit(high)? << 4 | digit(low)?;
            if let Some(to) = bytes.get_mut(n) {
                *to = byte as u8;
            }
        }
        let key = bytes.get(..len).ok_or(ParseKeyError::Length(KeyError { len }))?;
        Self::new(key).map_err(ParseKeyError::Length)
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

    #[test]
    fn text_stands_for_a_key_or_an_error() {
        let parse = |text: &str| text.parse::<Key>();
        assert_eq!(parse("0x00fF").unwrap().as_bytes(), [0, 0xff]);
        assert_eq!(parse("weights.7").unwrap().as_bytes(), b"weights.7");
        assert_eq!(parse("\u{e9}").unwrap().as_bytes(), [0xc3, 0xa9]);
        for bad in ["0x0", "0xzz", "0x+1", "0x000", "0x\u{e9}"] {
            assert_eq!(parse(bad), Err(ParseKeyError::Hex), "{bad}");
        }
        let length = |len| Err(ParseKeyError::Length(KeyError { len }));
        assert_eq!((parse(""), parse("0x")), (length(0), length(0)));
        assert_eq!(parse("seventeen letters"), length(17));
        assert_eq!(parse("0x0102030405060708090a0b0c0d0e0f1011"), length(17));
    }

    proptest! {
        #[test]
        fn text_of_a_key_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 1..=16)) {
            let key = Key::new(&bytes).unwrap();
            prop_assert_eq!(format!("{key}").parse::<Key>(), Ok(key));
        }

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
