// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interpreter on kernels of its own: what they compute is known.

mod common;

use common::{arguments, own, seeds, Arena};
use xio_isa::machine::{Grid, Machine, NoDevice};
use xio_isa::rng::Rng;
use xio_isa::Arch;

/// The formulas of alu.hip that need nothing of other lanes.
fn formulas(a: u64, b: u64) -> [Option<u64>; 32] {
    let (x, y) = (a as u32, b as u32);
    let (s, w) = (x as i32, a as i64);
    let (shift, wide) = (y & 31, b & 63);
    let collatz = {
        let (mut x, mut steps) = (x & 0xffff, 0u64);
        while x > 1 && steps < 40 {
            x = if x & 1 == 1 { 3 * x + 1 } else { x / 2 };
            steps += 1;
        }
        steps
    };
    let hash = (0..8).fold(0xcbf2_9ce4_8422_2325u64, |hash, i| {
        (hash ^ (a >> (8 * i) & 0xff)).wrapping_mul(0x100_0000_01b3)
    });
    let mut out = [None; 32];
    let known = [
        a.wrapping_add(b),
        a.wrapping_sub(b),
        a.wrapping_mul(b),
        u64::from(x) * u64::from(y),
        u64::from(x.checked_div(y).unwrap_or(0)),
        u64::from(x.checked_rem(y).unwrap_or(0)),
        a.checked_div(b).unwrap_or(0),
        a.checked_rem(b).unwrap_or(0),
        a << wide | a >> ((64 - wide) & 63),
        (w >> wide) as u64,
        u64::from((s >> shift) as u32),
        u64::from((x >> shift) ^ (x << shift)),
        u64::from(a.count_ones()) << 32 | u64::from((a | 1).leading_zeros()),
        u64::from((x | 0x8000_0000).trailing_zeros()) << 32 | u64::from((y | 1).leading_zeros()),
        a.swap_bytes() ^ u64::from(x.swap_bytes()),
        a.min(b),
        if w > b as i64 { 1 } else { 2 },
        s.min(y as i32) as u64,
        (x >> 8) as i8 as u64,
        (i64::from(x as i16) * i64::from(y as i16)) as u64,
        u64::from(x.wrapping_add(y) as u16) | u64::from(x.wrapping_mul(y) as u8) << 16,
        u64::from(x.rotate_left(shift)),
        u64::from(x & 0xf0f0_f0f0 | y & !0xf0f0_f0f0),
        collatz,
    ];
    for (to, value) in out.iter_mut().zip(known) {
        *to = Some(value);
    }
    out[28] = Some(hash);
    out[30] = Some(u64::from(a >= b) + u64::from(x == y) * 2 + u64::from(w < 0) * 4);
    out[31] = Some(u64::from(x.saturating_sub(y)) << 32 | (a << 32 | u64::from(y)) >> 8 & 0xffff_ffff);
    out
}

/// A signed word as 64 bits.
fn signed(word: u64) -> u64 {
    word as u32 as i32 as u64
}

#[test]
fn arithmetic_of_every_lane() {
    for arch in Arch::ALL {
        let object = own("alu", arch, &[]);
        let mut machine = Machine::new(&object, 1).unwrap();
        let mut arena = Arena::new(&machine);
        let mut rng = Rng::new(7);
        // The last wave is not full.
        let threads = 200;
        let mut number = || match rng.below(4) {
            0 => rng.next() & 0xff,
            1 => u64::from(rng.next() as u32),
            2 => 0u64.wrapping_sub(rng.below(1000)),
            _ => rng.next(),
        };
        let list_a: Vec<u64> = (0..threads).map(|_| number()).collect();
        let list_b: Vec<u64> = (0..threads).map(|n| if n % 9 == 0 { 0 } else { number() }).collect();
        let (at_a, at_b) = (arena.longs("a", &list_a), arena.longs("b", &list_b));
        let out = arena.add("out", 32 * 8 * threads);
        let args = arguments(&[at_a, at_b, out], &[threads as u32]);
        let grid = Grid { blocks: 2, threads: 128 };
        let outcome =
            machine.run("alu", grid, &args, &mut NoDevice).unwrap_or_else(|e| panic!("{arch}: {e}"));
        let lanes = arch.lanes();
        let got = arena.read_longs(out, 32 * threads);
        for (t, (a, b)) in list_a.iter().zip(&list_b).enumerate() {
            let mut want = formulas(*a, *b);
            // What other lanes have; lanes behind the last thread are not active.
            let word = |of: &[u64], t: usize| u64::from(of.get(t).copied().unwrap_or_default() as u32);
            let first = t / lanes * lanes;
            let odd = (0..lanes).filter(|lane| word(&list_a, first + lane) & 1 == 1);
            want[24] = Some(signed(word(&list_a, first)));
            want[25] = Some(odd.fold(0, |mask, lane| mask | 1 << lane));
            want[26] = Some(signed(word(&list_a, first + ((t % lanes) ^ 5))));
            want[27] = Some(signed(word(&list_a, t ^ 1)));
            want[29] = Some(signed(word(&list_b, first + 3)));
            for (n, want) in want.iter().enumerate() {
                if let Some(want) = want {
                    assert_eq!(got[n * threads + t], *want, "{arch}: formula {n} of {a:#x} and {b:#x}");
                }
            }
        }
        println!("{arch}: {outcome}");
    }
}

