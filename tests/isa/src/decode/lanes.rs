// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading patterns of lanes (DPP).

use super::listing::{integer, Fields};

/// Lanes that an operand comes from (DPP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Which.
    pub pattern: Pattern,
    /// Rows that are written.
    pub rows: u8,
    /// Banks of four lanes that are written.
    pub banks: u8,
    /// Lanes without a source get zero, instead of being left alone.
    pub zero: bool,
    /// Lanes that are not active can be sources.
    pub inactive: bool,
}

/// A pattern of lanes. Rows have 16 lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Of each four.
    Quad([u8; 4]),
    /// Of each eight.
    Eight([u8; 8]),
    /// So many lanes further up in the row.
    Shift(i8),
    /// Around in the row, downwards.
    Rotate(u8),
    /// Row backwards.
    Mirror,
    /// Half row backwards.
    HalfMirror,
    /// One lane of the row for all.
    Share(u8),
    /// Lane number exclusive or.
    Exclusive(u8),
    /// Last lane of the row before.
    LastOfRow,
    /// Last lane of the first half, for the second half.
    LastOfHalf,
}

/// Reads the lanes that the first operand comes from, if they are others.
pub fn lanes(fields: &Fields) -> Result<Option<Lanes>, String> {
    let number = |name| fields.value(name).and_then(integer).map(|n| n as u8);
    let pattern = if let Some(quad) = fields.numbers("quad_perm")? {
        Pattern::Quad(quad)
    } else if let Some(eight) = fields.numbers("dpp8")? {
        Pattern::Eight(eight)
    } else if let Some(n) = number("row_shl") {
        Pattern::Shift(n as i8)
    } else if let Some(n) = number("row_shr") {
        Pattern::Shift(-(n as i8))
    } else if let Some(n) = number("row_ror") {
        Pattern::Rotate(n)
    } else if let Some(n) = number("row_share").or_else(|| number("row_newbcast")) {
        Pattern::Share(n)
    } else if let Some(n) = number("row_xmask") {
        Pattern::Exclusive(n)
    } else if fields.has("row_mirror") {
        Pattern::Mirror
    } else if fields.has("row_half_mirror") {
        Pattern::HalfMirror
    } else {
        match fields.value("row_bcast") {
            Some("15") => Pattern::LastOfRow,
            Some("31") => Pattern::LastOfHalf,
            Some(other) => return Err(format!("unknown row_bcast:{other}")),
            None if fields.modifiers.iter().any(|m| m.starts_with("wave_")) => {
                return Err("unknown pattern of lanes".into());
            }
            None => return Ok(None),
        }
    };
    Ok(Some(Lanes {
        pattern,
        rows: number("row_mask").unwrap_or(15),
        banks: number("bank_mask").unwrap_or(15),
        zero: number("bound_ctrl").is_some(),
        inactive: number("fi") == Some(1),
    }))
}
