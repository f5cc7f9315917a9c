// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of the programs `xio-target` and `xio`, as they are.

#[path = ""]
#[allow(dead_code, reason = "of the sources only what reads foreign text is used")]
#[allow(rustdoc::broken_intra_doc_links, reason = "clap prints it as it stands")]
pub(crate) mod xio_target {
    #[path = "../../../userspace/xio-target/src/cli.rs"]
    pub(crate) mod cli;
    #[path = "../../../userspace/xio-target/src/control.rs"]
    pub(crate) mod control;
    #[path = "../../../userspace/xio-target/src/file.rs"]
    pub(crate) mod file;
    #[path = "../../../userspace/xio-target/src/serve.rs"]
    pub(crate) mod serve;
}

#[path = ""]
#[allow(dead_code, reason = "of the sources only what reads foreign text is used")]
pub(crate) mod xio {
    #[path = "../../../userspace/xio-cli/src/manifest.rs"]
    pub(crate) mod manifest;
}
