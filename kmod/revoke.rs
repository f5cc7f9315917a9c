// SPDX-License-Identifier: GPL-2.0
//! Imported memory whose driver wants it back, or that its client is done with, and what clients left behind that could not wait.
//!
//! Drivers hold the lock of their dma-buf meanwhile, which is never taken below ours, so it is done by work items. The first needs
//! our lock: nothing new is submitted, direct queues of the client are deleted, and with the last command that the kernel
//! submitted the device is done. The second needs the driver's lock and unmaps. They are two, since the driver may
//! keep its lock until the first is done.

use crate::{
    controller::{Hw, Xio},
    object::Kind,
    submit,
    sys::{dmabuf, work},
};
use kernel::{
    impl_has_work,
    sync::Arc,
    workqueue::WorkItem,
};

impl_has_work! {
    impl HasWork<Self, 0> for Xio { self.revoking }
    impl HasWork<Self, 1> for Xio { self.unmapping }
}

impl WorkItem<0> for Xio {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        {
            let mut inner = this.inner.lock();
            if let Some(hw) = inner.hw.as_mut() {
                let departed = core::mem::take(&mut *this.departed.lock());
                departed.iter().for_each(|client| this.destroy_all(hw, *client));
                this.give_back(hw);
                submit::complete_uring(hw);
            }
        }
        this.answered.notify_all();
    }
}

impl WorkItem<1> for Xio {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        dmabuf::unmap_all(&this.aside);
    }
}

impl Xio {
    /// Gives memory back, and ends what departed clients made, as soon as the lock can be had.
    pub(crate) fn give_back_soon(self: Arc<Self>) {
        // One that waits already will see it.
        let _ = work::queue().enqueue::<_, 0>(self);
    }

    /// Unmaps what was put aside, as soon as its drivers' locks can be had.
    pub(crate) fn unmap_soon(self: Arc<Self>) {
        let _ = work::queue().enqueue::<_, 1>(self);
    }

    /// Waits until nothing is left to be given back or unmapped. No lock is held.
    pub(crate) fn settle(&self) {
        work::wait_for(&self.revoking);
        work::wait_for(&self.unmapping);
    }

    fn give_back(&self, hw: &mut Hw) {
        while let Some((id, client)) = taken_back(hw) {
            self.unmap(id);
            // Their commands name addresses of the memory, and the kernel does not know which.
            self.delete_queues(hw, client);
            let Some(object) = hw.objects.iter_mut().find(|o| o.id == id) else { continue };
            if let Kind::Buffer(buffer) = core::mem::replace(&mut object.kind, Kind::TakenBack) {
                hw.refuse(&buffer);
                // Commands in the queue have it too; the last of them unmaps it.
            }
        }
    }
}

/// A buffer whose memory is to be given back, and its client.
fn taken_back(hw: &Hw) -> Option<(u32, u64)> {
    let found = hw.objects.iter().find(|o| matches!(&o.kind, Kind::Buffer(buffer) if buffer.is_taken_back()));
    found.map(|o| (o.id, o.client))
}
