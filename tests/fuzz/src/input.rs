// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inputs as numbers and bytes; what is missing at the end is zero.

pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        now
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut to = [0; N];
        let from = self.bytes(N);
        to[..from.len()].copy_from_slice(from);
        to
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.u32() as usize % end
    }
}

/// Bytes of the same form, to make seeds.
#[derive(Default)]
pub(crate) struct Seed(pub(crate) Vec<u8>);

impl Seed {
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(self, n: u8) -> Self {
        self.bytes(&[n])
    }

    pub(crate) fn u16(self, n: u16) -> Self {
        self.bytes(&n.to_le_bytes())
    }

    pub(crate) fn u32(self, n: u32) -> Self {
        self.bytes(&n.to_le_bytes())
    }

    pub(crate) fn u64(self, n: u64) -> Self {
        self.bytes(&n.to_le_bytes())
    }
}
