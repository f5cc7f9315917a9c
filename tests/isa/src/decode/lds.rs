// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading instructions that access LDS.

use super::element::{atomic, element, Element};
use super::listing::Fields;
use super::memory::{check, offset, Access, Operands};
use super::operand::{Operand, Width};
use crate::arch::Arch;

/// An access of vectors to LDS.
#[derive(Clone, Debug)]
pub struct Lds {
    /// What is done.
    pub access: Access,
    /// Element.
    pub element: Element,
    /// Vector registers that the result goes to.
    pub to: Operand,
    /// Address.
    pub address: Operand,
    /// Data of each element.
    pub data: [Operand; 2],
    /// Offset of each element; the second is there if there are two.
    pub offsets: (i64, Option<i64>),
}

/// Reads or changes lanes by an index (`ds_bpermute_b32`, `ds_permute_b32`, `ds_swizzle_b32`).
#[derive(Clone, Debug)]
pub struct Permute {
    /// Vector register that the result goes to.
    pub to: Operand,
    /// Lane of each lane, times 4.
    pub index: Operand,
    /// What is moved.
    pub data: Operand,
    /// To the lane of the index, instead of from it.
    pub forward: bool,
}

/// Reads an access to LDS; `Ok(None)` when there is none of that name.
pub fn lds(arch: Arch, name: &str, fields: &Fields) -> Result<Option<Lds>, String> {
    let Some(what) = name.strip_prefix("ds_") else { return Ok(None) };
    const PAIRS: [(&str, &str, i64); 8] = [
        ("read2st64_", "read", 64),
        ("write2st64_", "write", 64),
        ("load_2addr_stride64_", "load", 64),
        ("store_2addr_stride64_", "store", 64),
        ("read2_", "read", 1),
        ("write2_", "write", 1),
        ("load_2addr_", "load", 1),
        ("store_2addr_", "store", 1),
    ];
    let pair =
        PAIRS.iter().find_map(|(prefix, verb, stride)| Some((*verb, what.strip_prefix(prefix)?, *stride)));
    let single = || what.split_once('_').map(|(verb, kind)| (verb, kind, 0));
    let Some((verb, kind, stride)) = pair.or_else(single) else { return Ok(None) };
    let (access, element) = match (verb, element(kind)) {
        ("read" | "load", Some(element)) => (Access::Load, element),
        ("write" | "store", Some(element)) => (Access::Store, element),
        _ => match atomic(&what.replace("_rtn_", "_")) {
            Some((function, bytes, compares)) if stride == 0 => (
                Access::Atomic { function, compares, returns: what.contains("_rtn_") },
                Element::unsigned(bytes),
            ),
            _ => return Ok(None),
        },
    };
    check(fields, &["offset", "offset0", "offset1"])?;
    let offsets = if stride > 0 {
        let scale = stride * i64::from(element.bytes);
        (offset(fields, "offset0")? * scale, Some(offset(fields, "offset1")? * scale))
    } else {
        (offset(fields, "offset")?, None)
    };
    let returns = matches!(access, Access::Load | Access::Atomic { returns: true, .. });
    let mut operands = Operands(arch, fields.operands.iter());
    let to = if returns { operands.next(Width::Word)? } else { Operand::Null };
    let address = operands.next(Width::Word)?;
    let count = match access {
        Access::Load => 0,
        Access::Store => 1 + usize::from(stride > 0),
        Access::Atomic { compares, .. } => 1 + usize::from(compares),
    };
    let mut data = [Operand::Null; 2];
    for operand in data.iter_mut().take(count) {
        *operand = operands.next(Width::Word)?;
    }
    if what.starts_with("cmpst_") {
        // Older instructions have what is compared first.
        data.swap(0, 1);
    }
    Ok(Some(Lds { access, element, to, address, data, offsets }))
}

/// Reads an exchange of lanes through LDS hardware; `Ok(None)` when there is none of that name.
pub fn permute(arch: Arch, name: &str, fields: &Fields) -> Result<Option<Permute>, String> {
    let forward = match name {
        "ds_bpermute_b32" => false,
        "ds_permute_b32" => true,
        _ => return Ok(None),
    };
    check(fields, &[])?;
    let mut operands = Operands(arch, fields.operands.iter());
    let to = operands.next(Width::Word)?;
    let index = operands.next(Width::Word)?;
    Ok(Some(Permute { to, index, data: operands.next(Width::Word)?, forward }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_to_lds() {
        let read = |arch, name, rest| lds(arch, name, &Fields::new(rest)).unwrap().unwrap();
        let pair = read(Arch::Gfx942, "ds_read2st64_b32", "v[0:1], v4 offset1:28");
        assert_eq!(pair.offsets, (0, Some(28 * 64 * 4)));
        let pair = read(Arch::Gfx1100, "ds_store_2addr_b64", "v0, v[2:3], v[4:5] offset0:1 offset1:2");
        assert_eq!((pair.offsets, pair.data[1]), ((8, Some(16)), Operand::Vector(4)));
        let add = read(Arch::Gfx1201, "ds_add_rtn_u32", "v5, v1, v3 offset:7168");
        assert!(matches!(add.access, Access::Atomic { returns: true, .. }));
        let swap = read(Arch::Gfx90a, "ds_cmpst_rtn_b32", "v5, v1, v3, v4");
        assert_eq!(swap.data, [Operand::Vector(4), Operand::Vector(3)]);
        assert!(lds(Arch::Gfx90a, "ds_frobnicate", &Fields::new("v0")).unwrap().is_none());
    }
}
