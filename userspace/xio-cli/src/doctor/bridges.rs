// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether bridges send what devices want of each other by way of the IOMMU (Access Control Services).

use crate::exit::Failure;
use crate::system::{Address, Function, System};
use serde::Serialize;

/// The first extended capability.
const EXTENDED: usize = 0x100;
/// Bytes of configuration space that everybody may read.
const PUBLIC: usize = 64;
const ACS: u16 = 0x000d;
/// ACS control register, from the capability on.
const CONTROL: usize = 6;
/// Source Validation, P2P Request Redirect, P2P Completion Redirect, Upstream Forwarding.
const ISOLATES: u16 = 0b1_1101;

/// Access Control Services of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Acs {
    /// Devices below it are kept apart.
    On,
    /// They reach each other without the IOMMU.
    Off,
    /// It can not.
    Absent,
    /// Only root can read that.
    Unknown,
}

/// A bridge above a function.
#[derive(Debug, Serialize)]
pub struct Bridge {
    address: Address,
    /// Its Access Control Services.
    pub acs: Acs,
}

/// The bridges above a function.
pub fn above(system: &System, function: &Function<'_>) -> Result<Vec<Bridge>, Failure> {
    let mut bridges = Vec::new();
    for address in function.bridges()? {
        let config = system.bytes(format!("/sys/bus/pci/devices/{address}/config"))?;
        bridges.push(Bridge { address, acs: acs(&config.unwrap_or_default()) });
    }
    Ok(bridges)
}

/// Looks for the capability in configuration space.
fn acs(config: &[u8]) -> Acs {
    let word = |at: usize| Some(u16::from_le_bytes(config.get(at..at + 2)?.try_into().ok()?));
    if config.len() <= PUBLIC {
        return Acs::Unknown;
    }
    let mut at = EXTENDED;
    // As many as there is room for, whatever the links say.
    for _ in 0..(config.len() / 8) {
        let (Some(kind), Some(link)) = (word(at), word(at + 2)) else { break };
        if kind == ACS {
            let on = word(at + CONTROL).is_some_and(|control| control & ISOLATES == ISOLATES);
            return if on { Acs::On } else { Acs::Off };
        }
        at = usize::from(link >> 4);
        if at < EXTENDED {
            break;
        }
    }
    Acs::Absent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_found_behind_others() {
        let mut config = vec![0; 4096];
        assert_eq!(
            (acs(&config), acs(&config[..64]), acs(&config[..256])),
            (Acs::Absent, Acs::Unknown, Acs::Absent)
        );
        config[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x01, 0x20]);
        config[0x200..0x204].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        assert_eq!(acs(&config), Acs::Off);
        config[0x206] = 0x1d;
        assert_eq!(acs(&config), Acs::On);
        // A list that goes round.
        config[0x200..0x204].copy_from_slice(&[0x02, 0x00, 0x01, 0x10]);
        assert_eq!(acs(&config), Acs::Absent);
    }
}
