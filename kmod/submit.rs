// SPDX-License-Identifier: GPL-2.0
//! Calls of `KV_SUBMIT`: those that wait, and io_uring commands, which do not.

use crate::{
    client::Client,
    controller::{Hw, Xio},
    error::AdminError,
    ioctl,
    mediated::Batch,
    sys::{
        signal,
        uring::{self, Finish},
    },
};
use kernel::{
    prelude::*,
    sync::CondVarTimeoutResult,
    time::{msecs_to_jiffies, Instant, Monotonic},
    uaccess::{UserPtr, UserSlice},
};
use xio_uapi::{KvEntry, KvSubmit, Request, MAX_SUBMIT};
use zerocopy::{FromZeros, IntoBytes};

/// A waiter looks for itself that often, should an interrupt be lost.
const LOOK_MS: u32 = 100;

fn user_entries(address: u64, count: usize) -> Result<UserSlice> {
    let bytes = count * size_of::<KvEntry>();
    Ok(UserSlice::new(UserPtr::from_addr(usize::try_from(address)?), bytes))
}

fn read_entries(request: &KvSubmit) -> Result<KVec<KvEntry>> {
    if request.count == 0 || request.count > MAX_SUBMIT {
        return Err(EINVAL);
    }
    let count = request.count as usize;
    let mut entries = KVec::with_capacity(count, GFP_KERNEL)?;
    let mut reader = user_entries(request.entries, count)?.reader();
    for _ in 0..count {
        let mut entry = KvEntry::new_zeroed();
        reader.read_slice(entry.as_mut_bytes())?;
        entries.push(entry, GFP_KERNEL)?;
    }
    Ok(entries)
}

fn write_entries(address: u64, entries: &[KvEntry]) -> Result {
    user_entries(address, entries.len())?.writer().write_slice(entries.as_bytes())
}

/// `KV_SUBMIT`, waiting.
pub(crate) fn submit(client: &Client, request: &mut KvSubmit) -> Result {
    if request.timeout_ms == 0 {
        return Err(EINVAL);
    }
    let entries = read_entries(request)?;
    let id = ioctl::with_hw(client, |client, hw| {
        hw.admit_shared(client, 0)?;
        hw.start_mediated()?;
        hw.add_batch(client.id, entries, None).map_err(|(e, _)| e)
    })?;
    let (batch, result) = wait(client, id, request.timeout_ms)?;
    write_entries(request.entries, &batch.entries)?;
    request.done = batch.answered();
    result
}

/// Waits until a call is done, or for a signal or the deadline, which end it.
fn wait(client: &Client, id: u64, timeout_ms: u32) -> Result<(KBox<Batch>, Result)> {
    let start = Instant::<Monotonic>::now();
    let mut notices = signal::PutOff::default();
    let mut inner = client.xio.inner.lock();
    loop {
        // The device may be unbound while the lock is not held.
        let hw = inner.hw.as_mut().ok_or(ENODEV)?;
        if let Err(e) = step(&client.xio, hw) {
            return end(hw, id, e);
        }
        if let Some(batch) = hw.take_done(id) {
            return Ok((batch, Ok(())));
        }
        let left = i64::from(timeout_ms) - start.elapsed().as_millis();
        if left <= 0 {
            return end(hw, id, ETIMEDOUT);
        }
        let look = msecs_to_jiffies(left.min(LOOK_MS.into()) as u32);
        let woken = client.xio.answered.wait_interruptible_timeout(&mut inner, look);
        let hw = inner.hw.as_mut().ok_or(ENODEV)?;
        match woken {
            CondVarTimeoutResult::Signal { .. } if signal::is_pending() => return end(hw, id, EINTR),
            CondVarTimeoutResult::Signal { .. } => notices.put_off(),
            CondVarTimeoutResult::Timeout => check(hw),
            CondVarTimeoutResult::Woken { .. } => {}
        }
    }
}

