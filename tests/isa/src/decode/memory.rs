// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading instructions that access memory, and those that handle caches.

use super::element::{atomic, element, Element, Function};
use super::listing::{integer, Fields};
use super::operand::{operand, Operand, Width};
use crate::arch::{Arch, Scope};

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

/// A modifier that is a number.
pub(super) fn offset(fields: &Fields, name: &str) -> Result<i64, String> {
    fields.value(name).map_or(Some(0), integer).ok_or_else(|| format!("unknown {name}"))
}

/// Refuses modifiers that are not known.
pub(super) fn check(fields: &Fields, known: &[&str]) -> Result<(), String> {
    let name = |m: &&str| known.contains(&m.split_once(':').map_or(*m, |(name, _)| name));
    match fields.modifiers.iter().find(|m| !name(m)) {
        None => Ok(()),
        Some(modifier) => Err(format!("unknown modifier {modifier}")),
    }
}

/// Operands, one after the other.
pub(super) struct Operands<'a>(pub(super) Arch, pub(super) std::slice::Iter<'a, &'a str>);

impl Operands<'_> {
    pub(super) fn next(&mut self, width: Width) -> Result<Operand, String> {
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
}
