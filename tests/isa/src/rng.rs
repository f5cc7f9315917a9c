// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reproducible choices.

/// A sequence of numbers that is the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0 when there is none.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 {
            0
        } else {
            self.next() % end
        }
    }

    /// True `percent` times out of 100.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
