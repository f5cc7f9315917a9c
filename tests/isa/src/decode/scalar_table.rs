// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the scalar instructions compute.

use super::operand::Width;

/// Result, and what becomes of the condition code, of up to two operands and the condition code.
pub type Function = fn(u64, u64, bool) -> (u64, Option<bool>);

/// What an instruction computes, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The function; its result is cut to the width of the destination.
    pub function: Function,
    /// Operands.
    pub sources: usize,
    /// Widths of the operands.
    pub widths: [Width; 2],
    /// Width of the destination.
    pub result: Width,
    /// The destination is also the first operand.
    pub accumulates: bool,
}

use Width::{Wide, Word};

const fn make(sources: usize, width: Width, function: Function) -> Form {
    Form { function, sources, widths: [width; 2], result: width, accumulates: false }
}

const fn u1(function: Function) -> Form {
    make(1, Word, function)
}

const fn u2(function: Function) -> Form {
    make(2, Word, function)
}

const fn w1(function: Function) -> Form {
    make(1, Wide, function)
}

const fn w2(function: Function) -> Form {
    make(2, Wide, function)
}

/// A value with a constant of the instruction's own 16 bits.
const fn k(function: Function) -> Form {
    Form { accumulates: true, ..u2(function) }
}

const fn with(form: Form, result: Width, widths: [Width; 2]) -> Form {
    Form { result, widths, ..form }
}

/// Signed 32-bit value.
const fn s(a: u64) -> i64 {
    a as u32 as i32 as i64
}

/// A signed 16-bit constant as 64 bits.
const fn h(a: u64) -> i64 {
    a as u16 as i16 as i64
}

/// The result, with whether it is not zero.
const fn some(value: u64) -> (u64, Option<bool>) {
    (value, Some(value != 0))
}

/// The 32-bit result, with whether it is not zero.
const fn some32(value: u64) -> (u64, Option<bool>) {
    some(value & 0xffff_ffff)
}

/// A signed sum or difference, with whether it does not fit.
fn fits(value: i64) -> (u64, Option<bool>) {
    (value as u64, Some(i32::try_from(value).is_err()))
}

const fn first_bit(at: u32, bits: u32) -> u64 {
    if at == bits {
        u64::MAX
    } else {
        at as u64
    }
}

const fn field(value: u64, selector: u64, bits: u64) -> u64 {
    let (at, len) = (selector & (bits - 1), selector >> 16 & 0x7f);
    match len {
        0 => 0,
        64.. => value >> at,
        _ => value >> at & ((1 << len) - 1),
    }
}

const fn signed_field(value: u64, selector: u64, bits: u64) -> u64 {
    let len = selector >> 16 & 0x7f;
    match len {
        0 => 0,
        64.. => field(value, selector, bits),
        _ => ((field(value, selector, bits) << (64 - len)) as i64 >> (64 - len)) as u64,
    }
}

/// What an instruction computes.
pub fn form(name: &str) -> Option<Form> {
    arithmetic(name).or_else(|| logic(name)).or_else(|| unary(name)).or_else(|| shift(name))
}

fn arithmetic(name: &str) -> Option<Form> {
    Some(match name {
        "s_add_u32" | "s_add_co_u32" => u2(|a, b, _| (a + b, Some(a + b > 0xffff_ffff))),
        "s_sub_u32" | "s_sub_co_u32" => u2(|a, b, _| (a.wrapping_sub(b), Some(b > a))),
        "s_add_i32" | "s_add_co_i32" => u2(|a, b, _| fits(s(a) + s(b))),
        "s_sub_i32" | "s_sub_co_i32" => u2(|a, b, _| fits(s(a) - s(b))),
        "s_addc_u32" | "s_add_co_ci_u32" => u2(|a, b, c| {
            let sum = a + b + u64::from(c);
            (sum, Some(sum > 0xffff_ffff))
        }),
        "s_subb_u32" | "s_sub_co_ci_u32" => u2(|a, b, c| {
            let b = b + u64::from(c);
            (a.wrapping_sub(b), Some(b > a))
        }),
        "s_add_nc_u64" | "s_add_u64" => w2(|a, b, _| (a.wrapping_add(b), None)),
        "s_sub_nc_u64" | "s_sub_u64" => w2(|a, b, _| (a.wrapping_sub(b), None)),
        "s_mul_u64" => w2(|a, b, _| (a.wrapping_mul(b), None)),
        "s_mul_i32" => u2(|a, b, _| (a.wrapping_mul(b), None)),
        "s_mul_hi_u32" => u2(|a, b, _| ((a * b) >> 32, None)),
        "s_mul_hi_i32" => u2(|a, b, _| (((s(a) * s(b)) >> 32) as u64, None)),
        "s_min_u32" => u2(|a, b, _| (a.min(b), Some(a < b))),
        "s_max_u32" => u2(|a, b, _| (a.max(b), Some(a > b))),
        "s_min_i32" => u2(|a, b, _| (s(a).min(s(b)) as u64, Some(s(a) < s(b)))),
        "s_max_i32" => u2(|a, b, _| (s(a).max(s(b)) as u64, Some(s(a) > s(b)))),
        "s_absdiff_i32" => u2(|a, b, _| some32(s(a).abs_diff(s(b)))),
        "s_addk_i32" | "s_addk_co_i32" => k(|a, b, _| fits(s(a) + h(b))),
        "s_mulk_i32" => k(|a, b, _| ((s(a) * h(b)) as u64, None)),
        "s_movk_i32" => u1(|a, _, _| (h(a) as u64, None)),
        "s_cmovk_i32" => k(|a, b, c| (if c { h(b) as u64 } else { a }, None)),
        "s_cselect_b32" => u2(|a, b, c| (if c { a } else { b }, None)),
        "s_cselect_b64" => w2(|a, b, c| (if c { a } else { b }, None)),
        _ => return None,
    })
}

