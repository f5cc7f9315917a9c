// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controllers as text.

use super::model::{Buffer, Controller, Queue};
use crate::output::{columns, size};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// All of them, a blank line between two.
pub fn text(controllers: &[Controller]) -> String {
    controllers.iter().map(controller).collect::<Vec<_>>().join("\n")
}

fn controller(controller: &Controller) -> String {
    let address = controller.pci_address.as_deref().unwrap_or("-");
    let mut text = format!("{}  {address}\n", controller.device);
    text += &format!("  {}\n", summary(controller));
    if controller.queues.is_empty() {
        text += "  no queues\n";
    } else {
        text += &indented(&queues(&controller.queues));
    }
    if controller.buffers.is_empty() {
        text += "  no buffers\n";
    } else {
        text += &indented(&buffers(&controller.buffers));
    }
    text
}

/// The counters in a line.
fn summary(controller: &Controller) -> String {
    let rate = |name: &str| {
        let rate = controller.rates.as_ref().and_then(|rates| rates.get(name));
        rate.filter(|rate| **rate > 0.0).map_or_else(String::new, |rate| format!(" ({rate:.1}/s)"))
    };
    let plain = |title: &str, name: &str| format!("{title} {}{}", controller.counter(name), rate(name));
    let mut parts = vec![
        plain("clients", "clients"),
        plain("calls", "calls"),
        plain("commands", "commands"),
        plain("errors", "errors"),
        plain("resets", "resets"),
    ];
    if let Some(cause) = &controller.last_reset {
        parts.push(format!("last reset: {cause}"));
    }
    if controller.counter("stray_completions") > 0 {
        parts.push(plain("stray completions", "stray_completions"));
    }
    if controller.counter("cmb_used") > 0 {
        let used = u64::try_from(controller.counter("cmb_used")).unwrap_or_default();
        parts.push(format!("controller memory in use: {}", size(used)));
    }
    parts.join(", ")
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn queues(queues: &[Queue]) -> Vec<Vec<String>> {
    let mut rows = vec![row(&[
        "QUEUE", "CLIENT", "USER", "ID", "ENTRIES", "SQ", "CQ", "DOORBELL", "SQ HEAD", "POSTED", "PHASE",
        "STATE",
    ])];
    rows.extend(queues.iter().map(|queue| {
        let state = match queue.active {
            Some(true) => "busy",
            Some(false) => "idle",
            None => "-",
        };
        vec![
            queue.qid.to_string(),
            queue.client.clone(),
            optional(queue.user),
            optional(queue.id),
            queue.entries.to_string(),
            queue.sq.clone(),
            queue.cq.clone(),
            queue.doorbell.clone(),
            queue.sq_head.to_string(),
            queue.posted.to_string(),
            queue.phase.to_string(),
            state.to_owned(),
        ]
    }));
    rows
}

/// Buffers of a client in a kind of memory are in one row.
fn buffers(buffers: &[Buffer]) -> Vec<Vec<String>> {
    let mut kinds: BTreeMap<(&str, &str, Option<u32>), (u64, u64)> = BTreeMap::new();
    for buffer in buffers {
        let kind = kinds.entry((&buffer.memory, &buffer.client, buffer.user)).or_default();
        *kind = (kind.0 + 1, kind.1 + buffer.pages);
    }
    let mut rows = vec![row(&["MEMORY", "CLIENT", "USER", "BUFFERS", "PAGES", "SIZE"])];
    rows.extend(kinds.into_iter().map(|((memory, client, user), (count, pages))| {
        vec![
            memory.to_owned(),
            client.to_owned(),
            optional(user),
            count.to_string(),
            pages.to_string(),
            size(pages.saturating_mul(PAGE)),
        ]
    }));
    rows
}

fn indented(rows: &[Vec<String>]) -> String {
    columns(rows).lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{COUNTERS, OBJECTS};
    use super::*;

    #[test]
    fn everything_is_shown() {
        let before = Controller::new("rocm-xio0".into(), Some("0000:01:00.0".into()), COUNTERS, OBJECTS);
        let later = COUNTERS.replace("errors 7", "errors 10");
        let mut now = Controller::new("rocm-xio0".into(), Some("0000:01:00.0".into()), &later, OBJECTS);
        now.compare(&before, 2.0);
        let expected = "\
rocm-xio0  0000:01:00.0
  clients 2, calls 0, commands 3, errors 10 (1.5/s), resets 1, last reset: by the system
  QUEUE  CLIENT  USER  ID  ENTRIES  SQ        CQ        DOORBELL  SQ HEAD  POSTED  PHASE  STATE
  1      kernel  -     -   256      coherent  coherent  0x1008    12       13      1      idle
  2      3       1000  4   64       cmb       coherent  0x1010    63       0       0      idle
  MEMORY    CLIENT  USER  BUFFERS  PAGES  SIZE
  coherent  3       1000  1        16     64.0 KiB
  pinned    9       0     1        4      16.0 KiB
";
        assert_eq!(text(&[now]), expected);
        let idle = Controller::new("rocm-xio1".into(), None, "", "");
        let shown = text(&[idle.clone(), idle]);
        assert!(shown.contains("no queues\n  no buffers\n\nrocm-xio1  -\n"), "{shown}");
    }
}
