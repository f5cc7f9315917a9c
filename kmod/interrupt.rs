// SPDX-License-Identifier: GPL-2.0
//! Interrupt vectors: the first wakes whoever waits for an admin command, the others signal eventfds, and the one of the
//! kernel's queue wakes its thread, which takes the completions.

use crate::{
    controller::Xio,
    sys::event::{Event, EventFd},
};
use kernel::{
    bindings, irq, new_mutex, pci,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, Mutex,
    },
};

/// Most I/O queue pairs of a controller that are given out.
pub(crate) const MAX_QUEUES: u16 = 64;
/// Most vectors asked for: one for the admin queue, the rest shared by the queues with an eventfd.
const MAX_VECTORS: u32 = 33;
const SLOTS: usize = MAX_QUEUES as usize + 1;

/// What interrupt handlers look at.
#[pin_data]
pub(crate) struct Interrupts {
    /// Signalled for the admin completion queue.
    #[pin]
    pub(crate) admin: Event,
    /// eventfd of each queue, by queue identifier; 0 is none.
    eventfds: [Atomic<usize>; SLOTS],
    /// Linux interrupt numbers of the vectors.
    numbers: [Atomic<u32>; MAX_VECTORS as usize],
    vectors: Atomic<u32>,
    /// The kernel's queue; 0 when there is none.
    reaped: Atomic<u32>,
    /// Whose queue that is, while the device is bound.
    #[pin]
    reaper: Mutex<Option<Arc<Xio>>>,
}

impl Interrupts {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            admin <- Event::new(),
            eventfds: [const { Atomic::new(0) }; SLOTS],
            numbers: [const { Atomic::new(0) }; MAX_VECTORS as usize],
            vectors: Atomic::new(1),
            reaped: Atomic::new(0),
            reaper <- new_mutex!(None),
        })
    }

    /// Vectors that serve eventfds alone.
    pub(crate) fn event_vectors(&self) -> u32 {
        self.vectors.load(Relaxed).saturating_sub(1)
    }

    /// Vector of a queue's completions.
    pub(crate) fn vector_of(&self, qid: u16) -> u16 {
        match self.event_vectors() {
            0 => 0,
            n => 1 + (u32::from(qid).wrapping_sub(1) % n) as u16,
        }
    }

    /// From now on interrupts of this queue wake the thread; 0 means none.
    pub(crate) fn reap_on(&self, qid: u16) {
        self.reaped.store(qid.into(), Relaxed);
    }

    /// Says whose queue the thread looks after. `None` before the device is unbound: it breaks the circle of references.
    pub(crate) fn set_reaper(&self, xio: Option<Arc<Xio>>) {
        let old = core::mem::replace(&mut *self.reaper.lock(), xio);
        drop(old);
    }

    fn wakes_thread(&self, vector: u16) -> bool {
        let qid = self.reaped.load(Relaxed) as u16;
        qid != 0 && self.vector_of(qid) == vector
    }

    fn run_thread(&self) {
        let xio = self.reaper.lock().clone();
        if let Some(xio) = xio {
            crate::submit::reap(&xio);
        }
    }

    fn handle(&self, vector: u16) {
        if vector == 0 {
            self.admin.signal();
        }
        for (qid, slot) in (0u16..).zip(&self.eventfds) {
            let bits = slot.load(Relaxed);
            if bits != 0 && self.vector_of(qid) == vector {
                // SAFETY: `disarm` takes the slot and waits for this handler before the eventfd is dropped.
                unsafe { EventFd::signal(bits) };
            }
        }
    }

    /// Signals `eventfd` for completions of `qid` until the result is dropped.
    pub(crate) fn arm(self: &Arc<Self>, qid: u16, eventfd: EventFd) -> Result<Armed> {
        let slot = self.eventfds.get(usize::from(qid)).ok_or(EINVAL)?;
        slot.xchg(eventfd.as_bits(), Full);
        Ok(Armed { interrupts: self.clone(), qid, eventfd })
    }
}

/// An eventfd that is signalled.
pub(crate) struct Armed {
    interrupts: Arc<Interrupts>,
    qid: u16,
    // Dropped after `drop` made sure that no handler uses it.
    eventfd: EventFd,
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(slot) = self.interrupts.eventfds.get(usize::from(self.qid)) {
            slot.xchg(0, Full);
        }
        let vector = usize::from(self.interrupts.vector_of(self.qid));
        if let Some(number) = self.interrupts.numbers.get(vector) {
            // Not for threads: one may wait for the lock that our caller holds.
            // SAFETY: An interrupt of the device; waits for handlers that may have read the slot.
            unsafe { bindings::synchronize_hardirq(number.load(Relaxed)) };
        }
        // Whoever sleeps on it learns that the queue is gone.
        // SAFETY: It is dropped after this.
        unsafe { EventFd::signal(self.eventfd.as_bits()) };
    }
}

struct Handler {
    interrupts: Arc<Interrupts>,
    vector: u16,
}

impl irq::ThreadedHandler for Handler {
    fn handle(&self) -> irq::ThreadedIrqReturn {
        self.interrupts.handle(self.vector);
        if self.interrupts.wakes_thread(self.vector) {
            irq::ThreadedIrqReturn::WakeThread
        } else {
            irq::ThreadedIrqReturn::Handled
        }
    }

    fn handle_threaded(&self) -> irq::IrqReturn {
        self.interrupts.run_thread();
        irq::IrqReturn::Handled
    }
}

/// The device's vectors with their handlers.
pub(crate) struct Vectors<'a> {
    // Dropped before `allocation`, which they borrow from.
    _handlers: KVec<Pin<KBox<irq::ThreadedRegistration<'a, Handler>>>>,
    _allocation: KBox<pci::IrqVectorRegistration<'a>>,
}

impl<'a> Vectors<'a> {
    /// Allocates up to one vector for each queue and one for the admin queue, and registers handlers.
    pub(crate) fn new(pdev: &'a pci::Device<kernel::device::Bound>) -> Result<(Self, Arc<Interrupts>)> {
        let kinds = pci::IrqTypes::default().with(pci::IrqType::MsiX).with(pci::IrqType::Msi);
        let allocation = KBox::new(pdev.alloc_irq_vectors(1, MAX_VECTORS, kinds)?, GFP_KERNEL)?;
        // SAFETY: The allocation is boxed, so it does not move, and dropped after the handlers.
        let vectors: &'a pci::IrqVectorRegistration<'a> = unsafe { &*core::ptr::from_ref(&*allocation) };
        let interrupts = Arc::pin_init(Interrupts::new(), GFP_KERNEL)?;
        interrupts.vectors.store(vectors.len() as u32, Relaxed);
        let mut handlers = KVec::with_capacity(vectors.len(), GFP_KERNEL)?;
        for (vector, number) in (0u16..).zip(&interrupts.numbers).take(vectors.len()) {
            let request: irq::IrqRequest<'a> = vectors.index(usize::from(vector))?.into();
            number.store(request.irq(), Relaxed);
            let handler = Handler { interrupts: interrupts.clone(), vector };
            // SAFETY: The registration is dropped with this object, never forgotten.
            let registration = unsafe {
                irq::ThreadedRegistration::new(
                    request,
                    irq::Flags::TRIGGER_NONE,
                    c"rocm_xio",
                    Ok::<_, Error>(handler),
                )
            };
            handlers.push(KBox::pin_init(registration, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok((Self { _handlers: handlers, _allocation: allocation }, interrupts))
    }
}
