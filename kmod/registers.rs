// SPDX-License-Identifier: GPL-2.0
//! The controller's registers: reading capabilities, enabling, disabling, ringing admin doorbells.

use crate::{
    error::AdminError,
    sys::{cmb::Location, pci::Bar0},
};
use kernel::{io::Io, prelude::*, time::Delta};
use nvme_kv::regs::{offset, Aqa, Cap, Cc, Cmbloc, Cmbmsc, Cmbsz, Crto, Csts, Vs};

/// No controller is waited for longer, whatever it states.
const MAX_READY_MS: u64 = 300_000;

/// BAR 0.
pub(crate) struct Registers {
    bar: Bar0,
    cap: Cap,
    version: Vs,
    /// Longest wait for it to become ready, or not ready.
    ready_ms: u64,
}

impl Registers {
    pub(crate) fn new(bar: Bar0) -> Self {
        let (low, high) = (bar.read32(offset::CAP), bar.read32(offset::CAP + 4));
        let (version, cap) = (Vs(bar.read32(offset::VS)), Cap(u64::from(high) << 32 | u64::from(low)));
        // CAP.TO ends at 127.5 s; what takes longer to become ready with media says so in a register of its own.
        let ready = match cap.crms() & Cap::CRMS_WITH_MEDIA {
            0 => 0,
            _ => Crto(bar.read32(offset::CRTO)).with_media_ms(),
        };
        // The limit is the controller's own, and as much again, up to a minute, for a loaded machine.
        let limit = cap.timeout_ms().max(ready).min(MAX_READY_MS);
        Self { bar, cap, version, ready_ms: limit.max((2 * limit).min(60_000)) }
    }

    /// Capabilities.
    pub(crate) fn cap(&self) -> Cap {
        self.cap
    }

    /// Version.
    pub(crate) fn version(&self) -> Vs {
        self.version
    }

    /// Status; all ones when the device is gone.
    pub(crate) fn status(&self) -> Csts {
        Csts(self.bar.read32(offset::CSTS))
    }

    /// Where the controller memory buffer is, and what for (`CMB_*`); Base, section 8.2.1.
    pub(crate) fn cmb(&self) -> Option<(Location, u32)> {
        // Before that the other registers read as zero.
        self.control_cmb(Cmbmsc(0).with_cre(1));
        let location = Cmbloc(self.bar.read32(offset::CMBLOC));
        let size = Cmbsz(self.bar.read32(offset::CMBSZ));
        if size.0 == u32::MAX {
            return None;
        }
        let offset = u64::from(location.ofst()).checked_mul(size.unit()?)?;
        let len = size.bytes().filter(|len| *len > 0)?;
        let for_queues = if size.sqs() == 1 { xio_uapi::CMB_SQ } else { 0 };
        let for_data = if size.rds() == 1 && size.wds() == 1 { xio_uapi::CMB_DATA } else { 0 };
        Some((Location { bar: location.bir(), offset, len }, for_queues | for_data))
    }

    /// Tells the controller by which addresses its memory buffer is meant.
    pub(crate) fn place_cmb(&self, bus: u64) -> Result<(), AdminError> {
        self.control_cmb(Cmbmsc(0).with_cre(1).with_cmse(1).with_cba(bus >> 12));
        // Controller Base Address Invalid
        if self.cap.cmbs() == 1 && self.bar.read32(offset::CMBSTS) & 1 != 0 {
            return Err(AdminError::Gone);
        }
        Ok(())
    }

    /// Controllers before NVMe 1.4 have no such register: they know their buffer by the addresses of the BAR.
    fn control_cmb(&self, control: Cmbmsc) {
        if self.cap.cmbs() == 1 {
            self.bar.write32((control.0 >> 32) as u32, offset::CMBMSC + 4);
            self.bar.write32(control.0 as u32, offset::CMBMSC);
        }
    }

    /// Writes an admin doorbell; what was written to memory before is visible to the device first.
    pub(crate) fn ring(&self, doorbell: usize, value: u32) -> Result {
        kernel::sync::barrier::dma_mb(kernel::sync::barrier::Write);
        self.bar.try_write32(value, doorbell)
    }

    /// Waits for CSTS.RDY (Base, section 3.5).
    fn wait_ready(&self, ready: bool) -> Result<(), AdminError> {
        const STEP_MS: u64 = 1;
        for _ in 0..self.ready_ms / STEP_MS {
            let status = self.status();
            if status.is_absent() {
                return Err(AdminError::Gone);
            }
            if (status.rdy() == 1) == ready {
                return Ok(());
            }
            if ready && status.cfs() == 1 {
                return Err(AdminError::Gone);
            }
            kernel::time::delay::fsleep(Delta::from_millis(STEP_MS as i64));
        }
        Err(AdminError::Timeout)
    }

    /// Disables the controller: when this succeeds it does not touch memory any more.
    pub(crate) fn disable(&self) -> Result<(), AdminError> {
        let cc = Cc(self.bar.read32(offset::CC));
        if cc.0 == u32::MAX {
            return Err(AdminError::Gone);
        }
        if cc.en() == 1 || self.status().rdy() == 1 {
            self.bar.write32(cc.with_en(0).with_shn(0).0, offset::CC);
        }
        self.wait_ready(false)
    }

    /// Enables the controller for Key Value, with admin queues of so many entries at these addresses.
    pub(crate) fn enable(&self, entries: u32, sq: u64, cq: u64) -> Result<(), AdminError> {
        self.disable()?;
        let last = entries.wrapping_sub(1);
        self.bar.write32(Aqa(0).with_asqs(last).with_acqs(last).0, offset::AQA);
        for (at, addr) in [(offset::ASQ, sq), (offset::ACQ, cq)] {
            self.bar.try_write32(addr as u32, at)?;
            self.bar.try_write32((addr >> 32) as u32, at + 4)?;
        }
        self.bar.write32(Cc::KV_ENABLE.0, offset::CC);
        self.wait_ready(true)
    }

    /// Tells the controller that power may go (Base, section 3.6.1), then disables it.
    pub(crate) fn shut_down(&self) -> Result<(), AdminError> {
        let cc = Cc(self.bar.read32(offset::CC));
        if self.status().is_operational() && cc.en() == 1 {
            self.bar.write32(cc.with_shn(Cc::SHN_NORMAL).0, offset::CC);
            for _ in 0..self.ready_ms {
                if self.status().is_absent() || self.status().shst() == Csts::SHST_COMPLETE {
                    break;
                }
                kernel::time::delay::fsleep(Delta::from_millis(1));
            }
        }
        self.disable()
    }
}
