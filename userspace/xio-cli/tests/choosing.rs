// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bind`, `unbind` and `doctor` on whatever machine this is, of which they change nothing here.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xio")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_tells_what_is_refused_and_the_exit_codes() {
    let help = text(&run(&["--help"]).stdout);
    for line in ["  bind ", "  unbind ", "  doctor ", "  9  xio doctor found problems"] {
        assert!(help.contains(line), "{line:?} is not in {help}");
    }
    for (command, word) in [("bind", "mounted"), ("unbind", "nvme"), ("doctor", "PROBLEM")] {
        let help = text(&run(&[command, "--help"]).stdout);
        assert!(help.contains("Exit codes: 0 ") && help.contains(word), "{help}");
    }
}

#[test]
fn what_is_no_address_ends_with_2() {
    for command in ["bind", "unbind"] {
        for address in [&["01:00"][..], &["nvme0"], &["01:00.8"], &[], &["1:0.0", "2:0.0"]] {
            assert_eq!(run(&[&[command], address].concat()).status.code(), Some(2), "{command} {address:?}");
        }
    }
    let error = text(&run(&["bind", "01:00"]).stderr);
    assert!(error.contains("BUS:DEVICE.FUNCTION"), "{error}");
    // There is no way to insist.
    assert_eq!(run(&["bind", "--force", "01:00.0"]).status.code(), Some(2));
}

#[test]
fn a_function_that_is_not_there_ends_with_8() {
    for command in ["bind", "unbind"] {
        let output = run(&[command, "fffffff0:ff:1f.7"]);
        assert_eq!(output.status.code(), Some(8));
        let error = text(&output.stderr);
        assert!(error.starts_with("xio: fffffff0:ff:1f.7: there is no such PCI function"), "{error}");
    }
}

#[test]
fn doctor_ends_with_9_if_and_only_if_there_are_problems() {
    let output = run(&["doctor", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = report["problems"].as_u64().unwrap();
    assert_eq!(output.status.code(), Some(if problems > 0 { 9 } else { 0 }));
    let findings = report["findings"].as_array().unwrap();
    let level = |name: &str| findings.iter().filter(|finding| finding["level"] == name).count() as u64;
    assert_eq!(level("problem"), problems);
    assert!(findings
        .iter()
        .all(|f| f["level"] == "ok" || f["remedy"].as_str().is_some_and(|text| !text.is_empty())));
    let lines = text(&run(&["doctor"]).stdout);
    assert_eq!(lines.matches("PROBLEM").count() as u64, problems, "{lines}");
    assert!(
        lines.contains("kernel      Linux ")
            && lines.ends_with(if problems == 1 { "1 problem\n" } else { "problems\n" })
    );
}
