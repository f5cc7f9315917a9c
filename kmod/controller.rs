// SPDX-License-Identifier: GPL-2.0
//! A controller: what outlives unbind ([`Xio`]) and what does not ([`Hw`]).

use crate::{
    admin::Admin,
    error::AdminError,
    identity::Identity,
    interrupt::Interrupts,
    mediated::{Batch, Mediated},
    object::{Kind, Object},
    registers::Registers,
    state::News,
    sys::{
        chardev::Node,
        cmb::Cmb,
        dma::DmaDevice,
        dmabuf::Aside,
        iommu,
        lock,
        mm::AddressSpace,
        params,
        pci::{Address, Doorbells, Peers},
    },
};
use kernel::{
    new_condvar, new_mutex, new_work,
    prelude::*,
    sync::{atomic::Atomic, lock::mutex::MutexBackend, lock::Guard, Arc, CondVar, Mutex},
    task::Kuid,
    time::{Instant, Monotonic},
    workqueue::{new_delayed_work, DelayedWork, Work},
};
use nvme_kv::admin::{Command, Identify};

/// State of a controller; open files hold it beyond unbind.
#[pin_data]
pub(crate) struct Xio {
    #[pin]
    pub(crate) inner: Mutex<Inner>,
    /// The device, for what takes long and so is mapped without the other lock, which is taken below this; `None` once it is
    /// about to be unbound.
    #[pin]
    pub(crate) device: Mutex<Option<DmaDevice>>,
    #[pin]
    pub(crate) revoking: Work<Xio, 0>,
    #[pin]
    pub(crate) unmapping: Work<Xio, 1>,
    #[pin]
    pub(crate) watching: DelayedWork<Xio, 2>,
    #[pin]
    pub(crate) news: News,
    #[pin]
    pub(crate) aside: Mutex<Aside>,
    /// Clients whose files were closed while the lock could not be had; taken below it.
    #[pin]
    pub(crate) departed: Mutex<KVec<u64>>,
    /// Open files.
    pub(crate) clients: Atomic<u32>,
    /// Number of the last client.
    pub(crate) last_client: Atomic<u64>,
    /// Notified when calls of the kernel's queue may be done.
    #[pin]
    pub(crate) answered: CondVar,
    #[pin]
    node: Node,
}

/// What the lock protects.
pub(crate) struct Inner {
    /// The hardware; `None` once the device is unbound.
    pub(crate) hw: Option<Hw>,
}

impl Xio {
    /// Offset of `node`.
    pub(crate) const NODE_OFFSET: usize = core::mem::offset_of!(Xio, node);

