// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device node as it is: ioctls, mappings and a bare queue, for tests of the interface itself. Nothing here
//! keeps a test from doing what it should not.
#![allow(unsafe_code)] // mapped memory and ioctls

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nvme_kv::{kv::Command, ring, Cqe, Sqe, Status};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xio_uapi::{BufferAlloc, BufferFree, GetInfo, GetState, KvEntry, QueueCreate, QueueDestroy, Request};
use zerocopy::FromZeros;

/// An open device node.
pub struct Node(pub File);

impl Node {
    /// Opens a node.
    pub fn open(path: &str) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Ok(Self(file.with_context(|| format!("opening {path}"))?))
    }

    /// An ioctl with any number and argument.
    pub fn ioctl(&self, cmd: u32, argument: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: The kernel checks the pointer; at most `ioc_size` bytes are written, which tests keep within.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::Ioctl::from(cmd), argument.as_mut_ptr()) };
        Errno::result(result).map(drop)
    }

    /// A request as it should be.
    pub fn request<T: Request>(&self, request: &mut T) -> Result<(), Errno> {
        self.ioctl(T::CMD, request.as_mut_bytes())
    }

    /// GET_INFO.
    pub fn info(&self) -> Result<GetInfo, Errno> {
        let mut info = sized::<GetInfo>();
        self.request(&mut info).map(|()| info)
    }

    /// GET_STATE, with an eventfd to signal or a negative number for none.
    pub fn state(&self, eventfd: i32) -> Result<GetState, Errno> {
        let flags = if eventfd < 0 { 0 } else { xio_uapi::STATE_SET_EVENTFD };
        let mut state = GetState { flags, eventfd, ..sized() };
        self.request(&mut state).map(|()| state)
    }

    /// What poll says of the file, after at most so long.
    pub fn poll(&self, ms: u16) -> Result<PollFlags> {
        let mut all = [PollFd::new(self.0.as_fd(), PollFlags::POLLPRI)];
        nix::poll::poll(&mut all, ms).context("poll")?;
        Ok(all[0].revents().unwrap_or(PollFlags::empty()))
    }

    /// QUEUE_CREATE.
    pub fn queue_create(&self, entries: u32, eventfd: i32) -> Result<QueueCreate, Errno> {
        let mut request = QueueCreate { entries, eventfd, ..sized() };
        self.request(&mut request).map(|()| request)
    }

    /// QUEUE_DESTROY.
    pub fn queue_destroy(&self, handle: u32) -> Result<(), Errno> {
        self.request(&mut QueueDestroy { handle, ..sized() })
    }

    /// BUFFER_ALLOC.
    pub fn buffer_alloc(&self, len: u64) -> Result<BufferAlloc, Errno> {
        let mut request = BufferAlloc { len, ..sized() };
        self.request(&mut request).map(|()| request)
    }

    /// BUFFER_FREE.
    pub fn buffer_free(&self, handle: u32) -> Result<(), Errno> {
        self.request(&mut BufferFree { handle, ..sized() })
    }

    /// `mmap`, shared, for reading and writing.
    pub fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.map_with(offset, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    /// `mmap` with any protection and flags.
    pub fn map_with(&self, offset: u64, len: usize, protection: i32, flags: i32) -> Result<Mapping, Errno> {
        map_file(&self.0, offset, len, protection, flags)
    }
}

/// `mmap` of any file.
pub fn map_file(
    file: &impl AsRawFd,
    offset: u64,
    len: usize,
    protection: i32,
    flags: i32,
) -> Result<Mapping, Errno> {
    let (fd, offset) = (file.as_raw_fd(), offset as libc::off_t);
    // SAFETY: A new mapping at an address of the kernel's choice.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
    match NonNull::new(ptr.cast::<u8>()) {
        Some(start) if ptr != libc::MAP_FAILED => Ok(Mapping { ptr: start, len }),
        _ => Err(Errno::last()),
    }
}

/// A zeroed request with its size set.
pub fn sized<T: Request>() -> T {
    let mut request = T::new_zeroed();
    let size = std::mem::size_of::<T>() as u32;
    request.as_mut_bytes()[..4].copy_from_slice(&size.to_ne_bytes());
    request
}

/// A mapping.
pub struct Mapping {
    /// Start.
    pub ptr: NonNull<u8>,
    /// Bytes.
    pub len: usize,
}

