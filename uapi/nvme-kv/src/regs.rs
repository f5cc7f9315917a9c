// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controller registers (Base, section 3.1.4) and doorbells (PCIe, section 3.1.2).

/// Offsets from the start of BAR 0.
pub mod offset {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: usize = 0x00;
    /// Version.
    pub const VS: usize = 0x08;
    /// Interrupt Mask Set.
    pub const INTMS: usize = 0x0c;
    /// Interrupt Mask Clear.
    pub const INTMC: usize = 0x10;
    /// Controller Configuration.
    pub const CC: usize = 0x14;
    /// Controller Status.
    pub const CSTS: usize = 0x1c;
    /// NVM Subsystem Reset.
    pub const NSSR: usize = 0x20;
    /// Admin Queue Attributes.
    pub const AQA: usize = 0x24;
    /// Admin Submission Queue Base Address, 8 bytes.
    pub const ASQ: usize = 0x28;
    /// Admin Completion Queue Base Address, 8 bytes.
    pub const ACQ: usize = 0x30;
    /// Controller Memory Buffer Location.
    pub const CMBLOC: usize = 0x38;
    /// Controller Memory Buffer Size.
    pub const CMBSZ: usize = 0x3c;
    /// Controller Memory Buffer Memory Space Control, 8 bytes.
    pub const CMBMSC: usize = 0x50;
    /// Controller Memory Buffer Status.
    pub const CMBSTS: usize = 0x58;
    /// Controller Ready Timeouts.
    pub const CRTO: usize = 0x68;
    /// First doorbell.
    pub const DOORBELLS: usize = 0x1000;
}

register! {
    /// Controller Capabilities (Base, Figure "Offset 0h: CAP").
    Cap(u64) {
        /// Maximum Queue Entries Supported, 0's based.
        mqes, with_mqes: 0, 16;
        /// Contiguous Queues Required.
        cqr, with_cqr: 16, 1;
        /// Arbitration Mechanism Supported.
        ams, with_ams: 17, 2;
        /// Timeout in units of 500 ms.
        to, with_to: 24, 8;
        /// Doorbell Stride: doorbells are 4 << DSTRD bytes apart.
        dstrd, with_dstrd: 32, 4;
        /// NVM Subsystem Reset Supported.
        nssrs, with_nssrs: 36, 1;
        /// Command Sets Supported; see the `CSS_*` bits.
        css, with_css: 37, 8;
        /// Memory Page Size Minimum: 2 ^ (12 + MPSMIN) bytes.
        mpsmin, with_mpsmin: 48, 4;
        /// Memory Page Size Maximum: 2 ^ (12 + MPSMAX) bytes.
        mpsmax, with_mpsmax: 52, 4;
        /// Controller Memory Buffer Supported.
        cmbs, with_cmbs: 57, 1;
        /// Controller Ready Modes Supported; bit 0 is Ready With Media.
        crms, with_crms: 59, 2;
    }
}

impl Cap {
    /// Bit of `css`: the NVM command set.
    pub const CSS_NVM: u64 = 1 << 0;
    /// Bit of `css`: one or more I/O command sets, chosen by CC.CSS = 110b. A Key Value controller has it,
    /// ordinary NVMe disks may.
    pub const CSS_IO_COMMAND_SETS: u64 = 1 << 6;
    /// Bit of `css`: no I/O command set.
    pub const CSS_ADMIN_ONLY: u64 = 1 << 7;

    /// Bit of `crms`: ready with media, for which [`Crto`] states a limit.
    pub const CRMS_WITH_MEDIA: u64 = 1 << 0;

    /// Deepest queue in entries, 2 to 65536. (A controller that states 0 breaks the specification,
    /// which wants 1 at least; it gets 2.)
    pub const fn max_queue_entries(self) -> u32 {
        let entries = self.mqes() as u32 + 1;
        if entries < 2 {
            2
        } else {
            entries
        }
    }

    /// Time to wait for CSTS.RDY to change, in milliseconds; at least one unit.
    pub const fn timeout_ms(self) -> u64 {
        let units = self.to();
        if units == 0 {
            500
        } else {
            units * 500
        }
    }

    /// Whether several I/O command sets, and so Key Value, can be chosen.
    pub const fn has_io_command_sets(self) -> bool {
        self.css() & Self::CSS_IO_COMMAND_SETS != 0
    }

    /// Where the doorbells are.
    pub const fn doorbells(self) -> Doorbells {
        Doorbells { dstrd: self.dstrd() as u8 }
    }
}

register! {
    /// Controller Ready Timeouts (Base, Figure "Offset 68h: CRTO").
    Crto(u32) {
        /// Controller Ready With Media Timeout in units of 500 ms.
        crwmt, with_crwmt: 0, 16;
        /// Controller Ready Independent of Media Timeout in units of 500 ms.
        crimt, with_crimt: 16, 16;
    }
}

