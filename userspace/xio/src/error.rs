// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong: each error names the limit that was hit and what can be done.

use crate::info::{Direct, Iommu, Unconfined};
use crate::state::ControllerState;
use nvme_kv::{Key, Status};
use std::path::PathBuf;
use std::time::Duration;

/// Result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no controller.
    #[error(
        "no /dev/rocm-xio* found: load the module (insmod rocm_xio.ko) and leave an NVMe Key Value controller \
         without another driver; /dev/rocm-xioN appears for each"
    )]
    NoDevice,
    /// The node is not there.
    #[error("{} does not exist: is the module loaded (insmod rocm_xio.ko) and the controller bound to it?", path.display())]
    NoNode {
        /// The node asked for.
        path: PathBuf,
    },
    /// The node may not be opened.
    #[error("no permission to open {}: {}", path.display(), membership(group))]
    Permission {
        /// The node.
        path: PathBuf,
        /// Name or number of its group.
        group: String,
    },
    /// The file is no node of the module, or one of a module that speaks another interface.
    #[error("{}: {reason}", path.display())]
    Interface {
        /// The node.
        path: PathBuf,
        /// What does not fit, and which side to update.
        reason: String,
    },
    /// Direct queues are refused to this client.
    #[error(
        "direct queues are refused because no IOMMU confines the device (IOMMU: {iommu}; {missing}): {}; or use the mediated \
         path, which needs none; or run with CAP_SYS_RAWIO, or load the module with unsafe_direct=1, which lets every \
         client reach all of memory through the device", missing.remedy()
    )]
    DirectRefused {
        /// What there is.
        iommu: Iommu,
        /// What is missing.
        missing: Unconfined,
    },
    /// Direct queues should be allowed, the controller said, but were refused.
    #[error("direct queues were refused although they are allowed ({0}): permissions changed meanwhile, try again")]
    Refused(Direct),
    /// Another process has direct queues on the controller; or direct queues are asked for, and another process has queues or
    /// memory there.
    #[error(
        "another process excludes this one from the controller: direct queues are for one process alone, beside which no \
         other has queues or memory there; wait for its end, or use the mediated path in all of them"
    )]
    Busy,
    /// The module has no mediated path.
    #[error("the module does not submit commands for its clients: update it, or use the direct path")]
    NoMediated,
    /// There can be no io_uring.
    #[error(
        "no io_uring can be made ({source}): kernel.io_uring_disabled or a filter of system calls may forbid it; batches \
         need none"
    )]
    NoRing {
        /// Why.
        source: std::io::Error,
    },
    /// Too many mediated calls at once.
    #[error("too many calls are under way on this controller: try again when some have ended, or put more into each")]
    TooManyCalls,
    /// The controller was removed, or taken from the module: for good, as far as this [`Controller`](crate::Controller) is
    /// concerned.
    #[error(
        "the controller is gone: it was removed, or taken from the module; once it is back, open it anew"
    )]
    Gone,
    /// The controller was reset, and all queues and buffers went with it.
    #[error(
        "{what}: the controller was reset{}, and its queues and buffers are gone; commands that were in flight may or may not \
         have been done: {}",
        state.map_or_else(String::new, |state| format!(" ({state})")),
        state.map_or("make new ones, or open the controller anew if it is gone", |state| state.remedy())
    )]
    Revoked {
        /// What was being done.
        what: &'static str,
        /// How the controller is now, where the module tells.
        state: Option<ControllerState>,
    },
    /// The controller takes no commands.
    #[error(
        "{what}: the controller is not live ({state}): {}",
        match state.liveness {
            crate::Liveness::Live => "it was not a moment ago: try again",
            _ => state.remedy(),
        }
    )]
    NotLive {
        /// What was being done.
        what: &'static str,
        /// How the controller is now.
        state: ControllerState,
    },
    /// The module does not tell the controller's state.
    #[error("the module does not tell the controller's state: update it")]
    NoState,
    /// Somebody has the controller's events.
    #[error("another handle of this controller has its events: drop that, or share it; or open the controller once more")]
    EventsTaken,
    /// All queues of the controller are in use.
    #[error("the controller has no queue left: close one")]
    NoQueueLeft,
    /// A limit on memory or queues of one client, or on the memory of one user.
    #[error(
        "{what}: a limit of the module is used up (bytes of one client: {client}, of one user: {user}; direct queues of one \
         client: {queues}): free buffers or queues, ask for less, or load the module with larger max_client_mb, \
         max_user_mb or max_client_queues"
    )]
    Quota {
        /// What was being done.
        what: &'static str,
        /// Bytes that one client can have.
        client: u64,
        /// Bytes that all clients of one user can have.
        user: u64,
        /// Direct queues that one client can have.
        queues: u32,
    },
    /// The limit on pinned memory.
    #[error(
        "registering {len} bytes: they can not be pinned, RLIMIT_MEMLOCK is {limit} bytes: raise it (ulimit -l, or \
         LimitMEMLOCK= of a service), or use memory of the module"
    )]
    MemoryLock {
        /// Bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A queue of a depth that there is not.
    #[error("a queue has 2 to {limit} entries on this controller, not {entries}")]
    QueueEntries {
        /// The depth asked for.
        entries: u32,
        /// The deepest.
        limit: u32,
    },
    /// A buffer of a size that there is not.
    #[error("a buffer has 1 to {limit} bytes on this controller, not {len}")]
    BufferSize {
        /// The size asked for.
        len: u64,
        /// The largest.
        limit: u64,
    },
    /// A range that is not within its buffer, or does not start at a multiple of 4.
    #[error("no range of {len} bytes can start at {offset} in a buffer of {size} bytes (starts are multiples of 4)")]
    Range {
        /// Where it would start.
        offset: usize,
        /// Its length.
        len: usize,
        /// The buffer's size.
        size: usize,
    },
    /// A buffer of another controller.
    #[error("the buffer belongs to another controller than the queue")]
    ForeignBuffer,
    /// The buffer is of memory that may only be read.
    #[error("the buffer is read-only: values can be stored from it, but nothing can be written or retrieved into it")]
    ReadOnly,
    /// The buffer is another device's memory.
    #[error("this process can not reach the buffer's memory: it is another device's")]
    NotMapped,
    /// The buffer's memory is no more.
    #[error("the buffer's memory was taken back by the driver it was imported from: free the buffer and import it anew")]
    TakenBack,
    /// Memory is reached only by way of the system's.
    #[error(
        "the memory would be moved to the system's, and memory reached from device to device was asked for: the \
         exporting device and the controller have no peer-to-peer path (same root complex, ACS, large BAR); put both under \
         one root, or allow memory of the system (require_peer: false)"
    )]
    NotPeer,
    /// There is no controller memory buffer for it.
    #[error("the controller has no memory buffer for {what}: use other memory")]
    NoCmb {
        /// What for.
        what: &'static str,
    },
    /// The controller memory buffer is full.
    #[error("the controller memory buffer has not enough left: {free} of {size} bytes are free: free some, or use other memory")]
    CmbFull {
        /// Bytes that are free.
        free: u64,
        /// Bytes that there are.
        size: u64,
    },
    /// A direct queue can not use the buffer.
    #[error(
        "the buffer was made while this process might not have direct queues, so its addresses are not known: make it anew"
    )]
    NoAddresses,
    /// The buffer is no more.
    #[error("the controller was reset, and the buffer went with it: make it anew")]
    BufferGone,
    /// The namespace does not exist or is no Key Value namespace.
    #[error("the controller has no Key Value namespace {nsid}: `namespaces` tells those it has")]
    NoNamespace {
        /// The identifier asked for.
        nsid: u32,
    },
    /// The controller has no namespace.
    #[error("the controller has no Key Value namespace")]
    NoNamespaces,
    /// A key longer than the namespace takes.
    #[error("key {key}: it has {} bytes and the namespace takes at most {limit}", key.len())]
    KeyTooLong {
        /// The key.
        key: Key,
        /// The namespace's limit (KVKML) in bytes.
        limit: u16,
    },
    /// A value longer than can be stored.
    #[error("key {key}: a value of {len} bytes is more than the {limit} bytes that {by} allows: split it")]
    ValueTooLarge {
        /// The key.
        key: Key,
        /// The value's length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// Whose limit it is.
        by: LimitBy,
    },
    /// A command that moves more than one command can.
    #[error("{op}: {len} bytes are more than the {limit} bytes that {by} allows for one command")]
    TransferTooLarge {
        /// The command.
        op: &'static str,
        /// Bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// Whose limit it is.
        by: LimitBy,
    },
    /// The stored value is larger than the place for it. What came is only its beginning.
    #[error("key {key}: its value has {need} bytes and the buffer only {have}: retrieve it into one of {need} bytes")]
    BufferTooSmall {
        /// The key.
        key: Key,
        /// The value's length in bytes.
        need: u32,
        /// The buffer's.
        have: u32,
    },
    /// A place too small for a list of keys.
    #[error("a list of keys needs at least {need} bytes, not {have}")]
    ListTooSmall {
        /// The least.
        need: usize,
        /// What there is.
        have: usize,
    },
    /// No such key.
    #[error("key {key}: not found")]
    NotFound {
        /// The key.
        key: Key,
    },
    /// The key exists already, and was to be stored only if not.
    #[error("key {key}: exists already")]
    Exists {
        /// The key.
        key: Key,
    },
    /// No room for the value, or for one more key.
    #[error(
        "key {key}: the namespace{} is full: delete keys",
        capacity.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"))
    )]
    Capacity {
        /// The key.
        key: Key,
        /// The namespace's capacity in bytes, where it is known.
        capacity: Option<u64>,
    },
    /// The controller does not know the command.
    #[error("{op}: this controller does not have the command")]
    Unsupported {
        /// The command.
        op: &'static str,
    },
    /// The command failed with another status.
    #[error("{op}{}: {status}", key.map_or_else(String::new, |k| format!(" of key {k}")))]
    Status {
        /// The command.
        op: &'static str,
        /// The key, if the command had one.
        key: Option<Key>,
        /// What the controller said.
        status: Status,
    },
    /// As many commands in flight (or done and not asked for) as the queue takes.
    #[error("the queue is full: {depth} commands are in flight or not asked for yet")]
    QueueFull {
        /// How many it takes.
        depth: usize,
    },
    /// The token stands for no command that is in flight or done in this queue.
    #[error("the token stands for no command of this queue, or one whose result was taken")]
    UnknownToken,
    /// No answer in time. The command may still be carried out; its place in the queue stays taken until it is answered.
    #[error(
        "{what}: no answer within {after:?}: the controller {}",
        match state {
            Some(state) if !state.is_live() => format!("is not live ({state})"),
            _ => "stalls or is overloaded".to_owned(),
        }
    )]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        after: Duration,
        /// How the controller is now, where that is known.
        state: Option<ControllerState>,
    },
    /// A signal ended the call. The command may still be carried out.
    #[error(
        "{what}: a signal ended the wait, and the command may still take effect: look before trying it again"
    )]
    Interrupted {
        /// The command.
        what: &'static str,
    },
    /// The call ended, by a signal or at its deadline, before the command was given to the controller.
    #[error("{what}: not started before the deadline or a signal ended the call: it can be tried again")]
    NotStarted {
        /// The command.
        what: &'static str,
    },
    /// The controller broke the rules; the queue takes no more commands.
    #[error("the controller broke the protocol: {0}; close the queue")]
    Protocol(String),
    /// The queue was made without an eventfd.
    #[error("the queue has no eventfd: ask for one in its options")]
    NoEvent,
    /// The controller inside this process can not be as asked for.
    #[error("loopback controller: {0}")]
    Loopback(String),
    /// A GPU, or the runtime of its vendor.
    #[error("{executor}: {what}")]
    Gpu {
        /// `hip`, `cuda` or `host`.
        executor: &'static str,
        /// What failed, and why.
        what: String,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}

