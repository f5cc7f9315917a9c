// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile client: a million requests at random, by several threads, with all kinds of file descriptors, while the driver
//! of other memory takes it back. Nothing worse than a documented error may come of it.

use crate::fakegpu::{self, Export, FakeGpu, Layout, EXPORT_MOVABLE, EXPORT_SYSTEM, INVALIDATE_MOVE};
use crate::kernel::{self, NODE};
use crate::random::Random;
use crate::raw::{self, sized, Mapping, Node};
use crate::report::Report;
use crate::session::{self, Client};
use crate::tests::share;
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xio_uapi::{
    iowr, BufferAlloc, BufferImport, GetState, KvEntry, KvSubmit, QueueCreate, QueueExport, Request,
};
use zerocopy::FromZeros;

pub const CLIENTS: &[(&str, Client)] = &[("trust-random", |_| random())];

const THREADS: u64 = 4;
const CALLS: u32 = 1_000_000;

pub fn run(report: &mut Report, _: &[&str]) {
    report.case("modules_load", |_| {
        fakegpu::load()?;
        kernel::load_rocm_xio("max_client_mb=64 max_client_queues=8")?;
        share::allow_udmabuf()
    });
    report.case("a_million_requests", |report| {
        // The kernel's checker of DMA mappings takes only seven of the same memory from udmabuf, which maps it for each import.
        report.allow_kernel_message("get_sg_table+");
        report.note(&session::run_within(&["trust-random"], Duration::from_secs(500))?.text());
        Ok(())
    });
    report.case("nothing_is_left", |_| share::nothing_is_left());
    report.case("next_client_is_served", |_| {
        session::run(&["share-operations", "0"])?;
        session::run(&["peer-drives"]).map(drop)
    });
}

fn random() -> Result<()> {
    let gpu = FakeGpu::open()?;
    let layout = Layout::scattered(64 << 12);
    let exports = [layout.with(EXPORT_MOVABLE), layout.with(EXPORT_SYSTEM)]
        .map(|layout| gpu.export(&layout))
        .into_iter()
        .collect::<Result<Vec<Export<'_>>, _>>()?;
    let system = xio::system_dmabuf(1 << 20)?;
    let event = nix::sys::eventfd::EventFd::new()?;
    let null = std::fs::File::open("/dev/null")?;
    let others = [
        exports[0].fd.as_raw_fd(),
        exports[1].fd.as_raw_fd(),
        system.as_raw_fd(),
        event.as_raw_fd(),
        null.as_raw_fd(),
        -1,
        1 << 20,
    ];
    // Two clients, each used by all threads.
    let nodes = [Node::open(NODE)?, Node::open(NODE)?];
    let done = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| -> Result<[u32; 2]> {
        let threads: Vec<_> = (1..=THREADS)
            .map(|seed| {
                let (nodes, others) = (&nodes, &others);
                scope.spawn(move || Hostile::new(seed, nodes, others)?.attack())
            })
            .collect();
        let mover = scope.spawn(|| {
            let mut seed = 1;
            while !done.load(Ordering::Relaxed) {
                exports[0].invalidate(INVALIDATE_MOVE, seed)?;
                seed += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok::<_, Errno>(seed)
        });
        let counts =
            threads.into_iter().map(|t| t.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?);
        let counts: Result<Vec<_>> = counts.collect();
        done.store(true, Ordering::Relaxed);
        let moves = mover.join().map_err(|_| anyhow::anyhow!("the mover panicked"))?;
        ensure!(moves.context("taking memory back")? > 10, "memory was hardly ever taken back");
        Ok(counts?.into_iter().fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]))
    })?;
    println!("{} requests were served, {} refused", counts[0], counts[1]);
    ensure!(counts[0] > CALLS / 100 && counts[1] > CALLS / 100, "not much of a test");
    Ok(())
}

/// All that a request can say.
const ERRORS: [Errno; 18] = [
    Errno::E2BIG,
    Errno::EACCES,
    Errno::EAGAIN,
    Errno::EBADF,
    Errno::EBUSY,
    Errno::EDQUOT,
    Errno::EFAULT,
    Errno::EINVAL,
    Errno::ENODEV,
    Errno::ENOENT,
    Errno::ENOMEM,
    Errno::ENOSPC,
    Errno::ENOTTY,
    Errno::ENXIO,
    Errno::EOPNOTSUPP,
    Errno::EREMOTEIO,
    Errno::ESTALE,
    Errno::ETIMEDOUT,
];

struct Hostile<'a> {
    random: Random,
    nodes: &'a [Node; 2],
    others: &'a [i32],
    /// Some that were made, by whichever client; they are used again, and again after their end.
    handles: Vec<u32>,
    /// Room for as many entries as a call can have, whatever a changed count says.
    entries: Mapping,
    /// To be registered: a page of its own, since values may come into it.
    memory: Mapping,
}

impl<'a> Hostile<'a> {
    fn new(seed: u64, nodes: &'a [Node; 2], others: &'a [i32]) -> Result<Self> {
        Ok(Self {
            random: Random::new(seed),
            nodes,
            others,
            handles: vec![0],
            entries: raw::anonymous(32 << 10, libc::PROT_READ | libc::PROT_WRITE)?,
            memory: raw::anonymous(8192, libc::PROT_READ | libc::PROT_WRITE)?,
        })
    }

