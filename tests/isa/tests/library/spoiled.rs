// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong fails: builds whose source is spoiled by the macros that the library offers for it, and machine code that
//! is spoiled after it was built.
