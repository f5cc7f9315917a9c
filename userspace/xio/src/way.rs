// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path that was chosen.

use crate::command::{Completion, Operation};
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::info::Namespace;
use crate::mediated::MediatedQueue;
use crate::path::Path;
use crate::queue::{blocking_calls, Queue, QueueOptions};

/// A queue of either path.
#[derive(Debug)]
pub(crate) enum Way {
    /// Mapped into this process.
    Direct(Box<Queue>),
    /// The kernel's.
    Mediated(MediatedQueue),
}

blocking_calls!(Way);

impl Way {
    /// Takes the path asked for.
    pub(crate) fn open(controller: &Controller, path: Path, options: &QueueOptions) -> Result<Self> {
        let direct = || controller.queue(options.clone()).map(|queue| Self::Direct(Box::new(queue)));
        let mediated = || {
            let mut queue = controller.mediated_queue()?;
            queue.set_timeout(options.timeout);
            Ok(Self::Mediated(queue))
        };
        match path {
            Path::Direct => direct(),
            Path::Mediated => mediated(),
            Path::Auto => {
                let info = controller.info()?;
                match (info.direct().allowed(), info.mediated()) {
                    (_, false) => direct(),
                    (false, true) => mediated(),
                    (true, true) => {
                        direct().or_else(|error| if falls_back(&error) { mediated() } else { Err(error) })
                    }
                }
            }
        }
    }

    /// Which it is.
    pub(crate) const fn path(&self) -> Path {
        match self {
            Self::Direct(_) => Path::Direct,
            Self::Mediated(_) => Path::Mediated,
        }
    }

    /// Commands of the direct path that were given up and are not answered.
    pub(crate) fn poisoned(&self) -> usize {
        match self {
            Self::Direct(queue) => queue.poisoned(),
            Self::Mediated(_) => 0,
        }
    }

    fn execute(&mut self, namespace: &Namespace, operation: Operation) -> Result<Completion> {
        match self {
            Self::Direct(queue) => queue.execute(namespace, operation),
            Self::Mediated(queue) => queue.execute(namespace, operation),
        }
    }
}

/// Whether the mediated path may still be had after the direct one was refused.
const fn falls_back(error: &Error) -> bool {
    matches!(
        error,
        Error::DirectRefused { .. }
            | Error::Refused(_)
            | Error::Busy
            | Error::NoQueueLeft
            | Error::Quota { .. }
    )
}
