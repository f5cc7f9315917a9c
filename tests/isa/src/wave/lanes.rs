// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which lane an operand comes from.

use super::Wave;
use crate::decode::{Lanes, Pattern};

/// Where the first operand of a lane comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// That lane.
    Lane(usize),
    /// Nowhere: it is zero.
    Zero,
    /// The lane does not take part.
    Off,
}

impl Wave {
    /// Where each lane's first operand comes from.
    pub(super) fn origins(&self, lanes: &Lanes) -> Vec<Origin> {
        let exec = self.exec();
        let origin = |lane: usize| {
            let (row, bank) = (lane / 16, lane / 4 % 4);
            if lanes.rows >> row & 1 == 0 || lanes.banks >> bank & 1 == 0 {
                return Origin::Off;
            }
            match source(&lanes.pattern, lane) {
                Some(from) if lanes.inactive || exec >> from & 1 == 1 => Origin::Lane(from),
                _ if lanes.zero => Origin::Zero,
                _ => Origin::Off,
            }
        };
        (0..self.lanes).map(origin).collect()
    }
}

/// Lane that a lane reads; `None` beyond the row.
fn source(pattern: &Pattern, lane: usize) -> Option<usize> {
    let (row, at) = (lane & !15, lane & 15);
    Some(match pattern {
        Pattern::Quad(quad) => lane & !3 | usize::from(quad[lane & 3]),
        Pattern::Eight(eight) => lane & !7 | usize::from(eight[lane & 7]),
        Pattern::Shift(by) => {
            let at = at as isize + isize::from(*by);
            row + usize::try_from(at).ok().filter(|at| *at < 16)?
        }
        Pattern::Rotate(by) => row | (at + 16 - usize::from(*by & 15)) & 15,
        Pattern::Mirror => row | (15 - at),
        Pattern::HalfMirror => lane & !7 | (7 - (lane & 7)),
        Pattern::Share(from) => row | usize::from(*from & 15),
        Pattern::Exclusive(with) => row | (at ^ usize::from(*with & 15)),
        Pattern::LastOfRow => row.checked_sub(1)?,
        Pattern::LastOfHalf => {
            if lane < 32 {
                return None;
            }
            31
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert_eq!(source(&Pattern::Quad([1, 0, 3, 2]), 6), Some(7));
        assert_eq!((source(&Pattern::Shift(1), 15), source(&Pattern::Shift(-1), 17)), (None, Some(16)));
        assert_eq!((source(&Pattern::Shift(-1), 16), source(&Pattern::Rotate(1), 16)), (None, Some(31)));
        assert_eq!((source(&Pattern::Mirror, 17), source(&Pattern::HalfMirror, 17)), (Some(30), Some(22)));
        assert_eq!((source(&Pattern::LastOfRow, 3), source(&Pattern::LastOfRow, 20)), (None, Some(15)));
        assert_eq!((source(&Pattern::LastOfHalf, 3), source(&Pattern::LastOfHalf, 50)), (None, Some(31)));
        assert_eq!(
            (source(&Pattern::Share(4), 33), source(&Pattern::Exclusive(3), 33)),
            (Some(36), Some(34))
        );
    }
}
