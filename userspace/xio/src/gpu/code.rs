// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine code of kernels: that which the library was built with, and the application's own.

include!(concat!(env!("OUT_DIR"), "/code.rs"));

/// Code that a runtime can load: an AMD code object, a CUDA binary, or PTX with a zero at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a>(pub &'a [u8]);

/// The embedded kernels whose file names end in one of these, as name and code.
pub(super) fn embedded<'a>(kinds: &'a [&str]) -> impl Iterator<Item = (&'static str, &'static [u8])> + 'a {
    let split = |file: &&'static str| file.split_once('.').unwrap_or((file, ""));
    CODE.iter().filter_map(move |(file, code)| {
        let (name, kind) = split(file);
        kinds.contains(&kind).then_some((name, *code))
    })
}
