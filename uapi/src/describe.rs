// SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT
//! Descriptions of the structures and constants, from which the C header and its tests are made.

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Rust type as written, such as `u32` or `[u8; 20]`.
    pub ty: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Documentation, a line each.
    pub doc: &'static [&'static str],
}

/// A structure.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name in C.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Request number when the structure is the argument of a request.
    pub request: Option<(&'static str, u8)>,
    /// Fields in order.
    pub fields: &'static [Field],
    /// Documentation, a line each.
    pub doc: &'static [&'static str],
}

/// A constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Name without prefix.
    pub name: &'static str,
    /// Rust type as written, such as `u32`.
    pub ty: &'static str,
    /// Value; a negative one with its sign extended.
    pub value: u64,
    /// Documentation, a line each.
    pub doc: &'static [&'static str],
}

/// Defines `repr(C)` structures and their [`Layout`]s in one go.
macro_rules! structures {
    ($(
        $(#[doc = $doc:literal])*
        struct $name:ident = $c:literal $(, request $req:ident = $nr:literal)? {
            $( $(#[doc = $fdoc:literal])* $field:ident: $ty:ty, )*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
            pub struct $name {
                $( $(#[doc = $fdoc])* pub $field: $ty, )*
            }
            impl $name {
                /// Description for the C header.
                pub const LAYOUT: Layout = Layout {
                    name: $c,
                    size: core::mem::size_of::<Self>(),
                    request: structures!(@req $($req $nr)?),
                    fields: &[$( Field {
                        name: stringify!($field),
                        ty: stringify!($ty),
                        offset: core::mem::offset_of!(Self, $field),
                        size: core::mem::size_of::<$ty>(),
                        doc: &[$($fdoc),*],
                    } ),*],
                    doc: &[$($doc),*],
                };
            }
            $(
                #[doc = concat!("Request with [`", stringify!($name), "`].")]
                pub const $req: u32 = crate::iowr($nr, core::mem::size_of::<$name>());
                impl Request for $name {
                    const NR: u8 = $nr;
                    const CMD: u32 = $req;
                    const MIN_SIZE: usize = core::mem::offset_of!($name, reserved);
                }
            )?
        )*
        /// All structures.
        pub const LAYOUTS: &[Layout] = &[$($name::LAYOUT),*];
    };
    (@req) => { None };
    (@req $req:ident $nr:literal) => { Some((stringify!($req), $nr)) };
}

/// Defines constants and the table of them.
macro_rules! constants {
    ($( $(#[doc = $doc:literal])* $name:ident: $ty:ty = $value:expr; )*) => {
        $( $(#[doc = $doc])* pub const $name: $ty = $value; )*
        /// All constants.
        pub const CONSTANTS: &[Constant] = &[$(
            Constant {
                name: stringify!($name),
                ty: stringify!($ty),
                value: $name as u64,
                doc: &[$($doc),*],
            }
        ),*];
    };
}
