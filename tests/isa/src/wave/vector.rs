// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector instructions.

use super::lanes::Origin;
use super::{lanes_of, Wave};
use crate::decode::{Kind, Operand, Part, Rest, Source, Vector, Width};
use crate::error::Violation;

/// Result of a lane.
type Result = (usize, u64);

impl Wave {
    pub(super) fn vector(&mut self, vector: &Vector) -> std::result::Result<(), Violation> {
        match &vector.kind {
            Kind::Compare { .. } | Kind::Carry { .. } | Kind::Multiply { .. } => self.with_mask(vector),
            Kind::ReadFirst | Kind::ReadLane | Kind::WriteLane => {
                self.one_lane(vector);
                Ok(())
            }
            Kind::Swap => {
                self.swap(vector);
                Ok(())
            }
            _ => {
                let results = self.results(vector)?;
                self.put(vector, &results);
                Ok(())
            }
        }
    }

    /// Two instructions that read everything before one of them writes.
    pub(super) fn dual(&mut self, first: &Vector, second: &Vector) -> std::result::Result<(), Violation> {
        let results = (self.results(first)?, self.results(second)?);
        self.put(first, &results.0);
        self.put(second, &results.1);
        Ok(())
    }

    fn put(&mut self, vector: &Vector, results: &[Result]) {
        let width = match &vector.kind {
            Kind::Form(form) => form.result,
            Kind::MovePair { .. } => Width::Wide,
            Kind::Bitwise { width, .. } => *width,
            _ => Width::Word,
        };
        for (lane, value) in results {
            self.write(vector.to, *lane, *value, width, vector.part, vector.rest);
        }
    }

    /// Lanes that take part, and where their first operand comes from.
    fn participants(&self, vector: &Vector) -> Vec<(usize, Origin)> {
        let active = lanes_of(self.exec());
        match &vector.lanes {
            None => active.map(|lane| (lane, Origin::Lane(lane))).collect(),
            Some(lanes) => {
                let origins = self.origins(lanes);
                let with = |lane: usize| (lane, origins.get(lane).copied().unwrap_or(Origin::Off));
                active.map(with).filter(|(_, origin)| *origin != Origin::Off).collect()
            }
        }
    }

    fn first(&self, source: &Source, width: Width, origin: Origin) -> u64 {
        match origin {
            Origin::Lane(lane) => self.source(source, width, lane),
            Origin::Zero | Origin::Off => self.refine(source, width, 0),
        }
    }

    fn results(&self, vector: &Vector) -> std::result::Result<Vec<Result>, Violation> {
        let lanes = self.participants(vector);
        let [a, b, c] = &vector.from;
        let words = |lane: usize, origin: Origin| {
            let first = self.first(a, Width::Word, origin);
            (first, self.source(b, Width::Word, lane), self.source(c, Width::Word, lane))
        };
        Ok(match &vector.kind {
            Kind::Form(form) => {
                let function =
                    if vector.clamp { form.clamped.unwrap_or(form.function) } else { form.function };
                let compute = |(lane, origin)| {
                    let first = self.first(a, form.widths[0], origin);
                    let second = if form.sources > 1 { self.source(b, form.widths[1], lane) } else { 0 };
                    let third = if form.sources > 2 { self.source(c, form.widths[2], lane) } else { 0 };
                    (lane, function(first, second, third) & form.result.mask())
                };
                lanes.into_iter().map(compute).collect()
            }
            Kind::Select { mask } => {
                let mask = self.mask(*mask);
                let choose = |(lane, origin)| {
                    let (no, yes, _) = words(lane, origin);
                    (lane, if mask >> lane & 1 == 1 { yes } else { no })
                };
                lanes.into_iter().map(choose).collect()
            }
            Kind::Bitwise { table, width } => {
                let bits = |(lane, origin)| {
                    let a = self.first(a, *width, origin);
                    let (b, c) = (self.source(b, *width, lane), self.source(c, *width, lane));
                    let term = |n: u8| {
                        let pick = |value: u64, bit: u8| if n >> bit & 1 == 1 { value } else { !value };
                        pick(a, 2) & pick(b, 1) & pick(c, 0)
                    };
                    (lane, (0..8).filter(|n| table >> n & 1 == 1).fold(0, |all, n| all | term(n)))
                };
                lanes.into_iter().map(bits).collect()
            }
            Kind::CountBelow { high } => {
                let count = |(lane, origin)| {
                    let (mask, add, _) = words(lane, origin);
                    let below = if *high { lane.saturating_sub(32) } else { lane.min(32) };
                    (lane, u64::from((mask & ((1 << below) - 1)).count_ones()) + add)
                };
                lanes.into_iter().map(count).collect()
            }
            Kind::MovePair { select } => {
                let pair = |(lane, _)| {
                    let word =
                        |source, n: u8| self.source(source, Width::Wide, lane) >> (32 * n) & 0xffff_ffff;
                    (lane, word(a, select[0]) | word(b, select[1]) << 32)
                };
                lanes.into_iter().map(pair).collect()
            }
            Kind::Packed { form, low, high } => {
                let both = |(lane, origin)| {
                    let (a, b, c) = words(lane, origin);
                    let half = |value: u64, n: u8| value >> (16 * n) & 0xffff;
                    let compute =
                        |n: &[u8; 3]| (form.function)(half(a, n[0]), half(b, n[1]), half(c, n[2])) & 0xffff;
                    (lane, compute(low) | compute(high) << 16)
                };
                lanes.into_iter().map(both).collect()
            }
            Kind::PermuteRow { other } => {
                let permute = |(lane, _): (usize, Origin)| {
                    let table = self.source(b, Width::Word, lane) | self.source(c, Width::Word, lane) << 32;
                    let row = if *other { lane & !15 ^ 16 } else { lane & !15 };
                    (lane, self.source(a, Width::Word, row | (table >> (4 * (lane & 15)) & 15) as usize))
                };
                lanes.into_iter().map(permute).collect()
            }
            other => return Err(Violation::Unsupported(format!("{other:?} as part of a pair"))),
        })
    }

