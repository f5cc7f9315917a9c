// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with a file: several controllers, namespaces that come and go, and the control socket.

mod common;

use common::client::{plug_at, Machine};
use common::{key, pattern, Driver};
use nvme_kv::admin::{self, feature, Feature, GetLogPage};
use nvme_kv::kv::{Command, Condition};
use nvme_kv::{csi, identify, log, DataPointer, Sqe, Status};
use serde_json::{json, Value};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

const LIMIT: Duration = Duration::from_secs(20);

struct Target {
    child: Child,
    folder: PathBuf,
}

impl Target {
    fn start(folder: &Path) -> Self {
        let child = Program::new(env!("CARGO_BIN_EXE_xio-target"))
            .args(["serve", "--config"])
            .arg(folder.join("xio-target.toml"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, folder: folder.to_owned() }
    }

    fn plug(&self, socket: &str) -> Driver<Machine> {
        plug_at(&self.folder.join(socket), LIMIT)
    }

    fn ctl(&self, words: &[&str]) -> Result<Value, String> {
        let socket = self.folder.join("control");
        let out = Program::new(env!("CARGO_BIN_EXE_xio-target"))
            .args(["ctl", "--control"])
            .arg(socket)
            .args(words)
            .output()
            .unwrap();
        if out.status.success() {
            Ok(serde_json::from_slice(&out.stdout).unwrap())
        } else {
            Err(String::from_utf8(out.stderr).unwrap())
        }
    }

    /// Ends it the way an administrator does.
    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Where a test has failed.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("xio-control-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let place = folder.display();
    let text = format!(
        r#"
control = "{place}/control"

[namespace.kept]
backend = "embedded"
path = "{place}/kept"
capacity = "1G"

[namespace.scratch]
backend = "mem"
capacity = "1M"
max_value = "64K"

[namespace.frozen]
backend = "mem"
read_only = true

[controller.a]
socket = "{place}/a"
serial = "A"
namespaces = ["kept", "scratch"]

[controller.b]
socket = "{place}/b"
namespaces = ["kept"]
max_queues = 3
"#
    );
    std::fs::write(folder.join("xio-target.toml"), text).unwrap();
    folder
}

fn active(d: &mut Driver<Machine>) -> Vec<u32> {
    let list = d.identify(identify::cns::CSI_ACTIVE_NAMESPACES, 0, csi::KV).unwrap();
    identify::NamespaceList::read_from_bytes(&list).unwrap().iter().collect()
}

fn changed(d: &mut Driver<Machine>) -> Vec<u32> {
    let data = DataPointer { prp1: d.alloc(1), prp2: 0 };
    let lid = log::id::CHANGED_NAMESPACES;
    let page = GetLogPage { lid, numd: 1023, data, ..GetLogPage::default() };
    d.admin(admin::Command::GetLogPage(page)).unwrap();
    let mut bytes = [0; 4096];
    common::Bus::peek(&d.bus, data.prp1, &mut bytes);
    identify::NamespaceList::read_from_bytes(&bytes).unwrap().iter().collect()
}

#[test]
fn controllers_of_one_program_share_namespaces_and_keep_them() {
    let folder = folder("share");
    let target = Target::start(&folder);
    let (mut a, mut b) = (target.plug("a"), target.plug("b"));
    assert_eq!((active(&mut a), active(&mut b)), (vec![1, 2], vec![1]));
    let value = pattern(300_000, 3);
    assert_eq!(a.store(1, &key("both"), &value, Condition::Always), Ok(0));
    assert_eq!(b.retrieve(1, &key("both"), 300_000), Ok((value.clone(), 300_000)));
    // A machine that is started again, and another one, find everything.
    drop(a);
    let mut a = target.plug("a");
    assert_eq!(a.retrieve(1, &key("both"), 300_000), Ok((value.clone(), 300_000)));
    assert_eq!(b.store(1, &key("more"), &[1; 10], Condition::Always), Ok(0));
    let usage = target.ctl(&["usage"]).unwrap();
    let frozen = json!({ "name": "frozen", "used": 0, "capacity": 1 << 30, "pairs": 0, "ready": true });
    let kept = json!({ "name": "kept", "used": 300_018, "capacity": 1 << 30, "pairs": 2, "ready": true });
    assert_eq!((&usage[0], &usage[1]), (&frozen, &kept));
    let statistics = target.ctl(&["statistics"]).unwrap();
    assert_eq!(statistics[0]["name"], "a");
    assert_eq!((&statistics[0]["running"], &statistics[0]["queues"]), (&json!(true), &json!(1)));
    assert_eq!((&statistics[1]["writes"], &statistics[1]["bytes_written"]), (&json!(1), &json!(10)));
    target.stop();
    assert!(!folder.join("a").exists() && !folder.join("control").exists());
    let target = Target::start(&folder);
    let mut b = target.plug("b");
    assert_eq!(b.retrieve(1, &key("both"), 300_000), Ok((value, 300_000)));
    target.stop();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn spec_base_5_1_2_namespaces_come_and_go_with_a_notice() {
    let folder = folder("attach");
    let target = Target::start(&folder);
    let mut b = target.plug("b");
    let mode = std::fs::metadata(folder.join("control")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let wanted = Feature { fid: feature::ASYNC_EVENT_CONFIGURATION, value: 1 << 8, ..Feature::default() };
    assert_eq!(b.admin(admin::Command::SetFeatures(wanted)), Ok(0));
    b.push(0, admin::Command::AsyncEvent.encode(0)).unwrap();
    b.ring(0);
    assert_eq!(target.ctl(&["attach", "b", "scratch", "--nsid", "5"]), Ok(json!({ "nsid": 5 })));
    let event = b.wait(0);
    assert_eq!((event.dw0.get(), event.status()), (0x0004_0002, Status::SUCCESS));
    assert_eq!((changed(&mut b), changed(&mut b)), (vec![5], vec![]));
    assert_eq!(active(&mut b), [1, 5]);
    // Between them are some that are not attached, and beyond them none.
    let exist = |nsid| -> Sqe { Command::Exist { key: key("x") }.encode(0, nsid) };
    assert_eq!(b.execute(1, exist(5)), Err(Status::KEY_NOT_FOUND));
    assert_eq!(b.execute(1, exist(3)), Err(Status::INVALID_FIELD));
    assert_eq!(b.execute(1, exist(6)), Err(Status::INVALID_NAMESPACE));
    assert_eq!(b.identify(identify::cns::CSI_NAMESPACE, 3, csi::KV), Ok(vec![0; 4096]));
    assert_eq!(target.ctl(&["attach", "b", "frozen"]), Ok(json!({ "nsid": 2 })));
    let write = Command::Delete { key: key("x") }.encode(0, 2);
    assert_eq!(b.execute(1, write), Err(Status::WRITE_PROTECTED));
    let namespaces = target.ctl(&["namespaces"]).unwrap();
    assert_eq!(namespaces[2]["name"], "scratch");
    let places = json!([{ "controller": "a", "nsid": 2 }, { "controller": "b", "nsid": 5 }]);
    assert_eq!(namespaces[2]["attached"], places);
    assert_eq!(target.ctl(&["detach", "b", "5"]), Ok(json!({ "namespace": "scratch" })));
    assert_eq!(b.execute(1, exist(5)), Err(Status::INVALID_FIELD));
    assert_eq!((active(&mut b), changed(&mut b)), (vec![1, 2], vec![2, 5]));
    for (words, sentence) in [
        (&["detach", "b", "5"][..], "no namespace 5 is attached"),
        (&["detach", "c", "5"], "there is no controller \"c\""),
        (&["attach", "b", "none"], "there is no namespace \"none\""),
        (&["attach", "b", "kept", "--nsid", "1"], "a namespace 1 is attached already"),
        (&["attach", "b", "kept", "--nsid", "0"], "namespace identifiers are 1 to 1024, not 0"),
        (&["attach", "b", "kept", "--nsid", "1025"], "namespace identifiers are 1 to 1024, not 1025"),
    ] {
        let error = target.ctl(words).unwrap_err();
        assert!(error.contains(sentence), "{error}");
    }
    target.stop();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn controllers_misbehave_when_told_to() {
    let folder = folder("faults");
    let target = Target::start(&folder);
    let mut a = target.plug("a");
    let exist = |text: &str| -> Sqe { Command::Exist { key: key(text) }.encode(0, 1) };
    let script = folder.join("script");
    std::fs::write(&script, "# test\nseed 7\nerror internal-error key=bad\n").unwrap();
    let set = target.ctl(&["faults", "set", "a", script.to_str().unwrap()]).unwrap();
    let rule = |met: u32, done: u32| json!({ "line": 3, "rule": "error internal-error key=bad", "met": met, "done": done });
    let shown = |met, done| json!({ "name": "a", "absent": false, "seed": 7, "rules": [rule(met, done)] });
    assert_eq!(set, shown(0, 0));
    assert_eq!(a.execute(1, exist("bad")), Err(Status::INTERNAL_ERROR));
    assert_eq!(a.execute(1, exist("good")), Err(Status::KEY_NOT_FOUND));
    assert_eq!(target.ctl(&["faults", "show", "a"]), Ok(json!([shown(1, 1)])));
    let none = |name: &str| json!({ "name": name, "absent": false, "seed": null, "rules": [] });
    assert_eq!(target.ctl(&["faults", "show"]), Ok(json!([shown(1, 1), none("b")])));
    assert_eq!(target.ctl(&["faults", "clear"]), Ok(json!([none("a"), none("b")])));
    assert_eq!(a.execute(1, exist("bad")), Err(Status::KEY_NOT_FOUND));
    let rules = ["faults", "set", "a", "--rule", "drop key=x", "--rule", "error 0x7c0 key=bad count=1"];
    assert_eq!(target.ctl(&rules).unwrap()["rules"][1]["line"], 2);
    assert_eq!(a.execute(1, exist("bad")), Err(Status::from_bits(0x7c0)));
    std::fs::write(&script, "drop\n".repeat(20_000)).unwrap();
    for (words, sentence) in [
        (
            &["faults", "set", "a", "--rule", "drop", "--rule", "dorp"][..],
            "line 2: \"dorp\" is not a fault; there are delay",
        ),
        (&["faults", "set", "c", "--rule", "drop"], "there is no controller \"c\""),
        (&["faults", "show", "c"], "there is no controller \"c\""),
        (&["faults", "clear", "c"], "there is no controller \"c\""),
        (&["faults", "set", "a", "/nowhere/script"], "/nowhere/script: No such file"),
        (&["faults", "set", "a", script.to_str().unwrap()], "is longer than"),
        (&["faults", "set", "a"], "required"),
    ] {
        let error = target.ctl(words).unwrap_err();
        assert!(error.contains(sentence), "{error}");
    }
    assert_eq!(
        a.execute(1, exist("bad")),
        Err(Status::KEY_NOT_FOUND),
        "the rules before are still there, and done"
    );
    target.stop();
    std::fs::remove_dir_all(&folder).unwrap();
}

fn wait_until(is: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the server closes the connection.
fn is_hung_up(d: &mut Driver<Machine>) -> bool {
    use std::io::Read;
    d.bus.client.stream.set_read_timeout(Some(LIMIT)).unwrap();
    matches!(d.bus.client.stream.read(&mut [0; 64]), Ok(0))
}

#[test]
fn a_controller_vanishes_and_comes_back() {
    let folder = folder("vanish");
    let target = Target::start(&folder);
    let (mut a, mut b) = (target.plug("a"), target.plug("b"));
    assert_eq!(a.store(1, &key("k"), b"kept", Condition::Always), Ok(0));
    // With the command that a rule is about.
    target.ctl(&["faults", "set", "a", "--rule", "vanish back=300ms op=exist count=1"]).unwrap();
    a.push(1, Command::Exist { key: key("k") }.encode(0, 1)).unwrap();
    a.ring(1);
    let start = Instant::now();
    assert!(is_hung_up(&mut a));
    let mut a = target.plug("a");
    assert!(start.elapsed() >= Duration::from_millis(250));
    assert_eq!(a.retrieve(1, &key("k"), 4), Ok((b"kept".to_vec(), 4)));
    // For good, and nobody listens until it is told to come back. The other one goes on.
    assert_eq!(target.ctl(&["faults", "set", "a", "--rule", "vanish now"]).unwrap()["absent"], true);
    assert!(is_hung_up(&mut a));
    wait_until(|| !folder.join("a").exists());
    assert_eq!(b.retrieve(1, &key("k"), 4), Ok((b"kept".to_vec(), 4)));
    target.ctl(&["faults", "clear", "a"]).unwrap();
    let mut a = target.plug("a");
    assert_eq!(a.retrieve(1, &key("k"), 4), Ok((b"kept".to_vec(), 4)));
    // Also with nobody there, and while this program ends.
    drop(b);
    target.plug("b");
    target.ctl(&["faults", "set", "b", "--rule", "vanish now"]).unwrap();
    wait_until(|| !folder.join("b").exists());
    target.stop();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_of_faults_is_used_from_the_start() {
    let folder = folder("script");
    let (file, script) = (folder.join("xio-target.toml"), folder.join("a.faults"));
    let text = std::fs::read_to_string(&file).unwrap();
    let with = format!("serial = \"A\"\nfaults = \"{}\"", script.display());
    std::fs::write(&file, text.replace("serial = \"A\"", &with)).unwrap();
    std::fs::write(&script, "limit mdts max\nerror 0x7c0 op=exist").unwrap();
    let target = Target::start(&folder);
    let mut a = target.plug("a");
    assert_eq!(a.identify(identify::cns::CONTROLLER, 0, 0).unwrap()[77], 0xff);
    assert_eq!(a.execute(1, Command::Exist { key: key("k") }.encode(0, 1)), Err(Status::from_bits(0x7c0)));
    target.stop();
    // Without a file of controllers, and with a mistake in either.
    std::fs::write(&script, "limit mdts max\nlimit mdts most").unwrap();
    let serve = |arguments: &[&Path]| {
        let out =
            Program::new(env!("CARGO_BIN_EXE_xio-target")).arg("serve").args(arguments).output().unwrap();
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let socket = folder.join("socket");
    for error in [
        serve(&[Path::new("--config"), &file]),
        serve(&[Path::new("--socket"), &socket, Path::new("--fault"), &script]),
    ] {
        assert!(error.contains("a.faults: line 2: \"most\" is not 0 or max"), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