impl Mapping {
    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + std::mem::size_of::<T>() <= self.len && offset % std::mem::align_of::<T>() == 0);
        // SAFETY: Within the mapping.
        unsafe { self.ptr.as_ptr().add(offset).cast() }
    }

    /// Loads a value.
    pub fn read<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: Mapped, in bounds, aligned; all uses are integers and arrays of them.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    /// Stores a value.
    pub fn write<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: As for `read`.
        unsafe { self.at::<T>(offset).write_volatile(value) };
    }

    /// Fills all of it with a pattern that depends on `seed`.
    pub fn fill(&self, seed: u8) {
        (0..self.len).for_each(|i| self.write(i, pattern(seed, i)));
    }

    /// Bytes among the first `len` that are not the pattern's.
    pub fn wrong(&self, seed: u8, len: usize) -> usize {
        (0..len).filter(|i| self.read::<u8>(*i) != pattern(seed, *i)).count()
    }

    /// Touches the first dword; whether that raised SIGBUS. Needs [`catch_bus_errors`].
    pub fn is_revoked(&self) -> bool {
        let before = BUS_ERRORS.load(Ordering::SeqCst);
        let _: u32 = self.read(0);
        BUS_ERRORS.load(Ordering::SeqCst) != before
    }

    /// Unmaps some pages in the middle of it.
    pub fn unmap_part(&self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: Within the mapping; the test does not touch it any more.
        Errno::result(unsafe { libc::munmap(self.at::<u8>(offset).cast(), len) }).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: Ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

/// A byte of the test pattern.
pub fn pattern(seed: u8, at: usize) -> u8 {
    (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(seed)
}

static BUS_ERRORS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_bus_error(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: The kernel gives a valid structure; `mmap` may be called in a handler. A fresh page in the place
    // of the revoked one lets the access go on.
    unsafe {
        let page = ((*info).si_addr() as usize & !4095) as *mut libc::c_void;
        let (rw, fixed) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        if libc::mmap(page, 4096, rw, fixed, -1, 0) == libc::MAP_FAILED {
            libc::_exit(99);
        }
    }
    BUS_ERRORS.fetch_add(1, Ordering::SeqCst);
}

/// Counts SIGBUS instead of dying of it.
pub fn catch_bus_errors() -> Result<()> {
    // SAFETY: The handler does only what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        Errno::result(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut())).context("sigaction")?;
    }
    Ok(())
}

/// Whether the kernel can pin a page of the mapping for another, as `process_vm_readv` shows.
pub fn can_be_pinned(mapping: &Mapping) -> Result<(), Errno> {
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: mapping.ptr.as_ptr().cast(), iov_len: 1 };
    // SAFETY: Reads one byte of our own process into another.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    Errno::result(read).map(drop)
}

/// A bare queue pair.
pub struct Queue {
    /// What the module answered.
    pub created: QueueCreate,
    /// Submission queue memory.
    pub sq: Mapping,
    /// Completion queue memory.
    pub cq: Mapping,
    /// Page of the tail doorbell.
    pub tail: Mapping,
    /// Page of the head doorbell.
    pub head: Mapping,
    producer: ring::SqProducer,
    consumer: ring::CqConsumer,
}

impl Queue {
    /// Makes and maps a queue pair.
    pub fn new(node: &Node, entries: u32) -> Result<Self> {
        let created = node.queue_create(entries, xio_uapi::NO_EVENTFD).context("QUEUE_CREATE")?;
        Self::map(node, created)
    }

    /// Maps a queue pair.
    pub fn map(node: &Node, created: QueueCreate) -> Result<Self> {
        let entries = created.entries;
        Ok(Self {
            sq: node.map(created.sq_offset, created.sq_len as usize).context("mapping the SQ")?,
            cq: node.map(created.cq_offset, created.cq_len as usize).context("mapping the CQ")?,
            tail: node.map(created.sq_doorbell_offset, 4096).context("mapping the tail doorbell")?,
            head: node.map(created.cq_doorbell_offset, 4096).context("mapping the head doorbell")?,
            producer: ring::SqProducer::new(entries).context("entries")?,
            consumer: ring::CqConsumer::new(entries).context("entries")?,
            created,
        })
    }

    /// Puts a command into the queue and rings.
    pub fn submit(&mut self, command: Command) -> Result<()> {
        let slot = self.producer.push().context("the queue is full")?;
        let sqe: [u8; 64] = zerocopy::transmute!(command.encode(slot as u16, 1));
        self.sq.write(slot as usize * Sqe::SIZE, sqe);
        fence(Ordering::SeqCst);
        self.tail.write(self.created.sq_doorbell_in_page as usize, self.producer.tail());
        Ok(())
    }