#[test]
fn arithmetic_of_whole_waves() {
    let numbers = [
        (0x0123_4567_89ab_cdef, 0x1_0001),
        (u64::MAX, 3),
        (17, 0xffff_fff0_ffff_fff1),
        (0x8000_0000_8000_0000, 0x7_ffff_fff0),
        (1 << 63 | 5, 1 << 40 | 9),
        (99, 100),
    ];
    for arch in Arch::ALL {
        let object = own("divide", arch, &[]);
        for (a, b) in numbers {
            let mut machine = Machine::new(&object, 1).unwrap();
            let mut arena = Arena::new(&machine);
            let out = arena.add("out", 96);
            let args = arguments(&[out, a, b], &[]);
            machine
                .run("divide", Grid { blocks: 1, threads: 64 }, &args, &mut NoDevice)
                .unwrap_or_else(|e| panic!("{e}"));
            let (x, y) = (a as u32, b as u32);
            let (s, t) = (x as i32, y as i32);
            let want = [
                u64::from(x / y),
                u64::from(x % y),
                a / b,
                a % b,
                (a as i64 / b as i64) as u64,
                (s / t) as u64,
                u64::from(x / 7) + a % 1000,
                a.wrapping_mul(b).wrapping_add((a << (b & 63)) ^ (a >> (b & 63))),
                ((a as i64 >> (b & 63)) as u64).wrapping_add(u64::from((s >> (y & 31)) as u32)),
                u64::from(a.count_ones()) << 32
                    | u64::from((a | 1).leading_zeros()) << 8
                    | u64::from((b | 1 << 63).trailing_zeros()),
                u64::from(x > y) + u64::from(s > t) * 2 + u64::from(a > b) * 4 + (a >> 17 & 1) * 8,
                u64::from(x.min(y)) + (u64::from(if s > t { x } else { y }) << 32),
            ];
            assert_eq!(arena.read_longs(out, 12), want, "{arch}: {a:#x} {b:#x}");
        }
    }
}

#[test]
fn waves_of_a_block_share_lds() {
    for arch in Arch::ALL {
        let object = own("lds", arch, &[]);
        for (seed, threads) in [(1, 1024), (2, 512), (3, 256), (4, 64)] {
            let mut machine = Machine::new(&object, seed).unwrap();
            let mut arena = Arena::new(&machine);
            let (blocks, mut rng) = (3, Rng::new(seed));
            let input: Vec<u32> = (0..blocks * threads).map(|_| rng.next() as u32).collect();
            let from = arena.words("in", &input);
            let (out, bytes) = (arena.add("out", 16 * blocks), arena.add("bytes", blocks * threads));
            let grid = Grid { blocks: blocks as u32, threads: threads as u32 };
            let args = arguments(&[from, out, bytes], &[]);
            let outcome =
                machine.run("lds", grid, &args, &mut NoDevice).unwrap_or_else(|e| panic!("{arch}: {e}"));
            let (got, got_bytes) = (arena.read(out, 4 * blocks), arena.read(bytes, blocks * threads / 4));
            for (block, part) in input.chunks(threads).enumerate() {
                let sum = part.iter().fold(0u32, |sum, n| sum.wrapping_add(*n));
                let count: u32 = (0..threads as u32).filter(|t| t % 3 == 0).sum();
                let t = (threads as u64 - 1) & 255;
                // Only so many threads wrote.
                let wide = t << 33 | t;
                assert_eq!(got[4 * block..4 * block + 2], [sum, count], "{arch} {threads}");
                assert_eq!(
                    got[4 * block + 2..4 * block + 4],
                    [wide as u32, (wide >> 32) as u32],
                    "{arch} {threads}"
                );
                for (n, value) in part.iter().rev().enumerate() {
                    let at = block * threads + n;
                    let byte = got_bytes[at / 4] >> (8 * (at % 4)) & 0xff;
                    assert_eq!(byte, value >> 8 & 0xff, "{arch} {threads}: byte {at}");
                }
            }
            println!("{arch} {threads}: {outcome}");
        }
    }
}