impl Error {
    /// Names the namespace's capacity, if it has any, in an error about it.
    pub(crate) fn with_capacity(self, bytes: u64) -> Self {
        match self {
            Self::Capacity { key, .. } => Self::Capacity { key, capacity: Some(bytes).filter(|b| *b > 0) },
            other => other,
        }
    }
}

/// How to become somebody who may open a node of this group.
fn membership(group: &str) -> String {
    match group {
        "root" | "0" => {
            "it belongs to root; install kmod/udev/60-rocm-xio.rules, whose top says how, and it \
                         belongs to group render"
                .into()
        }
        _ => {
            format!("it belongs to group {group}; join it (usermod -aG {group} \"$USER\", then log in again)")
        }
    }
}

/// Whose limit it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitBy {
    /// The namespace's longest value (KVVML).
    Namespace,
    /// The controller's largest transfer (MDTS).
    Controller,
    /// The length field of a command, 32 bits.
    Command,
    /// The largest buffer of the module.
    Buffer,
}

impl std::fmt::Display for LimitBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Namespace => "the namespace (KVVML)",
            Self::Controller => "the controller (MDTS)",
            Self::Command => "the length field of a command",
            Self::Buffer => "the largest buffer",
        })
    }
}

/// An error of the operating system.
pub(crate) fn os(what: &'static str, errno: nix::Error) -> Error {
    match errno {
        nix::Error::ENODEV => Error::Gone,
        nix::Error::EBUSY => Error::Busy,
        _ => Error::Os { what, source: errno.into() },
    }
}