impl Crto {
    /// Time to become ready with media, in milliseconds.
    pub const fn with_media_ms(self) -> u64 {
        self.crwmt() as u64 * 500
    }
}

register! {
    /// Version (Base, Figure "Offset 8h: VS").
    Vs(u32) {
        /// Tertiary version.
        tertiary, with_tertiary: 0, 8;
        /// Minor version.
        minor, with_minor: 8, 8;
        /// Major version.
        major, with_major: 16, 16;
    }
}

register! {
    /// Controller Configuration (Base, Figure "Offset 14h: CC").
    Cc(u32) {
        /// Enable.
        en, with_en: 0, 1;
        /// I/O Command Set Selected.
        css, with_css: 4, 3;
        /// Memory Page Size: 2 ^ (12 + MPS) bytes.
        mps, with_mps: 7, 4;
        /// Arbitration Mechanism Selected.
        ams, with_ams: 11, 3;
        /// Shutdown Notification.
        shn, with_shn: 14, 2;
        /// I/O Submission Queue Entry Size: 2 ^ n bytes.
        iosqes, with_iosqes: 16, 4;
        /// I/O Completion Queue Entry Size: 2 ^ n bytes.
        iocqes, with_iocqes: 20, 4;
    }
}

impl Cc {
    /// `css`: the NVM command set alone.
    pub const CSS_NVM: u32 = 0;
    /// `css`: all command sets of the I/O Command Set Profile in use.
    pub const CSS_ALL: u32 = 0b110;
    /// `css`: admin commands alone.
    pub const CSS_ADMIN_ONLY: u32 = 0b111;
    /// `shn`: normal shutdown.
    pub const SHN_NORMAL: u32 = 1;

    /// Enabled for Key Value: all I/O command sets, 4 KiB pages, 64-byte and 16-byte entries.
    pub const KV_ENABLE: Self = Self(0).with_en(1).with_css(Self::CSS_ALL).with_iosqes(6).with_iocqes(4);
}

register! {
    /// Controller Status (Base, Figure "Offset 1Ch: CSTS").
    Csts(u32) {
        /// Ready.
        rdy, with_rdy: 0, 1;
        /// Controller Fatal Status.
        cfs, with_cfs: 1, 1;
        /// Shutdown Status.
        shst, with_shst: 2, 2;
        /// NVM Subsystem Reset Occurred.
        nssro, with_nssro: 4, 1;
        /// Processing Paused.
        pp, with_pp: 5, 1;
    }
}

impl Csts {
    /// `shst`: no shutdown under way.
    pub const SHST_NORMAL: u32 = 0;
    /// `shst`: shutdown under way.
    pub const SHST_OCCURRING: u32 = 1;
    /// `shst`: shutdown complete.
    pub const SHST_COMPLETE: u32 = 2;
    /// What a device that is gone reads as.
    pub const ABSENT: Self = Self(u32::MAX);

    /// Whether the device does not answer any more.
    pub const fn is_absent(self) -> bool {
        self.0 == Self::ABSENT.0
    }

    /// Whether commands can be processed.
    pub const fn is_operational(self) -> bool {
        !self.is_absent() && self.rdy() == 1 && self.cfs() == 0
    }
}

register! {
    /// Admin Queue Attributes (Base, Figure "Offset 24h: AQA").
    Aqa(u32) {
        /// Admin Submission Queue Size, 0's based.
        asqs, with_asqs: 0, 12;
        /// Admin Completion Queue Size, 0's based.
        acqs, with_acqs: 16, 12;
    }
}

register! {
    /// Controller Memory Buffer Location (Base, Figure "Offset 38h: CMBLOC").
    Cmbloc(u32) {
        /// Base Indicator Register: the BAR.
        bir, with_bir: 0, 3;
        /// Queue Mixed Memory Support.
        cqmms, with_cqmms: 3, 1;
        /// Queue Physically Discontiguous Support.
        cqpds, with_cqpds: 4, 1;
        /// Data Pointer Mixed Locations Support.
        cdpmls, with_cdpmls: 5, 1;
        /// Data Pointer and Command Independent Locations Support.
        cdpcils, with_cdpcils: 6, 1;
        /// Data Metadata Mixed Memory Support.
        cdmmms, with_cdmmms: 7, 1;
        /// Queue Dword Alignment.
        cqda, with_cqda: 8, 1;
        /// Offset in units of CMBSZ.SZU.
        ofst, with_ofst: 12, 20;
    }
}

