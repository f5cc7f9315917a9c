// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scatter Gather Lists (Base, section 4.3.2): walking them as a controller does that offers no bit buckets and takes
//! lists that are longer than the transfer.

use crate::prp::Segment;
use crate::{DataPointer, Status};
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Descriptor, 16 bytes (Base, Figure "Generic SGL Descriptor Format").
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Descriptor {
    /// Address of data, or of descriptors.
    pub address: U64,
    /// Bytes.
    pub length: U32,
    /// Zero.
    pub reserved: [u8; 3],
    /// Type in bits 7:4, sub type in bits 3:0.
    pub id: u8,
}

const _: () = assert!(core::mem::size_of::<Descriptor>() == 16);

impl Descriptor {
    /// Data Block.
    pub const DATA: u8 = 0x00;
    /// Bit Bucket.
    pub const BIT_BUCKET: u8 = 0x10;
    /// Segment: more descriptors, of which the last may lead to the next segment.
    pub const SEGMENT: u8 = 0x20;
    /// Last Segment: more descriptors, all of data.
    pub const LAST_SEGMENT: u8 = 0x30;

    /// A descriptor of `length` bytes at `address`.
    pub fn new(id: u8, address: u64, length: u32) -> Self {
        Self { address: address.into(), length: length.into(), reserved: [0; 3], id }
    }
}

impl From<DataPointer> for Descriptor {
    /// What the bytes of a command's data pointer are with PSDT 01b or 10b.
    fn from(data: DataPointer) -> Self {
        let [length @ .., r0, r1, r2, id] = data.prp2.to_le_bytes();
        Self { address: data.prp1.into(), length: U32::from_bytes(length), reserved: [r0, r1, r2], id }
    }
}

impl From<Descriptor> for DataPointer {
    fn from(descriptor: Descriptor) -> Self {
        let (length, id) = (u64::from(descriptor.length.get()), u64::from(descriptor.id));
        Self { prp1: descriptor.address.get(), prp2: length | id << 56 }
    }
}

/// Descriptors that are read at once.
const CHUNK: usize = 64;
/// Descriptors that a list may have; without a limit one could go round in circles.
pub const MAX_DESCRIPTORS: usize = 1 << 17;

/// Walks the first `part` bytes of a host buffer of `len` bytes, which the list that begins with `first` must have.
///
/// `read` fills its slice with descriptors from host memory; `each` gets the runs of data in order. The first error of
/// either ends the walk.
pub fn walk_part(
    first: Descriptor,
    len: usize,
    part: usize,
    mut read: impl FnMut(u64, &mut [Descriptor]) -> Result<(), Status>,
    each: impl FnMut(Segment) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut walk = Walk { left: len, todo: part.min(len), each };
    let Some(mut segment) = walk.take(first)? else { return walk.end() };
    let mut budget = MAX_DESCRIPTORS;
    while walk.left > 0 {
        let (address, length) = (segment.address.get(), segment.length.get());
        if length == 0 || length % 16 != 0 || address % 8 != 0 {
            return Err(Status::INVALID_SGL_SEGMENT);
        }
        let count = length as usize / 16;
        budget = budget.checked_sub(count).ok_or(Status::INVALID_SGL_COUNT)?;
        let Some(next) = walk.segment(address, count, &mut read)? else { break };
        if segment.id == Descriptor::LAST_SEGMENT {
            return Err(Status::INVALID_SGL_SEGMENT);
        }
        segment = next;
    }
    walk.end()
}

struct Walk<E> {
    /// Bytes of the buffer that were not described yet.
    left: usize,
    /// Of which so many are transferred.
    todo: usize,
    each: E,
}

impl<E: FnMut(Segment) -> Result<(), Status>> Walk<E> {
    /// Takes data; gives back a descriptor of more descriptors.
    fn take(&mut self, descriptor: Descriptor) -> Result<Option<Descriptor>, Status> {
        match descriptor.id {
            Descriptor::DATA => {
                let here = (descriptor.length.get() as usize).min(self.left);
                let len = here.min(self.todo);
                (self.left, self.todo) = (self.left - here, self.todo - len);
                if len > 0 {
                    (self.each)(Segment { addr: descriptor.address.get(), len })?;
                }
                Ok(None)
            }
            Descriptor::SEGMENT | Descriptor::LAST_SEGMENT => Ok(Some(descriptor)),
            // Bit buckets, keys, sub types of other transports.
            _ => Err(Status::SGL_TYPE),
        }
    }

    /// Takes the descriptors of a segment; gives back the one that leads to the next.
    fn segment(
        &mut self,
        address: u64,
        count: usize,
        read: &mut impl FnMut(u64, &mut [Descriptor]) -> Result<(), Status>,
    ) -> Result<Option<Descriptor>, Status> {
        let mut descriptors = [Descriptor::default(); CHUNK];
        let mut done = 0;
        while done < count && self.left > 0 {
            let chunk = descriptors.get_mut(..CHUNK.min(count - done)).ok_or(Status::INTERNAL_ERROR)?;
            read(address.wrapping_add(done as u64 * 16), chunk)?;
            for descriptor in chunk {
                done += 1;
                match self.take(*descriptor)? {
                    Some(next) if done == count => return Ok(Some(next)),
                    Some(_) => return Err(Status::INVALID_SGL_COUNT),
                    None if self.left == 0 => break,
                    None => {}
                }
            }
        }
        Ok(None)
    }

