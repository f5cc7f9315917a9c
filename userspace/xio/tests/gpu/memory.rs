// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values in the device's own memory. The controller in this process reaches it where a processor does: on the host.

use crate::common::{controller, numbered, pattern};
use crate::rig::{self, gpu, kv};
use xio::gpu::{Builtin, GpuBuffer, GpuKv, Kind, Task};
use xio::Error;

/// A buffer in the device's memory; `None` where that is a GPU's, which says that it can not be and what to do.
fn device_buffer(kv: &GpuKv, len: usize) -> Option<GpuBuffer> {
    match kv.device_buffer(len) {
        Ok(buffer) => Some(buffer),
        Err(error) if gpu().kind() != Kind::Host => {
            let text = error.to_string();
            assert!(text.contains("use the module, or memory of the controller"), "{text}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_retrieved_value_lands_in_the_memory_of_the_device() {
    let mut kv = kv(64, 8);
    let Some(buffer) = device_buffer(&kv, 1 << 20) else { return };
    let memory = buffer.memory().unwrap();
    assert_eq!((buffer.data(), buffer.len()), (memory.address(), 1 << 20));
    let (value, name) = (pattern(7, 10_000), "a".parse().unwrap());
    memory.write(4, &value).unwrap();
    let mut one = |kernel, task: Task| kv.run_as(kernel, &buffer, &[task]).unwrap().0[0];
    assert_eq!(one(Builtin::Store, Task::store(name, 4, 10_000)).code, 0);
    let got = one(Builtin::Retrieve, Task::retrieve(name, 65_540, 20_000));
    assert_eq!((got.code, got.length), (0, 10_000));
    // By the device's runtime, not by way of the import; and nothing beside it.
    let mut back = vec![1; 1 << 20];
    memory.read(0, &mut back).unwrap();
    assert!(back[65_540..75_540] == value && back[4..10_004] == value);
    back[65_540..75_540].fill(0);
    back[4..10_004].fill(0);
    assert!(back.iter().all(|byte| *byte == 0));
}

#[test]
fn batches_retrieve_values_of_many_sizes_there() {
    const LENGTHS: [u32; 8] = [1, 63, 4095, 4096, 4097, 12_289, 300_000, 3 << 20];
    let mut kv = kv(16, 5);
    let Some(buffer) = device_buffer(&kv, 8 << 20) else { return };
    let (mut at, mut places) = (2048, vec![]);
    for len in LENGTHS {
        places.push((at, len));
        at += (len as usize).next_multiple_of(4) + 4;
    }
    let tasks = |make: fn(xio::Key, usize, u32) -> Task| -> Vec<Task> {
        places.iter().enumerate().map(|(n, (at, len))| make(numbered(n as u64), *at, *len)).collect()
    };
    for (n, (at, len)) in places.iter().enumerate() {
        buffer.write(*at, &pattern(n as u64, *len as usize)).unwrap();
    }
    assert!(kv.run(&buffer, &tasks(Task::store)).unwrap().iter().all(|o| o.code == 0));
    buffer.write(0, &vec![0xee; 8 << 20]).unwrap();
    let outcomes = kv.run(&buffer, &tasks(Task::retrieve)).unwrap();
    for (n, (at, len)) in places.iter().enumerate() {
        let mut back = vec![0; *len as usize + 4];
        buffer.memory().unwrap().read(*at, &mut back).unwrap();
        let (value, behind) = back.split_at(*len as usize);
        assert_eq!((outcomes[n].code, outcomes[n].length), (0, *len));
        assert!(value == pattern(n as u64, *len as usize) && behind[3] == 0xee, "{len} bytes at {at}");
    }
}

#[test]
fn kernels_see_what_landed_there() {
    let mut kv = kv(32, 4);
    let Some(buffer) = device_buffer(&kv, 1 << 20) else { return };
    let store = [Task::store(numbered(1), 64, 5000), Task::store(numbered(2), 8192, 100_000)];
    let retrieve = [Task::retrieve(numbered(1), 64, 5000), Task::retrieve(numbered(2), 8192, 100_000)];
    kv.run_as(Builtin::Fill, &buffer, &store).unwrap();
    assert!(kv.run(&buffer, &store).unwrap().iter().all(|o| o.code == 0));
    buffer.write(0, &vec![0; 1 << 20]).unwrap();
    let count = |kv: &mut GpuKv| kv.run_as(Builtin::Verify, &buffer, &retrieve).unwrap().1;
    assert!(count(&mut kv).iter().all(|wrong| *wrong > 0));
    assert!(kv.run(&buffer, &retrieve).unwrap().iter().all(|o| o.code == 0));
    assert_eq!(count(&mut kv), [0, 0]);
}

#[test]
fn memory_is_given_back_and_lives_as_long_as_it_is_imported() {
    let kv = rig::kv_on(&controller(), rig::options(16, 4));
    if device_buffer(&kv, 4096).is_none() {
        return;
    }
    // More than a client of the controller may have, were it not given back.
    for _ in 0..9 {
        drop(kv.device_buffer(128 << 20).unwrap());
    }
    let buffer = kv.device_buffer(5000).unwrap();
    assert_eq!(buffer.len(), 8192);
    buffer.write(0, b"still there").unwrap();
    let (import, mut back) = (buffer.buffer().clone(), [0; 11]);
    drop(buffer);
    import.read(0, &mut back).unwrap();
    assert_eq!(back, *b"still there");
}

#[test]
fn memory_that_can_not_be_exported_says_why() {
    let (gpu, len) = (gpu(), 4096);
    if gpu.kind() == Kind::Host {
        let other = gpu.alloc(len).unwrap().export().unwrap_err().to_string();
        assert_eq!(other, "host: only memory of Gpu::alloc_shared can be exported");
        // For a driver it takes /dev/udmabuf, which not everybody may open.
        if let Err(error) = gpu.alloc_shared(len).unwrap().export() {
            assert!(error.to_string().contains("udmabuf"), "{error}");
        }
    }
    let kv = kv(16, 4);
    let foreign = device_buffer(&kv, len);
    let mut other = crate::rig::kv(16, 4);
    if let Some(foreign) = foreign {
        let run = other.run(&foreign, &[Task::exist(numbered(1))]);
        assert!(matches!(run, Err(Error::ForeignBuffer)), "{run:?}");
        assert!(matches!(foreign.write(4090, &[0; 8]), Err(Error::Range { .. })));
    }
}