/// After a while without an answer: is the controller there, and does it answer at all?
fn check(hw: &mut Hw) {
    hw.check_stuck();
    if hw.mediated.is_some() && !hw.regs.status().is_operational() {
        hw.lost = Some(AdminError::Gone);
    }
}

fn end(hw: &mut Hw, id: u64, error: Error) -> Result<(KBox<Batch>, Result)> {
    let batch = match hw.take_done(id) {
        Some(batch) => return Ok((batch, Ok(()))),
        None => hw.abandon(id, error).ok_or(ENODEV)?,
    };
    Ok((batch, Err(error)))
}

/// Takes completions, submits what has room now, and resets the controller when it is lost.
pub(crate) fn step(xio: &Xio, hw: &mut Hw) -> Result {
    hw.reap()?;
    hw.pump()?;
    if hw.lost.is_some() {
        xio.recover(hw);
    }
    complete_uring(hw);
    Ok(())
}

/// What the interrupt thread does.
pub(crate) fn reap(xio: &Xio) {
    let mut inner = xio.inner.lock();
    if let Some(hw) = inner.hw.as_mut() {
        if let Err(e) = hw.reap().and_then(|()| hw.pump()) {
            pr_err!("taking completions failed: {e:?}\n");
        }
        complete_uring(hw);
    }
    xio.answered.notify_all();
}

/// Completes the io_uring commands whose calls are done.
pub(crate) fn complete_uring(hw: &mut Hw) {
    while let Some(mut batch) = hw.take_done_uring() {
        if let Some(command) = batch.uring.take() {
            command.complete(batch);
        }
    }
}

/// Where an io_uring command wants its results.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    request: usize,
    entries: u64,
}

impl Finish for Batch {
    fn finish(self, dead: bool) -> Result<i32> {
        if dead {
            return Err(ECANCELED);
        }
        write_entries(self.target.entries, &self.entries)?;
        let done = self.target.request + core::mem::offset_of!(KvSubmit, done);
        UserSlice::new(UserPtr::from_addr(done), 4).writer().write_slice(&self.answered().to_ne_bytes())?;
        Ok(0)
    }
}

/// `KV_SUBMIT` as an io_uring command: the call goes on after this returns. On an error the command is given back.
pub(crate) fn uring_submit(
    client: &Client,
    cmd: u32,
    argument: usize,
    command: uring::Command,
) -> Result<(), (Error, uring::Command)> {
    if !xio_uapi::ioc_is_ours(cmd) || xio_uapi::ioc_nr(cmd) != KvSubmit::NR {
        return Err((ENOTTY, command));
    }
    let mut request = KvSubmit::new_zeroed();
    let mut reader = UserSlice::new(UserPtr::from_addr(argument), xio_uapi::ioc_size(cmd)).reader();
    let read = ioctl::read(&mut reader, &mut request, 0).and_then(|()| read_entries(&request));
    let entries = match read {
        Ok(entries) => entries,
        Err(e) => return Err((e, command)),
    };
    let target = Target { request: argument, entries: request.entries };
    let mut command = Some(command);
    let result = ioctl::with_hw(client, |client, hw| {
        hw.admit_shared(client, 0)?;
        hw.start_mediated()?;
        hw.add_batch(client.id, entries, command.take().map(|c| (c, target))).map_err(|(e, back)| {
            command = back.map(|(c, _)| c);
            e
        })?;
        // From here on the command is completed by whoever takes the last answer.
        if let Err(e) = step(&client.xio, hw) {
            pr_err!("submitting failed: {e:?}\n");
        }
        Ok(())
    });
    match (result, command) {
        (Err(e), Some(command)) => Err((e, command)),
        _ => Ok(()),
    }
}

/// The issuer of an io_uring command goes away: its call ends now.
pub(crate) fn uring_cancel(client: &Client, id: usize) {
    let mut inner = client.xio.inner.lock();
    if let Some(hw) = inner.hw.as_mut() {
        hw.abandon_uring(id);
        complete_uring(hw);
    }
}
