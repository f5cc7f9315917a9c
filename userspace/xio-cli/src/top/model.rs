// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the module tells in debugfs: `counters`, a name and a number a line; `objects`, a kind and `name=value` a line.

use serde::Serialize;
use std::collections::BTreeMap;

/// A controller at a moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Controller {
    /// Name of its node.
    pub device: String,
    /// Address on the bus, where it is known.
    pub pci_address: Option<String>,
    /// By name; those of newer modules, too.
    pub counters: BTreeMap<String, i64>,
    /// Why it was last reset, if it was.
    pub last_reset: Option<String>,
    /// Queues.
    pub queues: Vec<Queue>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Since the look before, in a second; nothing at the first one.
    pub rates: Option<BTreeMap<String, f64>>,
}

/// A queue. Fields that the module did not tell are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Queue {
    /// Number of the client, or `kernel`.
    pub client: String,
    /// Handle; the kernel's queue has none.
    pub id: Option<u64>,
    /// User of the client.
    pub user: Option<u32>,
    /// Queue identifier.
    pub qid: u32,
    /// Entries of each of the two queues.
    pub entries: u32,
    /// Where the submission queue is.
    pub sq: String,
    /// Where the completion queue is.
    pub cq: String,
    /// Where the tail doorbell is among the registers.
    pub doorbell: String,
    /// How far the controller has fetched commands.
    pub sq_head: u32,
    /// Where the controller posts its next completion.
    pub posted: u32,
    /// Phase tag of the completion that it posted last.
    pub phase: u32,
    /// Whether it posted some since the look before; nothing at the first one.
    pub active: Option<bool>,
}

/// A buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Buffer {
    /// Number of the client.
    pub client: String,
    /// Handle.
    pub id: Option<u64>,
    /// User of the client.
    pub user: Option<u32>,
    /// Pages of 4096 bytes.
    pub pages: u64,
    /// Kind of memory.
    pub memory: String,
}

/// Counters that only grow, so that they have rates.
const GROWING: [&str; 3] = ["errors", "resets", "stray_completions"];

/// Reads `counters`; what is no line of it is left out.
pub fn counters(text: &str) -> BTreeMap<String, i64> {
    let line = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Reads `objects`. Kinds and fields of newer modules are left out.
pub fn objects(text: &str) -> (Vec<Queue>, Vec<Buffer>) {
    let (mut queues, mut buffers) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let fields: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        match kind {
            "queue" => queues.push(queue(&fields)),
            "buffer" => buffers.push(buffer(&fields)),
            _ => {}
        }
    }
    (queues, buffers)
}

type Fields<'a> = BTreeMap<&'a str, &'a str>;

fn text(fields: &Fields<'_>, name: &str) -> String {
    fields.get(name).copied().unwrap_or_default().to_owned()
}

fn number<T: std::str::FromStr>(fields: &Fields<'_>, name: &str) -> Option<T> {
    fields.get(name)?.parse().ok()
}

fn queue(fields: &Fields<'_>) -> Queue {
    let small = |name| number(fields, name).unwrap_or_default();
    Queue {
        client: text(fields, "client"),
        id: number(fields, "id"),
        user: number(fields, "user"),
        qid: small("qid"),
        entries: small("entries"),
        sq: text(fields, "sq"),
        cq: text(fields, "cq"),
        doorbell: text(fields, "doorbell"),
        sq_head: small("sq_head"),
        posted: small("posted"),
        phase: small("phase"),
        active: None,
    }
}

fn buffer(fields: &Fields<'_>) -> Buffer {
    Buffer {
        client: text(fields, "client"),
        id: number(fields, "id"),
        user: number(fields, "user"),
        pages: number(fields, "pages").unwrap_or_default(),
        memory: text(fields, "memory"),
    }
}

impl Controller {
    /// Makes one of the two files.
    pub fn new(device: String, pci_address: Option<String>, counters_text: &str, objects_text: &str) -> Self {
        let counters = counters(counters_text);
        let (queues, buffers) = objects(objects_text);
        let cause = counters.get("last_reset").and_then(|number| u32::try_from(*number).ok());
        let last_reset = cause.and_then(xio::ResetCause::from_module).map(|cause| cause.to_string());
        Self { device, pci_address, counters, last_reset, queues, buffers, rates: None }
    }

