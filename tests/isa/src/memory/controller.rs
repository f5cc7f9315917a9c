// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the controller does to memory.

use super::event::{newest, Origin, Place, Writer, NEVER};
use super::{Kind, Memory, Viewer};
use crate::error::Violation;
use std::fmt;

/// The controller read what a wave had written, but not made visible to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stale {
    /// Address that was read.
    pub addr: u64,
    /// Name of the memory.
    pub memory: String,
    /// Who wrote there.
    pub origin: Origin,
    /// How far the store had come.
    pub stage: Stage,
}

/// How far a store that can not be seen by the controller has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It was issued.
    Issued,
    /// It is in a cache of the device.
    Cached,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Issued => "is on its way",
            Stage::Cached => "is in a cache of the device",
        };
        let Origin { block, wave, addr } = self.origin;
        let (at, memory) = (self.addr, &self.memory);
        write!(
            f,
            "the controller reads {memory} at {at:#x}, while a store there by block {block}, wave {wave} at \
             {addr:#x} {stage}"
        )
    }
}

/// A completion.
#[derive(Clone, Debug, Default)]
pub(super) struct Post {
    /// Waves that saw its last dword, and when.
    seen: Vec<(u32, u64)>,
    /// All of it can be seen.
    whole: bool,
}

/// Most stale reads that are remembered.
const STALE: usize = 64;

impl Memory {
    /// Reads as the controller does.
    pub fn controller_read(&mut self, addr: u64, to: &mut [u8]) -> Result<(), Violation> {
        let n = self.find(addr, to.len(), false)?;
        let region = &self.regions[n];
        let mut done = 0;
        let mut stale = Vec::new();
        while done < to.len() {
            let at = addr - region.base + done as u64;
            let (dword, skip) = ((at / 4) as u32, (at % 4) as usize);
            let count = (4 - skip).min(to.len() - done);
            let wanted = (((1u64 << (8 * count)) - 1) << (8 * skip)) as u32;
            let value = newest(region.base_value(dword), region.events(dword), |event| {
                let visible = event.system != NEVER;
                if let (false, Writer::Wave { origin, .. }) = (visible || event.mask & wanted == 0, event.by)
                {
                    let stage = if event.performed == NEVER { Stage::Issued } else { Stage::Cached };
                    stale.push(Stale {
                        addr: addr + done as u64,
                        memory: region.name.clone(),
                        origin,
                        stage,
                    });
                }
                visible
            });
            for (to, from) in to.iter_mut().skip(done).zip(value.to_le_bytes().iter().skip(skip)) {
                *to = *from;
            }
            done += count;
        }
        let room = STALE.saturating_sub(self.stale.len());
        self.stale.extend(stale.into_iter().take(room));
        Ok(())
    }

    /// Writes as the controller does.
    pub fn controller_write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.controller_event(addr, bytes, |_| Writer::Controller { torn: None, last_of: None })
    }

    /// Writes a completion of 16 bytes as the controller does. Whoever reads more than the last dword before it
    /// acquired what it saw there, reads what was there before.
    pub fn controller_post(&mut self, addr: u64, bytes: &[u8; 16]) -> Result<(), Violation> {
        let post = self.posts.len() as u32;
        self.posts.push(Post::default());
        self.controller_event(addr, bytes, |n| match n {
            3 => Writer::Controller { torn: None, last_of: Some(post) },
            _ => Writer::Controller { torn: Some(post), last_of: None },
        })
    }

    fn controller_event(
        &mut self,
        addr: u64,
        bytes: &[u8],
        by: impl Fn(usize) -> Writer,
    ) -> Result<(), Violation> {
        let n = self.find(addr, bytes.len(), true)?;
        if self.regions[n].kind != Kind::Shared {
            return Err(Violation::Fault { addr, len: bytes.len() as u32, write: true });
        }
        let base = self.regions[n].base;
        let now = self.tick();
        let mut done = 0;
        for count in 0.. {
            if done >= bytes.len() {
                break;
            }
            let at = addr - base + done as u64;
            let (dword, skip) = ((at / 4) as u32, (at % 4) as usize);
            let (mut value, mut mask) = (0, 0);
            for (n, byte) in bytes.iter().skip(done).take(4 - skip).enumerate() {
                value |= u32::from(*byte) << (8 * (skip + n));
                mask |= 0xff << (8 * (skip + n));
            }
            let handle = self.push(Place { region: n as u32, dword }, value, mask, by(count));
            let events = self.regions[n].events_mut(dword);
            if let Some(event) = events.iter_mut().find(|e| e.id == handle.id) {
                (event.performed, event.device, event.system) = (now, now, now);
            }
            done += 4 - skip;
        }
        Ok(())
    }

    /// A doorbell as the controller reads it.
    pub fn register(&mut self, addr: u64) -> Result<u32, Violation> {
        let region = &self.regions[self.find(addr, 4, false)?];
        let dword = ((addr - region.base) / 4) as u32;
        Ok(newest(region.base_value(dword), region.events(dword), |event| event.system != NEVER))
    }

    /// A wave saw the last dword of a completion.
    pub(super) fn saw(&mut self, viewer: &Viewer, post: u32) {
        let now = self.time;
        if let Some(post) = self.posts.get_mut(post as usize) {
            if !post.whole && post.seen.iter().all(|(wave, _)| *wave != viewer.number) {
                post.seen.push((viewer.number, now));
            }
        }
    }

    /// A wave invalidated a cache: of the completions that it has seen it sees everything, if that reaches far enough.
    pub(super) fn acquired(&mut self, viewer: &Viewer) {
        let sees = self.sees_system(viewer);
        for post in self.posts.iter_mut().filter(|post| !post.whole) {
            post.whole = post.seen.iter().any(|(wave, when)| *wave == viewer.number && *when < sees);
        }
    }

    pub(super) fn is_whole(&self, post: u32) -> bool {
        self.posts.get(post as usize).is_none_or(|post| post.whole)
    }
}
