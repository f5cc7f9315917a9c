// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparisons, of scalar and of vector instructions.

use super::operand::Width;

/// A comparison of two operands.
#[derive(Clone, Copy, Debug)]
pub struct Compare {
    /// Whether it holds.
    pub function: fn(u64, u64) -> bool,
    /// Width of the operands.
    pub width: Width,
}

const fn s(a: u64) -> i32 {
    a as u32 as i32
}

const fn h(a: u64) -> i16 {
    a as u16 as i16
}

const fn f(a: u64) -> f32 {
    f32::from_bits(a as u32)
}

/// The comparison of a name such as `lt_u32`.
pub fn compare(name: &str) -> Option<Compare> {
    let (relation, kind) = name.split_once('_')?;
    let (width, function): (_, fn(u64, u64) -> bool) = match kind {
        "u16" | "u32" | "u64" | "b32" | "b64" => (
            match kind {
                "u16" => Width::Half,
                "u32" | "b32" => Width::Word,
                _ => Width::Wide,
            },
            match relation {
                "eq" => |a, b| a == b,
                "ne" | "lg" => |a, b| a != b,
                "lt" => |a, b| a < b,
                "le" => |a, b| a <= b,
                "gt" => |a, b| a > b,
                "ge" => |a, b| a >= b,
                _ => return None,
            },
        ),
        "i32" => (
            Width::Word,
            match relation {
                "eq" => |a, b| a == b,
                "ne" | "lg" => |a, b| a != b,
                "lt" => |a, b| s(a) < s(b),
                "le" => |a, b| s(a) <= s(b),
                "gt" => |a, b| s(a) > s(b),
                "ge" => |a, b| s(a) >= s(b),
                _ => return None,
            },
        ),
        "i16" => (
            Width::Half,
            match relation {
                "eq" => |a, b| a == b,
                "ne" => |a, b| a != b,
                "lt" => |a, b| h(a) < h(b),
                "le" => |a, b| h(a) <= h(b),
                "gt" => |a, b| h(a) > h(b),
                "ge" => |a, b| h(a) >= h(b),
                _ => return None,
            },
        ),
        "i64" => (
            Width::Wide,
            match relation {
                "eq" => |a, b| a == b,
                "ne" => |a, b| a != b,
                "lt" => |a, b| (a as i64) < b as i64,
                "le" => |a, b| a as i64 <= b as i64,
                "gt" => |a, b| a as i64 > b as i64,
                "ge" => |a, b| a as i64 >= b as i64,
                _ => return None,
            },
        ),
        "f32" => (
            Width::Word,
            match relation {
                "eq" => |a, b| f(a) == f(b),
                "lg" => |a, b| f(a) < f(b) || f(a) > f(b),
                "neq" => |a, b| f(a) != f(b),
                "lt" => |a, b| f(a) < f(b),
                "le" => |a, b| f(a) <= f(b),
                "gt" => |a, b| f(a) > f(b),
                "ge" => |a, b| f(a) >= f(b),
                "nlt" => |a, b| f(a).partial_cmp(&f(b)) != Some(std::cmp::Ordering::Less),
                "ngt" => |a, b| f(a).partial_cmp(&f(b)) != Some(std::cmp::Ordering::Greater),
                _ => return None,
            },
        ),
        _ => return None,
    };
    Some(Compare { function, width })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_widths() {
        let holds = |name, a, b| (compare(name).unwrap().function)(a, b);
        assert!(holds("gt_u32", 0xffff_ffff, 1) && !holds("gt_i32", 0xffff_ffff, 1));
        assert!(holds("lt_i64", u64::MAX, 0) && holds("lg_u32", 1, 2) && holds("le_i16", 0xffff, 0));
        assert!(!holds("eq_f32", f32::NAN.to_bits().into(), f32::NAN.to_bits().into()));
        assert_eq!(compare("ge_u16").unwrap().width, Width::Half);
        assert!(compare("tru_u32").is_none() && compare("lt_f16").is_none() && compare("x").is_none());
    }
}
