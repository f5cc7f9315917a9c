// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as people run it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn run_with(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xio"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn run(args: &[&str]) -> Output {
    run_with(args, b"")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn help_lists_commands_and_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(code(&help), 0);
    for text in
        ["list", "info", "kv", "--device", "--loopback", "Exit codes:", "  3  no such key", "  8  no device"]
    {
        assert!(stdout(&help).contains(text), "{text}");
    }
    for command in ["store", "retrieve", "exist", "delete", "list", "selftest"] {
        assert_eq!(code(&run(&["kv", command, "--help"])), 0, "{command}");
    }
    assert!(stdout(&run(&["--version"])).starts_with("xio "));
}

#[test]
fn wrong_arguments_end_with_2() {
    let wrong: [&[&str]; 12] = [
        &[],
        &["nonsense"],
        &["kv", "store"],
        &["kv", "exist"],
        &["kv", "store", "seventeen letters"],
        &["kv", "store", "0xabc"],
        &["kv", "store", "k", "--if-absent", "--if-exists"],
        &["--loopback", "--device", "0", "list"],
        &["--timeout", "soon", "list"],
        &["--path", "straight", "list"],
        &["--memory", "tape", "list"],
        &["--wait", "1e15", "list"],
    ];
    for args in wrong {
        assert_eq!(code(&run(args)), 2, "{args:?}");
    }
    let error = stderr(&run(&["kv", "store", "seventeen letters"]));
    assert!(error.contains("1 to 16 bytes, this one has 17"), "{error}");
}

#[test]
fn a_missing_device_ends_with_8_and_says_what_to_do() {
    for args in [&["--device", "987654", "kv", "list"][..], &["info", "987654"]] {
        let output = run(args);
        assert_eq!(code(&output), 8);
        assert!(stderr(&output).contains("/dev/rocm-xio987654 does not exist: is the module loaded"));
        assert!(stdout(&output).is_empty());
    }
    let output = run(&["--device", "987654", "list", "-o", "json"]);
    assert_eq!(code(&output), 8);
    assert!(stdout(&output).contains("\"error\""));
    // Where there is no controller at all.
    if std::fs::read_dir("/dev")
        .unwrap()
        .all(|e| !e.unwrap().file_name().to_string_lossy().starts_with("rocm-xio"))
    {
        let output = run(&["kv", "exist", "a"]);
        assert_eq!(code(&output), 8);
        assert!(stderr(&output).contains("no /dev/rocm-xio* found: load the module (insmod rocm_xio.ko)"));
        let output = run(&["list", "-o", "json"]);
        assert_eq!((code(&output), stdout(&output)), (0, "[]\n".into()));
    }
}

#[test]
fn another_kind_of_file_ends_with_6() {
    let output = run(&["--device", "/dev/null", "info"]);
    assert_eq!(code(&output), 6, "{}", stderr(&output));
}

