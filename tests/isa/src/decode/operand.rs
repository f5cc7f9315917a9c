// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands: registers and constants.

use super::listing::integer;
use crate::arch::Arch;

/// Number of `vcc_lo` among the scalar registers.
pub const VCC: u8 = 106;
/// Number of `ttmp0`.
pub const TTMP: u8 = 108;
/// Number of `m0`; architectures differ, but only its name is used.
pub const M0: u8 = 124;
/// Number of `exec_lo`.
pub const EXEC: u8 = 126;
/// First of the accumulation registers (`a0`) among the vector registers.
pub const ACCUMULATORS: u16 = 256;

/// A register or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// Scalar register, or the first of several.
    Scalar(u8),
    /// Vector register, or the first of several.
    Vector(u16),
    /// Constant.
    Constant(u64),
    /// Scalar condition code.
    Scc,
    /// Reads as zero, swallows what is written.
    Null,
}

/// Last word of the resource descriptor of scratch memory.
pub const SCRATCH_RESOURCE: u32 = 0x00e0_5c4a;
/// First address of the window through which flat addresses reach LDS.
pub const SHARED_WINDOW: u64 = 0x0001_0000 << 32;
/// First address of the window through which flat addresses reach scratch memory.
pub const PRIVATE_WINDOW: u64 = 0x0002_0000 << 32;

/// How many bits of an operand are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Wide,
}

impl Width {
    /// Registers that it takes.
    pub const fn registers(self) -> u16 {
        match self {
            Self::Half | Self::Word => 1,
            Self::Wide => 2,
        }
    }

    /// The bits that are used.
    pub const fn mask(self) -> u64 {
        match self {
            Self::Half => 0xffff,
            Self::Word => 0xffff_ffff,
            Self::Wide => u64::MAX,
        }
    }
}

/// Part of a register (SDWA).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// All of it.
    #[default]
    All,
    /// A byte, 0 to 3.
    Byte(u8),
    /// A half, 0 or 1.
    Half(u8),
}

impl Part {
    /// By its name in the listing.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "DWORD" => Self::All,
            "BYTE_0" => Self::Byte(0),
            "BYTE_1" => Self::Byte(1),
            "BYTE_2" => Self::Byte(2),
            "BYTE_3" => Self::Byte(3),
            "WORD_0" => Self::Half(0),
            "WORD_1" => Self::Half(1),
            _ => return None,
        })
    }

    /// First bit, and number of bits.
    pub const fn bits(self) -> (u32, u32) {
        match self {
            Self::All => (0, 32),
            Self::Byte(n) => (8 * n as u32, 8),
            Self::Half(n) => (16 * n as u32, 16),
        }
    }
}

/// An operand with what is done to it before it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Where from.
    pub operand: Operand,
    /// Which part.
    pub part: Part,
    /// The part is signed.
    pub signed: bool,
    /// Negated, as a floating-point number.
    pub negative: bool,
    /// Absolute, as a floating-point number.
    pub absolute: bool,
}

impl Source {
    /// The operand as it is.
    pub const fn plain(operand: Operand) -> Self {
        Self { operand, part: Part::All, signed: false, negative: false, absolute: false }
    }

    /// Reads an operand of the given width.
    pub fn parse(arch: Arch, text: &str, width: Width) -> Option<Self> {
        if let Some(inner) = enclosed(text, "sext(", ")") {
            return Some(Self { signed: true, ..Self::parse(arch, inner, width)? });
        }
        if let Some(inner) = enclosed(text, "neg(", ")") {
            return Some(Self { negative: true, ..Self::parse(arch, inner, width)? });
        }
        if let Some(inner) = enclosed(text, "|", "|").or_else(|| enclosed(text, "abs(", ")")) {
            return Some(Self { absolute: true, ..Self::parse(arch, inner, width)? });
        }
        match text.strip_prefix('-') {
            Some(inner) if !inner.starts_with(|c: char| c.is_ascii_digit()) => {
                return Some(Self { negative: true, ..Self::parse(arch, inner, width)? });
            }
            _ => {}
        }
        for (suffix, half) in [(".l", 0), (".h", 1)] {
            if let Some(inner) = text.strip_suffix(suffix) {
                return Some(Self { part: Part::Half(half), ..Self::parse(arch, inner, width)? });
            }
        }
        operand(arch, text, width).map(Self::plain)
    }
}

fn enclosed<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.strip_suffix(after)
}

