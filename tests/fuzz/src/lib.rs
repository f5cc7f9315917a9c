// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every decoder of foreign bytes must hold to, whatever the bytes: a function per decoder, which panics if it does not.
//!
//! Coverage-guided fuzzing calls them (`tests/fuzz/libfuzzer`, the suite `fuzz`), and so does an ordinary test, with
//! [seeds](Target::seeds) made of real encodings, with spoiled seeds, and with the inputs in `tests/fuzz/found` that broke
//! something once.
//!
//! | module | what |
//! |---|---|
//! | `input` | numbers and bytes of an input |
//! | `wire` | submission and completion queue entries, Identify data, lists, keys |
//! | `pages` | PRP lists and SGLs |
//! | `queue` | what the library does with completions of any kind |
//! | `rig`, `controller` | the software controller, given commands, memory, doorbells and registers of any kind |
//! | `vfio` | vfio-user messages |
//! | `text` | scripts of faults, `xio-target.toml`, the control socket, manifests |
//! | `programs` | sources of the programs, which are no libraries |

mod controller;
mod input;
mod pages;
mod programs;
mod queue;
mod rig;
mod text;
mod vfio;
mod wire;

/// Longest input that is worth trying.
pub const MAX_LEN: usize = 4096 + 512;

/// A decoder.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name.
    pub name: &'static str,
    /// Panics when bytes make the decoder do what it must not.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident: $module:ident::$run:ident, $seeds:ident;)*) => {
        /// All decoders.
        pub const TARGETS: &[Target] = &[
            $(Target { name: stringify!($name), run: $module::$run, seeds: $module::$seeds },)*
        ];
    };
}

targets! {
    sqe: wire::sqe, sqe_seeds;
    cqe: queue::completions, seeds;
    identify: wire::identify, identify_seeds;
    list: wire::list, list_seeds;
    prp: pages::prp, prp_seeds;
    sgl: pages::sgl, sgl_seeds;
    controller: controller::run, seeds;
    vfio: vfio::run, seeds;
    faults: text::faults, faults_seeds;
    config: text::config, config_seeds;
    control: text::control, control_seeds;
    manifest: text::manifest, manifest_seeds;
}

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