    /// The list has ended.
    fn end(&self) -> Result<(), Status> {
        if self.left > 0 {
            return Err(Status::SGL_DATA_LENGTH);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    type Memory = BTreeMap<u64, Descriptor>;

    /// The runs of the first `part` of `len` bytes.
    fn runs(
        memory: &Memory,
        first: Descriptor,
        len: usize,
        part: usize,
    ) -> Result<Vec<(u64, usize)>, Status> {
        let mut all = Vec::new();
        let read = |addr: u64, to: &mut [Descriptor]| {
            for (at, place) in (addr..).step_by(16).zip(to) {
                *place = *memory.get(&at).ok_or(Status::DATA_TRANSFER_ERROR)?;
            }
            Ok(())
        };
        walk_part(first, len, part, read, |run| {
            all.push((run.addr, run.len));
            Ok(())
        })?;
        Ok(all)
    }

    fn put(memory: &mut Memory, at: u64, descriptors: &[Descriptor]) {
        memory.extend((at..).step_by(16).zip(descriptors.iter().copied()));
    }

    fn data(address: u64, length: u32) -> Descriptor {
        Descriptor::new(Descriptor::DATA, address, length)
    }

    fn segment(address: u64, count: u32) -> Descriptor {
        Descriptor::new(Descriptor::SEGMENT, address, count * 16)
    }

    fn last(address: u64, count: u32) -> Descriptor {
        Descriptor::new(Descriptor::LAST_SEGMENT, address, count * 16)
    }

    #[test]
    fn spec_base_4_3_2_one_descriptor_and_chains() {
        let mut memory = Memory::new();
        assert_eq!(runs(&memory, data(0x1003, 100), 50, 20), Ok(std::vec![(0x1003, 20)]));
        assert_eq!(runs(&memory, data(0x1003, 0), 0, 0), Ok(std::vec![]));
        put(&mut memory, 0x100, &[data(1, 5), data(2, 0), segment(0x200, 2)]);
        put(&mut memory, 0x200, &[data(3, 7), last(0x300, 1)]);
        put(&mut memory, 0x300, &[data(4, 9)]);
        assert_eq!(runs(&memory, segment(0x100, 3), 21, 21), Ok(std::vec![(1, 5), (3, 7), (4, 9)]));
        assert_eq!(runs(&memory, segment(0x100, 3), 13, 6), Ok(std::vec![(1, 5), (3, 1)]));
        // What is not needed is not looked at.
        memory.remove(&0x300);
        assert!(runs(&memory, segment(0x100, 3), 12, 12).is_ok());
        assert_eq!(runs(&memory, segment(0x100, 3), 13, 13), Err(Status::DATA_TRANSFER_ERROR));
    }

    #[test]
    fn spec_base_4_3_2_bad_lists() {
        let mut memory = Memory::new();
        put(&mut memory, 0x100, &[data(1, 5), segment(0x100, 2)]);
        put(&mut memory, 0x200, &[segment(0x100, 2), data(1, 5)]);
        put(&mut memory, 0x300, &[Descriptor::new(Descriptor::BIT_BUCKET, 0, 5)]);
        put(&mut memory, 0x400, &[data(1, 0), segment(0x400, 2)]);
        for (first, expected) in [
            (data(1, 9), Status::SGL_DATA_LENGTH),
            (last(0x100, 1), Status::SGL_DATA_LENGTH),
            (last(0x100, 2), Status::INVALID_SGL_SEGMENT),
            (segment(0x200, 2), Status::INVALID_SGL_COUNT),
            (segment(0x400, 2), Status::INVALID_SGL_COUNT),
            (segment(0x300, 1), Status::SGL_TYPE),
            (Descriptor::new(Descriptor::BIT_BUCKET, 0, 10), Status::SGL_TYPE),
            (Descriptor::new(0x01, 0, 10), Status::SGL_TYPE),
            (Descriptor::new(0x40, 0, 10), Status::SGL_TYPE),
            (segment(0x104, 1), Status::INVALID_SGL_SEGMENT),
            (segment(0x100, 0), Status::INVALID_SGL_SEGMENT),
            (Descriptor::new(Descriptor::SEGMENT, 0x100, 17), Status::INVALID_SGL_SEGMENT),
            (segment(0x900, 1), Status::DATA_TRANSFER_ERROR),
        ] {
            assert_eq!(runs(&memory, first, 10, 10), Err(expected), "{first:?}");
        }
        // As long as there is something to transfer, a circle may go on.
        assert_eq!(runs(&memory, segment(0x100, 2), 10, 10), Ok(std::vec![(1, 5), (1, 5)]));
    }

    proptest! {
        #[test]
        fn a_descriptor_is_a_data_pointer(address: u64, length: u32, id: u8) {
            let descriptor = Descriptor::new(id, address, length);
            prop_assert_eq!(Descriptor::from(DataPointer::from(descriptor)), descriptor);
        }

        #[test]
        fn any_lists_end(
            ids in proptest::collection::vec((0u8..5, 0u64..40, 0u32..70), 1..40),
            len in 0usize..2000,
            part in 0usize..2000,
        ) {
            let of = |(id, address, length): &(u8, u64, u32)| match id {
                0 | 1 => data(*address, *length),
                2 => segment(address * 16, length % 8),
                3 => last(address * 16, length % 8),
                _ => Descriptor::new(*length as u8, *address, *length),
            };
            let descriptors: Vec<_> = ids.iter().map(of).collect();
            let mut memory = Memory::new();
            put(&mut memory, 0, &descriptors);
            if let Ok(runs) = runs(&memory, descriptors[0], len, part) {
                prop_assert_eq!(runs.iter().map(|run| run.1).sum::<usize>(), part.min(len));
            }
        }
    }
}