register! {
    /// Controller Memory Buffer Size (Base, Figure "Offset 3Ch: CMBSZ").
    Cmbsz(u32) {
        /// Submission Queue Support.
        sqs, with_sqs: 0, 1;
        /// Completion Queue Support.
        cqs, with_cqs: 1, 1;
        /// PRP and SGL List Support.
        lists, with_lists: 2, 1;
        /// Read Data Support.
        rds, with_rds: 3, 1;
        /// Write Data Support.
        wds, with_wds: 4, 1;
        /// Size Units: 4 KiB << (4 * SZU).
        szu, with_szu: 8, 4;
        /// Size in units of SZU.
        sz, with_sz: 12, 20;
    }
}

impl Cmbsz {
    /// Bytes of a unit; `None` for the reserved values of SZU.
    pub const fn unit(self) -> Option<u64> {
        if self.szu() > 6 {
            return None;
        }
        Some(4096 << (4 * self.szu()))
    }

    /// Size in bytes.
    pub const fn bytes(self) -> Option<u64> {
        match self.unit() {
            Some(unit) => (self.sz() as u64).checked_mul(unit),
            None => None,
        }
    }
}

register! {
    /// Controller Memory Buffer Memory Space Control (Base, Figure "Offset 50h: CMBMSC").
    Cmbmsc(u64) {
        /// Capabilities Registers Enabled.
        cre, with_cre: 0, 1;
        /// Controller Memory Space Enable.
        cmse, with_cmse: 1, 1;
        /// Controller Base Address in units of 4 KiB.
        cba, with_cba: 12, 52;
    }
}

/// Positions of the doorbell registers (PCIe, sections 3.1.2.1 and 3.1.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doorbells {
    dstrd: u8,
}

impl Doorbells {
    /// Doorbells with a CAP.DSTRD of 0 to 15.
    pub const fn new(dstrd: u8) -> Self {
        Self { dstrd: dstrd & 15 }
    }

    /// Bytes from one doorbell to the next.
    pub const fn stride(self) -> usize {
        4 << self.dstrd
    }

    /// Offset in BAR 0 of the tail doorbell of submission queue `qid`.
    pub const fn sq_tail(self, qid: u16) -> usize {
        offset::DOORBELLS + 2 * qid as usize * self.stride()
    }

    /// Offset in BAR 0 of the head doorbell of completion queue `qid`.
    pub const fn cq_head(self, qid: u16) -> usize {
        self.sq_tail(qid) + self.stride()
    }

    /// Bytes of BAR 0 that reach the doorbells of queues 0 to `last_qid`.
    pub const fn bar_len(self, last_qid: u16) -> usize {
        self.cq_head(last_qid) + 4
    }

    /// Whether no two doorbells share a 4 KiB page.
    pub const fn have_own_pages(self) -> bool {
        self.stride() >= crate::PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_base_3_1_4_1_cap_of_a_known_controller() {
        // What QEMU's nvme device answers.
        let cap = Cap(0x0040_0820_0f01_07ff);
        assert_eq!((cap.mqes(), cap.cqr(), cap.to(), cap.dstrd()), (0x7ff, 1, 0xf, 0));
        assert!(!cap.has_io_command_sets() || cap.css() & Cap::CSS_NVM != 0);
        assert_eq!(cap.max_queue_entries(), 2048);
        assert_eq!(cap.timeout_ms(), 7500);
    }

    #[test]
    fn spec_base_3_1_4_5_kv_enable_is_what_linux_writes() {
        assert_eq!(Cc::KV_ENABLE.0, 0x0046_0061);
    }

    #[test]
    fn spec_pcie_3_1_2_doorbells_for_every_stride() {
        for dstrd in 0..16u8 {
            let d = Doorbells::new(dstrd);
            for qid in [0u16, 1, 2, 31, u16::MAX] {
                assert_eq!(d.sq_tail(qid), 0x1000 + (2 * qid as usize) * (4 << dstrd));
                assert_eq!(d.cq_head(qid), 0x1000 + (2 * qid as usize + 1) * (4 << dstrd));
            }
            assert_eq!(d.have_own_pages(), dstrd >= 10);
        }
    }

    #[test]
    fn cap_of_zero_and_ones_gives_usable_limits() {
        assert_eq!(Cap(0).max_queue_entries(), 2);
        assert_eq!(Cap(0).timeout_ms(), 500);
        assert_eq!(Cap(u64::MAX).max_queue_entries(), 65536);
        assert!(Csts::ABSENT.is_absent() && !Csts::ABSENT.is_operational());
    }

    #[test]
    fn cmb_size_in_every_unit() {
        assert_eq!(Cmbsz(0).with_sz(3).bytes(), Some(3 * 4096));
        assert_eq!(Cmbsz(0).with_sz(2).with_szu(6).bytes(), Some(2 * (64u64 << 30)));
        assert_eq!(Cmbsz(0).with_szu(7).bytes(), None);
        assert_eq!(Cmbmsc(0).with_cba(0x12345).0, 0x1234_5000);
    }
}
