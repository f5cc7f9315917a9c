// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the vector instructions compute that work on each lane alone.

use super::operand::Width;

/// Computes a result of up to three operands.
pub type Function = fn(u64, u64, u64) -> u64;

/// What an instruction computes, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The function; its result is cut to the width of the destination.
    pub function: Function,
    /// What it computes with `clamp`, if that is known.
    pub clamped: Option<Function>,
    /// Operands.
    pub sources: usize,
    /// Widths of the operands.
    pub widths: [Width; 3],
    /// Width of the destination.
    pub result: Width,
    /// The destination is also the last operand.
    pub accumulates: bool,
}

impl Form {
    const fn new(sources: usize, function: Function) -> Self {
        Self {
            function,
            clamped: None,
            sources,
            widths: [Width::Word; 3],
            result: Width::Word,
            accumulates: false,
        }
    }

    const fn widths(self, result: Width, widths: [Width; 3]) -> Self {
        Self { result, widths, ..self }
    }

    const fn clamped(self, function: Function) -> Self {
        Self { clamped: Some(function), ..self }
    }

    const fn halves(self) -> Self {
        self.widths(Half, [Half; 3])
    }
}

use Width::{Half, Wide, Word};

const fn un(function: Function) -> Form {
    Form::new(1, function)
}

const fn bin(function: Function) -> Form {
    Form::new(2, function)
}

const fn tri(function: Function) -> Form {
    Form::new(3, function)
}

/// Signed 32-bit value.
const fn s(a: u64) -> i64 {
    a as u32 as i32 as i64
}

/// Signed 16-bit value.
const fn h(a: u64) -> i64 {
    a as u16 as i16 as i64
}

/// Signed 24-bit value.
const fn s24(a: u64) -> i64 {
    ((a as i64) << 40) >> 40
}

/// Low 24 bits.
const fn u24(a: u64) -> u64 {
    a & 0xff_ffff
}

/// 32 bits as a number.
const fn f(a: u64) -> f32 {
    f32::from_bits(a as u32)
}

const fn bits(value: f32) -> u64 {
    value.to_bits() as u64
}

/// 64 bits as a number.
const fn d(a: u64) -> f64 {
    f64::from_bits(a)
}

/// Median of three.
fn median<T: Ord>(a: T, b: T, c: T) -> T {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    low.max(high.min(c))
}

/// Bytes of two registers, chosen by the selector's bytes.
fn permute(high: u64, low: u64, selector: u64) -> u64 {
    let both = high << 32 | low & 0xffff_ffff;
    let byte = |n: u64| match selector >> (8 * n) & 0xff {
        at @ 0..=7 => both >> (8 * at) & 0xff,
        // Sign of a half.
        at @ 8..=11 => (both >> (16 * (at - 8) + 15) & 1) * 0xff,
        0x0c => 0,
        _ => 0xff,
    };
    (0..4).fold(0, |all, n| all | byte(n) << (8 * n))
}

/// What an instruction computes; the name comes without the suffix of its encoding.
pub fn form(name: &str) -> Option<Form> {
    integer(name).or_else(|| shift(name)).or_else(|| bit(name)).or_else(|| half(name)).or_else(|| float(name))
}