    /// A controller whose node is not registered yet.
    pub(crate) fn new(hw: Hw, space: AddressSpace, index: u32) -> Result<Arc<Self>> {
        let node = Node::new(space, index)?;
        Arc::pin_init(
            pin_init!(Self {
                device <- new_mutex!(Some(hw.dev)),
                revoking <- new_work!(),
                unmapping <- new_work!(),
                watching <- new_delayed_work!("rocm_xio::watch"),
                news <- News::new(),
                aside <- new_mutex!(None),
                departed <- new_mutex!(KVec::new()),
                inner <- new_mutex!(Inner { hw: Some(hw) }),
                clients: Atomic::new(0),
                last_client: Atomic::new(0),
                answered <- new_condvar!(),
                node <- node,
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// The lock, for a caller who can be killed: what holds it may wait for the controller.
    pub(crate) fn lock(&self) -> Result<Guard<'_, Inner, MutexBackend>> {
        lock::killable(&self.inner)
    }

    /// Revokes all mappings and takes the hardware away from open files, for unbind.
    pub(crate) fn take(&self) -> Option<Hw> {
        *self.device.lock() = None;
        let mut inner = self.inner.lock();
        let mut hw = inner.hw.take();
        // Under the lock: no fault can bring a page back.
        self.node.space().unmap(0, 0);
        if let Some(hw) = hw.as_mut() {
            // With a notification: what the controller holds in a volatile cache must not be lost.
            hw.shut_down();
            crate::submit::complete_uring(hw);
        }
        self.answered.notify_all();
        self.news.tell_gone();
        hw
    }

    /// Revokes everything and disables the controller, with the files left open.
    pub(crate) fn quiesce(&self) {
        let mut inner = self.inner.lock();
        if let Some(hw) = inner.hw.as_mut() {
            self.node.space().unmap(0, 0);
            hw.stop();
            crate::submit::complete_uring(hw);
            self.tell(hw);
        }
        self.answered.notify_all();
    }

    /// Enables the controller again.
    pub(crate) fn resume(&self) {
        let mut inner = self.inner.lock();
        if let Some(hw) = inner.hw.as_mut() {
            // The function was reset or had no power: whatever it was, it is disabled now.
            hw.state = State::Stopped;
            hw.start_again(xio_uapi::RESET_SYSTEM);
            self.tell(hw);
        }
    }

    /// Enables the controller again after an error that it was kept from the bus for.
    pub(crate) fn recovered(&self) {
        let live = self.inner.lock().hw.as_ref().is_none_or(|hw| hw.state == State::Live);
        if !live {
            self.resume();
        }
    }

    /// Revokes everything and shuts the controller down, when the machine goes down.
    pub(crate) fn shut_down(&self) {
        let mut inner = self.inner.lock();
        if let Some(hw) = inner.hw.as_mut() {
            self.node.space().unmap(0, 0);
            hw.shut_down();
            crate::submit::complete_uring(hw);
        }
        self.answered.notify_all();
    }

    /// Revokes everything, resets the controller, evicts its owner.
    pub(crate) fn recover(&self, hw: &mut Hw) {
        let (why, reset) = match hw.lost {
            Some(AdminError::OutOfStep) => ("its admin queue is out of step", xio_uapi::RESET_OUT_OF_STEP),
            Some(AdminError::Gone) if hw.regs.status().is_absent() => ("it is absent", xio_uapi::RESET_ABSENT),
            Some(AdminError::Gone) => ("it failed or stopped", xio_uapi::RESET_FATAL),
            Some(AdminError::Status(_)) => ("it refused to delete a queue", xio_uapi::RESET_REFUSED),
            _ => ("a command was not answered", xio_uapi::RESET_TIMEOUT),
        };
        // A client can have this happen over and over.
        if hw.complained.is_none_or(|at| at.elapsed().as_millis() > 5000) {
            pr_err!("{}: the controller is reset, since {why}\n", self.node.name());
            hw.complained = Some(Instant::now());
        }
        self.node.space().unmap(0, 0);
        hw.stop();
        crate::submit::complete_uring(hw);
        self.answered.notify_all();
        hw.start_again(reset);
        self.tell(hw);
    }
}

/// Where the hardware stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Commands can be run.
    Live,
    /// Disabled; nothing of a client exists.
    Stopped,
    /// It could not be disabled or enabled.
    Failed,
}

/// Where the device is.
pub(crate) struct Place {
    pub(crate) address: Address,
    /// Pages that may be mapped.
    pub(crate) doorbells: Doorbells,
    /// The controller memory buffer.
    pub(crate) cmb: Option<Buffered>,
    /// For exports; `None` where the kernel knows no peer-to-peer memory.
    pub(crate) peers: Option<Peers>,
}

impl Place {
    /// The controller memory buffer, if it is there for one of the `CMB_*`.
    pub(crate) fn cmb_for(&self, uses: u32) -> Result<&Arc<Cmb>> {
        let cmb = self.cmb.as_ref().filter(|cmb| cmb.uses & uses != 0);
        cmb.map(|cmb| &cmb.memory).ok_or(EOPNOTSUPP)
    }
}

/// A controller memory buffer.
pub(crate) struct Buffered {
    pub(crate) memory: Arc<Cmb>,
    /// `CMB_*`.
    pub(crate) uses: u32,
}

/// The hardware, for as long as the device is bound.
pub(crate) struct Hw {
    pub(crate) regs: Registers,
    pub(crate) admin: Admin,
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) dev: DmaDevice,
    pub(crate) place: Place,
    pub(crate) identity: Identity,
    /// Everything that clients made.
    pub(crate) objects: KVVec<Object>,
    /// The kernel's queue, once somebody used it.
    pub(crate) mediated: Option<Mediated>,
    /// Calls that are not done.
    pub(crate) batches: KVec<KBox<Batch>>,
    pub(crate) last_batch: u64,
    /// The client that has direct queues.
    pub(crate) owner: Option<u64>,
    /// Identifier of the newest object.
    pub(crate) last_id: u32,
    pub(crate) state: State,
    /// Why the controller must be reset.
    pub(crate) lost: Option<AdminError>,
    /// When a reset was last told of.
    complained: Option<Instant<Monotonic>>,
    /// The user who had direct queues since the controller was last reset.
    pub(crate) direct_user: Option<Kuid>,
    /// Resets since the device was bound.
    pub(crate) resets: u32,
    /// `RESET_*`: why it was last reset, or failed.
    pub(crate) reset: u32,
    /// Commands of the kernel's queue that failed, or were not answered.
    pub(crate) errors: u64,
}

impl Hw {
    /// Enables the controller, and finds out whether it is a Key Value controller and what it can do.
    pub(crate) fn new(
        regs: Registers,
        interrupts: Arc<Interrupts>,
        dev: DmaDevice,
        place: Place,
    ) -> Result<Self> {
        let mut hw = Self {
            regs,
            admin: Admin::new(dev)?,
            interrupts,
            dev,
            place,
            identity: Identity::default(),
            objects: KVVec::new(),
            mediated: None,
            batches: KVec::new(),
            last_batch: 0,
            owner: None,
            last_id: 0,
            state: State::Stopped,
            lost: None,
            complained: None,
            direct_user: None,
            resets: 0,
            reset: xio_uapi::RESET_NONE,
            errors: 0,
        };
        // From here on `drop` disables the controller again.
        hw.start()?;
        hw.identity = Identity::read(&mut hw)?;
        Ok(hw)
    }

