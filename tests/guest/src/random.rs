// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers for tests that try things at random.

/// A generator of numbers (xorshift); each seed gives the same ones.
pub struct Random(u64);

impl Random {
    /// The numbers of this seed, which is not 0.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below this one.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}
