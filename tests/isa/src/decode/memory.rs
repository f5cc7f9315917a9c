// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading instructions that access memory: global, flat, scratch, LDS, and those that handle caches.

use super::listing::{integer, Fields};
use super::operand::{operand, Operand, Width};
use crate::arch::{Arch, Scope};

/// What an element in memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// Bytes.
    pub bytes: u8,
    /// Smaller than a register, and extended by its sign.
    pub signed: bool,
    /// Half of the register that it stands in; the other half stays. Not for whole registers.
    pub half: Option<u8>,
}

impl Element {
    const fn unsigned(bytes: u8) -> Self {
        Self { bytes, signed: false, half: None }
    }

    /// Registers that it takes.
    pub const fn registers(&self) -> u16 {
        (self.bytes as u16).div_ceil(4)
    }
}

/// Reads memory, changes what it read, and writes it, in one go.
pub type Function = fn(old: u64, data: u64, compare: u64) -> u64;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Reads and writes at once.
    Atomic {
        /// What is written.
        function: Function,
        /// The data are two elements: the new one, then the one to compare with.
        compares: bool,
        /// The old value is returned.
        returns: bool,
    },
}

/// Kind of address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Memory.
    Global,
    /// Memory, LDS or scratch, by window.
    Flat,
    /// The lane's own.
    Scratch,
    /// The lane's own, through a resource descriptor (gfx90a): the scalar offset counts for all lanes together.
    Buffer,
}

/// An access of vectors to memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What is done.
    pub access: Access,
    /// Kind of address.
    pub space: Space,
    /// Element.
    pub element: Element,
    /// Vector registers that the result goes to.
    pub to: Operand,
    /// Address, or offset where there is a base.
    pub address: Operand,
    /// Scalar base, or scalar offset.
    pub base: Operand,
    /// Resource descriptor.
    pub resource: Operand,
    /// Data.
    pub data: Operand,
    /// Added to the address.
    pub offset: i64,
    /// How far it reaches.
    pub scope: Scope,
}

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

/// What becomes of caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// The second level is written to memory as far as the scope wants.
    WriteBack(Scope),
    /// The first level is forgotten, and what of the second level the scope wants.
    Invalidate(Scope),
    /// The second level alone is forgotten.
    InvalidateSecond,
    /// RDNA3's cache between first and second level is forgotten.
    InvalidateMiddle,
}

fn element(name: &str) -> Option<Element> {
    let signed = |bytes| Element { signed: true, ..Element::unsigned(bytes) };
    let half = |element: Element, half| Element { half: Some(half), ..element };
    Some(match name {
        "dword" | "b32" => Element::unsigned(4),
        "dwordx2" | "b64" => Element::unsigned(8),
        "dwordx3" | "b96" => Element::unsigned(12),
        "dwordx4" | "b128" => Element::unsigned(16),
        "ubyte" | "u8" | "byte" | "b8" => Element::unsigned(1),
        "sbyte" | "i8" => signed(1),
        "ushort" | "u16" | "short" | "b16" => Element::unsigned(2),
        "sshort" | "i16" => signed(2),
        "ubyte_d16" | "d16_u8" | "u8_d16" => half(Element::unsigned(1), 0),
        "ubyte_d16_hi" | "d16_hi_u8" | "u8_d16_hi" | "byte_d16_hi" | "d16_hi_b8" | "b8_d16_hi" => {
            half(Element::unsigned(1), 1)
        }
        "sbyte_d16" | "d16_i8" | "i8_d16" => half(signed(1), 0),
        "sbyte_d16_hi" | "d16_hi_i8" | "i8_d16_hi" => half(signed(1), 1),
        "short_d16" | "d16_b16" | "u16_d16" => half(Element::unsigned(2), 0),
        "short_d16_hi" | "d16_hi_b16" | "u16_d16_hi" | "b16_d16_hi" => half(Element::unsigned(2), 1),
        _ => return None,
    })
}

const fn signed(value: u64, wide: bool) -> i64 {
    if wide {
        value as i64
    } else {
        value as u32 as i32 as i64
    }
}

