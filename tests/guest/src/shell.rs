// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interactive prompt.

use crate::{kernel, user};
use anyhow::Result;
use std::process::{Command, Stdio};

/// Loads the module and leaves the ordinary user at a prompt on the console until that ends.
pub fn run() -> Result<()> {
    println!("\nThis is a virtual machine with Debian's kernel and a software NVMe-KV controller.");
    if kernel::has_module() {
        kernel::load_rocm_xio("")?;
        println!("You are an ordinary user in group render; /dev/rocm-xio0 is ready. Try:");
        println!("    xio list        xio kv store hello -i /etc/passwd        xio kv retrieve hello");
    } else {
        println!("It was booted without rocm_xio.ko.");
    }
    println!("`exit` powers it off; Ctrl-A X kills it.\n");
    let words = ["--terminal", "/dev/ttyS0", "/bin/sh"];
    let status = Command::new("/init")
        .args([user::ROLE, "render"])
        .args(words)
        .env("PS1", "user@xio:\\w\\$ ")
        .env("TERM", "linux")
        .stdin(Stdio::null())
        .status()?;
    println!("The shell ended with {status}.");
    Ok(())
}