    /// Instructions that write a mask of lanes.
    fn with_mask(&mut self, vector: &Vector) -> std::result::Result<(), Violation> {
        let lanes = self.participants(vector);
        let [a, b, c] = &vector.from;
        let mut mask = 0;
        match &vector.kind {
            Kind::Compare { compare, exec } => {
                for (lane, origin) in lanes {
                    let (a, b) = (self.first(a, compare.width, origin), self.source(b, compare.width, lane));
                    mask |= u64::from((compare.function)(a, b)) << lane;
                }
                self.set_mask(vector.to, mask);
                if *exec {
                    self.set_exec(mask);
                }
            }
            Kind::Carry { function, out, carry } => {
                let carries = carry.map_or(0, |carry| self.mask(carry));
                let mut results = Vec::with_capacity(lanes.len());
                for (lane, origin) in lanes {
                    let (a, b) = (self.first(a, Width::Word, origin), self.source(b, Width::Word, lane));
                    let (value, over) = function(a, b, carries >> lane & 1 == 1);
                    mask |= u64::from(over) << lane;
                    results.push((lane, value));
                }
                self.put(vector, &results);
                self.set_mask(*out, mask);
            }
            Kind::Multiply { signed, out } => {
                let mut results = Vec::with_capacity(lanes.len());
                for (lane, _) in lanes {
                    let [a, b] = [a, b].map(|source| self.source(source, Width::Word, lane));
                    let c = self.source(c, Width::Wide, lane);
                    let (value, over) = if *signed {
                        let product = i64::from(a as u32 as i32) * i64::from(b as u32 as i32);
                        let (value, over) = product.overflowing_add(c as i64);
                        (value as u64, over)
                    } else {
                        (a * b).overflowing_add(c)
                    };
                    mask |= u64::from(over) << lane;
                    results.push((lane, value));
                }
                for (lane, value) in results {
                    self.write(vector.to, lane, value, Width::Wide, Part::All, Rest::Zero);
                }
                self.set_mask(*out, mask);
            }
            other => return Err(Violation::Unsupported(format!("a mask of {other:?}"))),
        }
        Ok(())
    }

    fn one_lane(&mut self, vector: &Vector) {
        let [value, lane, _] = &vector.from;
        let lane = match vector.kind {
            // Without any active lane it is the first one.
            Kind::ReadFirst => self.exec().trailing_zeros() as usize,
            _ => self.source(lane, Width::Word, 0) as usize,
        };
        let lane = lane % self.lanes;
        let value = self.source(value, Width::Word, lane);
        match vector.kind {
            Kind::WriteLane => self.write(vector.to, lane, value, Width::Word, Part::All, Rest::Zero),
            _ => self.set_uniform(vector.to, value, Width::Word),
        }
    }

    fn swap(&mut self, vector: &Vector) {
        let (a, b) = (vector.to, vector.from[0].operand);
        for lane in lanes_of(self.exec()) {
            let [first, second] = [a, b].map(|operand: Operand| self.value(operand, Width::Word, lane));
            self.write(a, lane, second, Width::Word, Part::All, Rest::Zero);
            self.write(b, lane, first, Width::Word, Part::All, Rest::Zero);
        }
    }
}