/// Function, bytes, and whether it compares, of an atomic's name without prefixes.
fn atomic(name: &str) -> Option<(Function, u8, bool)> {
    let suffixes = ["_x2", "_u64", "_i64", "_b64"];
    let wide = suffixes.iter().any(|suffix| name.ends_with(suffix));
    let base = suffixes.iter().chain(&["_u32", "_i32", "_b32"]).find_map(|suffix| name.strip_suffix(suffix));
    let is_signed = name.contains("_i") || name.starts_with("smin") || name.starts_with("smax");
    let function: Function = match (base.unwrap_or(name), wide) {
        ("add", _) => |old, data, _| old.wrapping_add(data),
        ("sub", _) => |old, data, _| old.wrapping_sub(data),
        ("and", _) => |old, data, _| old & data,
        ("or", _) => |old, data, _| old | data,
        ("xor", _) => |old, data, _| old ^ data,
        ("swap" | "wrxchg" | "storexchg", _) => |_, data, _| data,
        ("cmpswap" | "cmpst" | "cmpstore", _) => |old, data, compare| if old == compare { data } else { old },
        ("min" | "smin", false) if is_signed => {
            |old, data, _| signed(old, false).min(signed(data, false)) as u64
        }
        ("max" | "smax", false) if is_signed => {
            |old, data, _| signed(old, false).max(signed(data, false)) as u64
        }
        ("min" | "smin", true) if is_signed => {
            |old, data, _| signed(old, true).min(signed(data, true)) as u64
        }
        ("max" | "smax", true) if is_signed => {
            |old, data, _| signed(old, true).max(signed(data, true)) as u64
        }
        ("min" | "umin", _) => |old, data, _| old.min(data),
        ("max" | "umax", _) => |old, data, _| old.max(data),
        ("inc", _) => |old, data, _| if old >= data { 0 } else { old + 1 },
        ("dec", _) => |old, data, _| if old == 0 || old > data { data } else { old - 1 },
        _ => return None,
    };
    let compares = name.starts_with("cmp");
    Some((function, if wide { 8 } else { 4 }, compares))
}

/// Scope that the modifiers state.
fn scope(arch: Arch, fields: &Fields, atomic: bool) -> Result<Scope, String> {
    let (sc0, sc1) = (fields.has("sc0"), fields.has("sc1"));
    Ok(match arch {
        // Neither tells the device from the system; an access that goes past the first level goes all the way.
        Arch::Gfx90a | Arch::Gfx1100 if fields.has("glc") || atomic => Scope::System,
        Arch::Gfx90a | Arch::Gfx1100 => Scope::Wave,
        Arch::Gfx942 | Arch::Gfx950 => match (sc0, sc1) {
            // Of an atomic, sc0 says that the old value is returned.
            (_, true) if atomic => Scope::System,
            (_, false) if atomic => Scope::Agent,
            (false, false) => Scope::Wave,
            (true, false) => Scope::Group,
            (false, true) => Scope::Agent,
            (true, true) => Scope::System,
        },
        Arch::Gfx1201 => match fields.value("scope") {
            None | Some("SCOPE_CU") => Scope::Wave,
            Some("SCOPE_SE") => Scope::Group,
            Some("SCOPE_DEV") => Scope::Agent,
            Some("SCOPE_SYS") => Scope::System,
            Some(other) => return Err(format!("unknown scope:{other}")),
        },
    })
}

fn offset(fields: &Fields, name: &str) -> Result<i64, String> {
    fields.value(name).map_or(Some(0), integer).ok_or_else(|| format!("unknown {name}"))
}

fn check(fields: &Fields, known: &[&str]) -> Result<(), String> {
    let name = |m: &&str| known.contains(&m.split_once(':').map_or(*m, |(name, _)| name));
    match fields.modifiers.iter().find(|m| !name(m)) {
        None => Ok(()),
        Some(modifier) => Err(format!("unknown modifier {modifier}")),
    }
}

struct Operands<'a>(Arch, std::slice::Iter<'a, &'a str>);

impl Operands<'_> {
    fn next(&mut self, width: Width) -> Result<Operand, String> {
        let text = self.1.next().ok_or("an operand is missing")?;
        operand(self.0, text, width).ok_or_else(|| format!("unknown operand {text}"))
    }
}

