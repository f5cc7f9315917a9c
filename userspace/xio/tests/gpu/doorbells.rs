// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways to the doorbells that the first one makes unnecessary here.

use crate::common::controller;
use crate::rig::{gpu, queue_options, statuses, threads, Rig};
use xio::gpu::{Builtin, Doorbell, GpuQueue, GpuQueueOptions, Kind};
use xio::QueuePart;

#[test]
fn a_dma_buf_of_the_doorbells_is_mapped() {
    let (gpu, controller) = (gpu(), controller());
    // The second queue's doorbells are not the first of their page.
    let _first = controller.raw_queue(16).unwrap();
    let raw = controller.raw_queue(16).unwrap();
    assert!(raw.export(QueuePart::Sq).is_err() && raw.export(QueuePart::Cq).is_err());
    let options = GpuQueueOptions { doorbell: Some(Doorbell::Dmabuf), ..queue_options(16) };
    let queue = match GpuQueue::over(&gpu, raw, true, &options) {
        Ok(queue) => queue,
        // A file in memory is no dma-buf.
        Err(error) if gpu.kind() != Kind::Host => {
            assert!(error.to_string().contains("from a dma-buf of the module: "), "{error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(queue.doorbell(), Doorbell::Dmabuf);
    let rig = Rig { gpu, queue };
    let results = rig.exist(Builtin::Exist, 100, 2, threads());
    assert!(statuses(&results).iter().all(|status| *status == 0x87));
    assert!(rig.queue.counters().unwrap().cq_doorbells > 0);
    rig.queue.close().unwrap();
}

#[test]
fn a_queue_without_a_controller_has_no_dma_buf() {
    let options = GpuQueueOptions { doorbell: Some(Doorbell::Dmabuf), ..queue_options(4) };
    let (raw, _bare) = xio::loopback::bare(4).unwrap();
    let error = GpuQueue::over(&gpu(), raw, true, &options).unwrap_err().to_string();
    assert!(error.contains("from a dma-buf of the module: exporting a queue: "), "{error}");
}
