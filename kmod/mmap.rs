// SPDX-License-Identifier: GPL-2.0
//! Mappings: offsets, what they stand for, and serving faults under the lock that revokes.

use crate::{
    buffer::Data,
    client::Client,
    controller::Hw,
    object::Kind,
    queue::Ring,
    sys::{
        cmb::CmbMemory,
        mm::{self, Area, Fault, FaultError},
        pages::Pages,
    },
};
use kernel::prelude::*;
use nvme_kv::PAGE_SIZE;

/// What an mmap offset stands for: an object, a part of it, and a position.
///
/// Identifier in bits 62:36, part in bits 35:32, position below. No offset is used for two things at a time on
/// a controller, so that removing the mappings of a range reaches one object only.
#[derive(Clone, Copy)]
pub(crate) struct Cookie(u64);

impl Cookie {
    /// Largest identifier.
    pub(crate) const MAX_ID: u32 = (1 << 27) - 1;
    /// Offsets of an object.
    pub(crate) const SPAN: u64 = 1 << Self::ID_SHIFT;
    const ID_SHIFT: u32 = 36;
    const PART_SHIFT: u32 = 32;

    pub(crate) const fn new(id: u32, part: u64) -> Self {
        Self((id as u64) << Self::ID_SHIFT | part << Self::PART_SHIFT)
    }

    pub(crate) const fn offset(self) -> u64 {
        self.0
    }

    const fn id(self) -> u32 {
        (self.0 >> Self::ID_SHIFT) as u32
    }

    const fn part(self) -> u64 {
        self.0 >> Self::PART_SHIFT & 0xf
    }

    const fn position(self) -> u64 {
        self.0 & ((1 << Self::PART_SHIFT) - 1)
    }
}

/// Parts of a queue, and of a buffer. No number stands for two kinds, since identifiers are used again one day.
pub(crate) const SQ: u64 = 0;
pub(crate) const CQ: u64 = 1;
pub(crate) const SQ_DOORBELL: u64 = 2;
pub(crate) const CQ_DOORBELL: u64 = 3;
pub(crate) const DATA: u64 = 4;
pub(crate) const TABLE: u64 = 5;

/// What a part is made of.
enum Part<'a> {
    Memory(&'a Pages),
    ReadOnly(&'a Pages),
    Cmb(&'a CmbMemory),
    /// Offset in BAR 0 of a page of doorbells.
    Doorbells(usize),
}

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(pages) | Self::ReadOnly(pages) => (pages.len() * PAGE_SIZE) as u64,
            Self::Cmb(memory) => (memory.len() * PAGE_SIZE) as u64,
            Self::Doorbells(_) => PAGE_SIZE as u64,
        }
    }

    fn kind(&self) -> mm::Kind {
        match self {
            Self::Memory(_) => mm::Kind::Memory,
            Self::ReadOnly(_) => mm::Kind::ReadOnlyMemory,
            Self::Cmb(_) | Self::Doorbells(_) => mm::Kind::Device,
        }
    }
}

impl<'a> Part<'a> {
    /// `None` for a queue in a buffer, which is mapped as part of that.
    fn of_ring(ring: &'a Ring) -> Option<Self> {
        match ring {
            Ring::Kernel(memory) => Some(Self::Memory(memory.pages())),
            Ring::Cmb(memory) => Some(Self::Cmb(memory)),
            Ring::Buffer(_) => None,
        }
    }

    fn of_data(data: Data<'a>) -> Self {
        match data {
            Data::Pages(pages) => Self::Memory(pages),
            Data::Cmb(memory) => Self::Cmb(memory),
        }
    }
}

/// The part that a client means; `ENXIO` when there is none, or it is another's.
fn part(hw: &Hw, client: u64, cookie: Cookie) -> Result<Part<'_>> {
    let object = hw.find(client, cookie.id()).map_err(|_| ENXIO)?;
    let doorbells = hw.regs.cap().doorbells();
    let page = |offset: usize| Part::Doorbells(offset / PAGE_SIZE * PAGE_SIZE);
    Ok(match (&object.kind, cookie.part()) {
        (Kind::Queue(queue), SQ) => Part::of_ring(&queue.sq).ok_or(ENXIO)?,
        (Kind::Queue(queue), CQ) => Part::of_ring(&queue.cq).ok_or(ENXIO)?,
        (Kind::Queue(queue), SQ_DOORBELL) => page(queue.doorbells(doorbells).0),
        (Kind::Queue(queue), CQ_DOORBELL) => page(queue.doorbells(doorbells).1),
        (Kind::Buffer(buffer), DATA) => Part::of_data(buffer.data().ok_or(ENXIO)?),
        (Kind::Buffer(buffer), TABLE) => Part::ReadOnly(&buffer.table),
        _ => return Err(ENXIO),
    })
}

/// `mmap`: checks and prepares; the pages come with the faults.
pub(crate) fn mmap(client: &Client, area: &Area<'_>) -> Result {
    let cookie = Cookie(area.offset());
    let kind = {
        let inner = client.xio.lock()?;
        let hw = inner.hw.as_ref().ok_or(ENODEV)?;
        let part = part(hw, client.id, cookie)?;
        // Without an IOMMU these are physical addresses, which are not everybody's.
        if matches!(part, Part::ReadOnly(_)) && hw.direct(true) == xio_uapi::DIRECT_REFUSED {
            return Err(EPERM);
        }
        let end = cookie.position().checked_add(area.len()).ok_or(EINVAL)?;
        if end > part.len() {
            return Err(EINVAL);
        }
        part.kind()
    };
    area.prepare(kind)
}

/// A fault: the page is inserted under the lock, so that whoever revokes finds it.
pub(crate) fn fault(client: &Client, fault: &Fault<'_>) -> Result<(), FaultError> {
    let cookie = Cookie(fault.offset());
    // Whoever is killed while it waits needs the page no more.
    let inner = client.xio.lock().map_err(|_| FaultError::NotThere)?;
    let hw = inner.hw.as_ref().ok_or(FaultError::NotThere)?;
    let first = cookie.position() as usize / PAGE_SIZE;
    match part(hw, client.id, cookie).map_err(|_| FaultError::NotThere)? {
        Part::Memory(pages) | Part::ReadOnly(pages) => fault.insert(pages, first),
        Part::Cmb(memory) => fault.insert_device(|n| memory.phys(first + n)),
        Part::Doorbells(offset) => {
            let page = hw.place.doorbells.page(offset).ok_or(FaultError::NotThere)?;
            fault.insert_device(|n| (first + n == 0).then(|| page.phys()))
        }
    }
}
