// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values through Scatter Gather Lists.

mod common;

use common::local::{ready, Local};
use common::{key, pattern, Bus, Driver};
use nvme_kv::identify::{self, cns};
use nvme_kv::kv::{Command, Condition};
use nvme_kv::sgl::Descriptor;
use nvme_kv::{list, Key, Status};
use xio_target::Config;
use zerocopy::{FromBytes, IntoBytes};

const SGL: u8 = 0x40;

fn data(address: u64, length: usize) -> Descriptor {
    Descriptor::new(Descriptor::DATA, address, length as u32)
}

/// A segment descriptor for these, written to memory.
fn segment(d: &mut Driver<Local>, id: u8, descriptors: &[Descriptor]) -> Descriptor {
    let at = d.alloc(descriptors.len().div_ceil(256));
    d.bus.poke(at, descriptors.as_bytes());
    Descriptor::new(id, at, descriptors.len() as u32 * 16)
}

/// Executes a command with an SGL; `flags` may also be another kind of pointer.
fn send(d: &mut Driver<Local>, command: Command, flags: u8, sgl: Descriptor) -> Result<u32, Status> {
    let mut sqe = command.encode(0, 1).with_data(sgl.into());
    sqe.flags |= flags;
    d.execute(1, sqe)
}

fn store(key: Key, len: usize) -> Command {
    Command::Store { key, len: len as u32, options: Default::default(), data: Default::default() }
}

fn retrieve(key: Key, len: usize) -> Command {
    Command::Retrieve { key, len: len as u32, options: Default::default(), data: Default::default() }
}

#[test]
fn spec_base_4_3_2_values_come_from_and_go_to_lists() {
    let mut d = ready(Config::default(), 16);
    let controller =
        identify::Controller::read_from_bytes(&d.identify(cns::CONTROLLER, 0, 0).unwrap()).unwrap();
    assert_eq!(controller.sgls.get(), 0x4_0001);
    // Odd addresses and lengths, one piece longer than what is copied at once, in two segments.
    let value = pattern(3_000_001, 5);
    let at = d.alloc(800);
    d.bus.poke(at + 3, &value);
    let last: Vec<_> = (0..200).map(|n| data(at + 3 + 2_980_000 + n * 100, 100)).collect();
    let last = [last, vec![data(at + 3 + 3_000_000, 7)]].concat();
    let last = segment(&mut d, Descriptor::LAST_SEGMENT, &last);
    let first = [data(at + 3, 5), data(0, 0), data(at + 8, 2_979_995), last];
    let sgl = segment(&mut d, Descriptor::SEGMENT, &first);
    assert_eq!(send(&mut d, store(key("a"), value.len()), SGL, sgl), Ok(0));
    assert!(d.retrieve(1, &key("a"), value.len()).unwrap().0 == value);
    d.bus.poke(at, &vec![0; 3_000_100]);
    // The other kind of PSDT, which differs in the metadata that there is none of.
    assert_eq!(send(&mut d, retrieve(key("a"), value.len()), 0x80, sgl), Ok(3_000_001));
    let mut got = vec![0; 3_000_100];
    d.bus.peek(at, &mut got);
    assert!(got[3..][..value.len()] == value && got[..3] == [0; 3] && got[value.len() + 3..] == [0; 96]);
    // One descriptor, longer than the value; and a buffer that is too small for it.
    assert_eq!(d.store(1, &key("b"), b"hello", Condition::Always), Ok(0));
    assert_eq!(send(&mut d, retrieve(key("b"), 100), SGL, data(at + 1, 200)), Ok(5));
    assert_eq!(send(&mut d, retrieve(key("b"), 2), SGL, data(at + 11, 2)), Ok(5));
    d.bus.peek(at, &mut got[..16]);
    assert_eq!(got[1..6], *b"hello");
    assert_eq!(got[11..13], *b"he");
    let list = Command::List { start: None, len: 4096, data: Default::default() };
    assert_eq!(send(&mut d, list, SGL, data(at, 4096)), Ok(0));
    d.bus.peek(at, &mut got[..4096]);
    assert_eq!(list::Keys::new(&got[..4096]).unwrap().collect::<Vec<_>>(), [Ok(key("a")), Ok(key("b"))]);
    // Commands without data ignore it.
    assert_eq!(send(&mut d, Command::Exist { key: key("b") }, SGL, data(u64::MAX, 9)), Ok(0));
}

#[test]
fn spec_base_4_3_2_bad_lists_are_refused_and_nothing_is_stored() {
    let mut d = ready(Config::default(), 4);
    let at = d.alloc(2);
    let bucket = Descriptor::new(Descriptor::BIT_BUCKET, 0, 100);
    let behind = segment(&mut d, Descriptor::LAST_SEGMENT, &[data(at, 60), bucket]);
    let short = segment(&mut d, Descriptor::SEGMENT, &[data(at, 60), data(at, 39)]);
    let misplaced = segment(&mut d, Descriptor::SEGMENT, &[short, data(at, 100)]);
    let circle = d.alloc(1);
    let round = Descriptor::new(Descriptor::SEGMENT, circle, 32);
    d.bus.poke(circle, [data(at, 0), round].as_bytes());
    let inside = segment(&mut d, Descriptor::LAST_SEGMENT, &[data(at, 1), short]);
    for (sgl, expected) in [
        (bucket, Status::SGL_TYPE),
        (behind, Status::SGL_TYPE),
        // Keyed, and an offset, both for other transports.
        (Descriptor::new(0x40, at, 100), Status::SGL_TYPE),
        (Descriptor::new(0x01, at, 100), Status::SGL_TYPE),
        (short, Status::SGL_DATA_LENGTH),
        (data(at, 99), Status::SGL_DATA_LENGTH),
        (misplaced, Status::INVALID_SGL_COUNT),
        (round, Status::INVALID_SGL_COUNT),
        (inside, Status::INVALID_SGL_SEGMENT),
        (Descriptor::new(Descriptor::SEGMENT, at, 8), Status::INVALID_SGL_SEGMENT),
        (data(1 << 40, 100), Status::DATA_TRANSFER_ERROR),
        (data(u64::MAX - 50, 100), Status::DATA_TRANSFER_ERROR),
        (Descriptor::new(Descriptor::SEGMENT, 1 << 40, 16), Status::DATA_TRANSFER_ERROR),
    ] {
        assert_eq!(send(&mut d, store(key("a"), 100), SGL, sgl), Err(expected), "{sgl:?}");
        assert_eq!(d.kv(1, Command::Exist { key: key("a") }), Err(Status::KEY_NOT_FOUND));
    }
    assert_eq!(send(&mut d, store(key("a"), 100), 0xc0, data(at, 100)), Err(Status::INVALID_FIELD));
    // Identify with an SGL: not on PCIe.
    let mut sqe =
        nvme_kv::admin::Command::Identify(Default::default()).encode(0).with_data(data(at, 4096).into());
    sqe.flags = SGL;
    assert_eq!(d.execute(0, sqe), Err(Status::INVALID_FIELD));
}