#[test]
fn tickets_locks_and_mailboxes() {
    for arch in Arch::ALL {
        let object = own("ticket", arch, &[]);
        for seed in seeds(6) {
            let mut machine = Machine::new(&object, seed).unwrap();
            let mut arena = Arena::new(&machine);
            let (blocks, threads, rounds) = (4, 160, 5);
            let total = blocks * threads * rounds;
            let tickets = arena.longs("tickets", &[0xffff_fff0_0000_0000]);
            let (lock, guarded) = (arena.add("lock", 4), arena.add("guarded", 72));
            let (owner, mailbox) =
                (arena.add("owner", 8 * total), arena.add("mailbox", 4 * blocks * threads));
            let (flags, sums) = (arena.add("flags", 4 * blocks), arena.add("sums", 4 * blocks));
            let args = arguments(&[tickets, lock, guarded, owner, mailbox, flags, sums], &[rounds as u32]);
            let grid = Grid { blocks: blocks as u32, threads: threads as u32 };
            let outcome =
                machine.run("ticket", grid, &args, &mut NoDevice).unwrap_or_else(|e| panic!("{arch}: {e}"));
            assert_eq!(arena.read_longs(tickets, 1), [0xffff_fff0_0000_0000 + total as u64], "{arch}");
            let mut owners = arena.read_longs(owner, total);
            owners.sort_unstable();
            let every =
                (0..blocks * threads).flat_map(|t| (0..rounds).map(move |r| (t as u64) << 32 | r as u64));
            assert!(owners.into_iter().eq(every), "{arch}: every thread has a ticket for each round");
            let entries = blocks * threads.div_ceil(arch.lanes()) * rounds;
            let all = (1..=entries as u32).fold(0, |all, n| all ^ n);
            let values = arena.read(guarded, 18);
            assert_eq!((values[0], values[17]), (entries as u32, all), "{arch} seed {seed}: nothing is lost");
            let sum = |b: usize| (0..threads).map(|t| ((b * threads + t) * 3 + 1) as u32).sum::<u32>();
            let want: Vec<u32> = (0..blocks).map(|b| if b + 1 < blocks { sum(b) } else { 0 }).collect();
            assert_eq!(arena.read(sums, blocks), want, "{arch} seed {seed}");
            println!("{arch} {seed}: {outcome}");
        }
    }
}

#[test]
fn the_clock_goes_on() {
    for arch in Arch::ALL {
        let object = own("clock", arch, &[]);
        let mut machine = Machine::new(&object, 1).unwrap();
        let mut arena = Arena::new(&machine);
        let out = arena.add("out", 24);
        let args = arguments(&[out, 100_000], &[]);
        let outcome = machine.run("clock", Grid { blocks: 1, threads: 96 }, &args, &mut NoDevice).unwrap();
        let got = arena.read_longs(out, 3);
        assert!((100_000..101_000).contains(&got[0]), "{arch}: {got:?}");
        assert!(got[1] == 1 && got[2] > 100, "{arch}: {got:?}");
        assert!(
            outcome.instructions < outcome.time,
            "{arch}: sleeping takes time, not instructions: {outcome}"
        );
    }
}

#[test]
fn scratch_memory_is_each_lanes_own() {
    for arch in Arch::ALL {
        let object = own("scratch", arch, &[]);
        let mut machine = Machine::new(&object, 1).unwrap();
        let mut arena = Arena::new(&machine);
        let input: Vec<u32> = (0..32).map(|n| n * n + 1).collect();
        let (from, out) = (arena.words("in", &input), arena.add("out", 4 * 100));
        let (args, count) = (arguments(&[from, out], &[20]), 20);
        machine
            .run("scratch", Grid { blocks: 1, threads: 100 }, &args, &mut NoDevice)
            .unwrap_or_else(|e| panic!("{e}"));
        let own = |t: u32, i: u32| input[(i + t) as usize & 31] * (i + 1);
        let want: Vec<u32> =
            (0..100).map(|t| (0..count).map(|i| own(t, i)).sum::<u32>() + own(t, t % count)).collect();
        assert_eq!(arena.read(out, 100), want, "{arch}");
    }
}
