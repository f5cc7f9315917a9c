// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text that people and programs write.

use crate::programs::xio::manifest;
use crate::programs::xio_target::control::{Control, Place, Request};
use crate::programs::xio_target::{cli, file};
use crate::rig::Rig;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use xio_target::fault::Script;
use xio_target::store::{MemStore, Store};
use xio_target::vfio::Server;
use xio_target::{Config, NamespaceConfig};

/// A script that is understood can be written down again, and no controller falls over by misbehaving.
pub(crate) fn faults(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let script: Script = match text.parse() {
        Ok(script) => script,
        Err(error) => {
            let error: xio_target::fault::ScriptError = error;
            assert!((1..=text.lines().count()).contains(&error.line) && !error.problem.is_empty());
            return;
        }
    };
    let mut rig = Rig::new();
    rig.controller.set_faults(script.clone());
    let Some((seed, rules)) = rig.controller.faults() else {
        let is_rule = |line: &str| !(line.is_empty() || line.starts_with('#') || line.starts_with("seed"));
        assert!(!text.lines().any(|line| is_rule(line.trim_start())), "a rule that got lost");
        return;
    };
    let mut lines = vec![String::new(); rules.last().map_or(0, |rule| rule.line) + 1];
    for rule in &rules {
        lines[rule.line - 1].clone_from(&rule.rule);
    }
    let free = lines.iter().position(String::is_empty).unwrap();
    lines[free] = format!("seed {seed}");
    assert_eq!(lines.join("\n").parse(), Ok(script));
    rig.work();
    rig.controller.reset();
    rig.start();
    for sqe in Rig::commands() {
        rig.submit(1, &sqe);
    }
    rig.identify(1, 0, 0);
    rig.end();
}

pub(crate) fn faults_seeds() -> Vec<Vec<u8>> {
    [
        "seed 7\ndelay 20ms op=store every=3 # a word\ndrop queue=1-4 chance=25%\n",
        "reorder behind=2 within=1ms\nduplicate times=2 key=weights.7\ncid +1\nsqid 3\nsqhead random",
        "dw0\nphase count=1\ntorn 50us\nerror capacity-exceeded op=io:0x01\nslow 1M/s prefix=w",
        "fatal now",
        "vanish now back=50us",
        "vanish after=3",
        "never-ready\nstay-ready after=1",
        "identify 77 0xff cns=1\nidentify 0 random:4096 cns=5 csi=1 nsid=1\nlimit mdts 0\nlimit mqes max",
        "error 0x101 op=identify nsid=1",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// A file that is understood names what there is, and all that it leads to is checked.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(bytes) = cli::parse_bytes(text) {
        assert_eq!(cli::parse_bytes(&bytes.to_string()), Ok(bytes));
    }
    let Ok(file) = file::File::parse(text) else { return };
    for table in file.controller.values() {
        let mut limits = Vec::new();
        for name in &table.namespaces {
            let namespace = &file.namespace[name];
            let _backend = namespace.backend();
            limits.extend(namespace.config());
        }
        let config = table.config(limits);
        if config.check().is_ok() {
            assert!(config.bar_len() <= 512 << 20 && config.vectors() <= 64 && config.serial.len() <= 20);
            assert!(config.max_transfer().is_none_or(|max| max >= 8192));
        }
    }
}