fn integer(name: &str) -> Option<Form> {
    Some(match name {
        "v_add_u32" | "v_add_nc_u32" => bin(|a, b, _| a + b).clamped(|a, b, _| (a + b).min(0xffff_ffff)),
        "v_sub_u32" | "v_sub_nc_u32" => {
            bin(|a, b, _| a.wrapping_sub(b)).clamped(|a, b, _| a.saturating_sub(b))
        }
        "v_subrev_u32" | "v_subrev_nc_u32" => {
            bin(|a, b, _| b.wrapping_sub(a)).clamped(|a, b, _| b.saturating_sub(a))
        }
        "v_add_i32" | "v_add_nc_i32" => bin(|a, b, _| a.wrapping_add(b)),
        "v_sub_i32" | "v_sub_nc_i32" => bin(|a, b, _| a.wrapping_sub(b)),
        "v_add3_u32" => tri(|a, b, c| a + b + c),
        "v_lshl_add_u32" => tri(|a, b, c| (a << (b & 31)) + c),
        "v_add_lshl_u32" => tri(|a, b, c| (a + b) << (c & 31)),
        "v_lshl_add_u64" => tri(|a, b, c| (a << (b & 7)).wrapping_add(c)).widths(Wide, [Wide, Word, Wide]),
        "v_mul_lo_u32" | "v_mul_lo_i32" => bin(|a, b, _| a.wrapping_mul(b)),
        "v_mul_hi_u32" => bin(|a, b, _| (a * b) >> 32),
        "v_mul_hi_i32" => bin(|a, b, _| ((s(a) * s(b)) >> 32) as u64),
        "v_mul_u32_u24" => bin(|a, b, _| u24(a) * u24(b)),
        "v_mul_hi_u32_u24" => bin(|a, b, _| (u24(a) * u24(b)) >> 32),
        "v_mul_i32_i24" => bin(|a, b, _| (s24(a) * s24(b)) as u64),
        "v_mul_hi_i32_i24" => bin(|a, b, _| ((s24(a) * s24(b)) >> 32) as u64),
        "v_mad_u32_u24" => tri(|a, b, c| u24(a) * u24(b) + c),
        "v_mad_i32_i24" => tri(|a, b, c| (s24(a) * s24(b) + s(c)) as u64),
        "v_mad_u32_u16" => tri(|a, b, c| a * b + c).widths(Word, [Half, Half, Word]),
        "v_mad_i32_i16" => tri(|a, b, c| (h(a) * h(b) + s(c)) as u64).widths(Word, [Half, Half, Word]),
        "v_min_u32" => bin(|a, b, _| a.min(b)),
        "v_max_u32" => bin(|a, b, _| a.max(b)),
        "v_min_i32" => bin(|a, b, _| s(a).min(s(b)) as u64),
        "v_max_i32" => bin(|a, b, _| s(a).max(s(b)) as u64),
        "v_min3_u32" => tri(|a, b, c| a.min(b).min(c)),
        "v_max3_u32" => tri(|a, b, c| a.max(b).max(c)),
        "v_med3_u32" => tri(median),
        "v_min3_i32" => tri(|a, b, c| s(a).min(s(b)).min(s(c)) as u64),
        "v_max3_i32" => tri(|a, b, c| s(a).max(s(b)).max(s(c)) as u64),
        "v_med3_i32" => tri(|a, b, c| median(s(a), s(b), s(c)) as u64),
        "v_maxmin_u32" => tri(|a, b, c| a.max(b).min(c)),
        "v_minmax_u32" => tri(|a, b, c| a.min(b).max(c)),
        "v_maxmin_i32" => tri(|a, b, c| s(a).max(s(b)).min(s(c)) as u64),
        "v_minmax_i32" => tri(|a, b, c| s(a).min(s(b)).max(s(c)) as u64),
        "v_sad_u32" => tri(|a, b, c| a.abs_diff(b) + c),
        _ => return None,
    })
}

