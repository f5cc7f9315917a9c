// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dma-bufs by AMD's and NVIDIA's runtimes, whose place a stand-in takes (`fake_runtime.c`): memory that is exported, doorbells
//! that are mapped, and what is said where a runtime lacks the functions. Each case is a process of its own, since libraries
//! stay open.
#![allow(unsafe_code, reason = "the device's memory is this process'")]

use crate::common::{controller, numbered, options, pattern};
use crate::rig::queue_options;
use nvme_kv::kv::Command as KvCommand;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xio::gpu::abi::device::Queue as DeviceQueue;
use xio::gpu::{Doorbell, Gpu, GpuBuffer, GpuQueue};
use xio::{Controller, RetrieveOptions, StoreOptions};
use zerocopy::IntoBytes;

/// The file of the stand-in, and the case to run, for the child.
const FILE: &str = "XIO_FAKE_RUNTIME";
const CASE: &str = "XIO_FAKE_RUNTIME_CASE";

/// Builds the stand-in under the names of all runtimes, in a folder of its own.
fn build(name: &str, without: &[&str]) -> Option<PathBuf> {
    let folder = std::env::temp_dir().join(format!("xio-runtime-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("libamdhip64.so.7");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o"]).arg(&file);
    compile.args(without.iter().map(|what| format!("-D{what}")));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/fake_runtime.c");
    let Ok(out) = compile.arg(source).output() else {
        eprintln!("skipped: there is no cc");
        return None;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for other in ["libhsa-runtime64.so.1", "libcuda.so.1"] {
        std::os::unix::fs::symlink(&file, folder.join(other)).unwrap();
    }
    Some(folder)
}

/// Runs a case of this file in a process that finds the stand-in.
fn with_runtime(case: &str, without: &[&str]) {
    let Some(folder) = build(case, without) else { return };
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "runtimes::the_case_of_this_process", "--nocapture"]).env(CASE, case);
    child.env("LD_LIBRARY_PATH", &folder).env(FILE, folder.join("libamdhip64.so.7"));
    let out = child.output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains(&format!("did {case}\n")),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn amd_memory_is_exported_below_hip() {
    with_runtime("hip", &[]);
}

#[test]
fn amd_memory_is_exported_by_hip() {
    with_runtime("hip_alone", &["WITHOUT_AGENT_EXPORT"]);
}

#[test]
fn amd_runtimes_that_are_too_old_say_what_is_missing() {
    with_runtime("hip_old", &["WITHOUT_EXPORT", "WITHOUT_INTEROP"]);
}

#[test]
fn nvidia_memory_is_exported() {
    with_runtime("cuda", &[]);
}

#[test]
fn nvidia_drivers_that_are_too_old_say_what_is_missing() {
    with_runtime("cuda_old", &["WITHOUT_EXPORT", "WITHOUT_INTEROP"]);
}

/// What the other tests start.
#[test]
fn the_case_of_this_process() {
    let Ok(case) = std::env::var(CASE) else { return };
    match case.as_str() {
        "hip" => child_hip(),
        "hip_alone" => child_hip_alone(),
        "hip_old" => child_hip_old(),
        "cuda" => child_cuda(),
        "cuda_old" => child_cuda_old(),
        _ => panic!("no case {case}"),
    }
    println!("did {case}");
}

/// What the stand-in counted: dma-bufs made and closed, maps made and undone.
fn counts() -> [u32; 4] {
    let file = std::env::var_os(FILE).unwrap();
    // SAFETY: the stand-in, which is open already.
    let library = unsafe { libloading::Library::new(file).unwrap() };
    [c"fake_exported", c"fake_closed", c"fake_mapped", c"fake_unmapped"].map(|name| {
        // SAFETY: an int of the stand-in, which nothing changes meanwhile.
        unsafe { **library.get::<*const u32>(name.to_bytes_with_nul()).unwrap() }
    })
}

