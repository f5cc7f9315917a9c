// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading an instruction's operands.

use super::listing::Fields;
use super::operand::{operand, Operand, Width};
use crate::arch::Arch;

/// An instruction's text, and the architecture it is of.
pub(super) struct Reader<'a> {
    pub arch: Arch,
    pub fields: &'a Fields<'a>,
}

impl Reader<'_> {
    /// An operand as it is written.
    pub fn text(&self, n: usize) -> Result<&str, String> {
        self.fields.operands.get(n).copied().ok_or_else(|| "an operand is missing".into())
    }

    /// An operand.
    pub fn operand(&self, n: usize, width: Width) -> Result<Operand, String> {
        let text = self.text(n)?;
        operand(self.arch, text, width).ok_or_else(|| format!("unknown operand {text}"))
    }
}
