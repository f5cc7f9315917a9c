// SPDX-License-Identifier: MIT OR Apache-2.0
//! MSI-X or MSI vectors: an eventfd each, which the client turns into a message.

use crate::host::Interrupts;
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Vector {
    eventfd: Option<OwnedFd>,
    /// Raised while there was no eventfd. (Clients take away and give back all of them to add one.)
    pending: bool,
}

/// All vectors of the function.
pub(super) struct Vectors(Vec<Mutex<Vector>>);

impl Vectors {
    pub(super) fn new(count: u16) -> Self {
        Self((0..count).map(|_| Mutex::default()).collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Connects a vector, or disconnects it.
    pub(super) fn connect(&self, vector: u32, eventfd: Option<OwnedFd>) -> Result<(), Errno> {
        if let Some(fd) = &eventfd {
            // Whatever the client has sent, writing to it never waits.
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let mut vector = self.vector(vector).ok_or(Errno::EINVAL)?;
        vector.eventfd = eventfd;
        if vector.pending && vector.eventfd.is_some() {
            signal(&mut vector);
        }
        Ok(())
    }

    /// Disconnects all vectors; `forget` drops what is pending as well.
    pub(super) fn disconnect(&self, forget: bool) {
        for vector in &self.0 {
            let mut vector = lock(vector);
            vector.eventfd = None;
            vector.pending &= !forget;
        }
    }

    fn vector(&self, vector: u32) -> Option<MutexGuard<'_, Vector>> {
        self.0.get(vector as usize).map(lock)
    }
}

impl Interrupts for Vectors {
    fn raise(&self, vector: u16) {
        match self.vector(vector.into()) {
            Some(mut vector) => signal(&mut vector),
            None => log::error!("there is no interrupt vector {vector}"),
        }
    }
}

fn signal(vector: &mut Vector) {
    let Some(fd) = &vector.eventfd else {
        vector.pending = true;
        return;
    };
    vector.pending = false;
    match nix::unistd::write(fd, &1u64.to_ne_bytes()) {
        // A counter that is full is signalled all the same.
        Ok(_) | Err(Errno::EAGAIN) => {}
        Err(errno) => log::error!("an interrupt can not be signalled: {errno}"),
    }
}

fn lock(vector: &Mutex<Vector>) -> MutexGuard<'_, Vector> {
    vector.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use std::os::fd::AsFd;

    #[test]
    fn an_interrupt_without_eventfd_is_kept_for_the_next_one() {
        let vectors = Vectors::new(2);
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).unwrap();
        let fd = || Some(event.as_fd().try_clone_to_owned().unwrap());
        vectors.raise(1);
        vectors.connect(0, fd()).unwrap();
        assert!(event.read().is_err());
        vectors.connect(1, fd()).unwrap();
        assert_eq!(event.read(), Ok(1));
        vectors.raise(1);
        vectors.raise(0);
        assert_eq!(event.read(), Ok(2));
        vectors.disconnect(false);
        vectors.raise(0);
        vectors.disconnect(true);
        vectors.connect(0, fd()).unwrap();
        assert!(event.read().is_err());
        assert_eq!(vectors.connect(2, None), Err(Errno::EINVAL));
        vectors.raise(9);
    }
}