#[test]
fn the_loopback_controller_is_listed_and_described() {
    let list = run(&["--loopback", "list"]);
    assert_eq!(code(&list), 0);
    assert!(stdout(&list).starts_with("DEVICE    ADDRESS"), "{}", stdout(&list));
    assert!(stdout(&list).contains("loopback"));
    let info = run(&["--loopback", "info"]);
    assert!(
        stdout(&info).contains("Direct path       yes (an IOMMU confines the device)\nMediated path     yes (for everybody)\nPath              direct"),
        "{}",
        stdout(&info)
    );
    let info = run(&["--loopback", "--path", "mediated", "info"]);
    assert!(stdout(&info).contains("\nPath              mediated"), "{}", stdout(&info));
    let json: serde_json::Value =
        serde_json::from_slice(&run(&["--loopback", "info", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        (json["device"].as_str(), json["namespaces"][0]["nsid"].as_u64()),
        (Some("loopback"), Some(1))
    );
    let json: serde_json::Value =
        serde_json::from_slice(&run(&["--loopback", "list", "-o", "json"]).stdout).unwrap();
    assert_eq!((json[0]["direct"].as_bool(), json[0]["mediated"].as_bool()), (Some(true), Some(true)));
    assert_eq!(json[0]["path"].as_str(), Some("direct"));
}

#[test]
fn exit_codes_of_operations() {
    let missing: [(&[&str], i32); 7] = [
        (&["kv", "retrieve", "a"], 3),
        (&["kv", "exist", "a", "b"], 3),
        (&["kv", "delete", "a"], 3),
        (&["kv", "store", "a", "--if-exists"], 3),
        (&["kv", "store", "a", "--if-absent", "--no-compress"], 0),
        (&["kv", "list"], 0),
        (&["--nsid", "9", "kv", "list"], 8),
    ];
    for (args, expected) in missing {
        let output = run_with(&[&["--loopback"], args].concat(), b"value");
        assert_eq!(code(&output), expected, "{args:?}: {}", stderr(&output));
    }
    assert_eq!(stdout(&run(&["--loopback", "kv", "exist", "a", "0x00"])), "a: not found\n0x00: not found\n");
    assert_eq!(stdout(&run(&["--loopback", "kv", "list", "-o", "json", "--limit", "3"])), "[]\n");
}

#[test]
fn values_are_read_whole_from_files_and_standard_input() {
    let file = folder("input").join("value");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    let output = run(&["--loopback", "kv", "store", "a", "-i", file.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert!(stderr(&output).contains("stored a: 3145728 bytes"), "{}", stderr(&output));
    let output = run_with(&["--loopback", "kv", "store", "0x00", "--input", "-"], &vec![1; 2_000_000]);
    assert!(stderr(&output).contains("stored 0x00: 2000000 bytes"), "{}", stderr(&output));
    let output = run(&["--loopback", "kv", "store", "a", "-i", "/nowhere/at/all"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("reading /nowhere/at/all"));
}

#[test]
fn values_beyond_the_limit_are_refused_early() {
    // 64 MiB is the limit: the file is sparse, and the endless input is not read to its end.
    let file = folder("large").join("value");
    std::fs::File::create(&file).unwrap().set_len((64 << 20) + 1).unwrap();
    let output = run(&["--loopback", "kv", "store", "a", "-i", file.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    let text =
        "key a: a value of 67108865 bytes is more than the 67108864 bytes that the namespace (KVVML) allows";
    assert!(stderr(&output).contains(text), "{}", stderr(&output));
    let output = run(&["--loopback", "kv", "store", "a", "-i", "/dev/zero"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("/dev/zero has more than the 67108864 bytes"), "{}", stderr(&output));
}

#[test]
fn a_failed_retrieve_leaves_the_file_alone() {
    let folder = folder("output");
    let file = folder.join("value");
    std::fs::write(&file, "before").unwrap();
    let output = run(&["--loopback", "kv", "retrieve", "a", "-o", file.to_str().unwrap()]);
    assert_eq!(code(&output), 3);
    assert_eq!(std::fs::read(&file).unwrap(), b"before");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    // As good as a pipe, and closed before the program starts.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(ours);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xio"));
    command.args(["--loopback", "info"]).stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (141, String::new()));
}

#[test]
fn messages_that_nobody_takes_change_nothing() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(ours);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(std::os::fd::OwnedFd::from(theirs)), full.into()] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xio"));
        command.args(["--loopback", "kv", "delete", "a"]).stderr(stderr);
        assert_eq!(command.status().unwrap().code(), Some(3));
    }
}

#[test]
fn the_self_test_passes_and_the_path_is_told() {
    let ways = [
        ("auto", "coherent", "direct", "selftest"),
        ("direct", "pinned", "direct", "list"),
        ("mediated", "coherent", "mediated", "list"),
        ("mediated", "pinned", "mediated", "selftest"),
    ];
    for (path, memory, used, command) in ways {
        let output = run(&["--loopback", "-v", "--path", path, "--memory", memory, "kv", command]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let tested = stdout(&output).lines().filter(|line| line.contains(" bytes: ok, stored in ")).count();
        assert_eq!(tested, if command == "selftest" { 8 } else { 0 });
        let said = format!("xio: path: {used}, memory: {memory}\n");
        assert!(stderr(&output).contains(&said), "{}", stderr(&output));
    }
    let quiet = run(&["--loopback", "kv", "exist", "a"]);
    assert!(!stderr(&quiet).contains("path:"), "{}", stderr(&quiet));
}

/// A manifest of three values in one file.
fn manifest(name: &str) -> (PathBuf, PathBuf) {
    let folder = folder(name);
    std::fs::write(folder.join("values"), b"first value, second one, third").unwrap();
    let lines = "{\"key\": \"one\", \"file\": \"values\", \"length\": 11, \"meta\": {\"prefix\":  7}}\n\n\
                 {\"key_hex\": \"0002\", \"file\": \"values\", \"offset\": 13, \"length\": 10, \"digest\": \
                 \"sha256:5a4a4cd6ca4e23a7f5f2d7a2ff5ddad4a5f2d3f3a1a9f6d6f2d3a1ff41aa6a35\"}\n";
    let path = folder.join("manifest");
    std::fs::write(&path, lines).unwrap();
    (folder, path)
}

#[test]
fn manifests_name_the_line_that_is_wrong() {
    let (_, path) = manifest("manifest-wrong");
    let path = path.to_str().unwrap();
    for gpu in [&["--gpu=host"][..], &[]] {
        let args = [&["--loopback", "kv", "store", "--manifest", path][..], gpu].concat();
        let output = run(&args);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains("manifest, line 3: key 0x0002: the file's digest is another"));
    }
}

#[test]
fn manifests_are_stored_by_kernels_and_without() {
    let (folder, path) = manifest("manifest-right");
    let text = std::fs::read_to_string(&path).unwrap();
    let first = text.lines().next().unwrap();
    let whole = "{\"key\": \"all\", \"file\": \"values\"}";
    std::fs::write(&path, format!("{first}\n{whole}\n")).unwrap();
    let path = path.to_str().unwrap();
    for gpu in [&["--gpu=host", "--batch", "1"][..], &["--gpu=host"], &[]] {
        let args =
            [&["--loopback", "kv", "store", "--manifest", path, "--results", "json"][..], gpu].concat();
        let output = run(&args);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let line =
            |n: usize| (json[n]["line"].as_u64(), json[n]["length"].as_u64(), json[n]["code"].as_u64());
        assert_eq!(line(0), (Some(1), Some(11), Some(0)));
        assert_eq!(line(1), (Some(2), Some(30), Some(0)));
        assert!(stdout(&output).contains("{\"prefix\":  7}"), "meta is carried through as it was");
        let args = [&["--loopback", "kv", "retrieve", "--manifest", path][..], gpu].concat();
        let output = run(&args);
        assert_eq!(code(&output), 3, "a new controller has no keys");
        assert!(stderr(&output).contains("line 1: key one: key one: not found"), "{}", stderr(&output));
    }
    drop(folder);
}

#[test]
fn single_keys_go_through_kernels_too() {
    let loopback = |args: &[&str]| run_with(&[&["--loopback", "kv"], args].concat(), b"a value");
    assert!(stderr(&loopback(&["store", "k", "--gpu=host"])).contains("stored k: 7 bytes"));
    assert_eq!(code(&loopback(&["retrieve", "k", "--gpu=host"])), 3);
    assert_eq!(code(&loopback(&["delete", "k", "l", "--gpu=host"])), 3);
    let exist = loopback(&["exist", "k", "--gpu=host"]);
    assert_eq!((code(&exist), stdout(&exist)), (3, "k: not found\n".into()));
    let none = loopback(&["exist", "k", "--gpu=hip:77"]);
    assert_eq!(code(&none), 1);
    assert!(stderr(&none).contains("hip: "), "{}", stderr(&none));
    assert_eq!(code(&loopback(&["exist", "k", "--gpu=tpu"])), 2);
}

#[test]
fn values_go_to_the_memory_of_the_device_if_asked() {
    let (folder, path) = manifest("manifest-device");
    let first = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, first.lines().next().unwrap()).unwrap();
    for (memory, told) in [("dmabuf", "dmabuf, the device's own"), ("coherent", "coherent")] {
        let kv = ["--loopback", "-v", "--memory", memory, "kv"];
        let run = |args: &[&str]| run_with(&[&kv, args, &["--gpu=host"]].concat(), b"a value");
        let said = format!("xio: kernels: host, doorbell: memory, mapped for the device, memory: {told}\n");
        for args in [&["store", "k"][..], &["store", "--manifest", path.to_str().unwrap(), "--batch", "1"]] {
            let stored = run(args);
            assert_eq!(code(&stored), 0, "{}", stderr(&stored));
            assert!(stderr(&stored).contains(&said), "{}", stderr(&stored));
        }
        assert_eq!((code(&run(&["retrieve", "k"])), code(&run(&["exist", "k"]))), (3, 3));
    }
    let quiet = run_with(&["--loopback", "--memory", "dmabuf", "kv", "store", "k", "--gpu=host"], b"a value");
    assert_eq!((code(&quiet), stderr(&quiet).contains("kernels")), (0, false));
    assert!(stdout(&run(&["kv", "retrieve", "--help"])).contains("the GPU's own memory"));
    drop(folder);
}

#[test]
fn devices_that_run_kernels_are_listed() {
    let output = run(&["gpu", "--loopback", "-o", "json"]);
    assert_eq!(code(&output), 0);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let devices = json["devices"].as_array().unwrap();
    assert!(devices.iter().any(|d| d["device"] == "host" && d["kernels"] == "host"), "{json}");
}

#[test]
fn top_says_what_it_can_not_show() {
    let inside = run(&["--loopback", "top", "--once"]);
    assert_eq!(code(&inside), 2);
    assert!(stderr(&inside).contains("leave --loopback out"), "{}", stderr(&inside));
    for wrong in
        [&["top", "--once", "--interval", "2"][..], &["top", "--interval", "0"], &["top", "0", "-d", "1"]]
    {
        assert_eq!(code(&run(wrong)), 2, "{wrong:?}");
    }
    let missing = run(&["top", "--once", "no-such-controller"]);
    // There may be no debugfs here, or not for this user.
    assert!([6, 7, 8].contains(&code(&missing)), "{missing:?}");
    assert!(!stderr(&missing).is_empty() && missing.stdout.is_empty());
}
