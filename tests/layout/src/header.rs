// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C header.

use crate::ctype::CType;
use crate::text::{kernel_doc, paragraphs, rules, wrap, FIXED_SPACE};
use std::fmt::Write;
use xio_uapi::{Constant, Field, Layout, CONSTANTS, IOC_TYPE, LAYOUTS};

const WIDTH: usize = 96;

const TOP: &str = "\
/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * Interface of /dev/rocm-xioN.
 *
 * Generated from the crate xio-uapi by `cargo run -p xio-layout --bin gen-header`. Do not edit.
 *
 * Rules that every request follows:
";

const INCLUDES: &str = "
#ifndef ROCM_XIO_H
#define ROCM_XIO_H

#include <linux/ioctl.h>
#include <linux/types.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

const BOTTOM: &str = "
#ifdef __cplusplus
}
#endif

#endif /* ROCM_XIO_H */
";

/// The whole header.
pub fn render() -> String {
    let mut out = String::from(TOP);
    for rule in rules() {
        item(&mut out, " * - ", " *   ", &kernel_doc(&rule));
    }
    out.push_str(" */\n");
    out.push_str(INCLUDES);
    out.push_str("\n/* Type of the ioctl numbers of all requests. */\n");
    put(&mut out, &format!("#define XIO_IOC_TYPE {IOC_TYPE:#04X}\n"));
    CONSTANTS.iter().for_each(|c| constant(&mut out, c));
    LAYOUTS.iter().for_each(|s| structure(&mut out, s));
    out.push_str(BOTTOM);
    out
}

fn put(out: &mut String, text: &str) {
    out.push_str(text);
}

/// A text over several lines.
fn item(out: &mut String, first: &str, rest: &str, text: &str) {
    for (i, line) in wrap(text, WIDTH - first.len()).iter().enumerate() {
        let line = line.replace(FIXED_SPACE, " ");
        let _ = writeln!(out, "{}{line}", if i == 0 { first } else { rest });
    }
}

fn constant(out: &mut String, c: &Constant) {
    let text = kernel_doc(&paragraphs(c.doc).join(" "));
    match wrap(&text, WIDTH - 6).as_slice() {
        [line] => put(out, &format!("\n/* {} */\n", line.replace(FIXED_SPACE, " "))),
        _ => {
            put(out, "\n/*\n");
            item(out, " * ", " * ", &text);
            put(out, " */\n");
        }
    }
    put(out, &format!("#define XIO_{} {}\n", c.name, CType::of(c.ty).literal(c.value)));
}

fn structure(out: &mut String, s: &Layout) {
    let docs = paragraphs(s.doc);
    put(out, "\n/**\n");
    for (i, paragraph) in docs.iter().enumerate() {
        if i == 0 {
            item(out, " * ", " *   ", &format!("struct {} - {}", s.name, kernel_doc(paragraph)));
            s.fields.iter().for_each(|f| member_doc(out, f));
        } else {
            put(out, " *\n");
            item(out, " * ", " * ", &kernel_doc(paragraph));
        }
    }
    put(out, &format!(" */\nstruct {} {{\n", s.name));
    s.fields.iter().for_each(|f| member(out, f));
    put(out, "};\n");
    if let Some((name, nr)) = s.request {
        let _ = writeln!(out, "\n/* Request with &struct {}. */", s.name);
        let _ = writeln!(out, "#define XIO_IOC_{name} _IOWR(XIO_IOC_TYPE, {nr:#04x}, struct {})", s.name);
    }
}

fn member_doc(out: &mut String, f: &Field) {
    let text = kernel_doc(&paragraphs(f.doc).join(" "));
    item(out, " * ", " *   ", &format!("@{}: {text}", f.name));
}

fn member(out: &mut String, f: &Field) {
    let ty = CType::of(f.ty);
    let array = ty.len.map(|len| format!("[{len}]")).unwrap_or_default();
    let _ = writeln!(out, "\t{} {}{array};", ty.name(), f.name);
}
