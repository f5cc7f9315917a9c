// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading vector instructions.

use super::compare::{compare, Compare};
use super::lanes::{lanes, Lanes};
use super::listing::{integer, Fields};
use super::operand::{Operand, Part, Source, Width, VCC};
use super::reader::Reader;
use super::vector_table::{form, Form};
use crate::arch::Arch;

/// A vector instruction.
#[derive(Clone, Debug)]
pub struct Vector {
    /// What it does.
    pub kind: Kind,
    /// Where the result goes.
    pub to: Operand,
    /// Part of the destination that is written.
    pub part: Part,
    /// What becomes of the rest of the destination.
    pub rest: Rest,
    /// Operands; unused ones are zero.
    pub from: [Source; 3],
    /// Keeps to the range of the type.
    pub clamp: bool,
    /// Other lanes that the first operand comes from.
    pub lanes: Option<Lanes>,
}

/// What becomes of the rest of a destination of which a part is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Zeros.
    Zero,
    /// The sign of the part.
    Sign,
    /// It stays.
    Keep,
}

/// What a vector instruction does.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Computes on each lane alone.
    Form(Form),
    /// Adds or subtracts with carry: result and carry of two operands and carry.
    Carry {
        /// The function.
        function: fn(u64, u64, bool) -> (u64, bool),
        /// Where the carries of all lanes go.
        out: Operand,
        /// Where the carries of all lanes come from.
        carry: Option<Operand>,
    },
    /// Multiplies to 64 bits and adds.
    Multiply {
        /// Signed.
        signed: bool,
        /// Where the carries of all lanes go.
        out: Operand,
    },
    /// Compares; lanes where it holds are ones.
    Compare {
        /// The comparison.
        compare: Compare,
        /// Sets the execution mask.
        exec: bool,
    },
    /// Chooses between two operands by a mask.
    Select {
        /// The mask.
        mask: Operand,
    },
    /// Any function of three bits, on each bit.
    Bitwise {
        /// Its truth table.
        table: u8,
        /// Width of the operands and of the result.
        width: Width,
    },
    /// Counts the ones of a mask below the lane.
    CountBelow {
        /// In the upper half of the mask.
        high: bool,
    },
    /// The first active lane's value, as a scalar.
    ReadFirst,
    /// A lane's value, as a scalar.
    ReadLane,
    /// Writes a scalar into a lane.
    WriteLane,
    /// Exchanges two registers.
    Swap,
    /// Two words, each chosen from the two of an operand.
    MovePair {
        /// Word of each operand.
        select: [u8; 2],
    },
    /// Works on both halves of words.
    Packed {
        /// On each half.
        form: Form,
        /// Half of each operand for the lower result.
        low: [u8; 3],
        /// Half of each operand for the upper result.
        high: [u8; 3],
    },
    /// Lanes of the other row's same place (`v_permlanex16_b32`), or of the own row.
    PermuteRow {
        /// The other row of the pair.
        other: bool,
    },
}

fn add(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let sum = a + b + u64::from(carry);
    (sum, sum > 0xffff_ffff)
}

fn sub(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let b = b + u64::from(carry);
    (a.wrapping_sub(b), b > a)
}

fn subrev(a: u64, b: u64, carry: bool) -> (u64, bool) {
    sub(b, a, carry)
}

/// Reads a vector instruction; `Ok(None)` when there is none of that name.
pub fn vector(arch: Arch, mnemonic: &str, fields: &Fields) -> Result<Option<Vector>, String> {
    let reader = Reader { arch, fields };
    let name = ["_e32", "_e64", "_sdwa", "_dpp", "_dpp8"]
        .iter()
        .fold(mnemonic, |name, suffix| name.strip_suffix(suffix).unwrap_or(name));
    reader.read(name)
}

/// Reads a pair of instructions that are carried out at once.
pub fn dual(arch: Arch, name: &str, rest: &str) -> Result<Option<Vector>, String> {
    let Some(name) = name.strip_prefix("v_dual_") else { return Ok(None) };
    let fields = Fields::new(rest);
    Reader { arch, fields: &fields }.read(&format!("v_{name}"))
}

/// Where the operands are.
struct Shape {
    /// Number of the first one; 0 when there is no destination.
    first: usize,
    count: usize,
    widths: [Width; 3],
}

impl Shape {
    const fn words(first: usize, count: usize) -> Self {
        Self { first, count, widths: [Width::Word; 3] }
    }
}

