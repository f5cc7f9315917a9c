// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the library calls the vendors' runtimes, compared with the vendors' headers: number and sizes of arguments.
//! `XIO_GPU_HEADERS` names folders with headers, separated by colons (`scripts/gpu-headers` gets them); those of the
//! system are looked at in any case.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use xio::gpu::symbols;

/// The folders that have this header.
fn include(header: &str) -> Vec<PathBuf> {
    let named = std::env::var("XIO_GPU_HEADERS").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&named).collect();
    folders.extend(["/usr/include", "/opt/rocm/include", "/usr/local/cuda/include"].map(PathBuf::from));
    folders.retain(|folder| folder.join(header).exists());
    folders
}

fn compare(library: &str, headers: &[&str], before: &str) {
    let Some(folder) = include(headers[0]).into_iter().next() else {
        eprintln!("skipped: there is no {}", headers[0]);
        return;
    };
    let mut source = String::from(before);
    for header in headers {
        let _ = writeln!(source, "#include <{header}>");
    }
    source.push_str(
        "#include <cstddef>\ntemplate <class R, class... A> constexpr bool is(R (*)(A...), size_t r, \
         const size_t *sizes, size_t count) {\n    size_t all[] = {sizeof(A)..., 0};\n    if (sizeof(R) != r || \
         sizeof...(A) != count) return false;\n    for (size_t i = 0; i < count; i++) if (all[i] != sizes[i]) \
         return false;\n    return true;\n}\n",
    );
    for symbol in symbols(library) {
        let sizes: String = symbol.arguments.iter().map(|size| format!("{size}, ")).collect();
        let (name, result, count) = (symbol.name, symbol.result, symbol.arguments.len());
        // A macro may rename a function, as CUDA's headers do; then the text is that of the new name.
        let _ = writeln!(
            source,
            "constexpr size_t sizes_{name}[] = {{{sizes}0}};\n\
             static_assert(is(&{name}, {result}, sizes_{name}, {count}), \"{name}\");"
        );
    }
    let file = std::env::temp_dir().join(format!("xio-{}-{library}.cpp", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let ran = Command::new("c++")
        .args(["-std=c++17", "-fsyntax-only", "-isystem"])
        .arg(&folder)
        .arg(&file)
        .output();
    let removed = std::fs::remove_file(&file);
    let Ok(out) = ran else {
        eprintln!("skipped: there is no c++");
        return;
    };
    removed.unwrap();
    assert!(out.status.success(), "{library}: {}", String::from_utf8_lossy(&out.stderr));
    eprintln!("{library}: {} functions are those of {}", symbols(library).len(), folder.display());
}

#[test]
fn hip_is_called_as_its_headers_say() {
    compare(
        "hip",
        &["hip/hip_runtime_api.h"],
        "#define __HIP_PLATFORM_AMD__ 1\n#define __HIP_DISABLE_CPP_FUNCTIONS__ 1\n",
    );
}

#[test]
fn hsa_is_called_as_its_headers_say() {
    compare("hsa", &["hsa/hsa.h", "hsa/hsa_ext_amd.h"], "");
}

/// The structures that CUDA takes, as the library has them.
const STRUCTURES: &str = "#include <cuda.h>\n#include <cstddef>\n\
    using H = CUDA_EXTERNAL_MEMORY_HANDLE_DESC;\nusing B = CUDA_EXTERNAL_MEMORY_BUFFER_DESC;\n\
    static_assert(sizeof(H) == 104 && offsetof(H, handle.fd) == 8 && offsetof(H, size) == 24, \"handle\");\n\
    static_assert(offsetof(H, flags) == 32 && offsetof(H, reserved) == 36, \"handle\");\n\
    static_assert(sizeof(B) == 88 && offsetof(B, offset) == 0 && offsetof(B, size) == 8, \"buffer\");\n\
    static_assert(offsetof(B, flags) == 16 && offsetof(B, reserved) == 20, \"buffer\");\n\
    static_assert(CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD == 9, \"type\");\n\
    static_assert(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD == 1, \"range\");\n\
    static_assert(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED == 124, \"attribute\");\n";

#[test]
fn cuda_is_called_as_its_headers_say() {
    compare("cuda", &["cuda.h"], STRUCTURES);
}

/// A library that lies beside the headers, but is not loaded: it may want a newer system than this.
fn beside_headers(library: &str) -> Option<PathBuf> {
    let folder = include("hip/hip_runtime_api.h").into_iter().next()?;
    let file = folder.join("../lib/x86_64-linux-gnu").join(library);
    file.exists().then_some(file)
}

/// The functions that came later are not needed, but the newest runtime has them.
#[test]
fn the_newest_runtimes_of_amd_have_all_functions() {
    for (library, file) in [("hip", "libamdhip64.so.7"), ("hsa", "libhsa-runtime64.so.1")] {
        let Some(file) = beside_headers(file) else {
            eprintln!("skipped: there is no {file} beside the headers");
            continue;
        };
        let out = Command::new("nm").args(["-D", "--defined-only"]).arg(&file).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8_lossy(&out.stdout);
        // ADDRESS TYPE NAME@@VERSION
        let names: HashSet<&str> =
            text.lines().filter_map(|line| line.split(' ').next_back()?.split('@').next()).collect();
        for symbol in symbols(library) {
            assert!(names.contains(symbol.name), "{} is not in {}", symbol.name, file.display());
        }
    }
}

/// AMD's runtime, whatever its age, is opened, has what is needed, and says that there is no device: error 100, or 101 of
/// version 5.2.
#[test]
fn a_runtime_of_amd_without_a_gpu_says_so() {
    match xio::gpu::Gpu::open("hip:0".parse().unwrap()).map_err(|e| e.to_string()) {
        Ok(gpu) => eprintln!("skipped: there is a GPU, {}", gpu.info().name),
        Err(why) if why.contains("can be opened") => eprintln!("skipped: {why}"),
        Err(why) => assert!(why.contains("error 100 ") || why.contains("error 101 "), "{why}"),
    }
}

#[test]
fn a_machine_without_gpus_says_so() {
    let (found, errors) = xio::gpu::Gpu::list();
    assert!(!found.is_empty() || !errors.is_empty());
}
