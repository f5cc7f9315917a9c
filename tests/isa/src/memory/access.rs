// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waves do to memory.

use super::event::{newest, Event, Handle, Origin, Place, Writer, NEVER};
use super::{Kind, Memory};
use crate::arch::{Arch, Scope};
use crate::error::Violation;

/// From where a wave looks at memory.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    /// First level cache.
    pub domain: u32,
    /// Block.
    pub group: u32,
    /// Second level cache.
    pub second: u32,
    /// Number of the wave among all of them.
    pub number: u32,
    /// Instruction.
    pub origin: Origin,
}

impl Memory {
    /// Loads up to 16 bytes.
    pub fn load(&mut self, viewer: &Viewer, addr: u64, to: &mut [u8], scope: Scope) -> Result<(), Violation> {
        let n = self.find(addr, to.len(), false)?;
        let base = self.regions[n].base;
        let mut done = 0;
        while done < to.len() {
            let at = addr - base + done as u64;
            let (dword, skip) = ((at / 4) as u32, (at % 4) as usize);
            let value = self.dword(viewer, n, dword, scope).to_le_bytes();
            for (to, from) in to.iter_mut().skip(done).zip(value.iter().skip(skip)) {
                *to = *from;
            }
            done += 4 - skip;
        }
        Ok(())
    }

    fn dword(&mut self, viewer: &Viewer, region: usize, dword: u32, scope: Scope) -> u32 {
        let this = &self.regions[region];
        let events = this.events(dword);
        if events.is_empty() {
            return this.base_value(dword);
        }
        let mut last_of = None;
        let value = newest(this.base_value(dword), events, |event| {
            let visible = self.visible(event, viewer, scope);
            if let Writer::Controller { last_of: Some(post), .. } = event.by {
                if visible {
                    last_of = Some(post);
                }
            }
            visible
        });
        if let Some(post) = last_of {
            self.saw(viewer, post);
        }
        value
    }

    /// Loads a dword as the scalar cache has it: as it was when the kernel was started.
    pub fn load_scalar(&self, addr: u64) -> Result<u32, Violation> {
        if addr % 4 != 0 {
            return Err(Violation::Alignment(addr));
        }
        let region = &self.regions[self.find(addr, 4, false)?];
        Ok(region.base_value(((addr - region.base) / 4) as u32))
    }

    fn visible(&self, event: &Event, viewer: &Viewer, scope: Scope) -> bool {
        let first = self.first[viewer.domain as usize];
        match event.by {
            Writer::Wave { domain, .. } if domain == viewer.domain => true,
            _ if event.performed == NEVER => false,
            Writer::Wave { group, second, .. } if second == viewer.second => {
                let seen = if group == viewer.group { first.group } else { first.device };
                scope > Scope::Wave || event.performed <= seen
            }
            Writer::Wave { .. } if scope >= Scope::Agent => event.device != NEVER,
            Writer::Wave { .. } => event.device <= first.device.min(self.second[viewer.second as usize]),
            Writer::Controller { torn: Some(post), .. } if !self.is_whole(post) => false,
            Writer::Controller { .. } => match scope {
                Scope::System => true,
                _ if self.arch == Arch::Gfx1100 && scope > Scope::Wave => true,
                Scope::Agent | Scope::Group => event.system <= self.system,
                Scope::Wave => event.system <= self.sees_system(viewer),
            },
        }
    }

    /// Issues a store of bytes. The handles are to be performed later.
    pub fn store(
        &mut self,
        viewer: &Viewer,
        addr: u64,
        bytes: &[u8],
        to: &mut Vec<Handle>,
    ) -> Result<(), Violation> {
        let n = self.writable(addr, bytes.len())?;
        let base = self.regions[n].base;
        let mut done = 0;
        while done < bytes.len() {
            let at = addr - base + done as u64;
            let (dword, skip) = ((at / 4) as u32, (at % 4) as usize);
            let count = (4 - skip).min(bytes.len() - done);
            let (mut value, mut mask) = (0, 0);
            for (n, byte) in bytes.iter().skip(done).take(count).enumerate() {
                value |= u32::from(*byte) << (8 * (skip + n));
                mask |= 0xff << (8 * (skip + n));
            }
            let place = Place { region: n as u32, dword };
            to.push(self.push(place, value, mask, viewer.writer()));
            done += count;
        }
        Ok(())
    }

    fn writable(&self, addr: u64, len: usize) -> Result<usize, Violation> {
        let n = self.find(addr, len, true)?;
        match self.regions[n].kind {
            Kind::Constant => Err(Violation::Fault { addr, len: len as u32, write: true }),
            Kind::Shared | Kind::Registers => Ok(n),
        }
    }

    pub(super) fn push(&mut self, place: Place, value: u32, mask: u32, by: Writer) -> Handle {
        let id = self.next_id;
        self.next_id += 1;
        let event = Event { id, value, mask, by, performed: NEVER, device: NEVER, system: NEVER };
        self.regions[place.region as usize].events_mut(place.dword).push(event);
        Handle { place, id }
    }

    /// A store reaches the second level cache. Earlier stores to the dword through the same first level cache do so
    /// before it.
    pub fn perform(&mut self, handle: Handle, scope: Scope) {
        let events = self.regions[handle.place.region as usize].events(handle.place.dword);
        let Some(event) = events.iter().find(|e| e.id == handle.id && e.performed == NEVER) else { return };
        let Writer::Wave { domain, .. } = event.by else { return };
        self.perform_of(domain, handle.place, handle.id, scope);
    }