    /// How many requests were served and refused.
    fn attack(mut self) -> Result<[u32; 2]> {
        let mut counts = [0, 0];
        for _ in 0..CALLS / THREADS as u32 {
            let (nr, mut bytes) = self.request();
            let node = &self.nodes[self.random.below(2) as usize];
            let size = bytes.len();
            match node.ioctl(iowr(nr, size), &mut bytes) {
                Ok(()) => {
                    counts[0] += 1;
                    self.note(nr, &bytes);
                }
                Err(e) => {
                    ensure!(ERRORS.contains(&e), "request {nr} of {size} bytes: {e}");
                    counts[1] += 1;
                }
            }
        }
        Ok(counts)
    }

    /// A request: mostly a good one, then changed in a place or two.
    fn request(&mut self) -> (u8, Vec<u8>) {
        // What maps memory or asks the controller takes milliseconds in a virtual machine, and comes now and then. Of the
        // rest, half is not even well-formed.
        let (nr, well_formed) = match self.random.below(128) {
            0 | 1 => (self.random.one(&[1, 2, 2, 3, 4, 4, 6, 7, 7, 8, 8, 9, 9]), true),
            2..64 => (self.random.one(&[0, 3, 5, 8, 10]), true),
            _ => (self.random.below(12) as u8, false),
        };
        let mut bytes = self.good(nr);
        if !well_formed {
            self.spoil(&mut bytes);
        }
        for _ in 0..self.random.one(&[0, 0, 0, 1, 2]) {
            let at = (self.random.below(bytes.len() as u64) as usize) & !3;
            let value = self.random.next() as u32 >> self.random.one(&[0, 16, 26, 31]);
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        (nr, bytes)
    }

    /// Makes a request that is not well-formed: stated size, true size, flags, or the reserved fields at the end.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        let any = (self.random.next() as u32 | 0x100).to_ne_bytes();
        let end = bytes.len();
        match self.random.below(4) {
            0 => bytes[..4].copy_from_slice(&any),
            1 => bytes[4..8].copy_from_slice(&any),
            2 => bytes[end - 4..].copy_from_slice(&any),
            _ => {
                let size = self.random.one(&[8, 16, 600, 1024]);
                bytes.resize(size, 1);
                bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
            }
        }
    }

    fn good(&mut self, nr: u8) -> Vec<u8> {
        let (fd, handle) = (self.random.one(self.others), self.handle());
        let len = (1 + self.random.below(16)) << 12;
        match nr {
            2 => bytes(QueueCreate {
                entries: 2 + self.random.below(64) as u32,
                flags: self.random.one(&[0, 0, 1, 2, 4, 6]),
                eventfd: self.random.one(&[-1, -1, fd]),
                sq_buffer: handle,
                cq_buffer: self.handle(),
                ..sized()
            }),
            4 => bytes(BufferAlloc { len, flags: self.random.one(&[0, 4]), ..sized() }),
            6 => {
                let address = self.memory.ptr.as_ptr() as u64;
                let flags = self.random.one(&[0, 1]);
                bytes(xio_uapi::BufferRegister { address, len: 64, flags, ..sized() })
            }
            7 => bytes(BufferImport { fd, len, flags: self.random.one(&[0, 1, 2]), ..sized() }),
            8 => bytes(QueueExport { handle, part: self.random.below(5) as u32, ..sized() }),
            9 => self.submit(handle),
            10 => bytes(GetState { flags: self.random.one(&[0, 1]), eventfd: fd, ..sized() }),
            0 => bytes::<xio_uapi::GetInfo>(sized()),
            1 => bytes::<xio_uapi::GetNamespace>(sized()),
            3 => bytes(xio_uapi::QueueDestroy { handle, ..sized() }),
            5 => bytes(xio_uapi::BufferFree { handle, ..sized() }),
            _ => vec![0; 64],
        }
    }

    fn handle(&mut self) -> u32 {
        self.random.one(&self.handles)
    }

    fn submit(&mut self, buffer: u32) -> Vec<u8> {
        for n in 0..4 {
            let entry = KvEntry {
                op: self.random.one(&[1, 2, 2, 6, 0x10, 0x14, 0x55]),
                key_len: self.random.one(&[1, 1, 16, 17]),
                nsid: self.random.one(&[1, 1, 1, 0, 9]),
                buffer,
                len: self.random.below(9000) as u32,
                offset: self.random.below(5000) & !3,
                ..KvEntry::new_zeroed()
            };
            let bytes: [u32; size_of::<KvEntry>() / 4] = zerocopy::transmute!(entry);
            self.entries.write(n * size_of::<KvEntry>(), bytes);
        }
        let count = 1 + self.random.below(4) as u32;
        let there = self.entries.ptr.as_ptr() as u64;
        let entries = self.random.one(&[there, there, there, 8]);
        bytes(KvSubmit { entries, count, timeout_ms: 1 + self.random.below(1000) as u32, ..sized() })
    }

    /// Remembers a handle; closes what was exported.
    fn note(&mut self, nr: u8, bytes: &[u8]) {
        let word =
            |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let handle = match nr {
            2 => word(std::mem::offset_of!(QueueCreate, handle)),
            4 => word(std::mem::offset_of!(BufferAlloc, handle)),
            6 => word(std::mem::offset_of!(xio_uapi::BufferRegister, handle)),
            7 => word(std::mem::offset_of!(BufferImport, handle)),
            8 => {
                let fd = word(std::mem::offset_of!(QueueExport, fd)) as i32;
                // A descriptor that the request made. (A changed size may have cut it off: then it is 0.)
                if fd > 2 {
                    let _ = nix::unistd::close(fd);
                }
                return;
            }
            _ => return,
        };
        if self.handles.len() < 32 {
            self.handles.push(handle);
        } else {
            let at = self.random.below(32) as usize;
            self.handles[at] = handle;
        }
    }
}

fn bytes<T: Request>(request: T) -> Vec<u8> {
    request.as_bytes().to_vec()
}
