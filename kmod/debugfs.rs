// SPDX-License-Identifier: GPL-2.0
//! `/sys/kernel/debug/rocm-xioN/counters`: what there is of everything, a name and a number to a line.

use crate::{controller::Xio, sys::pages};
use kernel::{debugfs::Scope, fmt, prelude::*, sync::atomic::Relaxed, sync::Arc};

/// The debugfs folder of a controller.
pub(crate) fn scope(xio: Arc<Xio>) -> impl PinInit<Scope<Arc<Xio>>, Error> {
    let init = move |slot| {
        let node = xio.clone();
        let scope = Scope::dir(Ok::<_, Error>(xio), node.node().name(), |xio, dir| {
            dir.read_callback_file(c"counters", xio, &counters);
        });
        // SAFETY: `slot` is what this initialiser was called with. (The name need only last until the folder is made.)
        unsafe { pin_init::raw_try_init(slot, scope) }
    };
    // SAFETY: The closure initialises the slot by another initialiser, or fails as that does.
    unsafe { pin_init::pin_init_from_closure(init) }
}

fn counters(xio: &Arc<Xio>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let inner = xio.inner.lock();
    let Some(hw) = inner.hw.as_ref() else { return Ok(()) };
    let queues = hw.objects.iter().filter(|o| o.is_queue()).count();
    let pages: usize = hw.objects.iter().map(|o| o.pages()).sum();
    writeln!(f, "clients {}", inner.clients)?;
    writeln!(f, "owned {}", u32::from(hw.owner.is_some()))?;
    writeln!(f, "queues {queues}")?;
    writeln!(f, "buffers {}", hw.objects.len() - queues)?;
    writeln!(f, "pages {pages}")?;
    writeln!(f, "calls {}", hw.batches.len())?;
    writeln!(f, "commands {}", hw.mediated.as_ref().map_or(0, |m| m.in_flight()))?;
    writeln!(f, "live_pages {}", pages::LIVE.load(Relaxed))?;
    writeln!(f, "quarantined_pages {}", hw.quarantined)?;
    writeln!(f, "stray_completions {}", hw.admin.stray)?;
    writeln!(f, "resets {}", hw.resets)
}
