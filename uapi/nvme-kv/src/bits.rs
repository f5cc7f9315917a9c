// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register fields.

/// Defines a register as a newtype with a getter and a `with_` setter for each field.
macro_rules! register {
    (
        $(#[$meta:meta])*
        $name:ident($int:ty) {
            $( $(#[$fmeta:meta])* $get:ident, $with:ident: $lsb:literal, $width:literal; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name(pub $int);
        impl $name {
            $(
                $(#[$fmeta])*
                #[inline]
                pub const fn $get(self) -> $int {
                    (self.0 >> $lsb) & (<$int>::MAX >> (<$int>::BITS - $width))
                }
                #[doc = concat!("Replaces `", stringify!($get), "`; bits beyond the field are dropped.")]
                #[inline]
                pub const fn $with(self, value: $int) -> Self {
                    let mask = <$int>::MAX >> (<$int>::BITS - $width);
                    Self(self.0 & !(mask << $lsb) | (value & mask) << $lsb)
                }
            )*
        }
    };
}
