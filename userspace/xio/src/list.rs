// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing all keys.

use crate::error::Result;
use crate::kv::Kv;
use nvme_kv::Key;
use std::collections::HashSet;

/// Keys of a namespace, a page at a time.
///
/// A controller lists in an order of its own, from a key on, that key included. Each page continues at the last
/// key of the one before and leaves that key out. It ends when a page brings nothing new, or would continue
/// at a key where it did before, so that it comes to an end with any controller that has an end of keys. Keys that are
/// stored meanwhile may or may not be listed.
#[derive(Debug)]
pub struct Pages<'a> {
    kv: &'a mut Kv,
    start: Option<Key>,
    /// Keys that pages started at, all of which were listed already.
    starts: HashSet<Key>,
    done: bool,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(kv: &'a mut Kv, start: Option<Key>) -> Self {
        Self { kv, start, starts: HashSet::new(), done: false }
    }

    fn page(&mut self) -> Result<Vec<Key>> {
        let mut keys = self.kv.page(self.start.as_ref())?;
        keys.retain(|key| !self.starts.contains(key));
        match keys.last() {
            Some(last) => {
                self.start = Some(*last);
                self.starts.insert(*last);
            }
            None => self.done = true,
        }
        Ok(keys)
    }
}

impl Iterator for Pages<'_> {
    type Item = Result<Vec<Key>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let page = self.page();
        match page {
            Ok(keys) if keys.is_empty() => None,
            Err(_) => {
                self.done = true;
                Some(page)
            }
            _ => Some(page),
        }
    }
}