/// Reads an access to memory; `Ok(None)` when there is none of that name.
pub fn memory(arch: Arch, name: &str, fields: &Fields) -> Result<Option<Memory>, String> {
    let Some((space, what)) = name.split_once('_') else { return Ok(None) };
    let space = match space {
        "global" => Space::Global,
        "flat" => Space::Flat,
        "scratch" => Space::Scratch,
        "buffer" if arch == Arch::Gfx90a => Space::Buffer,
        _ => return Ok(None),
    };
    let Some((verb, kind)) = what.split_once('_') else { return Ok(None) };
    let is_atomic = verb == "atomic";
    let (access, element) = match (verb, element(kind), atomic(kind)) {
        ("load", Some(element), _) => (Access::Load, element),
        ("store", Some(element), _) => (Access::Store, element),
        ("atomic", _, Some((function, bytes, compares))) if space != Space::Buffer => {
            let returns = match arch {
                Arch::Gfx90a | Arch::Gfx1100 => fields.has("glc"),
                Arch::Gfx942 | Arch::Gfx950 => fields.has("sc0"),
                Arch::Gfx1201 => fields.value("th").is_some_and(|th| th.contains("RETURN")),
            };
            (Access::Atomic { function, compares, returns }, Element::unsigned(bytes))
        }
        _ => return Ok(None),
    };
    check(fields, &["sc0", "sc1", "nt", "glc", "slc", "dlc", "scope", "th", "offset", "offen"])?;
    let returns = matches!(access, Access::Load | Access::Atomic { returns: true, .. });
    let mut operands = Operands(arch, fields.operands.iter());
    let load = matches!(access, Access::Load);
    let (mut to, mut data, mut resource) = (Operand::Null, Operand::Null, Operand::Null);
    let (address, base);
    if space == Space::Buffer {
        *(if load { &mut to } else { &mut data }) = operands.next(Width::Word)?;
        address = operands.next(Width::Word)?;
        resource = operands.next(Width::Wide)?;
        base = operands.next(Width::Word)?;
    } else {
        if returns {
            to = operands.next(Width::Word)?;
        }
        address = operands.next(Width::Wide)?;
        if !load {
            data = operands.next(Width::Word)?;
        }
        base = if space == Space::Flat { Operand::Null } else { operands.next(Width::Wide)? };
    }
    Ok(Some(Memory {
        access,
        space,
        element,
        to,
        address,
        base,
        resource,
        data,
        offset: offset(fields, "offset")?,
        scope: scope(arch, fields, is_atomic)?,
    }))
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

/// Reads what becomes of caches; `Ok(None)` when there is no such instruction.
pub fn cache(arch: Arch, name: &str, fields: &Fields) -> Result<Option<Cache>, String> {
    let found = match (arch, name) {
        (Arch::Gfx90a, "buffer_wbl2") => Cache::WriteBack(Scope::System),
        (Arch::Gfx90a, "buffer_invl2") => Cache::InvalidateSecond,
        (Arch::Gfx90a, "buffer_wbinvl1_vol" | "buffer_wbinvl1") => Cache::Invalidate(Scope::Agent),
        (Arch::Gfx942 | Arch::Gfx950, "buffer_wbl2") => Cache::WriteBack(scope(arch, fields, false)?),
        (Arch::Gfx942 | Arch::Gfx950, "buffer_inv") => Cache::Invalidate(scope(arch, fields, false)?),
        (Arch::Gfx1100, "buffer_gl0_inv") => Cache::Invalidate(Scope::System),
        (Arch::Gfx1100, "buffer_gl1_inv") => Cache::InvalidateMiddle,
        (Arch::Gfx1201, "global_wb") => Cache::WriteBack(scope(arch, fields, false)?),
        (Arch::Gfx1201, "global_inv") => Cache::Invalidate(scope(arch, fields, false)?),
        _ => return Ok(None),
    };
    check(fields, &["sc0", "sc1", "scope"])?;
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arch: Arch, name: &str, rest: &str) -> Memory {
        memory(arch, name, &Fields::new(rest)).unwrap().unwrap()
    }

    #[test]
    fn scopes_of_all_architectures() {
        let scope = |arch, name, rest| read(arch, name, rest).scope;
        let (load, store) = ("global_load_dword", "global_store_dword");
        assert_eq!(scope(Arch::Gfx90a, load, "v0, v1, s[2:3] glc"), Scope::System);
        assert_eq!(scope(Arch::Gfx90a, load, "v0, v1, s[2:3]"), Scope::Wave);
        assert_eq!(scope(Arch::Gfx942, store, "v0, v1, s[2:3] sc0 sc1"), Scope::System);
        assert_eq!(scope(Arch::Gfx942, store, "v0, v1, s[2:3] sc1"), Scope::Agent);
        assert_eq!(scope(Arch::Gfx942, "global_atomic_add", "v0, v1, v2, s[2:3] sc0"), Scope::Agent);
        assert_eq!(scope(Arch::Gfx1201, "global_store_b32", "v0, v1, off scope:SCOPE_SYS"), Scope::System);
        assert!(memory(Arch::Gfx1201, "global_store_b32", &Fields::new("v0, v1, off scope:SCOPE_X")).is_err());
        assert!(memory(Arch::Gfx90a, load, &Fields::new("v0, v1, off lds")).is_err());
        assert!(memory(Arch::Gfx90a, "global_load_odd", &Fields::new("v0, v1, off")).unwrap().is_none());
    }

    #[test]
    fn atomics_by_both_names() {
        for name in ["min_i32", "smin"] {
            let (function, bytes, compares) = atomic(name).unwrap();
            assert_eq!(
                (function(0xffff_ffff, 1, 0) as u32, bytes, compares),
                (0xffff_ffff, 4, false),
                "{name}"
            );
        }
        for name in ["min_u64", "umin_x2"] {
            assert_eq!((atomic(name).unwrap().0)(u64::MAX, 1, 0), 1, "{name}");
        }
        let (swap, bytes, compares) = atomic("cmpswap_b64").unwrap();
        assert_eq!((swap(5, 7, 5), swap(6, 7, 5), bytes, compares), (7, 6, 8, true));
        assert!(atomic("frobnicate").is_none());
    }

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
