// SPDX-License-Identifier: MIT OR Apache-2.0
//! What remains to be done of an access that was issued.

use super::Context;
use crate::arch::Scope;
use crate::decode::{Element, Function};
use crate::memory::Handle;

/// An access of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAccess {
    pub(super) lane: usize,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) compare: u64,
}

/// What remains to be done.
#[derive(Debug)]
pub(super) enum Action {
    /// Nothing.
    Done,
    /// Loads into vector registers.
    Load {
        to: u16,
        element: Element,
        lanes: Vec<LaneAccess>,
        scope: Scope,
    },
    /// Stores that are to be performed.
    Store {
        handles: Vec<Handle>,
        scope: Scope,
    },
    /// Reads and writes at once.
    Atomic {
        to: Option<u16>,
        function: Function,
        wide: bool,
        lanes: Vec<LaneAccess>,
        scope: Scope,
    },
    /// LDS: the first register of a load; what each lane stores is in `stores`.
    LdsLoad {
        to: u16,
        element: Element,
        lanes: Vec<LaneAccess>,
    },
    LdsStore {
        element: Element,
        lanes: Vec<LaneAccess>,
        data: Vec<[u8; 16]>,
    },
    LdsAtomic {
        to: Option<u16>,
        function: Function,
        wide: bool,
        lanes: Vec<LaneAccess>,
    },
    /// Values that are known already.
    Lanes {
        to: u16,
        values: Vec<(usize, u32)>,
    },
    /// Loads into scalar registers.
    ScalarLoad {
        to: u8,
        count: u8,
        addr: u64,
    },
    /// A value that is known already, into two scalar registers; the answer to a message, or as from memory.
    Value {
        to: u8,
        value: u64,
        message: bool,
    },
    /// Writes the second level cache back.
    WriteBack {
        scope: Scope,
    },
}

impl Action {
    /// Vector registers that it writes.
    pub(super) fn vectors(&self) -> Option<(u16, u16)> {
        match self {
            Self::Load { to, element, .. } | Self::LdsLoad { to, element, .. } => {
                Some((*to, element.registers()))
            }
            Self::Atomic { to: Some(to), wide, .. } | Self::LdsAtomic { to: Some(to), wide, .. } => {
                Some((*to, 1 + u16::from(*wide)))
            }
            Self::Lanes { to, .. } => Some((*to, 1)),
            _ => None,
        }
    }

    /// Scalar registers that it writes.
    pub(super) const fn scalars(&self) -> Option<(u8, u8)> {
        match self {
            Self::ScalarLoad { to, count, .. } => Some((*to, *count)),
            Self::Value { to, .. } => Some((*to, 2)),
            _ => None,
        }
    }

    pub(super) fn order(&self) -> Order {
        match self {
            Self::ScalarLoad { .. } | Self::Value { message: false, .. } => Order::None,
            Self::Value { message: true, .. } => Order::Messages,
            _ if lds(self) => Order::Lds,
            _ => Order::Memory,
        }
    }

    /// Whether it reads or writes memory as it is when it is performed.
    pub(super) const fn is_read_later(&self) -> bool {
        matches!(self, Self::Load { .. } | Self::Atomic { .. })
    }

    /// First and last address.
    pub(super) fn range(&self) -> (u64, u64) {
        let (lanes, bytes) = match self {
            Self::Load { lanes, element, .. } => (lanes, u64::from(element.bytes)),
            Self::Atomic { lanes, .. } => (lanes, 8),
            _ => return (0, 0),
        };
        let first = lanes.iter().map(|l| l.addr).min().unwrap_or_default();
        let last = lanes.iter().map(|l| l.addr).max().unwrap_or_default();
        (first, last.saturating_add(bytes))
    }
}

/// Accesses of one counter that come back in order among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Memory,
    Lds,
    Messages,
    /// In no order.
    None,
}

/// Whether it concerns LDS, which works in order.
pub(super) const fn lds(action: &Action) -> bool {
    matches!(
        action,
        Action::LdsLoad { .. } | Action::LdsStore { .. } | Action::LdsAtomic { .. } | Action::Lanes { .. }
    )
}

/// How long an access takes at most. Some come at once, some take very long.
pub(super) fn delay(action: &Action, context: &mut Context) -> u64 {
    let rng = &mut *context.rng;
    match action {
        Action::Store { scope: Scope::System, .. } if context.memory.arch().stores_have_scope() => 0,
        Action::WriteBack { .. } if rng.chance(90) => rng.below(20_000),
        Action::Load { .. } if rng.chance(50) => rng.below(300),
        Action::Store { .. } | Action::Atomic { .. } => match rng.below(4) {
            0 => rng.below(20_000),
            1 | 2 => rng.below(300),
            _ => 0,
        },
        Action::LdsLoad { .. } | Action::LdsStore { .. } | Action::LdsAtomic { .. } => rng.below(50),
        Action::ScalarLoad { .. } => rng.below(100),
        _ => 0,
    }
}
