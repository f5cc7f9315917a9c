// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C side of the interface, made from the Rust side.
//!
//! [`header::render`] writes `uapi/include/rocm_xio.h` and [`reference::render`] the book's page on the
//! requests, both from `xio_uapi::LAYOUTS` and `CONSTANTS`. [`probe`] asks a C compiler what it makes of the
//! header and names each number that is not the one of Rust. [`device::render`] writes the header of device code,
//! `kernels/include/xio_kv_wire.h`.
//!
//! `cargo run -p xio-layout --bin gen-header` writes the files; a test says when they are stale.
#![forbid(unsafe_code)]

pub mod ctype;
pub mod device;
pub mod header;
pub mod probe;
pub mod reference;
pub mod text;

use std::path::PathBuf;

/// A generated file.
pub struct Generated {
    /// Where it is kept, from the top of the repository.
    pub path: &'static str,
    /// What belongs in it.
    pub text: String,
}

impl Generated {
    /// Where it is kept.
    pub fn full_path(&self) -> PathBuf {
        repository().join(self.path)
    }

    /// Whether the kept file is what belongs there.
    pub fn is_current(&self) -> bool {
        std::fs::read_to_string(self.full_path()).is_ok_and(|kept| kept == self.text)
    }
}

/// All generated files.
pub fn generated() -> Vec<Generated> {
    vec![
        Generated { path: "uapi/include/rocm_xio.h", text: header::render() },
        Generated { path: "docs/src/abi-reference.md", text: reference::render() },
        Generated { path: "kernels/include/xio_kv_wire.h", text: device::render() },
    ]
}

/// Top of the repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