/// Reads a register or a constant of the given width.
pub fn operand(arch: Arch, text: &str, width: Width) -> Option<Operand> {
    let text = enclosed(text, "lit(", ")").unwrap_or(text);
    if let Some(named) = special(arch, text, width) {
        return Some(named);
    }
    if let Some(rest) = text.strip_prefix("ttmp") {
        return Some(Operand::Scalar(TTMP + u8::try_from(first(rest)?).ok().filter(|n| *n < 16)?));
    }
    if let Some(value) = integer(text) {
        return Some(Operand::Constant(value as u64 & width.mask()));
    }
    if text.contains('.') {
        return text.parse().ok().map(|value| Operand::Constant(float(value, width)));
    }
    let number = first(text.get(1..)?)?;
    match text.chars().next()? {
        's' => Some(Operand::Scalar(u8::try_from(number).ok().filter(|n| *n < VCC)?)),
        'v' if number < 256 => Some(Operand::Vector(number)),
        'a' if number < 256 => Some(Operand::Vector(ACCUMULATORS + number)),
        _ => None,
    }
}

/// Number of a register, or of the first of a range in brackets.
fn first(text: &str) -> Option<u16> {
    match enclosed(text, "[", "]") {
        Some(range) => range.split(':').next()?.parse().ok(),
        None => text.parse().ok(),
    }
}

fn special(arch: Arch, text: &str, width: Width) -> Option<Operand> {
    Some(match text {
        "vcc" | "vcc_lo" => Operand::Scalar(VCC),
        "vcc_hi" => Operand::Scalar(VCC + 1),
        "exec" | "exec_lo" => Operand::Scalar(EXEC),
        "exec_hi" => Operand::Scalar(EXEC + 1),
        "m0" => Operand::Scalar(M0),
        "flat_scratch" | "flat_scratch_lo" if arch == Arch::Gfx90a => Operand::Scalar(102),
        "flat_scratch_hi" if arch == Arch::Gfx90a => Operand::Scalar(103),
        "src_scc" | "scc" => Operand::Scc,
        "null" | "off" => Operand::Null,
        // Only their upper halves mean something, and only reads of both halves give those.
        "src_shared_base" if width == Width::Wide => Operand::Constant(SHARED_WINDOW),
        "src_private_base" if width == Width::Wide => Operand::Constant(PRIVATE_WINDOW),
        _ => return None,
    })
}

/// Bits of a floating-point constant.
fn float(value: f64, width: Width) -> u64 {
    match width {
        Width::Wide => value.to_bits(),
        Width::Word => (value as f32).to_bits().into(),
        // All constants of this kind are normal numbers of few bits.
        Width::Half => {
            let bits = (value as f32).to_bits();
            let exponent = (bits >> 23 & 0xff).wrapping_sub(112);
            (bits >> 16 & 0x8000 | exponent << 10 & 0x7c00 | bits >> 13 & 0x3ff).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Option<Operand> {
        operand(Arch::Gfx90a, text, Width::Word)
    }

    #[test]
    fn registers_and_constants() {
        assert_eq!(word("s[22:23]"), Some(Operand::Scalar(22)));
        assert_eq!((word("v7"), word("a3")), (Some(Operand::Vector(7)), Some(Operand::Vector(259))));
        assert_eq!((word("vcc"), word("ttmp9")), (Some(Operand::Scalar(106)), Some(Operand::Scalar(117))));
        assert_eq!(word("-1"), Some(Operand::Constant(0xffff_ffff)));
        assert_eq!(word("lit(0xffffffff)"), Some(Operand::Constant(0xffff_ffff)));
        assert_eq!(operand(Arch::Gfx90a, "-1", Width::Wide), Some(Operand::Constant(u64::MAX)));
        assert_eq!(word("-4.0"), Some(Operand::Constant(0xc080_0000)));
        assert_eq!(operand(Arch::Gfx942, "0.5", Width::Half), Some(Operand::Constant(0x3800)));
        assert!(["s200", "v256", "x3", "", "s", "flat"].iter().all(|text| word(text).is_none()));
        assert_eq!(operand(Arch::Gfx942, "flat_scratch", Width::Wide), None);
    }

    #[test]
    fn what_is_done_to_an_operand() {
        let parse = |text| Source::parse(Arch::Gfx1100, text, Width::Word).unwrap();
        assert!(parse("-v1").negative && parse("|v1|").absolute && parse("sext(v2)").signed);
        assert_eq!(parse("-|v1|").operand, Operand::Vector(1));
        assert_eq!(parse("v13.h").part, Part::Half(1));
        assert!(!parse("-16").negative);
    }
}
