// SPDX-License-Identifier: MIT OR Apache-2.0
//! One program for all decoders, which takes long to build: `XIO_FUZZ` says which.
#![no_main]

use std::sync::OnceLock;
use xio_fuzz::{target, Target};

fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("XIO_FUZZ").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("XIO_FUZZ={name:?} is no decoder"))
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| (chosen().run)(data));
