// SPDX-License-Identifier: MIT OR Apache-2.0
//! Killing the program, and the machine that uses it, at random points: what was completed is there afterwards.

mod common;

use common::client::{plug_at, Machine};
use common::{key, pattern, Buffer, Driver};
use nvme_kv::kv::{Command, StoreOptions};
use nvme_kv::{Key, Status};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 8;
const KEYS: u64 = 24;
const LIMIT: Duration = Duration::from_secs(30);

/// Numbers that look random; the seed is printed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Digest of a value; `None` where there is no pair.
type Digest = Option<u64>;

fn digest(value: &[u8]) -> Digest {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    Some(hasher.finish())
}

/// What a key may have, the first of which was completed; others were under way when something was killed.
type Expected = BTreeMap<Key, Vec<Digest>>;

/// Command identifier, memory, and what is under way.
type Slot = (u16, Buffer, Option<(Key, Digest)>);

struct Target {
    child: Child,
    socket: PathBuf,
}

impl Target {
    fn start(folder: &Path) -> Self {
        let socket = folder.join("socket");
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_xio-target"))
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .arg("--data")
            .arg(folder.join("data"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, socket }
    }

    fn connect(&self) -> Driver<Machine> {
        plug_at(&self.socket, LIMIT)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Keeps eight commands under way until `until`, and then just stops.
fn work(d: &mut Driver<Machine>, random: &mut Random, expected: &mut Expected, until: Instant) -> u32 {
    let mut buffers: Vec<Slot> = (0..8).map(|_| (0, d.buffer(320 << 10), None)).collect();
    let mut done = 0;
    while Instant::now() < until {
        for (cid, buffer, busy) in buffers.iter_mut().filter(|(_, _, busy)| busy.is_none()) {
            let key = key(&format!("key {}", random.below(KEYS)));
            if expected.get(&key).is_some_and(|all| all.len() > 1) {
                continue;
            }
            let (command, new) = if random.below(5) == 0 {
                (Command::Delete { key }, None)
            } else {
                let value = pattern(1 + random.below(300 << 10) as usize, random.0);
                let filled: usize = buffer.pages.len() * 4096;
                assert!(value.len() <= filled);
                d.fill(buffer, &value);
                let options = StoreOptions::default();
                let list = d.buffer_part(buffer, value.len());
                (Command::Store { key, len: value.len() as u32, options, data: list }, digest(&value))
            };
            *cid = d.push(1, command.encode(0, 1)).unwrap();
            *busy = Some((key, new));
            expected.entry(key).or_insert_with(|| vec![None]).push(new);
        }
        d.ring(1);
        while let Some(cqe) = d.pop(1) {
            let (_, _, busy) =
                buffers.iter_mut().find(|(cid, _, b)| *cid == cqe.cid.get() && b.is_some()).unwrap();
            let (key, new) = busy.take().unwrap();
            let all = expected.get_mut(&key).unwrap();
            match cqe.status() {
                Status::SUCCESS => *all = vec![new],
                // A Delete of what is not there.
                Status::KEY_NOT_FOUND => {
                    assert_eq!((new, std::mem::replace(all, vec![None])[0]), (None, None))
                }
                other => panic!("{other}"),
            }
            done += 1;
        }
        d.ring_head(1);
    }
    done
}

/// Every key has what was completed last, or what was under way.
fn verify(d: &mut Driver<Machine>, expected: &mut Expected) {
    for (key, all) in expected {
        let buffer = d.buffer(320 << 10);
        let command =
            Command::Retrieve { key: *key, len: 320 << 10, options: Default::default(), data: buffer.data };
        let found = match d.kv(1, command) {
            Ok(len) => digest(&d.content(&buffer, len as usize)),
            Err(Status::KEY_NOT_FOUND) => None,
            Err(other) => panic!("{key:?}: {other}"),
        };
        assert!(all.contains(&found), "{key:?}: {found:x?} is none of {all:x?}");
        *all = vec![found];
        d.free(&buffer);
    }
}

#[test]
fn what_was_completed_survives_kills_at_random_points() {
    let seed = u64::from(std::process::id()) << 20 ^ 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let folder = std::env::temp_dir().join(format!("xio-kill-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut expected, mut done) = (Expected::new(), 0);
    for round in 0..ROUNDS {
        let mut target = Target::start(&folder);
        let mut d = target.connect();
        verify(&mut d, &mut expected);
        if round % 2 == 1 {
            // The machine is killed, in the middle of its commands; the program serves the next one.
            let until = Instant::now() + Duration::from_millis(20 + random.below(200));
            done += work(&mut d, &mut random, &mut expected, until);
            drop(d);
            d = target.connect();
            verify(&mut d, &mut expected);
        }
        // The program is killed.
        let after = Duration::from_millis(20 + random.below(300));
        let until = Instant::now() + after + Duration::from_millis(50);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(after);
                target.child.kill().unwrap();
            });
            done += work(&mut d, &mut random, &mut expected, until);
        });
    }
    let target = Target::start(&folder);
    verify(&mut target.connect(), &mut expected);
    drop(target);
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{done} commands were completed");
    assert!(done > 50);
}