impl Reader<'_> {
    fn source(&self, n: usize, width: Width) -> Result<Source, String> {
        let text = self.text(n)?;
        Source::parse(self.arch, text, width).ok_or_else(|| format!("unknown operand {text}"))
    }

    /// A mask of lanes.
    fn mask(&self, n: usize) -> Result<Operand, String> {
        self.operand(n, Width::Wide)
    }

    fn read(&self, name: &str) -> Result<Option<Vector>, String> {
        let Some((kind, shape)) = self.kind(name)? else { return Ok(None) };
        let to = if shape.first == 0 { Source::plain(Operand::Null) } else { self.source(0, Width::Word)? };
        let mut from = [Source::plain(Operand::Constant(0)); 3];
        for (n, (source, width)) in from.iter_mut().zip(shape.widths).enumerate().take(shape.count) {
            *source = self.source(shape.first + n, width)?;
        }
        if let Kind::Form(Form { accumulates: true, .. }) = kind {
            from[2] = to;
        }
        let half = matches!(
            kind,
            Kind::Form(Form { result: Width::Half, .. }) | Kind::Bitwise { width: Width::Half, .. }
        );
        let part = match to.part {
            Part::All if half => Part::Half(0),
            part => part,
        };
        // RDNA keeps the other half of a register, CDNA clears it, except with the younger instructions.
        let keeps = !self.arch.is_cdna() || matches!(name, "v_mad_u16" | "v_bitop3_b16");
        let rest = if half && keeps { Rest::Keep } else { Rest::Zero };
        let (clamp, lanes) = (self.fields.has("clamp"), lanes(self.fields)?);
        let mut vector = Vector { kind, to: to.operand, part, rest, from, clamp, lanes };
        self.modify(&mut vector)?;
        Ok(Some(vector))
    }

    /// What it does, and its operands.
    fn kind(&self, name: &str) -> Result<Option<(Kind, Shape)>, String> {
        let count = self.fields.operands.len();
        let carry = |function, with: bool| {
            let carry = if with { Some(self.mask(4)?) } else { None };
            Ok::<_, String>((Kind::Carry { function, out: self.mask(1)?, carry }, Shape::words(2, 2)))
        };
        let found = match name {
            "v_add_co_u32" => carry(add, false)?,
            "v_sub_co_u32" => carry(sub, false)?,
            "v_subrev_co_u32" => carry(subrev, false)?,
            "v_addc_co_u32" | "v_add_co_ci_u32" => carry(add, true)?,
            "v_subb_co_u32" | "v_sub_co_ci_u32" => carry(sub, true)?,
            "v_subbrev_co_u32" | "v_subrev_co_ci_u32" => carry(subrev, true)?,
            "v_mad_u64_u32" | "v_mad_co_u64_u32" | "v_mad_i64_i32" | "v_mad_co_i64_i32" => {
                let kind = Kind::Multiply { signed: name.ends_with("i32"), out: self.mask(1)? };
                (kind, Shape { first: 2, count: 3, widths: [Width::Word, Width::Word, Width::Wide] })
            }
            "v_cndmask_b32" => {
                let mask = if count > 3 { self.mask(3)? } else { Operand::Scalar(VCC) };
                (Kind::Select { mask }, Shape::words(1, 2))
            }
            "v_bitop3_b32" | "v_bitop3_b16" => {
                let table =
                    self.fields.value("bitop3").map_or(Some(0), integer).ok_or("unknown bitop3")? as u8;
                let width = if name.ends_with("b16") { Width::Half } else { Width::Word };
                (Kind::Bitwise { table, width }, Shape { first: 1, count: 3, widths: [width; 3] })
            }
            "v_mbcnt_lo_u32_b32" => (Kind::CountBelow { high: false }, Shape::words(1, 2)),
            "v_mbcnt_hi_u32_b32" => (Kind::CountBelow { high: true }, Shape::words(1, 2)),
            "v_readfirstlane_b32" => (Kind::ReadFirst, Shape::words(1, 1)),
            "v_readlane_b32" => (Kind::ReadLane, Shape::words(1, 2)),
            "v_writelane_b32" => (Kind::WriteLane, Shape::words(1, 2)),
            "v_swap_b32" => (Kind::Swap, Shape::words(1, 1)),
            "v_permlane16_b32" => (Kind::PermuteRow { other: false }, Shape::words(1, 3)),
            "v_permlanex16_b32" => (Kind::PermuteRow { other: true }, Shape::words(1, 3)),
            "v_pk_mov_b32" => {
                let select = self.fields.numbers("op_sel")?.unwrap_or_default();
                (Kind::MovePair { select }, Shape { first: 1, count: 2, widths: [Width::Wide; 3] })
            }
            _ => return self.regular(name),
        };
        Ok(Some(found))
    }

    /// Instructions of the tables.
    fn regular(&self, name: &str) -> Result<Option<(Kind, Shape)>, String> {
        if let Some(compared) = name.strip_prefix("v_cmp_").and_then(compare) {
            let shape = Shape { first: 1, count: 2, widths: [compared.width; 3] };
            return Ok(Some((Kind::Compare { compare: compared, exec: false }, shape)));
        }
        if let Some(compared) = name.strip_prefix("v_cmpx_").and_then(compare) {
            // CDNA writes a mask besides.
            let first = usize::from(self.arch.is_cdna());
            let shape = Shape { first, count: 2, widths: [compared.width; 3] };
            return Ok(Some((Kind::Compare { compare: compared, exec: true }, shape)));
        }
        if let Some(form) = packed(name) {
            let low = self.fields.numbers("op_sel")?.unwrap_or_default();
            let high = self.fields.numbers("op_sel_hi")?.unwrap_or([1; 3]);
            return Ok(Some((Kind::Packed { form, low, high }, Shape::words(1, form.sources))));
        }
        Ok(form(name).map(|form| {
            // The destination that is read as well is not written twice.
            let count = form.sources - usize::from(form.accumulates);
            (Kind::Form(form), Shape { first: 1, count, widths: form.widths })
        }))
    }

    /// Applies modifiers, and refuses those that are not known.
    fn modify(&self, vector: &mut Vector) -> Result<(), String> {
        let packed = matches!(vector.kind, Kind::Packed { .. } | Kind::MovePair { .. });
        for modifier in &self.fields.modifiers {
            let unknown = || format!("unknown modifier {modifier}");
            let (name, value) = modifier.split_once(':').unwrap_or((modifier, ""));
            match name {
                "src0_sel" => vector.from[0].part = Part::parse(value).ok_or_else(unknown)?,
                "src1_sel" => vector.from[1].part = Part::parse(value).ok_or_else(unknown)?,
                "dst_sel" => vector.part = Part::parse(value).ok_or_else(unknown)?,
                "dst_unused" => {
                    vector.rest = match value {
                        "UNUSED_PAD" => Rest::Zero,
                        "UNUSED_SEXT" => Rest::Sign,
                        "UNUSED_PRESERVE" => Rest::Keep,
                        _ => return Err(unknown()),
                    }
                }
                "op_sel" if !packed => self.op_sel(vector)?,
                "clamp" => {
                    let known = matches!(&vector.kind, Kind::Form(form) if form.clamped.is_some());
                    if !known {
                        return Err(unknown());
                    }
                }
                "op_sel" | "op_sel_hi" | "bitop3" | "quad_perm" | "dpp8" | "row_mask" | "bank_mask"
                | "bound_ctrl" | "fi" => {}
                _ if name.starts_with("row_") => {}
                _ => return Err(unknown()),
            }
        }
        Ok(())
    }

    /// Halves of the operands, and of the destination behind them.
    fn op_sel(&self, vector: &mut Vector) -> Result<(), String> {
        let Kind::Form(form) = &vector.kind else {
            return Err("op_sel of an instruction without halves".into());
        };
        let halves: [u8; 4] = self.fields.numbers("op_sel")?.unwrap_or_default();
        for (n, (source, half)) in vector.from.iter_mut().zip(halves).enumerate().take(form.sources) {
            if form.widths.get(n) == Some(&Width::Half) {
                source.part = Part::Half(half);
            } else if half != 0 {
                return Err("op_sel of a whole operand".into());
            }
        }
        if form.result == Width::Half {
            let half = halves.get(form.sources).copied().unwrap_or_default();
            vector.part = Part::Half(half);
            vector.rest = Rest::Keep;
        }
        Ok(())
    }
}

/// Instructions that work on both halves of words.
fn packed(name: &str) -> Option<Form> {
    let single = match name {
        "v_pk_add_u16" | "v_pk_add_i16" => "v_add_u16",
        "v_pk_sub_u16" | "v_pk_sub_i16" => "v_sub_u16",
        "v_pk_mul_lo_u16" => "v_mul_lo_u16",
        "v_pk_mad_u16" | "v_pk_mad_i16" => "v_mad_u16",
        "v_pk_lshlrev_b16" => "v_lshlrev_b16",
        "v_pk_lshrrev_b16" => "v_lshrrev_b16",
        "v_pk_ashrrev_i16" => "v_ashrrev_i16",
        "v_pk_min_u16" => "v_min_u16",
        "v_pk_max_u16" => "v_max_u16",
        "v_pk_min_i16" => "v_min_i16",
        "v_pk_max_i16" => "v_max_i16",
        _ => return None,
    };
    form(single)
}
