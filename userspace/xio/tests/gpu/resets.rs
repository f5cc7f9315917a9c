// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller that is reset under kernels.

use crate::common::{key, pattern};
use crate::rig;
use std::time::Duration;
use xio::gpu::{GpuOptions, GpuQueueOptions, Task};
use xio::loopback::{self, Config};
use xio::Error;

#[test]
fn kernels_end_and_the_call_says_that_the_queue_is_gone() {
    let (controller, hooks) = loopback::start(Config::default()).unwrap();
    let queue = GpuQueueOptions { timeout: Duration::from_millis(500), ..rig::queue_options(16) };
    let options = || GpuOptions { queue: queue.clone(), ..rig::options(16, 4) };
    let mut kv = rig::kv_on(&controller, options());
    let buffer = kv.buffer(8192).unwrap();
    buffer.write(0, &pattern(1, 100)).unwrap();
    let store = [Task::store(key("a"), 0, 100)];
    assert_eq!(kv.run(&buffer, &store).unwrap()[0].code, 0);
    kv.queues()[0].intact().unwrap();
    // Before a kernel, and under one.
    hooks.pause();
    let under = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            hooks.stop().unwrap();
            hooks.resume();
            hooks.reset().unwrap();
        });
        kv.run(&buffer, &store)
    });
    assert!(matches!(under, Err(Error::Revoked { .. })), "{under:?}");
    assert!(matches!(kv.run(&buffer, &store), Err(Error::Revoked { .. })));
    assert!(matches!(kv.queues()[0].intact(), Err(Error::Revoked { .. })));
    assert!(matches!(buffer.read(0, &mut [0]), Err(Error::Revoked { .. })));
    let mut again = rig::kv_on(&controller, options());
    let stale = again.run(&buffer, &store);
    assert!(matches!(stale, Err(Error::BufferGone)), "{stale:?}");
    let buffer = again.buffer(8192).unwrap();
    let outcome = again.run(&buffer, &[Task::retrieve(key("a"), 4096, 4096)]).unwrap()[0];
    let mut back = [0; 100];
    buffer.read(4096, &mut back).unwrap();
    assert_eq!((outcome.code, outcome.length, &back[..]), (0, 100, &pattern(1, 100)[..]));
}
