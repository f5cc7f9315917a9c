// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controller Memory Buffer (Base, section 8.2.1): memory of the controller that the host puts queues, lists and values
//! into.
//!
//! The host says with CMBMSC at which addresses it means it; an access there goes to the buffer and not to the host.
//! Everything may be in it and everything may be mixed: queues in pages of both, lists in one and data in the other.

use crate::host::{DmaFault, HostMemory};
use nvme_kv::regs::{Cmbloc, Cmbmsc, Cmbsz};
use nvme_kv::Cqe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// BAR that the buffer is.
pub(crate) const BAR: u32 = 2;
/// CMBSTS: Controller Base Address Invalid.
const CBAI: u32 = 1 << 0;
/// The window is closed. (No address of a page.)
const CLOSED: u64 = u64::MAX;

/// The memory that a controller with a buffer sees.
struct Window {
    host: Arc<dyn HostMemory>,
    buffer: Arc<dyn HostMemory>,
    /// First address of the buffer, or [`CLOSED`].
    base: AtomicU64,
    len: u64,
}

/// The registers of the buffer.
pub(crate) struct Cmb {
    window: Arc<Window>,
    control: Cmbmsc,
}

impl Cmb {
    /// A buffer of `len` bytes; `buffer` is its memory, by offset.
    pub(crate) fn new(host: Arc<dyn HostMemory>, buffer: Arc<dyn HostMemory>, len: u64) -> Self {
        let window = Window { host, buffer, base: AtomicU64::new(CLOSED), len };
        Self { window: Arc::new(window), control: Cmbmsc(0) }
    }

    /// The host's memory with the buffer in it.
    pub(crate) fn memory(&self) -> Arc<dyn HostMemory> {
        self.window.clone()
    }

    /// CMBLOC, which reads as zero until the host has enabled the capabilities (CMBMSC.CRE).
    pub(crate) fn location(&self) -> u32 {
        let location = Cmbloc(0).with_bir(BAR).with_cqmms(1).with_cqpds(1);
        let location = location.with_cdpmls(1).with_cdpcils(1).with_cdmmms(1);
        if self.control.cre() == 1 {
            location.0
        } else {
            0
        }
    }

    /// CMBSZ, likewise.
    pub(crate) fn size(&self) -> u32 {
        let size = Cmbsz(0).with_sqs(1).with_cqs(1).with_lists(1).with_rds(1).with_wds(1);
        if self.control.cre() == 1 {
            size.with_sz((self.window.len / 4096) as u32).0
        } else {
            0
        }
    }

    /// CMBMSC.
    pub(crate) const fn control(&self) -> u64 {
        self.control.0
    }

    /// CMBSTS: whether the buffer reaches beyond the last address.
    pub(crate) fn status(&self) -> u32 {
        if self.base().checked_add(self.window.len - 1).is_none() {
            CBAI
        } else {
            0
        }
    }

    /// Writes CMBMSC. It is not changed by a controller reset.
    pub(crate) fn set_control(&mut self, control: u64) {
        let (cre, cmse) = (Cmbmsc(control).cre(), Cmbmsc(control).cmse());
        self.control = Cmbmsc(0).with_cre(cre).with_cmse(cmse).with_cba(Cmbmsc(control).cba());
        let open = cmse == 1 && self.status() == 0;
        self.window.base.store(if open { self.base() } else { CLOSED }, Ordering::Release);
    }

    fn base(&self) -> u64 {
        self.control.cba() << 12
    }
}

impl Window {
    /// Splits an access at the ends of the buffer: its memory or the host's, the address there, and the bytes.
    fn pieces(
        &self,
        addr: u64,
        len: usize,
        mut each: impl FnMut(&dyn HostMemory, u64, usize, usize) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let base = self.base.load(Ordering::Acquire);
        if base == CLOSED {
            return each(&*self.host, addr, 0, len);
        }
        let mut done = 0;
        while done < len {
            let at = addr.wrapping_add(done as u64);
            let inside = at.wrapping_sub(base);
            // To the end of the buffer, or to its beginning, which is as far as it takes to get around.
            let (memory, at, left) = if inside < self.len {
                (&*self.buffer, inside, self.len - inside)
            } else {
                (&*self.host, at, base.wrapping_sub(at))
            };
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(len - done);
            each(memory, at, done, done + now)?;
            done += now;
        }
        Ok(())
    }
}

