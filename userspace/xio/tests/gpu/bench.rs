// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks run, and their counts are right. What they measure is not judged here.

use crate::rig::gpu;
use xio::gpu::bench::{bandwidth, copy_limit, echo, host_limit, retrieve, Style};
use xio::gpu::Kind;

#[test]
fn every_style_carries_out_its_commands() {
    let gpu = gpu();
    let batch = if gpu.kind() == Kind::Host { 4 } else { 64 };
    for style in [Style::Plain, Style::Batch, Style::Call, Style::Lock] {
        let rate = echo(&gpu, style, batch, 50).unwrap();
        assert_eq!(rate.commands, 50 * u64::from(batch), "{style:?}");
        assert!(rate.per_second() > 0.0 && rate.round(batch).as_nanos() > 0);
    }
    let rate = echo(&gpu, Style::Batch, batch, 50).unwrap();
    assert_eq!(rate.per_doorbell(), f64::from(batch));
}

#[test]
fn values_come_from_several_controllers_at_once() {
    let which = gpu().info().which;
    let rate = retrieve(which, 2, 4, 64, 20).unwrap();
    assert_eq!((rate.commands, rate.bytes), (160, 160 * 64));
    let rates = bandwidth(which, 1, 1 << 16, 2).unwrap();
    for rate in [rates.controllers, rates.pull, rates.both] {
        assert_eq!((rate.commands, rate.bytes), (2 * 64, (2 * 64) << 16));
    }
    assert!(copy_limit(which, 1 << 20, 2).unwrap().bytes_per_second() > 0.0);
    let limit = host_limit(2, 1 << 20, 3).unwrap();
    assert!(limit.bytes == 6 << 20 && limit.bytes_per_second() > 0.0);
}