/// An error of the protocol.
pub(crate) fn protocol<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Protocol(what.into()))
}

/// An error of a GPU.
pub(crate) fn gpu(executor: &'static str, what: impl Into<String>) -> Error {
    Error::Gpu { executor, what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_can_be_done() {
        let permission =
            |group: &str| Error::Permission { path: "/dev/x".into(), group: group.into() }.to_string();
        assert!(permission("render").contains("usermod -aG render"));
        assert!(permission("root").contains("install kmod/udev/60-rocm-xio.rules"));
        let state = |liveness| crate::ControllerState {
            liveness,
            resets: 2,
            last_reset: Some(crate::ResetCause::System),
        };
        let revoked = |state| Error::Revoked { what: "Store", state }.to_string();
        assert_eq!(
            revoked(Some(state(crate::Liveness::Live))),
            "Store: the controller was reset (live, resets: 2, last: by the system), and its queues and buffers are gone; \
             commands that were in flight may or may not have been done: make a new queue and new buffers on the same \
             controller"
        );
        assert!(revoked(Some(state(crate::Liveness::Failed))).ends_with("unbind and bind it"));
        assert!(revoked(None).ends_with("open the controller anew if it is gone"));
        let late = |state| Error::Timeout { what: "Store", after: Duration::from_secs(1), state }.to_string();
        assert!(late(None).ends_with("stalls or is overloaded"));
        assert!(late(Some(state(crate::Liveness::Failed))).contains("is not live (failed"));
        let key: Key = "k".parse().unwrap();
        let full = Error::Capacity { key, capacity: None };
        assert_eq!(full.to_string(), "key k: the namespace is full: delete keys");
        let full = full.with_capacity(4096);
        assert_eq!(full.to_string(), "key k: the namespace of 4096 bytes is full: delete keys");
    }
}
