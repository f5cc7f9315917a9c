// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients that others wrote send, byte by byte, with their unusual fields. Command identifier and data pointer
//! are the test's own.

mod common;

use common::local::{ready, Local};
use common::{pattern, Bus, Driver};
use nvme_kv::{list, Key, Sqe, Status};
use xio_target::Config;
use zerocopy::FromBytes;

/// An entry of 64 bytes as hexadecimal digits.
fn sqe(text: &str) -> Sqe {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    Sqe::read_from_bytes(&bytes).unwrap()
}

/// Sends an entry with a buffer of `data` bytes; what is there afterwards, and dword 0.
fn send(d: &mut Driver<Local>, text: &str, data: &[u8]) -> Result<(Vec<u8>, u32), Status> {
    let buffer = d.buffer(data.len());
    d.fill(&buffer, data);
    let entry = sqe(text).with_data(buffer.data);
    let dw0 = d.execute(1, entry)?;
    Ok((d.content(&buffer, data.len()), dw0))
}

fn controller() -> Driver<Local> {
    ready(Config::default(), 32)
}

#[test]
fn xnvme_kvs() {
    let mut d = controller();
    // `kvs store --key hello --value world`: the value has its NUL, the buffer is 4 KiB.
    let mut buffer = vec![0; 4096];
    buffer[..6].copy_from_slice(b"world\0");
    let store = "01000000 01000000 68656c6c 6f000000 0000000000000000 0000000000000000 0000000000000000
                 06000000 05000000 00000000 00000000 00000000 00000000";
    assert_eq!(send(&mut d, store, &buffer).unwrap().1, 0);
    // --only-add, --only-update, --compress (which sets the bit that the specification gives to "do not").
    let only_add = store.replace("05000000", "05020000");
    assert_eq!(send(&mut d, &only_add, &buffer), Err(Status::KEY_EXISTS));
    assert!(send(&mut d, &store.replace("05000000", "05010000"), &buffer).is_ok());
    assert!(send(&mut d, &store.replace("05000000", "05040000"), &buffer).is_ok());
    let retrieve = "02000000 01000000 68656c6c 6f000000 0000000000000000 0000000000000000 0000000000000000
                    00100000 05000000 00000000 00000000 00000000 00000000";
    let (got, len) = send(&mut d, retrieve, &[0xee; 4096]).unwrap();
    assert_eq!((&got[..6], got[6], len), (&b"world\0"[..], 0xee, 6));
    // A key that is cut to 16 bytes, but whose length is stated as it was.
    let long = "01000000 01000000 30313233 34353637 0000000000000000 0000000000000000 0000000000000000
                06000000 14000000 00000000 00000000 38396162 63646566";
    assert_eq!(send(&mut d, long, &buffer), Err(Status::INVALID_KEY_SIZE));
    let list = "06000000 01000000 00000000 00000000 0000000000000000 0000000000000000 0000000000000000
                00100000 00000000 00000000 00000000 00000000 00000000";
    let (got, _) = send(&mut d, list, &[0; 4096]).unwrap();
    assert_eq!(got[..12], *b"\x01\0\0\0\x05\0hello\0");
    let exist = "14000000 01000000 68656c6c 6f000000 0000000000000000 0000000000000000 0000000000000000
                 00000000 05000000 00000000 00000000 00000000 00000000";
    assert!(send(&mut d, exist, &[0; 4096]).is_ok());
    assert!(send(&mut d, &exist.replace("14000000 01", "10000000 01"), &[0; 4096]).is_ok());
    assert_eq!(send(&mut d, exist, &[0; 4096]), Err(Status::KEY_NOT_FOUND));
}