fn shift(name: &str) -> Option<Form> {
    Some(match name {
        "v_lshlrev_b32" => bin(|a, b, _| b << (a & 31)),
        "v_lshrrev_b32" => bin(|a, b, _| b >> (a & 31)),
        "v_ashrrev_i32" => bin(|a, b, _| (s(b) >> (a & 31)) as u64),
        "v_lshlrev_b64" => bin(|a, b, _| b << (a & 63)).widths(Wide, [Word, Wide, Wide]),
        "v_lshrrev_b64" => bin(|a, b, _| b >> (a & 63)).widths(Wide, [Word, Wide, Wide]),
        "v_ashrrev_i64" => bin(|a, b, _| (b as i64 >> (a & 63)) as u64).widths(Wide, [Word, Wide, Wide]),
        "v_lshl_or_b32" => tri(|a, b, c| a << (b & 31) | c),
        "v_alignbit_b32" => tri(|a, b, c| (a << 32 | b) >> (c & 31)),
        "v_alignbyte_b32" => tri(|a, b, c| (a << 32 | b) >> (8 * (c & 3))),
        "v_bfe_u32" => tri(|a, b, c| a >> (b & 31) & ((1 << (c & 31)) - 1)),
        "v_bfe_i32" => tri(|a, b, c| match c & 31 {
            0 => 0,
            len => {
                let value = a >> (b & 31) & ((1 << len) - 1);
                ((value << (64 - len)) as i64 >> (64 - len)) as u64
            }
        }),
        "v_bfm_b32" => bin(|a, b, _| ((1 << (a & 31)) - 1) << (b & 31)),
        _ => return None,
    })
}

fn bit(name: &str) -> Option<Form> {
    Some(match name {
        "v_mov_b32"
        | "v_accvgpr_write_b32"
        | "v_accvgpr_read_b32"
        | "v_accvgpr_mov_b32"
        | "v_accvgpr_read"
        | "v_accvgpr_write" => un(|a, _, _| a),
        "v_mov_b64" => un(|a, _, _| a).widths(Wide, [Wide; 3]),
        "v_not_b32" => un(|a, _, _| !a),
        "v_bfrev_b32" => un(|a, _, _| u64::from((a as u32).reverse_bits())),
        "v_ffbh_u32" | "v_clz_i32_u32" => un(|a, _, _| match a as u32 {
            0 => u64::MAX,
            a => a.leading_zeros().into(),
        }),
        "v_ffbl_b32" | "v_ctz_i32_b32" => un(|a, _, _| match a as u32 {
            0 => u64::MAX,
            a => a.trailing_zeros().into(),
        }),
        "v_ffbh_i32" | "v_cls_i32" => un(|a, _, _| match a as i32 {
            0 | -1 => u64::MAX,
            a => (a ^ (a >> 31)).leading_zeros().into(),
        }),
        "v_bcnt_u32_b32" => bin(|a, b, _| u64::from((a as u32).count_ones()) + b),
        "v_and_b32" => bin(|a, b, _| a & b),
        "v_or_b32" => bin(|a, b, _| a | b),
        "v_xor_b32" => bin(|a, b, _| a ^ b),
        "v_xnor_b32" => bin(|a, b, _| !(a ^ b)),
        "v_and_or_b32" => tri(|a, b, c| a & b | c),
        "v_or3_b32" => tri(|a, b, c| a | b | c),
        "v_xor3_b32" => tri(|a, b, c| a ^ b ^ c),
        "v_xad_u32" => tri(|a, b, c| (a ^ b) + c),
        "v_bfi_b32" => tri(|a, b, c| a & b | !a & c),
        "v_perm_b32" => tri(permute),
        _ => return None,
    })
}