/// A value retrieved into memory of the GPU, of which the buffer is the import.
fn values(gpu: &Gpu, controller: &Controller) {
    let buffer = GpuBuffer::in_device_memory(gpu, controller, 40_000).unwrap();
    let namespace = controller.first_namespace().unwrap();
    let mut queue = controller.queue(options(4)).unwrap();
    let value = pattern(3, 30_000);
    buffer.write(8, &value).unwrap();
    let (key, from) = (numbered(1), buffer.buffer().slice(8..30_008).unwrap());
    queue.store(&namespace, &key, &from, StoreOptions::default()).unwrap();
    buffer.write(0, &[0xee; 40_000]).unwrap();
    let to = buffer.buffer().slice(4100..40_000).unwrap();
    assert_eq!(queue.retrieve(&namespace, &key, &to, RetrieveOptions::default()).unwrap(), 30_000);
    let mut back = vec![0; 40_000];
    buffer.memory().unwrap().read(0, &mut back).unwrap();
    assert!(back[4100..34_100] == value);
    assert!(back[..4100].iter().chain(&back[34_100..]).all(|byte| *byte == 0xee));
    // Where kernels find it.
    // SAFETY: the device's memory is this process', and the command is done.
    assert_eq!(unsafe { *((buffer.data() + 4100) as *const u8) }, value[0]);
}

/// A command by the doorbell that the GPU was given.
fn doorbell(gpu: &Gpu, controller: &Controller) {
    // The second queue's doorbells are not the first of their page.
    let _first = controller.raw_queue(4).unwrap();
    let raw = controller.raw_queue(4).unwrap();
    let queue = GpuQueue::over(gpu, raw, true, &queue_options(4)).unwrap();
    assert_eq!(queue.doorbell(), Doorbell::Dmabuf, "{:?}", queue.refused());
    let sqe = KvCommand::Exist { key: numbered(1) }.encode(3, 1);
    // SAFETY: the device's memory and the queue's are this process', and no kernel runs.
    unsafe {
        let device = &*(queue.address() as *const DeviceQueue);
        (device.sq as *mut u8).copy_from_nonoverlapping(sqe.as_bytes().as_ptr(), 64);
        AtomicU32::from_ptr(device.sq_doorbell as *mut u32).store(1, Ordering::Release);
        let last = AtomicU32::from_ptr((device.cq + 12) as *mut u32);
        let until = Instant::now() + Duration::from_secs(20);
        while last.load(Ordering::Acquire) >> 16 == 0 {
            assert!(Instant::now() < until, "no answer");
            std::thread::yield_now();
        }
        assert_eq!(last.load(Ordering::Acquire) & 0xffff, 3);
        AtomicU32::from_ptr(device.cq_doorbell as *mut u32).store(1, Ordering::Release);
    }
    queue.close().unwrap();
}

fn open(which: &str) -> (Gpu, Controller) {
    let gpu = Gpu::open(which.parse().unwrap()).unwrap();
    assert_eq!(gpu.info().name, "fake");
    (gpu, controller())
}

fn child_hip() {
    let (gpu, controller) = open("hip:0");
    values(&gpu, &controller);
    // Closed by the runtime's own function.
    assert_eq!(counts(), [1, 1, 0, 0]);
    doorbell(&gpu, &controller);
    assert_eq!(counts(), [1, 1, 2, 2]);
}

fn child_hip_alone() {
    let (gpu, controller) = open("hip:0");
    values(&gpu, &controller);
    assert_eq!(counts(), [1, 0, 0, 0]);
}

/// What is said of a GPU whose runtime can not export, and the doorbell's way then.
fn old(gpu: &Gpu, controller: &Controller, functions: [&str; 2], ways: usize) {
    let error = GpuBuffer::in_device_memory(gpu, controller, 4096).unwrap_err().to_string();
    assert!(functions.iter().all(|name| error.contains(name)), "{error}");
    let raw = controller.raw_queue(4).unwrap();
    let queue = GpuQueue::over(gpu, raw, true, &queue_options(4)).unwrap();
    assert_eq!((queue.doorbell(), queue.refused().len()), (Doorbell::Proxy, ways));
    let last = queue.refused().last().unwrap();
    assert!(last.contains("from a dma-buf of the module: ") && last.contains("has no "), "{last}");
}

fn child_hip_old() {
    let (gpu, controller) = open("hip:0");
    let functions = ["no hsa_amd_portable_export_dmabuf", "no hipMemGetHandleForAddressRange"];
    old(&gpu, &controller, functions, 3);
    assert!(gpu.info().peer_to_peer.starts_with("no: the runtime exports no dma-buf"));
}

fn child_cuda() {
    let (gpu, controller) = open("cuda:0");
    values(&gpu, &controller);
    assert_eq!(counts(), [1, 0, 0, 0]);
    doorbell(&gpu, &controller);
    assert_eq!(counts(), [1, 2, 2, 2]);
}

fn child_cuda_old() {
    let (gpu, controller) = open("cuda:0");
    old(&gpu, &controller, ["no cuMemGetHandleForAddressRange", "CUDA 11.7 or newer"], 2);
}
