// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading waits for memory.

use super::listing::{integer, Fields};

/// How many accesses of each kind may stay outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wait {
    /// Vector loads, on CDNA stores as well.
    pub loads: Option<u32>,
    /// Vector stores.
    pub stores: Option<u32>,
    /// LDS, and scalar loads where those are not counted apart.
    pub lds: Option<u32>,
    /// Scalar loads.
    pub scalar: Option<u32>,
}

/// Reads a wait; `Ok(None)` when there is none of that name.
pub fn wait(name: &str, fields: &Fields) -> Result<Option<Wait>, String> {
    let mut wait = Wait::default();
    if name == "s_waitcnt" {
        for text in &fields.operands {
            let unknown = || format!("unknown counter {text}");
            let (counter, value) = text.split_once('(').ok_or_else(unknown)?;
            let value = value.strip_suffix(')').and_then(integer).ok_or_else(unknown)? as u32;
            match counter {
                "vmcnt" => wait.loads = Some(value),
                "lgkmcnt" => wait.lds = Some(value),
                "expcnt" => {}
                _ => return Err(unknown()),
            }
        }
        return Ok(Some(wait));
    }
    let last = fields.operands.last().copied().unwrap_or_default();
    let value = if name == "s_wait_idle" { Some(0) } else { integer(last) };
    let value = value.ok_or_else(|| format!("unknown number {last}"))? as u32;
    match name {
        "s_waitcnt_vscnt" | "s_wait_storecnt" => wait.stores = Some(value),
        "s_waitcnt_vmcnt" | "s_wait_loadcnt" => wait.loads = Some(value),
        "s_waitcnt_lgkmcnt" | "s_wait_dscnt" => wait.lds = Some(value),
        "s_wait_kmcnt" => wait.scalar = Some(value),
        "s_wait_loadcnt_dscnt" => (wait.loads, wait.lds) = (Some(value >> 8), Some(value & 0xff)),
        "s_wait_storecnt_dscnt" => (wait.stores, wait.lds) = (Some(value >> 8), Some(value & 0xff)),
        "s_wait_idle" => wait = Wait { loads: Some(0), stores: Some(0), lds: Some(0), scalar: Some(0) },
        _ => return Ok(None),
    }
    Ok(Some(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_all_architectures() {
        let read = |name, rest| {
            let wait = wait(name, &Fields::new(rest)).unwrap().unwrap();
            (wait.loads, wait.stores, wait.lds, wait.scalar)
        };
        let some = Some(0);
        assert_eq!(read("s_waitcnt", "vmcnt(0) expcnt(0) lgkmcnt(0)"), (some, None, some, None));
        assert_eq!(read("s_waitcnt", "vmcnt(3)"), (Some(3), None, None, None));
        assert_eq!(read("s_waitcnt_vscnt", "null, 0x0"), (None, some, None, None));
        assert_eq!(read("s_wait_loadcnt_dscnt", "0x103"), (Some(1), None, Some(3), None));
        assert_eq!(read("s_wait_kmcnt", "0x0"), (None, None, None, some));
    }

    #[test]
    fn other_counters_are_not_known() {
        assert!(wait("s_waitcnt", &Fields::new("oddcnt(0)")).is_err());
        assert!(wait("s_wait_oddcnt", &Fields::new("0x0")).unwrap().is_none());
        assert!(wait("s_wait_loadcnt", &Fields::new("x")).is_err());
    }
}