fn half(name: &str) -> Option<Form> {
    Some(
        match name {
            "v_mov_b16" => un(|a, _, _| a),
            "v_not_b16" => un(|a, _, _| !a),
            "v_add_u16" | "v_add_nc_u16" => bin(|a, b, _| a + b).clamped(|a, b, _| (a + b).min(0xffff)),
            "v_sub_u16" | "v_sub_nc_u16" => {
                bin(|a, b, _| a.wrapping_sub(b)).clamped(|a, b, _| a.saturating_sub(b))
            }
            "v_subrev_u16" => bin(|a, b, _| b.wrapping_sub(a)),
            "v_add_i16" | "v_add_nc_i16" => bin(|a, b, _| a + b),
            "v_sub_i16" | "v_sub_nc_i16" => bin(|a, b, _| a.wrapping_sub(b)),
            "v_mul_lo_u16" => bin(|a, b, _| a * b),
            "v_mad_u16" | "v_mad_legacy_u16" => tri(|a, b, c| a * b + c),
            "v_lshlrev_b16" => bin(|a, b, _| b << (a & 15)),
            "v_lshrrev_b16" => bin(|a, b, _| b >> (a & 15)),
            "v_ashrrev_i16" => bin(|a, b, _| (h(b) >> (a & 15)) as u64),
            "v_and_b16" => bin(|a, b, _| a & b),
            "v_or_b16" => bin(|a, b, _| a | b),
            "v_xor_b16" => bin(|a, b, _| a ^ b),
            "v_min_u16" => bin(|a, b, _| a.min(b)),
            "v_max_u16" => bin(|a, b, _| a.max(b)),
            "v_min_i16" => bin(|a, b, _| h(a).min(h(b)) as u64),
            "v_max_i16" => bin(|a, b, _| h(a).max(h(b)) as u64),
            "v_pack_b32_f16" => {
                return Some(bin(|a, b, _| a | b << 16).widths(Word, [Half; 3]));
            }
            "v_cvt_u32_u16" => return Some(un(|a, _, _| a).widths(Word, [Half; 3])),
            "v_cvt_i32_i16" => return Some(un(|a, _, _| h(a) as u64).widths(Word, [Half; 3])),
            _ => return None,
        }
        .halves(),
    )
}

