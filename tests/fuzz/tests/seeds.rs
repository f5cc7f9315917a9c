// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every decoder with inputs that are right, spoiled ones, and those that broke something once.

use std::path::Path;
use xio_fuzz::{target, MAX_LEN, TARGETS};

/// Spoiled versions of each seed.
const SPOILED: usize = if cfg!(miri) { 1 } else { 40 };
/// In the interpreter a seed takes long.
const SEEDS: usize = if cfg!(miri) { 4 } else { usize::MAX };

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
                1 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                _ if bytes.len() < MAX_LEN => bytes.insert(at, self.below(256) as u8),
                _ => {}
            }
        }
    }
}

fn check(name: &str) {
    let target = target(name).unwrap();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in seeds.iter().take(SEEDS) {
        assert!(seed.len() <= MAX_LEN);
        (target.run)(seed);
        for _ in 0..SPOILED {
            let mut spoiled = seed.clone();
            random.spoil(&mut spoiled);
            (target.run)(&spoiled);
        }
    }
    (target.run)(&[]);
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    for file in std::fs::read_dir(found).into_iter().flatten() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().split('-').next() == Some(name) {
            (target.run)(&std::fs::read(file.path()).unwrap());
        }
    }
}

macro_rules! decoders {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn all_are_here() {
            assert!(TARGETS.iter().map(|target| target.name).eq([$(stringify!($name)),*]));
        }
    };
}

decoders! { sqe cqe identify list prp sgl controller vfio faults config control manifest }