pub(crate) fn config_seeds() -> Vec<Vec<u8>> {
    let all = r#"control = "/c"
[namespace.a]
backend = "embedded"
path = "/p"
capacity = "2T"
max_value = 67108864
[namespace.b]
backend = "mem"
max_key = 16
max_keys = 9
read_only = true
[namespace.c]
backend = "rados"
pool = "p"
rados_namespace = "n"
ceph_conf = "f"
ceph_user = "u"
librados = "l"
timeout = 3
[controller.vm1]
socket = "s"
serial = "VM1"
model = "m"
namespaces = ["a", "b", "c"]
max_queue_entries = 1024
max_queues = 31
dstrd = 10
mdts = 9
contiguous_queues = true
cmb = "4M"
idle_cpu = 10
faults = "x"
"#;
    [all, "[controller]", "64M", "[controller.x]\nsocket = 's'\ndstrd = 15\nmax_queues = 65535"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

fn control_socket() -> &'static Mutex<(Control, Server)> {
    static CONTROL: OnceLock<Mutex<(Control, Server)>> = OnceLock::new();
    CONTROL.get_or_init(|| {
        let limits = NamespaceConfig { capacity: 1 << 20, ..NamespaceConfig::default() };
        let server = Server::new(Config { namespaces: vec![limits.clone()], ..Config::default() }).unwrap();
        let names = BTreeMap::from([(1, "a".into())]);
        let place = Place { handle: server.handle(), socket: PathBuf::from("s"), names };
        let store = || Arc::new(MemStore::new(&limits)) as Arc<dyn Store>;
        let namespaces = ["a", "b"].map(|name| (name.to_owned(), (limits.clone(), store())));
        let path = std::env::temp_dir().join(format!("xio-fuzz-{}", std::process::id()));
        let places = BTreeMap::from([("0".to_owned(), place)]);
        Mutex::new((Control::bind(&path, BTreeMap::from(namespaces), places).unwrap(), server))
    })
}

/// A client of the control socket gets one line: an object with an answer, or with an error.
pub(crate) fn control(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(data) {
        let text = serde_json::to_string(&request).unwrap();
        let again: Request = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
    let guard = control_socket().lock().unwrap_or_else(PoisonError::into_inner);
    let (mut client, stream) = UnixStream::pair().unwrap();
    client.write_all(data).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all)
    });
    let served = guard.0.serve(&stream);
    drop(stream);
    // What is read before may hold back an answer that nobody reads: text that is none.
    let all = reader.join().unwrap().unwrap();
    let line = data.split_inclusive(|byte| *byte == b'\n').next().unwrap_or(&[]);
    assert_eq!(served.is_ok(), std::str::from_utf8(line).is_ok(), "{served:?}");
    if served.is_ok() {
        assert!(all.ends_with(b"\n") && all.iter().filter(|byte| **byte == b'\n').count() == 1);
        let answer: Value = serde_json::from_slice(&all).unwrap();
        let answer = answer.as_object().unwrap();
        assert!(answer.len() == 1 && (answer.contains_key("ok") || answer["error"].is_string()));
    }
}

pub(crate) fn control_seeds() -> Vec<Vec<u8>> {
    [
        json!({"command": "namespaces"}),
        json!({"command": "attach", "controller": "0", "namespace": "b", "nsid": 2}),
        json!({"command": "attach", "controller": "0", "namespace": "a"}),
        json!({"command": "detach", "controller": "0", "nsid": 2}),
        json!({"command": "statistics"}),
        json!({"command": "usage"}),
        json!({"command": "faults-set", "controller": "0", "script": "drop op=store\nvanish now"}),
        json!({"command": "faults-clear"}),
        json!({"command": "faults-show", "controller": "0"}),
    ]
    .map(|request| format!("{request}\n").into_bytes())
    .into()
}

/// Entries of a manifest are what they were written as.
pub(crate) fn manifest(data: &[u8]) {
    let entries = match manifest::read_from(data, "m", Path::new("")) {
        Ok(entries) => entries,
        Err(error) => return assert!(error.to_string().contains('m')),
    };
    assert!(entries.windows(2).all(|pair| pair[0].line < pair[1].line));
    for entry in &entries {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text = json!({
            "key_hex": hex(entry.key.as_bytes()), "file": entry.file, "offset": entry.offset, "length": entry.length,
            "digest": entry.digest.map(|digest| format!("sha256:{}", hex(&digest))), "meta": entry.meta,
        });
        let again = manifest::read_from(text.to_string().as_bytes(), "again", Path::new("")).unwrap();
        assert_eq!((again.len(), again[0].key, &again[0].file), (1, entry.key, &entry.file));
        let rest = |entry: &manifest::Entry| (entry.offset, entry.length, entry.digest);
        assert_eq!(rest(&again[0]), rest(entry));
        assert!(entry
            .meta
            .as_ref()
            .is_none_or(|meta| serde_json::from_str::<Value>(meta.get()).unwrap().is_object()));
    }
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let digest = format!(r#"{{"key": "k", "digest": "sha256:{}"}}"#, "aB".repeat(32));
    let full = r#"{"key_hex": "00ff", "file": "a/b", "offset": 8, "length": 9, "meta": {"x": [1,  1.50]}}"#;
    vec![digest.into(), full.into(), format!("{full}\n\n{}\n", r#"{"key": "0xzz"}"#).into()]
}