fn logic(name: &str) -> Option<Form> {
    Some(match name {
        "s_and_b32" => u2(|a, b, _| some(a & b)),
        "s_and_b64" => w2(|a, b, _| some(a & b)),
        "s_or_b32" => u2(|a, b, _| some(a | b)),
        "s_or_b64" => w2(|a, b, _| some(a | b)),
        "s_xor_b32" => u2(|a, b, _| some(a ^ b)),
        "s_xor_b64" => w2(|a, b, _| some(a ^ b)),
        "s_andn2_b32" | "s_and_not1_b32" => u2(|a, b, _| some(a & !b)),
        "s_andn2_b64" | "s_and_not1_b64" => w2(|a, b, _| some(a & !b)),
        "s_orn2_b32" | "s_or_not1_b32" => u2(|a, b, _| some32(a | !b)),
        "s_orn2_b64" | "s_or_not1_b64" => w2(|a, b, _| some(a | !b)),
        "s_nand_b32" => u2(|a, b, _| some32(!(a & b))),
        "s_nand_b64" => w2(|a, b, _| some(!(a & b))),
        "s_nor_b32" => u2(|a, b, _| some32(!(a | b))),
        "s_nor_b64" => w2(|a, b, _| some(!(a | b))),
        "s_xnor_b32" => u2(|a, b, _| some32(!(a ^ b))),
        "s_xnor_b64" => w2(|a, b, _| some(!(a ^ b))),
        "s_pack_ll_b32_b16" => u2(|a, b, _| (a & 0xffff | b << 16, None)),
        "s_pack_lh_b32_b16" => u2(|a, b, _| (a & 0xffff | b & 0xffff_0000, None)),
        "s_pack_hh_b32_b16" => u2(|a, b, _| (a >> 16 | b & 0xffff_0000, None)),
        "s_pack_hl_b32_b16" => u2(|a, b, _| (a >> 16 | b << 16, None)),
        "s_bitset0_b32" => k(|a, b, _| (a & !(1 << (b & 31)), None)),
        "s_bitset1_b32" => k(|a, b, _| (a | 1 << (b & 31), None)),
        "s_bitset0_b64" => with(k(|a, b, _| (a & !(1 << (b & 63)), None)), Wide, [Wide, Word]),
        "s_bitset1_b64" => with(k(|a, b, _| (a | 1 << (b & 63), None)), Wide, [Wide, Word]),
        _ => return None,
    })
}

fn unary(name: &str) -> Option<Form> {
    Some(match name {
        "s_mov_b32" => u1(|a, _, _| (a, None)),
        "s_mov_b64" => w1(|a, _, _| (a, None)),
        "s_cmov_b32" => Form { accumulates: true, ..u2(|a, b, c| (if c { b } else { a }, None)) },
        "s_cmov_b64" => Form { accumulates: true, ..w2(|a, b, c| (if c { b } else { a }, None)) },
        "s_not_b32" => u1(|a, _, _| some32(!a)),
        "s_not_b64" => w1(|a, _, _| some(!a)),
        "s_brev_b32" => u1(|a, _, _| (u64::from((a as u32).reverse_bits()), None)),
        "s_brev_b64" => w1(|a, _, _| (a.reverse_bits(), None)),
        "s_bcnt0_i32_b32" => u1(|a, _, _| some(u64::from((a as u32).count_zeros()))),
        "s_bcnt1_i32_b32" => u1(|a, _, _| some(u64::from((a as u32).count_ones()))),
        "s_bcnt0_i32_b64" => with(w1(|a, _, _| some(u64::from(a.count_zeros()))), Word, [Wide; 2]),
        "s_bcnt1_i32_b64" => with(w1(|a, _, _| some(u64::from(a.count_ones()))), Word, [Wide; 2]),
        "s_ff1_i32_b32" | "s_ctz_i32_b32" => u1(|a, _, _| (first_bit((a as u32).trailing_zeros(), 32), None)),
        "s_ff1_i32_b64" | "s_ctz_i32_b64" => {
            with(w1(|a, _, _| (first_bit(a.trailing_zeros(), 64), None)), Word, [Wide; 2])
        }
        "s_ff0_i32_b32" => u1(|a, _, _| (first_bit((!a as u32).trailing_zeros(), 32), None)),
        "s_ff0_i32_b64" => with(w1(|a, _, _| (first_bit((!a).trailing_zeros(), 64), None)), Word, [Wide; 2]),
        "s_flbit_i32_b32" | "s_clz_i32_u32" => {
            u1(|a, _, _| (first_bit((a as u32).leading_zeros(), 32), None))
        }
        "s_flbit_i32_b64" | "s_clz_i32_u64" => {
            with(w1(|a, _, _| (first_bit(a.leading_zeros(), 64), None)), Word, [Wide; 2])
        }
        "s_sext_i32_i8" => u1(|a, _, _| (a as u8 as i8 as u64, None)),
        "s_sext_i32_i16" => u1(|a, _, _| (h(a) as u64, None)),
        "s_abs_i32" => u1(|a, _, _| some32(s(a).unsigned_abs())),
        _ => return None,
    })
}