fn float(name: &str) -> Option<Form> {
    let wide = |form: Form| form.widths(Wide, [Wide; 3]);
    Some(match name {
        "v_add_f32" => bin(|a, b, _| bits(f(a) + f(b))),
        "v_sub_f32" => bin(|a, b, _| bits(f(a) - f(b))),
        "v_subrev_f32" => bin(|a, b, _| bits(f(b) - f(a))),
        "v_mul_f32" => bin(|a, b, _| bits(f(a) * f(b))),
        "v_min_f32" | "v_min_num_f32" => bin(|a, b, _| bits(f(a).min(f(b)))),
        "v_max_f32" | "v_max_num_f32" => bin(|a, b, _| bits(f(a).max(f(b)))),
        "v_fma_f32" => tri(|a, b, c| bits(f(a).mul_add(f(b), f(c)))),
        "v_fmac_f32" => Form { accumulates: true, ..tri(|a, b, c| bits(f(a).mul_add(f(b), f(c)))) },
        "v_mac_f32" => Form { accumulates: true, ..tri(|a, b, c| bits(f(a) * f(b) + f(c))) },
        // The constant stands in the middle of the one and at the end of the other.
        "v_fmamk_f32" => tri(|a, b, c| bits(f(a).mul_add(f(b), f(c)))),
        "v_fmaak_f32" => tri(|a, b, c| bits(f(a).mul_add(f(b), f(c)))),
        "v_mad_f32" | "v_madmk_f32" | "v_madak_f32" => tri(|a, b, c| bits(f(a) * f(b) + f(c))),
        "v_rcp_f32" | "v_rcp_iflag_f32" => un(|a, _, _| bits(1.0 / f(a))),
        "v_trunc_f32" => un(|a, _, _| bits(f(a).trunc())),
        "v_floor_f32" => un(|a, _, _| bits(f(a).floor())),
        "v_ceil_f32" => un(|a, _, _| bits(f(a).ceil())),
        "v_rndne_f32" => un(|a, _, _| bits(f(a).round_ties_even())),
        "v_cvt_f32_u32" => un(|a, _, _| bits(a as u32 as f32)),
        "v_cvt_f32_i32" => un(|a, _, _| bits(s(a) as f32)),
        "v_cvt_u32_f32" => un(|a, _, _| u64::from(f(a) as u32)),
        "v_cvt_i32_f32" => un(|a, _, _| f(a) as i32 as u64),
        "v_cvt_f32_ubyte0" => un(|a, _, _| bits((a & 0xff) as f32)),
        "v_cvt_f32_ubyte1" => un(|a, _, _| bits((a >> 8 & 0xff) as f32)),
        "v_cvt_f32_ubyte2" => un(|a, _, _| bits((a >> 16 & 0xff) as f32)),
        "v_cvt_f32_ubyte3" => un(|a, _, _| bits((a >> 24 & 0xff) as f32)),
        "v_cvt_f64_u32" => un(|a, _, _| f64::from(a as u32).to_bits()).widths(Wide, [Word; 3]),
        "v_cvt_f64_i32" => un(|a, _, _| f64::from(a as i32).to_bits()).widths(Wide, [Word; 3]),
        "v_cvt_u32_f64" => un(|a, _, _| u64::from(d(a) as u32)).widths(Word, [Wide; 3]),
        "v_cvt_i32_f64" => un(|a, _, _| d(a) as i32 as u64).widths(Word, [Wide; 3]),
        "v_add_f64" => wide(bin(|a, b, _| (d(a) + d(b)).to_bits())),
        "v_mul_f64" => wide(bin(|a, b, _| (d(a) * d(b)).to_bits())),
        "v_fma_f64" => wide(tri(|a, b, c| d(a).mul_add(d(b), d(c)).to_bits())),
        "v_rcp_f64" => wide(un(|a, _, _| (1.0 / d(a)).to_bits())),
        "v_trunc_f64" => wide(un(|a, _, _| d(a).trunc().to_bits())),
        "v_floor_f64" => wide(un(|a, _, _| d(a).floor().to_bits())),
        "v_ldexp_f64" => {
            bin(|a, b, _| (d(a) * f64::from(b as i32).exp2()).to_bits()).widths(Wide, [Wide, Word, Word])
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(name: &str, a: u64, b: u64, c: u64) -> u64 {
        let form = form(name).unwrap();
        (form.function)(a, b, c) & form.result.mask()
    }

    #[test]
    fn bits_and_bytes() {
        assert_eq!(compute("v_bfe_u32", 0xabcd_1234, 8, 8), 0x12);
        assert_eq!(compute("v_bfe_i32", 0x0000_8000, 8, 8), 0xffff_ff80);
        assert_eq!(compute("v_bfe_i32", 1, 0, 0), 0);
        assert_eq!(compute("v_alignbit_b32", 0x1122_3344, 0x5566_7788, 8), 0x4455_6677);
        assert_eq!(compute("v_perm_b32", 0x1122_3344, 0x8566_7788, 0x0c0d_0903), 0x00ff_ff85);
        assert_eq!(compute("v_ffbh_u32", 0, 0, 0), 0xffff_ffff);
        assert_eq!((compute("v_ffbh_u32", 1, 0, 0), compute("v_ffbl_b32", 8, 0, 0)), (31, 3));
        assert_eq!(compute("v_med3_i32", 5, 0xffff_fffe, 3), 3);
    }

    #[test]
    fn numbers_wrap_or_clamp() {
        assert_eq!(compute("v_sub_u32", 0, 1, 0), 0xffff_ffff);
        let clamped = form("v_sub_u32").unwrap().clamped.unwrap();
        assert_eq!(clamped(0, 1, 0), 0);
        assert_eq!(compute("v_mul_hi_u32", 0xffff_ffff, 0xffff_ffff, 0), 0xffff_fffe);
        assert_eq!(compute("v_mul_i32_i24", 0x00ff_ffff, 2, 0), 0xffff_fffe);
        assert_eq!(compute("v_ashrrev_i32", 4, 0x8000_0000, 0), 0xf800_0000);
        assert_eq!(compute("v_cvt_u32_f32", bits(-1.0), 0, 0), 0);
        assert!(form("v_frobnicate_b32").is_none());
    }
}
