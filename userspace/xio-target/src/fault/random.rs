// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers that are the same for the same seed (SplitMix64).

/// A generator.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The generator of rule `n`: each rule has its own, so that none changes what another one draws.
    pub(super) fn new(seed: u64, n: usize) -> Self {
        let mut seeds = Self(seed);
        let own = seeds.next() ^ (n as u64).wrapping_mul(0x9fb2_1c65_1e98_df25);
        Self(own)
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The upper half of the next number.
    pub(super) fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Fills memory.
    pub(super) fn fill(&mut self, to: &mut [u8]) {
        for chunk in to.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(self.next().to_le_bytes()) {
                *to = from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_each_rule_others() {
        let first = |seed, rule| Random::new(seed, rule).next();
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
        let (mut a, mut b) = ([0; 21], [0; 21]);
        Random::new(1, 1).fill(&mut a);
        Random::new(1, 1).fill(&mut b);
        assert!(a == b && a != [0; 21]);
    }
}
