// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled kernels, and memory for them.
#![allow(dead_code)]

pub mod pairs;
pub mod rig;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use xio_isa::machine::{Machine, SharedMemory};
use xio_isa::memory::Kind;
use xio_isa::object::CodeObject;
use xio_isa::tools::Tools;
use xio_isa::Arch;

/// The compiler and the disassembler.
pub fn tools() -> Tools {
    Tools::find().unwrap_or_else(|e| {
        panic!("{e}; ./scripts/test gpu-isa says what is needed (on Debian: clang-22 lld-22 llvm-22)")
    })
}

/// Seeds to run with: `count` of them, or more when `XIO_ISA_SEEDS` says by how many times.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let times = std::env::var("XIO_ISA_SEEDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    1..1 + count * times
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a source file and reads the result.
fn compile(source: &Path, optimise: &str, arch: Arch, defines: &[&str]) -> CodeObject {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = source.file_stem().unwrap().to_string_lossy();
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let to =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{arch}-{}-{n}.co", std::process::id()));
    let tools = tools();
    let defines: Vec<_> = defines.iter().map(|name| format!("-D{name}")).collect();
    let mut flags: Vec<_> = defines.iter().map(String::as_str).collect();
    let include = format!("-I{}", here().join("../../kernels/include").display());
    flags.extend([optimise, &include]);
    tools.compile(arch, source, &flags, &to).unwrap_or_else(|e| panic!("{e}"));
    let object = CodeObject::load(&tools, &to);
    std::fs::remove_file(&to).unwrap();
    object.unwrap_or_else(|e| panic!("{e}"))
}

/// One of this crate's own kernels.
pub fn own(name: &str, arch: Arch, defines: &[&str]) -> CodeObject {
    compile(&here().join("kernels").join(format!("{name}.hip")), "-O2", arch, defines)
}

/// The library's kernels, compiled as kernels/build does.
pub fn library(arch: Arch, defines: &[&'static str]) -> Arc<CodeObject> {
    built("kernels/kernels.cpp", arch, defines)
}

/// The kernel that is an example for applications.
pub fn example(arch: Arch) -> Arc<CodeObject> {
    built("examples/gpu/fetch_shards.hip", arch, &[])
}

/// Compiles a source file of the repository, each way once.
fn built(source: &'static str, arch: Arch, defines: &[&'static str]) -> Arc<CodeObject> {
    type Way = (&'static str, Arch, Vec<&'static str>);
    type Slot = Arc<OnceLock<Arc<CodeObject>>>;
    static BUILT: Mutex<BTreeMap<Way, Slot>> = Mutex::new(BTreeMap::new());
    let slot = BUILT.lock().unwrap().entry((source, arch, defines.to_vec())).or_default().clone();
    let build = || Arc::new(compile(&here().join("../..").join(source), "-O3", arch, defines));
    slot.get_or_init(build).clone()
}

/// Memory of a kernel.
pub struct Arena {
    memory: SharedMemory,
    next: u64,
}

impl Arena {
    pub fn new(machine: &Machine) -> Self {
        Self { memory: machine.memory.clone(), next: 0x7f00_0000_0000 }
    }

    pub fn add_kind(&mut self, name: &str, bytes: usize, kind: Kind) -> u64 {
        let base = self.next;
        self.next += (bytes as u64).next_multiple_of(0x1_0000) + 0x1_0000;
        self.memory.lock().map(name, base, bytes, kind);
        base
    }

    pub fn add(&mut self, name: &str, bytes: usize) -> u64 {
        self.add_kind(name, bytes, Kind::Shared)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.lock().write(at, bytes).unwrap();
    }

    pub fn words(&mut self, name: &str, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let base = self.add(name, bytes.len());
        self.memory.lock().write(base, &bytes).unwrap();
        base
    }

    pub fn longs(&mut self, name: &str, longs: &[u64]) -> u64 {
        let words: Vec<u32> = longs.iter().flat_map(|long| [*long as u32, (*long >> 32) as u32]).collect();
        self.words(name, &words)
    }

    pub fn read(&self, base: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * count];
        self.memory.lock().read(base, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn read_longs(&self, base: u64, count: usize) -> Vec<u64> {
        let words = self.read(base, 2 * count);
        words.chunks_exact(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect()
    }
}

/// Arguments of a kernel: 64-bit values, then 32-bit ones, as its structure has them.
pub fn arguments(longs: &[u64], words: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = longs.iter().flat_map(|long| long.to_le_bytes()).collect();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}