    /// Performs all that a first level cache has for a dword, up to an event.
    fn perform_of(&mut self, domain: u32, place: Place, last: u64, scope: Scope) {
        let kind = self.regions[place.region as usize].kind;
        loop {
            let now = self.time + 1;
            let events = self.regions[place.region as usize].events_mut(place.dword);
            let pending = |e: &Event| e.performed == NEVER && e.id <= last && e.is_of_domain(domain);
            let Some(at) = events.iter().position(pending) else { return };
            let mut event = events.remove(at);
            // An earlier store that is performed with this one is not known to have its scope.
            let scope = if event.id == last { scope } else { Scope::Wave };
            (event.performed, (event.device, event.system)) = (now, self.performed(scope, kind, now));
            self.time = now;
            self.settled(place, &event);
            self.regions[place.region as usize].events_mut(place.dword).push(event);
        }
    }

    /// Remembers what is to be written back, or rings.
    fn settled(&mut self, place: Place, event: &Event) {
        let Writer::Wave { second, .. } = event.by else { return };
        if event.system != NEVER {
            self.rung |= self.regions[place.region as usize].kind == Kind::Registers;
        } else if event.device != NEVER {
            self.device_dirty.push(place);
        } else if let Some(dirty) = self.dirty.get_mut(second as usize) {
            dirty.push(place);
        }
    }

    /// Reads and writes an aligned word of 4 or 8 bytes at once, where all waves of the device meet.
    pub fn atomic(
        &mut self,
        viewer: &Viewer,
        addr: u64,
        wide: bool,
        scope: Scope,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, Violation> {
        let len = if wide { 8 } else { 4 };
        if addr % len != 0 {
            return Err(Violation::Alignment(addr));
        }
        let n = self.writable(addr, len as usize)?;
        let first = ((addr - self.regions[n].base) / 4) as u32;
        let places = [first, first + 1].map(|dword| Place { region: n as u32, dword });
        let places = places.get(..if wide { 2 } else { 1 }).unwrap_or_default();
        let mut old = 0;
        for (shift, place) in [0, 32].iter().zip(places) {
            self.perform_of(viewer.domain, *place, self.next_id, Scope::Wave);
            let region = &self.regions[n];
            let value =
                newest(region.base_value(place.dword), region.events(place.dword), |event| match event.by {
                    Writer::Controller { .. } => true,
                    Writer::Wave { second, .. } => {
                        event.device != NEVER || second == viewer.second && event.performed != NEVER
                    }
                });
            old |= u64::from(value) << shift;
        }
        let new = change(old);
        for (shift, place) in [0, 32].iter().zip(places) {
            let handle = self.push(*place, (new >> shift) as u32, u32::MAX, viewer.writer());
            self.perform_atomic(handle, scope);
        }
        Ok(old)
    }

    /// An atomic's write is performed where all waves of the device see it.
    fn perform_atomic(&mut self, handle: Handle, scope: Scope) {
        let Place { region, dword } = handle.place;
        let kind = self.regions[region as usize].kind;
        let now = self.tick();
        let system = self.performed(scope, kind, now).1;
        let events = self.regions[region as usize].events_mut(dword);
        let Some(event) = events.iter_mut().find(|e| e.id == handle.id) else { return };
        (event.performed, event.device, event.system) = (now, now, system);
        let event = *event;
        self.settled(handle.place, &event);
    }

    /// Writes a second level cache back, as far as the scope goes.
    pub fn write_back(&mut self, second: u32, scope: Scope) {
        if scope < Scope::Agent {
            return;
        }
        let now = self.tick();
        let dirty = self.dirty.get_mut(second as usize).map(std::mem::take).unwrap_or_default();
        for place in &dirty {
            for event in self.regions[place.region as usize].events_mut(place.dword) {
                let mine = matches!(event.by, Writer::Wave { second: s, .. } if s == second);
                if mine && event.performed != NEVER && event.device == NEVER {
                    event.device = now;
                }
            }
        }
        self.device_dirty.extend(dirty);
        if scope == Scope::System {
            for place in std::mem::take(&mut self.device_dirty) {
                self.write_back_dword(place, now);
            }
        }
    }

    fn write_back_dword(&mut self, place: Place, now: u64) {
        let region = &mut self.regions[place.region as usize];
        self.rung |= region.kind == Kind::Registers;
        let events = region.events_mut(place.dword);
        let mut late = Vec::new();
        for at in 0..events.len() {
            let overwritten = events.iter().skip(at + 1).any(Event::is_controllers);
            if let Some(event) = events.get_mut(at) {
                if event.device != NEVER && event.system == NEVER {
                    event.system = now;
                    if overwritten {
                        late.push(event.id);
                    }
                }
            }
        }
        // What is written back late goes over what the controller wrote in the meantime.
        let (mut moved, kept): (Vec<_>, Vec<_>) = events.drain(..).partition(|e| late.contains(&e.id));
        events.extend(kept);
        events.append(&mut moved);
    }
}

impl Viewer {
    pub(super) const fn writer(&self) -> Writer {
        Writer::Wave { domain: self.domain, group: self.group, second: self.second, origin: self.origin }
    }
}
