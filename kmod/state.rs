// SPDX-License-Identifier: GPL-2.0
//! The controller's state as clients see it: they are told of each change, and a work item looks after a controller that
//! nobody asks for anything.

use crate::{
    client::Client,
    controller::{Hw, State, Xio},
    error::AdminError,
    submit,
    sys::{event::EventFd, trace, work},
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        poll::PollCondVar,
        Arc, Mutex,
    },
    new_mutex, new_poll_condvar,
    time::msecs_to_jiffies,
    workqueue::{impl_has_delayed_work, WorkItem},
};
use xio_uapi::GetState;

/// How often a controller is looked at.
const LOOK_MS: u32 = 1000;

/// Who is told of changes.
#[pin_data]
pub(crate) struct News {
    /// Changes so far.
    changes: Atomic<u32>,
    /// Not 0 once the device was unbound.
    gone: Atomic<u32>,
    #[pin]
    pub(crate) poll: PollCondVar,
    /// eventfds, with the numbers of their clients.
    #[pin]
    eventfds: Mutex<KVec<(u64, EventFd)>>,
}

impl News {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            changes: Atomic::new(0),
            gone: Atomic::new(0),
            poll <- new_poll_condvar!(),
            eventfds <- new_mutex!(KVec::new()),
        })
    }

    /// Tells of a change.
    fn tell(&self) {
        self.changes.fetch_add(1, Full);
        self.poll.notify_all();
        for (_, eventfd) in self.eventfds.lock().iter() {
            eventfd.tell();
        }
    }

    /// Tells that the device is gone for good.
    pub(crate) fn tell_gone(&self) {
        self.gone.store(1, Relaxed);
        self.tell();
    }

    /// What a new client knows already.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Relaxed)
    }

    /// Sets a client's eventfd.
    fn set_eventfd(&self, client: u64, eventfd: Option<EventFd>) -> Result {
        let mut eventfds = self.eventfds.lock();
        eventfds.retain(|(of, _)| *of != client);
        match eventfd {
            Some(eventfd) => Ok(eventfds.push((client, eventfd), GFP_KERNEL_ACCOUNT)?),
            None => Ok(()),
        }
    }

    /// Forgets a client that is gone.
    pub(crate) fn forget(&self, client: u64) {
        self.eventfds.lock().retain(|(of, _)| *of != client);
    }
}

impl Hw {
    /// `STATE_*`.
    fn state(&self) -> u32 {
        match self.state {
            State::Live => xio_uapi::STATE_LIVE,
            State::Stopped => xio_uapi::STATE_STOPPED,
            State::Failed => xio_uapi::STATE_FAILED,
        }
    }
}

/// `GET_STATE`.
pub(crate) fn get_state(client: &Client, request: &mut GetState) -> Result {
    let news = &client.xio.news;
    if request.flags & xio_uapi::STATE_SET_EVENTFD != 0 {
        let eventfd = match request.eventfd {
            xio_uapi::NO_EVENTFD => None,
            fd => Some(EventFd::from_fd(fd)?),
        };
        news.set_eventfd(client.id, eventfd)?;
    }
    // Before the state is looked at: what changes afterwards is told again.
    client.told.store(news.changes(), Relaxed);
    let inner = client.xio.lock()?;
    let hw = inner.hw.as_ref().ok_or(ENODEV)?;
    request.state = hw.state();
    (request.resets, request.reset) = (hw.resets, hw.reset);
    Ok(())
}

/// For poll: whether the client was not told of a change, and whether the device is gone.
pub(crate) fn poll(client: &Client) -> (bool, bool) {
    let news = &client.xio.news;
    (client.told.load(Relaxed) != news.changes(), news.gone.load(Relaxed) != 0)
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Xio { self.watching }
}

impl WorkItem<2> for Xio {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        {
            let mut inner = this.inner.lock();
            let Some(hw) = inner.hw.as_mut() else { return };
            if let Err(e) = this.look_after(hw) {
                pr_err!("{}: looking after it failed: {e:?}\n", this.node().name());
            }
        }
        this.answered.notify_all();
        this.watch();
    }
}

impl Xio {
    /// Tells of the controller's new state.
    pub(crate) fn tell(&self, hw: &Hw) {
        trace::state(hw.place.address, hw.state(), hw.reset, hw.resets);
        self.news.tell();
    }

    /// Looks at the controller from time to time, until the device is unbound.
    pub(crate) fn watch(self: Arc<Self>) {
        // One that waits already will do.
        let _ = work::queue().enqueue_delayed::<_, 2>(self, msecs_to_jiffies(LOOK_MS));
    }

    /// Does not look any more when this returns.
    pub(crate) fn stop_watching(self: &Arc<Self>) {
        work::cancel(&self.watching, self);
    }

    /// Resets a controller that failed, or that does not answer what the kernel submitted; takes what an interrupt was
    /// lost for.
    fn look_after(&self, hw: &mut Hw) -> Result {
        if hw.state != State::Live {
            return Ok(());
        }
        hw.check_stuck();
        if !hw.regs.status().is_operational() {
            hw.lost.get_or_insert(AdminError::Gone);
        }
        submit::step(self, hw)
    }
}