#[test]
fn spdk_kv_initiator() {
    let mut d = controller();
    let value = pattern(100_000, 1);
    // Keys of 16 bytes: the second half is in dwords 14 and 15. 100000 bytes, bit 10: do not compress.
    let store = "01000000 01000000 00010203 04050607 0000000000000000 0000000000000000 0000000000000000
                 a0860100 10040000 00000000 00000000 08090a0b 0c0d0e0f";
    assert_eq!(send(&mut d, store, &value).unwrap().1, 0);
    // Raw Retrieve.
    let retrieve = "02000000 01000000 00010203 04050607 0000000000000000 0000000000000000 0000000000000000
                    a0860100 10010000 00000000 00000000 08090a0b 0c0d0e0f";
    assert_eq!(send(&mut d, retrieve, &vec![0; 100_000]), Ok((value, 100_000)));
    // A List that starts behind the last key.
    let list = "06000000 01000000 ff000000 00000000 0000000000000000 0000000000000000 0000000000000000
                00100000 01000000 00000000 00000000 00000000 00000000";
    let (got, _) = send(&mut d, list, &[0; 4096]).unwrap();
    assert_eq!(list::Keys::new(&got).unwrap().count(), 0);
    // Exist and Delete without a data pointer.
    let exist = "14000000 01000000 00010203 04050607 0000000000000000 0000000000000000 0000000000000000
                 00000000 10000000 00000000 00000000 08090a0b 0c0d0e0f";
    assert_eq!(d.execute(1, sqe(exist)), Ok(0));
    assert_eq!(d.execute(1, sqe(&exist.replace("14000000", "10000000"))), Ok(0));
    assert_eq!(d.execute(1, sqe(&exist.replace("14000000", "10000000"))), Err(Status::KEY_NOT_FOUND));
    // Opcode 83h of a fork.
    assert_eq!(d.execute(1, sqe(&exist.replace("14000000", "83000000"))), Err(Status::INVALID_OPCODE));
}

#[test]
fn mooncake_nvme_kv_back_end() {
    let mut d = controller();
    let value = pattern(270_336, 2);
    // Key byte 11 is always 01h; dword 12 has the number of 512-byte blocks less one; only if the key is new.
    let store = "01000000 01000000 deadbeef 00112233 0000000000000000 0000000000000000 0000000000000000
                 00200400 10020000 0f020000 00000000 44556601 8899aabb";
    assert!(send(&mut d, store, &value).is_ok());
    assert_eq!(send(&mut d, store, &value), Err(Status::KEY_EXISTS));
    // Into a buffer that is too small: all of it is filled, and dword 0 is the size to ask for.
    let small = "02000000 01000000 deadbeef 00112233 0000000000000000 0000000000000000 0000000000000000
                 00100000 10000000 07000000 00000000 44556601 8899aabb";
    assert_eq!(send(&mut d, small, &[0; 4096]), Ok((value[..4096].to_vec(), 270_336)));
    let large = small.replace("00100000 10000000 07", "00000800 10000000 ff");
    let (got, len) = send(&mut d, &large, &vec![0; 524_288]).unwrap();
    assert_eq!((&got[..270_336], got[270_336..].iter().all(|b| *b == 0), len), (&value[..], true, 270_336));
    let exist = "14000000 01000000 deadbeef 00112233 0000000000000000 0000000000000000 0000000000000000
                 00000000 10000000 00000000 00000000 44556601 8899aabb";
    assert_eq!(d.execute(1, sqe(exist)), Ok(0));
    let list = "06000000 01000000 00000000 00000000 0000000000000000 0000000000000000 0000000000000000
                00100000 00000000 07000000 00000000 00000001 00000000";
    let (got, _) = send(&mut d, list, &[0; 4096]).unwrap();
    let key = Key::new(b"\xde\xad\xbe\xef\0\x11\x22\x33\x44\x55\x66\x01\x88\x99\xaa\xbb").unwrap();
    assert_eq!(list::Keys::new(&got).unwrap().collect::<Vec<_>>(), [Ok(key)]);
    assert_eq!(d.execute(1, sqe(&exist.replace("14000000", "10000000"))), Ok(0));
    assert_eq!(send(&mut d, small, &[0; 4096]), Err(Status::KEY_NOT_FOUND));
    assert_eq!(d.csts().cfs(), 0);
    assert_eq!(d.bus.controller.attached()[0].used, 0);
    let mut untouched = [0; 8];
    d.bus.peek(0, &mut untouched);
    assert_eq!(untouched, [0; 8]);
}
