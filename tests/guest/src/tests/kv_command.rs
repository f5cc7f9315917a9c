// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command, as lines of shell.

use crate::command::Finished;
use crate::user;
use anyhow::{ensure, Result};
use std::time::Duration;

/// A line of shell as the ordinary user.
fn shell(line: &str) -> Result<Finished> {
    user::run_within(&["sh", "-c", line], Duration::from_secs(100))
}

/// Options of the command, and files that it writes.
pub fn options() -> Result<()> {
    let store = "for n in 0 1 2 3 4 5 6 7; do printf $n | xio kv store opt$n -i - || exit; done";
    shell(store)?.expect_success()?;
    let listed = shell("xio kv list --start opt2 --limit 5")?.expect_success()?.text();
    ensure!(listed == "opt2\nopt3\nopt4\nopt5\nopt6\n", "{listed}");
    shell("printf other | xio kv store opt3 -i - --if-absent")?.expect_code(4)?;
    shell("printf new | xio kv store opt8 -i - --if-exists")?.expect_code(3)?;
    for file in ["fresh", "an old file"] {
        let line = "xio kv retrieve opt3 -o /tmp/opt && cat /tmp/opt";
        let got = shell(line)?.expect_success()?.text();
        ensure!(got == "3", "{file}: {got}");
        std::fs::write("/tmp/opt.old", "longer than the value")?;
        shell("cat /tmp/opt.old > /tmp/opt")?.expect_success()?;
    }
    shell("rm /tmp/opt && xio kv delete opt0 opt1 opt2 opt3 opt4 opt5 opt6 opt7")?.expect_success()?;
    shell("xio kv retrieve opt3 -o /tmp/opt")?.expect_code(3)?;
    ensure!(!std::path::Path::new("/tmp/opt").exists(), "a file without a value");
    Ok(())
}

/// A namespace of 1 MiB is filled by the command.
pub fn full() -> Result<()> {
    let fill = "n=0; while [ $n -lt 64 ]; do head -c 32768 /dev/zero | xio -n 1 kv store full$n || exit; \
                n=$((n + 1)); done";
    let refused = shell(fill)?.expect_code(5)?;
    ensure!(refused.stderr.contains("full"), "{}", refused.stderr);
    shell("xio -n 1 kv delete $(xio -n 1 kv list)")?.expect_success()?;
    let over = shell("head -c 32769 /dev/zero | xio -n 1 kv store long")?;
    over.expect_code(2).map(drop)
}
