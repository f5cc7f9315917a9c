// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that every structure of the interface follows.

use std::collections::BTreeSet;
use xio_layout::ctype::CType;
use xio_uapi::{ioc_is_ours, ioc_nr, ioc_size, iowr, Layout, CONSTANTS, LAYOUTS};

fn requests() -> impl Iterator<Item = (&'static Layout, &'static str, u8)> {
    LAYOUTS.iter().filter_map(|s| s.request.map(|(name, nr)| (s, name, nr)))
}

#[test]
fn a_request_starts_with_its_size_and_flags() {
    for (s, ..) in requests() {
        let head: Vec<_> = s.fields.iter().take(2).map(|f| (f.name, f.ty, f.offset)).collect();
        assert_eq!(head, [("size", "u32", 0), ("flags", "u32", 4)], "{}", s.name);
    }
}

#[test]
fn a_structure_ends_in_reserved_fields() {
    for s in LAYOUTS {
        assert_eq!(s.fields.last().map(|f| f.name), Some("reserved"), "{}", s.name);
    }
}

#[test]
fn no_structure_has_padding() {
    for s in LAYOUTS {
        let mut end = 0;
        for f in s.fields {
            assert_eq!(f.offset, end, "{}.{}", s.name, f.name);
            end += f.size;
        }
        assert_eq!(s.size, end, "{}", s.name);
        assert_eq!(s.size % 8, 0, "{}: arrays of it would not line up in 32-bit and 64-bit programs", s.name);
    }
}

#[test]
fn fields_are_where_32_bit_and_64_bit_compilers_agree() {
    for s in LAYOUTS {
        for f in s.fields {
            let bytes = CType::of(f.ty).bits as usize / 8;
            assert_eq!(f.offset % bytes, 0, "{}.{}", s.name, f.name);
        }
    }
}

#[test]
fn request_numbers_are_unique_and_carry_the_size() {
    let mut seen = BTreeSet::new();
    for (s, name, nr) in requests() {
        assert!(seen.insert(nr), "{name}: number {nr} is taken");
        let cmd = iowr(nr, s.size);
        assert_eq!((ioc_nr(cmd), ioc_size(cmd), ioc_is_ours(cmd)), (nr, s.size, true), "{name}");
    }
}

#[test]
fn every_name_is_documented_and_unique() {
    let mut seen = BTreeSet::new();
    for c in CONSTANTS {
        assert!(!c.doc.is_empty() && seen.insert(c.name), "{}", c.name);
    }
    for s in LAYOUTS {
        assert!(!s.doc.is_empty() && seen.insert(s.name), "{}", s.name);
        assert!(s.fields.iter().all(|f| !f.doc.is_empty()), "{}", s.name);
    }
    for (s, ..) in requests() {
        assert!(s.doc.iter().any(|line| line.trim().starts_with("Errors:")), "{} names no errors", s.name);
    }
}