impl HostMemory for Window {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: to.len(), write: false };
        self.pieces(addr, to.len(), |memory, at, start, end| {
            memory.read(at, to.get_mut(start..end).ok_or(fault)?)
        })
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: from.len(), write: true };
        self.pieces(addr, from.len(), |memory, at, start, end| {
            memory.write(at, from.get(start..end).ok_or(fault)?)
        })
    }

    fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
        // An entry is aligned and so never in both.
        self.pieces(addr, Cqe::SIZE, |memory, at, start, end| match end - start {
            Cqe::SIZE => memory.post(at, cqe),
            len => Err(DmaFault { addr, len, write: true }),
        })
    }

    fn is_direct(&self, addr: u64, len: usize) -> bool {
        let mut direct = true;
        let walked = self.pieces(addr, len, |memory, at, start, end| {
            direct &= memory.is_direct(at, end - start);
            Ok(())
        });
        direct && walked.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Memory(Mutex<Vec<u8>>);

    impl HostMemory for Memory {
        fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), DmaFault> {
            let fault = DmaFault { addr, len: to.len(), write: false };
            let all = self.0.lock().unwrap();
            to.copy_from_slice(all.get(addr as usize..addr as usize + to.len()).ok_or(fault)?);
            Ok(())
        }
        fn write(&self, addr: u64, from: &[u8]) -> Result<(), DmaFault> {
            let fault = DmaFault { addr, len: from.len(), write: true };
            let mut all = self.0.lock().unwrap();
            all.get_mut(addr as usize..addr as usize + from.len()).ok_or(fault)?.copy_from_slice(from);
            Ok(())
        }
        fn post(&self, addr: u64, cqe: &Cqe) -> Result<(), DmaFault> {
            self.write(addr, zerocopy::IntoBytes::as_bytes(cqe))
        }
    }

    fn cmb() -> Cmb {
        let memory = |len| Arc::new(Memory(Mutex::new(vec![0; len])));
        Cmb::new(memory(0x10000), memory(0x2000), 0x2000)
    }

    #[test]
    fn spec_base_3_1_4_capabilities_are_hidden_until_enabled() {
        let mut cmb = cmb();
        assert_eq!((cmb.location(), cmb.size(), cmb.control()), (0, 0, 0));
        cmb.set_control(1);
        assert_eq!((cmb.location(), cmb.size()), (0xfa, 0x201f));
        cmb.set_control(0xfff | 0x4000);
        assert_eq!(cmb.control(), 0x4003);
        cmb.set_control(3 | 0xffff_ffff_ffff_e000);
        assert_eq!(cmb.status(), 0);
        cmb.set_control(3 | 0xffff_ffff_ffff_f000);
        assert_eq!(cmb.status(), CBAI);
    }

    #[test]
    fn accesses_are_split_at_the_ends_of_the_buffer() {
        let mut cmb = cmb();
        let memory = cmb.memory();
        cmb.set_control(3 | 0x4000);
        memory.write(0x3fff, &[1; 0x2002]).unwrap();
        let (mut at_start, mut at_end) = ([9; 2], [9; 2]);
        cmb.window.host.read(0x3fff, &mut at_start).unwrap();
        cmb.window.host.read(0x5fff, &mut at_end).unwrap();
        assert_eq!((at_start, at_end), ([1, 0], [0, 1]));
        let mut back = [0; 0x2002];
        memory.read(0x3fff, &mut back).unwrap();
        assert_eq!(back, [1; 0x2002]);
        let cqe = Cqe::new(1, 2, 3, nvme_kv::Status::SUCCESS, 4);
        assert_eq!(memory.post(0x5ff0, &cqe), Ok(()));
        assert!(memory.post(0x5ff8, &cqe).is_err());
        // Closed, it is the host's memory everywhere.
        cmb.set_control(1);
        memory.read(0x4000, &mut at_start).unwrap();
        assert_eq!(at_start, [0, 0]);
        assert!(memory.read(0xffff, &mut at_start).is_err());
    }
}