fn shift(name: &str) -> Option<Form> {
    const WIDE: [Width; 2] = [Wide, Word];
    Some(match name {
        "s_lshl_b32" => u2(|a, b, _| some32(a << (b & 31))),
        "s_lshr_b32" => u2(|a, b, _| some(a >> (b & 31))),
        "s_ashr_i32" => u2(|a, b, _| some32((s(a) >> (b & 31)) as u64)),
        "s_lshl_b64" => with(w2(|a, b, _| some(a << (b & 63))), Wide, WIDE),
        "s_lshr_b64" => with(w2(|a, b, _| some(a >> (b & 63))), Wide, WIDE),
        "s_ashr_i64" => with(w2(|a, b, _| some((a as i64 >> (b & 63)) as u64)), Wide, WIDE),
        "s_lshl1_add_u32" => u2(|a, b, _| ((a << 1) + b, Some((a << 1) + b > 0xffff_ffff))),
        "s_lshl2_add_u32" => u2(|a, b, _| ((a << 2) + b, Some((a << 2) + b > 0xffff_ffff))),
        "s_lshl3_add_u32" => u2(|a, b, _| ((a << 3) + b, Some((a << 3) + b > 0xffff_ffff))),
        "s_lshl4_add_u32" => u2(|a, b, _| ((a << 4) + b, Some((a << 4) + b > 0xffff_ffff))),
        "s_bfm_b32" => u2(|a, b, _| (((1 << (a & 31)) - 1) << (b & 31), None)),
        "s_bfm_b64" => with(u2(|a, b, _| (((1 << (a & 63)) - 1) << (b & 63), None)), Wide, [Word; 2]),
        "s_bfe_u32" => u2(|a, b, _| some32(field(a, b, 32))),
        "s_bfe_i32" => u2(|a, b, _| some32(signed_field(a, b, 32))),
        "s_bfe_u64" => with(w2(|a, b, _| some(field(a, b, 64))), Wide, WIDE),
        "s_bfe_i64" => with(w2(|a, b, _| some(signed_field(a, b, 64))), Wide, WIDE),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(name: &str, a: u64, b: u64, scc: bool) -> (u64, Option<bool>) {
        let form = form(name).unwrap();
        let (value, code) = (form.function)(a, b, scc);
        (value & form.result.mask(), code)
    }

    #[test]
    fn results_and_condition_codes() {
        assert_eq!(compute("s_add_u32", 0xffff_ffff, 1, false), (0, Some(true)));
        assert_eq!(compute("s_addc_u32", 0xffff_ffff, 0, true), (0, Some(true)));
        assert_eq!(compute("s_add_i32", 0x7fff_ffff, 1, false), (0x8000_0000, Some(true)));
        assert_eq!(compute("s_sub_u32", 0, 1, false), (0xffff_ffff, Some(true)));
        assert_eq!(compute("s_not_b32", 0xffff_ffff, 0, false), (0, Some(false)));
        assert_eq!(compute("s_bfe_u32", 0xabcd_0000, 0x0010_0010, false), (0xabcd, Some(true)));
        assert_eq!(compute("s_bfe_i32", 0x8000, 0x0001_000f, false), (0xffff_ffff, Some(true)));
        assert_eq!(compute("s_ff1_i32_b64", 0, 0, false).0, 0xffff_ffff);
        assert_eq!(compute("s_bcnt1_i32_b64", u64::MAX, 0, false), (64, Some(true)));
        assert_eq!(compute("s_movk_i32", 0x8000, 0, false).0, 0xffff_8000);
        assert!(form("s_frobnicate").is_none());
    }
}