    /// Takes a completion.
    pub fn reap(&mut self) -> Result<Option<Cqe>> {
        let at = self.consumer.head() as usize * Cqe::SIZE;
        if (self.cq.read::<u32>(at + 12) >> 16 & 1 == 1) != self.consumer.phase() {
            return Ok(None);
        }
        fence(Ordering::Acquire);
        let cqe: Cqe = zerocopy::transmute!(self.cq.read::<[u8; 16]>(at));
        ensure!(u32::from(cqe.sqid.get()) == self.created.qid, "a completion for queue {}", cqe.sqid.get());
        ensure!(self.producer.update_head(cqe.sqhd.get()), "SQHD {} is impossible", cqe.sqhd.get());
        self.consumer.pop();
        self.head.write(self.created.cq_doorbell_in_page as usize, self.consumer.head());
        Ok(Some(cqe))
    }

    /// Runs a command: status and dword 0.
    pub fn run(&mut self, command: Command) -> Result<(Status, u32)> {
        self.submit(command)?;
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(cqe) = self.reap()? {
                return Ok((cqe.status(), cqe.dw0.get()));
            }
            if Instant::now() > end {
                bail!("{} did not complete within 30 s", command.name());
            }
            std::thread::yield_now();
        }
    }
}

/// A buffer with its mappings.
pub struct Buffer {
    /// What the module answered.
    pub allocated: BufferAlloc,
    /// The data.
    pub data: Mapping,
    /// The table.
    pub table: Mapping,
}

impl Buffer {
    /// Allocates and maps a buffer.
    pub fn new(node: &Node, len: u64) -> Result<Self> {
        let allocated = node.buffer_alloc(len).context("BUFFER_ALLOC")?;
        let data = node.map(allocated.data_offset, allocated.len as usize).context("mapping the data")?;
        let table = node.map_with(
            allocated.table_offset,
            allocated.table_len as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
        );
        Ok(Self { allocated, data, table: table.context("mapping the table")? })
    }

    /// The table's entry of a page.
    pub fn page(&self, n: usize) -> xio_uapi::Page {
        zerocopy::transmute!(self.table.read::<[u64; 4]>(n * 32))
    }

    /// PRP entries of a range.
    pub fn point(&self, offset: usize, len: usize) -> Result<nvme_kv::DataPointer> {
        let lists = nvme_kv::prp::ReadyLists::new(self.allocated.len as usize / 4096);
        Ok(lists.point(offset, len, |n| self.page(n).addr, |v, n| self.page(n).list[v])?)
    }
}

/// An ioctl whose argument is at an address where nothing is.
pub fn ioctl_at(node: &Node, cmd: u32, address: usize) -> Result<(), Errno> {
    // SAFETY: The kernel finds out that nothing is mapped there.
    Errno::result(unsafe { libc::ioctl(node.0.as_raw_fd(), libc::Ioctl::from(cmd), address) }).map(drop)
}

/// A request that makes something, whose result can not be written back: EFAULT, and nothing is left.
pub fn read_only_argument(node: &Node) -> Result<()> {
    let request = BufferAlloc { len: 4096, ..sized() };
    // SAFETY: A page of our own, filled before it is made read-only, unmapped at the end.
    unsafe {
        let (rw, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 4096, rw, private, -1, 0);
        ensure!(page != libc::MAP_FAILED, "mmap: {}", Errno::last());
        page.cast::<BufferAlloc>().write(request);
        libc::mprotect(page, 4096, libc::PROT_READ);
        let result = ioctl_at(node, xio_uapi::BUFFER_ALLOC, page as usize);
        libc::munmap(page, 4096);
        ensure!(result == Err(Errno::EFAULT), "the result can not be written: {result:?}");
    }
    // Had the buffer stayed, this client would own the path.
    Node::open(crate::kernel::NODE)?
        .buffer_alloc(4096)
        .context("after a result that could not be written")?;
    Ok(())
}

/// `mprotect`.
pub fn protect(mapping: &Mapping, protection: i32) -> Result<(), Errno> {
    // SAFETY: The mapping is not touched afterwards in a way that the protection forbids.
    Errno::result(unsafe { libc::mprotect(mapping.ptr.as_ptr().cast(), mapping.len, protection) }).map(drop)
}

/// `mremap` to a larger size.
pub fn grow(mapping: &Mapping, len: usize) -> Result<(), Errno> {
    // SAFETY: Tests expect this to fail; were it to succeed, they end.
    let new = unsafe { libc::mremap(mapping.ptr.as_ptr().cast(), mapping.len, len, libc::MREMAP_MAYMOVE) };
    if new == libc::MAP_FAILED {
        Err(Errno::last())
    } else {
        Ok(())
    }
}

