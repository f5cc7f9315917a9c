// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands in memory, and what atomics do with it.

/// What an element in memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// Bytes.
    pub bytes: u8,
    /// Smaller than a register, and extended by its sign.
    pub signed: bool,
    /// Half of the register that it stands in; the other half stays. Not for whole registers.
    pub half: Option<u8>,
}

impl Element {
    pub(super) const fn unsigned(bytes: u8) -> Self {
        Self { bytes, signed: false, half: None }
    }

    /// Registers that it takes.
    pub const fn registers(&self) -> u16 {
        (self.bytes as u16).div_ceil(4)
    }
}

/// Reads memory, changes what it read, and writes it, in one go.
pub type Function = fn(old: u64, data: u64, compare: u64) -> u64;

/// An element by its name in an instruction's name.
pub(super) fn element(name: &str) -> Option<Element> {
    let signed = |bytes| Element { signed: true, ..Element::unsigned(bytes) };
    let half = |element: Element, half| Element { half: Some(half), ..element };
    Some(match name {
        "dword" | "b32" => Element::unsigned(4),
        "dwordx2" | "b64" => Element::unsigned(8),
        "dwordx3" | "b96" => Element::unsigned(12),
        "dwordx4" | "b128" => Element::unsigned(16),
        "ubyte" | "u8" | "byte" | "b8" => Element::unsigned(1),
        "sbyte" | "i8" => signed(1),
        "ushort" | "u16" | "short" | "b16" => Element::unsigned(2),
        "sshort" | "i16" => signed(2),
        "ubyte_d16" | "d16_u8" | "u8_d16" => half(Element::unsigned(1), 0),
        "ubyte_d16_hi" | "d16_hi_u8" | "u8_d16_hi" | "byte_d16_hi" | "d16_hi_b8" | "b8_d16_hi" => {
            half(Element::unsigned(1), 1)
        }
        "sbyte_d16" | "d16_i8" | "i8_d16" => half(signed(1), 0),
        "sbyte_d16_hi" | "d16_hi_i8" | "i8_d16_hi" => half(signed(1), 1),
        "short_d16" | "d16_b16" | "u16_d16" => half(Element::unsigned(2), 0),
        "short_d16_hi" | "d16_hi_b16" | "u16_d16_hi" | "b16_d16_hi" => half(Element::unsigned(2), 1),
        _ => return None,
    })
}

const fn signed(value: u64, wide: bool) -> i64 {
    if wide {
        value as i64
    } else {
        value as u32 as i32 as i64
    }
}

/// Function, bytes, and whether it compares, of an atomic's name without prefixes.
pub(super) fn atomic(name: &str) -> Option<(Function, u8, bool)> {
    let suffixes = ["_x2", "_u64", "_i64", "_b64"];
    let wide = suffixes.iter().any(|suffix| name.ends_with(suffix));
    let base = suffixes.iter().chain(&["_u32", "_i32", "_b32"]).find_map(|suffix| name.strip_suffix(suffix));
    let is_signed = name.contains("_i") || name.starts_with("smin") || name.starts_with("smax");
    let function: Function = match (base.unwrap_or(name), wide) {
        ("add", _) => |old, data, _| old.wrapping_add(data),
        ("sub", _) => |old, data, _| old.wrapping_sub(data),
        ("and", _) => |old, data, _| old & data,
        ("or", _) => |old, data, _| old | data,
        ("xor", _) => |old, data, _| old ^ data,
        ("swap" | "wrxchg" | "storexchg", _) => |_, data, _| data,
        ("cmpswap" | "cmpst" | "cmpstore", _) => |old, data, compare| if old == compare { data } else { old },
        ("min" | "smin", false) if is_signed => {
            |old, data, _| signed(old, false).min(signed(data, false)) as u64
        }
        ("max" | "smax", false) if is_signed => {
            |old, data, _| signed(old, false).max(signed(data, false)) as u64
        }
        ("min" | "smin", true) if is_signed => {
            |old, data, _| signed(old, true).min(signed(data, true)) as u64
        }
        ("max" | "smax", true) if is_signed => {
            |old, data, _| signed(old, true).max(signed(data, true)) as u64
        }
        ("min" | "umin", _) => |old, data, _| old.min(data),
        ("max" | "umax", _) => |old, data, _| old.max(data),
        ("inc", _) => |old, data, _| if old >= data { 0 } else { old + 1 },
        ("dec", _) => |old, data, _| if old == 0 || old > data { data } else { old - 1 },
        _ => return None,
    };
    let compares = name.starts_with("cmp");
    Some((function, if wide { 8 } else { 4 }, compares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_by_both_names() {
        for name in ["min_i32", "smin"] {
            let (function, bytes, compares) = atomic(name).unwrap();
            assert_eq!(
                (function(0xffff_ffff, 1, 0) as u32, bytes, compares),
                (0xffff_ffff, 4, false),
                "{name}"
            );
        }
        for name in ["min_u64", "umin_x2"] {
            assert_eq!((atomic(name).unwrap().0)(u64::MAX, 1, 0), 1, "{name}");
        }
        let (swap, bytes, compares) = atomic("cmpswap_b64").unwrap();
        assert_eq!((swap(5, 7, 5), swap(6, 7, 5), bytes, compares), (7, 6, 8, true));
        assert!(atomic("frobnicate").is_none());
    }
}
