// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of all sizes at all places of a buffer.

use crate::common::{controller, every_way, key, pattern, queue};
use xio::{Error, MemoryKind, Path, RetrieveOptions, StoreOptions};

#[test]
fn values_of_all_sizes_come_back_whole() {
    every_way(|way| {
        let mut kv = way.kv(&controller());
        // The largest takes a while, and is the same to half of the ways.
        let largest = [0, 64 << 20][usize::from((way.0 == Path::Direct) == (way.1 == MemoryKind::Coherent))];
        for len in [0, 1, 3, 4, 4095, 4096, 4097, 8192, 8193, 65536, 65537, (1 << 20) + 3, largest] {
            let value = pattern(len as u64, len);
            kv.store(&key("v"), &value, StoreOptions::default()).unwrap();
            assert!(kv.retrieve(&key("v")).unwrap() == value, "{len}");
        }
    });
}

#[test]
fn a_first_retrieve_finds_the_true_length() {
    every_way(|way| {
        let controller = controller();
        for len in [64 << 10, (64 << 10) + 1, 5_000_000] {
            let value = pattern(9, len);
            way.kv(&controller).store(&key("v"), &value, StoreOptions::default()).unwrap();
            // A new one starts with its smallest buffer.
            assert!(way.kv(&controller).retrieve(&key("v")).unwrap() == value, "{len}");
        }
    });
}

/// Ranges that start and end around the places where the ready-made PRP lists go to another page.
#[test]
fn ranges_at_list_page_boundaries_of_a_buffer() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let pages = 1100;
    let buffer = controller.alloc(pages * 4096).unwrap();
    let all = pattern(5, pages * 4096);
    let marks = [0, 1, 2, 255, 256, 257, 511, 512, 513, 767, 1022, 1023, 1024, 1099];
    for first in [0, 510, 511, 1020] {
        for last in marks.into_iter().filter(|last| *last >= first) {
            for (start, end) in [(4, 4096), (4092, 1)] {
                let (from, to) = (first * 4096 + start, last * 4096 + end);
                if from >= to {
                    continue;
                }
                let (value, slice) = (&all[from..to], buffer.slice(from..to).unwrap());
                buffer.write(from, value).unwrap();
                queue.store(&ns, &key("v"), &slice, StoreOptions::default()).unwrap();
                buffer.write(from, &vec![0xaa; value.len()]).unwrap();
                let len = queue.retrieve(&ns, &key("v"), &slice, RetrieveOptions::default()).unwrap();
                assert_eq!(len as usize, value.len());
                assert!(slice.to_vec().unwrap() == *value, "{from}..{to}");
            }
        }
    }
}

#[test]
fn nothing_beside_the_range_is_written() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.alloc(4 * 4096).unwrap();
    let value = pattern(3, 9001);
    buffer.write(0, &value).unwrap();
    let options = StoreOptions::default();
    queue.store(&ns, &key("v"), &buffer.slice(..9001).unwrap(), options).unwrap();
    let mut expected = vec![0x55; 4 * 4096];
    buffer.write(0, &expected).unwrap();
    let into = buffer.slice(36..12_000).unwrap();
    assert_eq!(queue.retrieve(&ns, &key("v"), &into, RetrieveOptions::default()).unwrap(), 9001);
    expected[36..36 + 9001].copy_from_slice(&value);
    assert!(buffer.slice(..).unwrap().to_vec().unwrap() == expected);
}

#[test]
fn a_value_larger_than_its_place_is_never_cut_in_silence() {
    let controller = controller();
    let (mut queue, ns) = queue(&controller, 4);
    let buffer = controller.alloc(8192).unwrap();
    let value = pattern(4, 8000);
    buffer.write(0, &value).unwrap();
    queue.store(&ns, &key("v"), &buffer.slice(..8000).unwrap(), StoreOptions::default()).unwrap();
    buffer.write(0, &[0; 8192]).unwrap();
    for have in [0, 4, 4096, 7999] {
        let into = buffer.slice(..have).unwrap();
        match queue.retrieve(&ns, &key("v"), &into, RetrieveOptions::default()) {
            Err(Error::BufferTooSmall { need: 8000, have: told, .. }) => assert_eq!(told as usize, have),
            other => panic!("{other:?}"),
        }
        let mut after = vec![1; 8192 - have];
        buffer.read(have, &mut after).unwrap();
        assert!(after.iter().all(|b| *b == 0), "written beyond {have} bytes");
    }
}

#[test]
fn ranges_are_checked_before_anything_is_sent() {
    let buffer = controller().alloc(5000).unwrap();
    assert_eq!(buffer.len(), 8192);
    assert_eq!(buffer.slice(..).unwrap().len(), 8192);
    assert_eq!(buffer.slice(8192..).unwrap().len(), 0);
    for (from, to) in [(0, 8193), (8193, 8193), (1, 8), (4094, 4097), (usize::MAX - 3, usize::MAX)] {
        assert!(matches!(buffer.slice(from..to), Err(Error::Range { .. })), "{from} {to}");
    }
    #[allow(clippy::reversed_empty_ranges, reason = "must be refused")]
    let reversed = buffer.slice(8..4);
    assert!(matches!(reversed, Err(Error::Range { .. })));
    assert!(matches!(buffer.write(8190, b"abc"), Err(Error::Range { .. })));
    assert!(matches!(buffer.read(usize::MAX, &mut [0]), Err(Error::Range { .. })));
}

#[test]
fn a_buffer_is_plain_memory_while_nothing_else_can_reach_it() {
    let mut buffer = controller().alloc(4096).unwrap();
    buffer.get_mut().unwrap()[7] = 9;
    assert_eq!(buffer.get().unwrap()[7], 9);
    let slice = buffer.slice(..).unwrap();
    assert!(buffer.get_mut().is_none());
    drop(slice);
    assert!(buffer.get_mut().is_some());
}