    fn start(&mut self) -> Result<(), AdminError> {
        self.state = State::Failed;
        self.lost = None;
        let cmb = self.place.cmb.as_ref().map(|cmb| cmb.memory.bus());
        self.admin.enable(&self.regs, self.dev, cmb)?;
        self.state = State::Live;
        self.direct_user = None;
        Ok(())
    }

    /// Enables the controller after [`stop`](Self::stop) the way `new` left it.
    pub(crate) fn start_again(&mut self, reset: u32) {
        self.reset = reset;
        if self.state != State::Stopped {
            return;
        }
        self.resets = self.resets.saturating_add(1);
        let started = self.start().map_err(Error::from).and_then(|()| self.choose_command_set());
        let started = started.and_then(|()| self.number_of_queues().map(|_| ()));
        if let Err(e) = started {
            self.state = State::Failed;
            pr_err!("the controller can not be enabled ({e:?}); unbind and bind it, or reset the device\n");
        }
    }

    /// Disables the controller and frees everything that clients made. One that can not be disabled is kept from
    /// the bus, so that it reaches no memory either.
    pub(crate) fn stop(&mut self) {
        self.owner = None;
        for object in self.objects.iter_mut() {
            if let Kind::Queue(queue) = &mut object.kind {
                queue.revoke();
            }
        }
        self.state = match self.regs.disable() {
            Ok(()) => State::Stopped,
            Err(e) => {
                self.dev.set_master(false);
                if e != AdminError::Gone {
                    pr_err!("{}: can not be disabled ({e:?}); it is kept from the bus\n", self.place.address);
                }
                State::Failed
            }
        };
        self.interrupts.reap_on(0);
        self.fail_batches();
        self.mediated = None;
        self.objects.clear();
    }

    /// Shutdown notification, then as [`stop`](Self::stop).
    pub(crate) fn shut_down(&mut self) {
        if let Err(e) = self.regs.shut_down() {
            pr_warn!("the controller did not shut down: {e:?}\n");
        }
        self.stop();
    }

    /// Runs an admin command.
    pub(crate) fn run(&mut self, command: Command) -> Result<u32, AdminError> {
        self.check_live()?;
        let result = self.admin.run(&self.regs, &self.interrupts, command);
        self.note_lost(result)
    }

    /// Runs Identify and returns a copy of its data.
    pub(crate) fn identify(&mut self, what: Identify) -> Result<KVec<u8>, AdminError> {
        self.check_live()?;
        let result = self.admin.identify(&self.regs, &self.interrupts, what);
        self.note_lost(result)
    }

    /// Whether a command makes sense.
    fn check_live(&self) -> Result<(), AdminError> {
        match (self.state, self.lost) {
            (State::Live, None) => Ok(()),
            (_, Some(e)) => Err(e),
            _ => Err(AdminError::Gone),
        }
    }

    fn note_lost<T>(&mut self, result: Result<T, AdminError>) -> Result<T, AdminError> {
        result.inspect_err(|e| {
            if e.needs_reset() {
                self.lost = Some(*e);
            }
        })
    }

    /// What confines the device at this moment.
    pub(crate) fn iommu(&self) -> u32 {
        iommu::kind(&self.dev)
    }

    /// Whether an IOMMU keeps the device from memory that was freed.
    pub(crate) fn is_translated(&self) -> bool {
        matches!(self.iommu(), xio_uapi::IOMMU_TRANSLATED | xio_uapi::IOMMU_TRANSLATED_LAZY)
    }

    /// What keeps the IOMMU from confining the device at this moment (`UNCONFINED_*`).
    pub(crate) fn unconfined(&self) -> u32 {
        iommu::unconfined(&self.dev)
    }

    /// Whether a caller may have direct queues at this moment, and why (`DIRECT_*`).
    pub(crate) fn direct(&self, audit: bool) -> u32 {
        if self.unconfined() == 0 {
            xio_uapi::DIRECT_CONFINED
        } else if params::unsafe_direct() {
            xio_uapi::DIRECT_UNSAFE
        } else if crate::sys::chardev::has_rawio(audit) {
            xio_uapi::DIRECT_RAWIO
        } else {
            xio_uapi::DIRECT_REFUSED
        }
    }
}

impl Drop for Hw {
    fn drop(&mut self) {
        if self.state == State::Live {
            self.stop();
        }
    }
}