/// Forks a child that touches the mapping; the signal that ended it, 0 for none.
pub fn child_dies_touching(mapping: &Mapping) -> Result<i32> {
    // SAFETY: The child only touches memory and ends, without running anything of ours.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                let _: u32 = mapping.ptr.as_ptr().cast::<u32>().read_volatile();
                libc::_exit(0)
            }
            pid => Errno::result(pid)?,
        }
    };
    let mut status = 0;
    // SAFETY: Our own child.
    Errno::result(unsafe { libc::waitpid(pid, &mut status, 0) })?;
    Ok(if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 })
}

/// Whether the mapping's page is one that [`catch_bus_errors`] put there, not the device's file.
pub fn is_ours(mapping: &Mapping) -> Result<bool> {
    let start = format!("{:x}-", mapping.ptr.as_ptr() as usize);
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(!maps.lines().any(|line| line.starts_with(&start) && line.contains("rocm-xio")))
}

/// An io_uring, for its way of pinning memory.
pub struct IoUring(std::os::fd::OwnedFd);

impl IoUring {
    /// Makes one.
    pub fn new() -> Result<Self> {
        let mut parameters = [0u32; 30];
        // SAFETY: `struct io_uring_params` is 120 bytes.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        let fd = Errno::result(fd).context("io_uring_setup")?;
        // SAFETY: A new descriptor of ours.
        Ok(Self(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd as i32) }))
    }

    /// IORING_REGISTER_BUFFERS: pins the mappings.
    pub fn register(&self, mappings: &[&Mapping]) -> Result<(), Errno> {
        const REGISTER_BUFFERS: u32 = 0;
        let vectors: Vec<libc::iovec> = mappings
            .iter()
            .map(|m| libc::iovec { iov_base: m.ptr.as_ptr().cast(), iov_len: m.len })
            .collect();
        // SAFETY: The kernel reads the array; the mappings outlive the call, and pins outlive the mappings.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.0.as_raw_fd(),
                REGISTER_BUFFERS,
                vectors.as_ptr(),
                vectors.len() as u32,
            )
        };
        Errno::result(result).map(drop)
    }

    /// The same in another ring, since one takes buffers once.
    pub fn register_again(&self, mappings: &[&Mapping]) -> Result<()> {
        Ok(Self::new()?.register(mappings)?)
    }
}

/// Memory of our own, as `mmap` gives it.
pub fn anonymous(len: usize, protection: i32) -> Result<Mapping> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: A new mapping at an address of the kernel's choice.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    ensure!(ptr != libc::MAP_FAILED, "mmap: {}", Errno::last());
    Ok(Mapping { ptr: NonNull::new(ptr.cast()).context("mmap")?, len })
}

impl Node {
    /// BUFFER_REGISTER.
    pub fn register(
        &self,
        address: usize,
        len: usize,
        flags: u32,
    ) -> Result<xio_uapi::BufferRegister, Errno> {
        let (address, len) = (address as u64, len as u64);
        let mut request = xio_uapi::BufferRegister { address, len, flags, ..sized() };
        self.request(&mut request).map(|()| request)
    }

    /// KV_SUBMIT: entries that got a status.
    pub fn submit(&self, entries: &mut [KvEntry], timeout_ms: u32) -> Result<u32, Errno> {
        let (address, count) = (entries.as_mut_ptr() as u64, entries.len() as u32);
        let mut request = xio_uapi::KvSubmit { entries: address, count, timeout_ms, ..sized() };
        self.request(&mut request).map(|()| request.done)
    }
}

/// An entry of KV_SUBMIT for namespace 1.
pub fn entry(op: u32, key: &[u8], buffer: u32, offset: u64, len: u32) -> KvEntry {
    let mut entry = KvEntry::new_zeroed();
    (entry.op, entry.key_len, entry.nsid) = (op as u8, key.len() as u8, 1);
    let n = key.len().min(16);
    entry.key[..n].copy_from_slice(&key[..n]);
    (entry.buffer, entry.offset, entry.len) = (buffer, offset, len);
    entry
}

/// A ring for KV_SUBMIT commands, driven as simply as can be: one submission at a time, completions taken in order.
pub struct CommandRing {
    fd: std::os::fd::OwnedFd,
    sq: Mapping,
    cq: Mapping,
    sqes: Mapping,
    parameters: [u32; 30],
}

