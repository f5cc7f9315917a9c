// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that are opened when the program runs.
#![allow(unsafe_code, reason = "functions of foreign libraries")]

use crate::error::{gpu, Error};
use libloading::Library;
use std::ffi::{c_char, c_int, CStr};
use std::time::{Duration, Instant};

/// Defines a table of functions of a library, and `symbols`, which says which of them there are.
macro_rules! functions {
    ($(#[doc = $doc:literal])* $name:ident { $( $kind:ident $function:ident: fn($($arg:ty),*) -> $ret:ty; )* }) => {
        $(#[doc = $doc])*
        #[allow(non_snake_case, reason = "the library's own names")]
        #[derive(Debug)]
        pub(super) struct $name {
            $( pub $function: functions!(@type $kind unsafe extern "C" fn($($arg),*) -> $ret), )*
        }
        impl $name {
            /// What it needs.
            pub(super) const SYMBOLS: &'static [crate::gpu::Symbol] = &[$( crate::gpu::Symbol {
                name: stringify!($function),
                optional: functions!(@optional $kind),
                result: size_of::<$ret>(),
                arguments: &[$( size_of::<$arg>() ),*],
            } ),*];

            /// Finds the functions; the name of one that is missing.
            ///
            /// # Safety
            /// The library's functions have these signatures, and it stays open for ever.
            unsafe fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self { $(
                    $function: {
                        let name = concat!(stringify!($function), "\0");
                        // SAFETY: the signature is right by the caller's promise.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) -> $ret>(name.as_bytes())
                        };
                        functions!(@found $kind found, stringify!($function))
                    },
                )* })
            }
        }
    };
    (@type needed $ty:ty) => { $ty };
    (@type maybe $ty:ty) => { Option<$ty> };
    (@optional needed) => { false };
    (@optional maybe) => { true };
    (@found needed $found:ident, $name:expr) => { *$found.map_err(|_| $name)? };
    (@found maybe $found:ident, $name:expr) => { $found.ok().map(|f| *f) };
}
pub(super) use functions;

/// Asks a runtime for a code until it is another than `not_ready`. Runtimes that wait themselves spin, which takes a processor from
/// those that the kernel waits for: controllers in threads of this process, say.
pub(super) fn wait_for(not_ready: c_int, ask: impl Fn() -> c_int) -> c_int {
    const SOON: Duration = Duration::from_millis(1);
    const PAUSE: Duration = Duration::from_micros(50);
    let start = Instant::now();
    loop {
        let code = ask();
        if code != not_ready {
            return code;
        }
        if start.elapsed() < SOON {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The error of a call into a runtime.
///
/// # Safety
/// `text` is null or a C string.
pub(super) unsafe fn failed(runtime: &'static str, what: &str, code: c_int, text: *const c_char) -> Error {
    let text = if text.is_null() {
        "unknown".into()
    } else {
        // SAFETY: a C string, as it is not null.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    };
    gpu(runtime, format!("{what}: error {code} ({text})"))
}

/// Opens the first of several libraries that is there, for ever.
///
/// # Safety
/// Loading them has no effect that this program does not bear: they are runtimes of GPU vendors.
pub(super) unsafe fn open(names: &[&str]) -> Result<&'static Library, String> {
    let mut why = Vec::new();
    for name in names {
        // SAFETY: the caller's promise.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => why.push(error.to_string()),
        }
    }
    Err(format!("no {} can be opened ({})", names.join(" or "), why.first().map_or("", String::as_str)))
}

/// A function of a vendor's runtime, as this library calls it.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Name.
    pub name: &'static str,
    /// Whether the library can do without.
    pub optional: bool,
    /// Bytes of the result.
    pub result: usize,
    /// Bytes of each argument.
    pub arguments: &'static [usize],
}

/// The functions that this library needs of AMD's and NVIDIA's runtimes, for tests: `hip`, `hsa`, `cuda`.
pub fn symbols(library: &str) -> &'static [Symbol] {
    match library {
        "hip" => super::hip::Api::SYMBOLS,
        "hsa" => super::hsa::Api::SYMBOLS,
        "cuda" => super::cuda::Api::SYMBOLS,
        _ => &[],
    }
}
