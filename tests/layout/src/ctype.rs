// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rust types of the interface as C types.

/// The type of a field or constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CType {
    /// Bits of a value, or of an element.
    pub bits: u32,
    /// Whether it has a sign.
    pub signed: bool,
    /// Number of elements of an array.
    pub len: Option<usize>,
}

impl CType {
    /// From the type as written in Rust: an integer type or an array of one.
    pub fn parse(rust: &str) -> Option<Self> {
        if let Some(inner) = rust.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let (element, len) = inner.split_once(';')?;
            let element = Self::parse(element.trim())?;
            return Some(Self { len: Some(len.trim().parse().ok()?), ..element });
        }
        let bits = rust.get(1..)?.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
        let signed = match rust.get(..1)? {
            "u" => false,
            "i" => true,
            _ => return None,
        };
        Some(Self { bits, signed, len: None })
    }

    /// As [`CType::parse`], for the interface's own types.
    ///
    /// # Panics
    ///
    /// When the interface has grown a type that C is not told about here.
    pub fn of(rust: &str) -> Self {
        Self::parse(rust).unwrap_or_else(|| panic!("no C type for {rust}"))
    }

    /// Name of the (element) type.
    pub fn name(self) -> String {
        format!("__{}{}", if self.signed { 's' } else { 'u' }, self.bits)
    }

    /// A value as C writes it, with the suffix of its type.
    pub fn literal(self, value: u64) -> String {
        match (self.signed, self.bits) {
            (true, 64) => format!("({}LL)", value as i64),
            (true, _) => format!("({})", value as i64),
            (false, 64) => format!("{value:#x}ULL"),
            (false, _) => format!("{value}U"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_parsed() {
        let ty = |bits, signed, len| Some(CType { bits, signed, len });
        assert_eq!(CType::parse("u32"), ty(32, false, None));
        assert_eq!(CType::parse("i8"), ty(8, true, None));
        assert_eq!(CType::parse("[u16; 3]"), ty(16, false, Some(3)));
        for bad in ["usize", "u31", "bool", "[u8]", "*const u8", ""] {
            assert_eq!(CType::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn literals_have_the_suffix_of_their_type() {
        assert_eq!(CType::of("i32").literal(u64::MAX), "(-1)");
        assert_eq!(CType::of("u32").literal(511), "511U");
        assert_eq!(CType::of("u64").literal(1 << 40), "0x10000000000ULL");
    }
}