impl CommandRing {
    /// Makes a ring of 64 entries.
    pub fn new() -> Result<Self> {
        let mut parameters = [0u32; 30];
        // SAFETY: `struct io_uring_params` is 120 bytes.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 64, parameters.as_mut_ptr()) };
        let fd = Errno::result(fd).context("io_uring_setup")? as i32;
        let map = |offset: i64, len: usize| -> Result<Mapping> {
            let (rw, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
            // SAFETY: The ring's memory, at an address of the kernel's choice.
            let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, rw, shared, fd, offset) };
            ensure!(ptr != libc::MAP_FAILED, "mapping the ring: {}", Errno::last());
            Ok(Mapping { ptr: NonNull::new(ptr.cast()).context("mmap")?, len })
        };
        // Offsets of linux/io_uring.h; sizes are of the default features.
        let (sq, cq, sqes) = (map(0, 4096 * 2)?, map(0x800_0000, 4096 * 2)?, map(0x1000_0000, 64 * 64)?);
        // SAFETY: A new descriptor of ours.
        Ok(Self { fd: unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }, sq, cq, sqes, parameters })
    }

    /// Issues KV_SUBMIT with its argument at `request`.
    pub fn issue(&self, node: &Node, request: &mut xio_uapi::KvSubmit, user_data: u64) -> Result<()> {
        const URING_CMD: u8 = 46;
        // `struct io_sqring_offsets` starts at word 10: head, tail, mask, entries, flags, dropped, array.
        let (tail_at, mask_at, array_at) =
            (self.parameters[11] as usize, self.parameters[12] as usize, self.parameters[16] as usize);
        let tail: u32 = self.sq.read(tail_at);
        let index = tail & self.sq.read::<u32>(mask_at);
        let mut sqe = [0u8; 64];
        sqe[0] = URING_CMD;
        sqe[4..8].copy_from_slice(&node.0.as_raw_fd().to_ne_bytes());
        sqe[8..12].copy_from_slice(&xio_uapi::KV_SUBMIT.to_ne_bytes());
        sqe[32..40].copy_from_slice(&user_data.to_ne_bytes());
        sqe[48..56].copy_from_slice(&(std::ptr::from_mut(request) as u64).to_ne_bytes());
        self.sqes.write(index as usize * 64, sqe);
        self.sq.write(array_at + index as usize * 4, index);
        fence(Ordering::SeqCst);
        self.sq.write(tail_at, tail + 1);
        self.enter(1, 0).map(drop)
    }

    fn enter(&self, submit: u32, wait: u32) -> Result<i64> {
        let flags = u32::from(wait > 0);
        // SAFETY: No pointers are passed.
        let result = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.fd.as_raw_fd(), submit, wait, flags, 0usize, 0usize)
        };
        Errno::result(result).context("io_uring_enter")
    }

    /// Waits for a completion: user data and result.
    pub fn wait(&self) -> Result<(u64, i32)> {
        // `struct io_cqring_offsets` starts at word 20: head, tail, mask, entries, overflow, cqes.
        let (head_at, tail_at, mask_at, cqes_at) = (
            self.parameters[20] as usize,
            self.parameters[21] as usize,
            self.parameters[22] as usize,
            self.parameters[25] as usize,
        );
        let head: u32 = self.cq.read(head_at);
        while self.cq.read::<u32>(tail_at) == head {
            self.enter(0, 1)?;
        }
        fence(Ordering::SeqCst);
        let at = cqes_at + (head & self.cq.read::<u32>(mask_at)) as usize * 16;
        let completion = (self.cq.read::<u64>(at), self.cq.read::<i32>(at + 8));
        fence(Ordering::SeqCst);
        self.cq.write(head_at, head + 1);
        Ok(completion)
    }
}

/// Sends SIGALRM to this process after some milliseconds; its handler does nothing, and interrupts a system call.
pub fn alarm_after(ms: i64) -> Result<()> {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: The handler does nothing; the structures are whole.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        Errno::result(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()))?;
        let once = libc::itimerval {
            it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
            it_value: libc::timeval { tv_sec: ms / 1000, tv_usec: ms % 1000 * 1000 },
        };
        Errno::result(libc::setitimer(libc::ITIMER_REAL, &once, std::ptr::null_mut()))?;
    }
    Ok(())
}

/// Sets RLIMIT_MEMLOCK.
pub fn limit_memlock(bytes: u64) -> Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: A whole structure.
    Errno::result(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }).context("setrlimit").map(drop)
}