    /// A counter, 0 if there is none of this name.
    pub fn counter(&self, name: &str) -> i64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    /// Takes note of what changed since another look at the same controller.
    pub fn compare(&mut self, before: &Self, seconds: f64) {
        // Less than before: it was bound anew, and counts from 0.
        let rate = |name: &str| (self.counter(name) - before.counter(name)).max(0) as f64 / seconds.max(1e-3);
        self.rates = Some(GROWING.iter().map(|name| ((*name).to_owned(), rate(name))).collect());
        for queue in &mut self.queues {
            let same =
                |other: &&Queue| (&other.client, other.id, other.qid) == (&queue.client, queue.id, queue.qid);
            let place = |q: &Queue| (q.posted, q.phase, q.sq_head);
            queue.active = before.queues.iter().find(same).map(|other| place(other) != place(queue));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const COUNTERS: &str =
        "clients 2\nowned 1\nqueues 1\nbuffers 2\npages 20\ncalls 0\ncommands 3\ncmb_used 0\n\
                                live_pages 90\nstray_completions 0\nerrors 7\nresets 1\nlast_reset 5\n";
    pub const OBJECTS: &str = "\
queue client=kernel qid=1 entries=256 sq=coherent cq=coherent doorbell=0x1008 sq_head=12 posted=13 phase=1
queue client=3 id=4 user=1000 qid=2 entries=64 sq=cmb cq=coherent doorbell=0x1010 sq_head=63 posted=0 phase=0
buffer client=3 id=5 user=1000 pages=16 memory=coherent
buffer client=9 id=6 user=0 pages=4 memory=pinned
";

    #[test]
    fn the_files_are_read() {
        let controller = Controller::new("rocm-xio0".into(), None, COUNTERS, OBJECTS);
        assert_eq!((controller.counter("clients"), controller.counter("errors")), (2, 7));
        assert_eq!(controller.last_reset.as_deref(), Some("by the system"));
        let [kernel, queue] = &controller.queues[..] else { panic!("{controller:?}") };
        assert_eq!((kernel.client.as_str(), kernel.id, kernel.user), ("kernel", None, None));
        assert_eq!((queue.id, queue.user, queue.qid, queue.entries), (Some(4), Some(1000), 2, 64));
        assert_eq!(
            (queue.sq.as_str(), queue.cq.as_str(), queue.doorbell.as_str()),
            ("cmb", "coherent", "0x1010")
        );
        assert_eq!((queue.sq_head, queue.posted, queue.phase), (63, 0, 0));
        assert_eq!(controller.buffers[1].memory, "pinned");
        assert_eq!((controller.buffers[0].pages, controller.buffers[0].id), (16, Some(5)));
    }

    #[test]
    fn what_newer_and_older_modules_tell_does_no_harm() {
        let counters = "clients 1\nnew_one 5\nbroken\nother x\n";
        let objects = "window client=1 id=2\nqueue client=1 id=2 new=3 qid=9 sq_head\n\n";
        let controller = Controller::new("rocm-xio0".into(), None, counters, objects);
        assert_eq!(controller.counters.len(), 2);
        assert_eq!((controller.queues.len(), controller.queues[0].qid), (1, 9));
        assert!(controller.last_reset.is_none() && controller.counter("errors") == 0);
    }

    #[test]
    fn rates_and_activity_come_of_two_looks() {
        let before = Controller::new("rocm-xio0".into(), None, COUNTERS, OBJECTS);
        let later = COUNTERS.replace("errors 7", "errors 17");
        let moved = OBJECTS.replace("posted=0 phase=0", "posted=0 phase=1").replace("id=6", "id=7");
        let mut now = Controller::new("rocm-xio0".into(), None, &later, &moved);
        now.compare(&before, 2.0);
        assert_eq!(now.rates.as_ref().unwrap()["errors"], 5.0);
        assert_eq!((now.queues[0].active, now.queues[1].active), (Some(false), Some(true)));
        let mut anew = Controller::new("rocm-xio0".into(), None, "errors 1\n", "queue client=8 id=1 qid=1\n");
        anew.compare(&now, 1.0);
        assert_eq!((anew.rates.unwrap()["errors"], anew.queues[0].active), (0.0, None));
    }
}
