// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of device code, `kernels/include/xio_kv_wire.h`.

use crate::ctype::CType;
use crate::text::{paragraphs, wrap};
use std::fmt::Write;
use xio_device_abi::{device, wire, Constant, Structure};

const WIDTH: usize = 112;

const TOP: &str = "\
// SPDX-License-Identifier: MIT OR Apache-2.0
// Structures and constants that device code shares with NVMe, the module and the host's side of the library.
//
// Generated from the crates nvme-kv, xio-uapi and xio-device-abi by `cargo run -p xio-layout --bin gen-header`.
// Do not edit. All is little-endian; addresses are those of the device.
#ifndef XIO_KV_WIRE_H
#define XIO_KV_WIRE_H

#include <stddef.h>
#include <stdint.h>
";

/// All structures, in the order of the header.
pub fn structures() -> impl Iterator<Item = &'static Structure> {
    wire::STRUCTURES.iter().chain(device::STRUCTURES)
}

/// The whole header.
pub fn render() -> String {
    let mut out = String::from(TOP);
    wire::constants().iter().for_each(|c| constant(&mut out, c));
    structures().for_each(|s| structure(&mut out, s));
    out.push_str("\n#endif // XIO_KV_WIRE_H\n");
    out
}

fn comment(out: &mut String, indent: &str, doc: &[&str]) {
    for paragraph in paragraphs(doc) {
        for line in wrap(&paragraph.replace('`', ""), WIDTH - indent.len()) {
            let _ = writeln!(out, "{indent}/// {line}");
        }
    }
}

fn name(ty: CType) -> String {
    format!("{}int{}_t", if ty.signed { "" } else { "u" }, ty.bits)
}

fn constant(out: &mut String, c: &Constant) {
    out.push('\n');
    comment(out, "", &[c.doc]);
    let ty = CType::of(c.ty);
    let _ = writeln!(out, "#define {} (({}){:#x})", c.name, name(ty), c.value);
}

fn structure(out: &mut String, s: &Structure) {
    out.push('\n');
    comment(out, "", s.doc);
    let _ = writeln!(out, "struct alignas({}) {} {{", s.align, s.name);
    for m in s.members {
        comment(out, "    ", m.doc);
        match m.ty {
            // The one structure within another.
            "Buffer" => {
                let _ = writeln!(out, "    xio_buffer {};", m.name);
            }
            ty => {
                let ty = CType::of(ty);
                let array = ty.len.map(|n| format!("[{n}]")).unwrap_or_default();
                let _ = writeln!(out, "    {} {}{array};", name(ty), m.name);
            }
        }
    }
    out.push_str("};\n");
    let _ = writeln!(
        out,
        "static_assert(sizeof({0}) == {1} && alignof({0}) == {2}, \"{0}\");",
        s.name, s.size, s.align
    );
    for m in s.members {
        let _ =
            writeln!(out, "static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");", s.name, m.name, m.offset);
    }
}
