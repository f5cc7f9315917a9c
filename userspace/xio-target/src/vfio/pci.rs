// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI configuration space: an NVMe function with power management, PCI Express and MSI-X or MSI capabilities.

use super::bar::Layout;

/// Bytes of the configuration space.
pub(super) const SIZE: usize = 4096;

/// Offsets.
mod at {
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const STATUS: usize = 0x06;
    pub(super) const REVISION_AND_CLASS: usize = 0x08;
    pub(super) const BAR0: usize = 0x10;
    pub(super) const BAR2: usize = 0x18;
    pub(super) const SUBSYSTEM: usize = 0x2c;
    pub(super) const CAPABILITIES: usize = 0x34;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
    pub(super) const EXPRESS: usize = 0x40;
    /// Device Control of the PCI Express capability.
    pub(super) const DEVICE_CONTROL: usize = EXPRESS + 8;
    /// MSI-X, or MSI.
    pub(super) const MSIX: usize = 0x80;
    pub(super) const POWER: usize = 0x90;
}

/// A vendor identifier that no vendor has; drivers find the function by its class.
const VENDOR: u16 = 0x1234;
const DEVICE: u16 = 0x11e7;
/// Mass storage, non-volatile memory, NVMe I/O controller; revision 1.
const CLASS: [u8; 4] = [1, 0x02, 0x08, 0x01];
/// Status: there are capabilities.
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Command: memory, bus master, parity and SERR reporting, no INTx.
const COMMAND_BITS: u16 = 0x0546;
/// Command: bus master, may access memory.
const BUS_MASTER: u8 = 1 << 2;
/// BAR: 64 bits wide, not prefetchable.
const BAR_64: u32 = 0b100;
/// BAR: prefetchable.
const BAR_PREFETCHABLE: u32 = 0b1000;
/// PCI Express capabilities: version 2, endpoint.
const EXPRESS_ENDPOINT: u16 = 2;
/// Device Capabilities: role-based error reporting, function level reset.
const DEVICE_CAPABILITIES: u32 = 1 << 15 | 1 << 28;
/// Link Capabilities and Status: one lane, 2.5 GT/s.
const LINK_CAPABILITIES: u32 = 0x0001_0c11;
const LINK_STATUS: u16 = 0x11;
/// Device Control: payload and request sizes, relaxed ordering, no snoop, error reporting.
const DEVICE_CONTROL_BITS: u16 = 0x78ff;
/// Second byte of Device Control: initiate function level reset.
const FUNCTION_RESET: u8 = 1 << 7;
/// MSI-X Message Control: enable and function mask.
const MSIX_BITS: u16 = 0xc000;
/// MSI Message Control: 64-bit addresses, and the number of messages as a power of two in the bits from 1 on; the host writes
/// how many it uses, and whether any.
const MSI_64: u16 = 1 << 7;
const MSI_BITS: u16 = 0x71;
/// Power Management Capabilities: version 3.
const POWER_CAPABILITIES: u16 = 3;
/// Power Management Control: no soft reset from D3hot to D0; and the power state, which is writable.
const NO_SOFT_RESET: u16 = 1 << 3;
const POWER_STATE: u16 = 3;

/// The configuration space of the function.
pub(super) struct ConfigSpace {
    bytes: Box<[u8; SIZE]>,
    /// Bits that the client changes.
    writable: Box<[u8; SIZE]>,
    layout: Layout,
    /// Bytes of BAR 2, a power of two, or 0.
    bar2: u64,
    vectors: u16,
    msi: bool,
}

impl ConfigSpace {
    pub(super) fn new(layout: Layout, bar2: u64, vectors: u16, msi: bool) -> Self {
        let zeros = || Box::new([0; SIZE]);
        let mut space = Self { bytes: zeros(), writable: zeros(), layout, bar2, vectors, msi };
        space.reset();
        space
    }

    /// As after power on.
    pub(super) fn reset(&mut self) {
        self.bytes.fill(0);
        self.writable.fill(0);
        self.set(0, &VENDOR.to_le_bytes());
        self.set(2, &DEVICE.to_le_bytes());
        self.set(at::STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.set(at::REVISION_AND_CLASS, &CLASS);
        self.set(at::SUBSYSTEM, &VENDOR.to_le_bytes());
        self.set(at::SUBSYSTEM + 2, &[1]);
        self.set(at::CAPABILITIES, &[at::EXPRESS as u8]);
        self.allow(at::COMMAND, &COMMAND_BITS.to_le_bytes());
        self.allow(at::INTERRUPT_LINE, &[0xff]);
        self.set(at::BAR0, &BAR_64.to_le_bytes());
        // Address bits below the size stay zero, so that writing ones tells the size.
        self.allow(at::BAR0, &(!(self.layout.len as u64 - 1)).to_le_bytes());
        if self.bar2 > 0 {
            self.set(at::BAR2, &(BAR_64 | BAR_PREFETCHABLE).to_le_bytes());
            self.allow(at::BAR2, &(!(self.bar2 - 1)).to_le_bytes());
        }
        self.express();
        if self.msi {
            self.msi();
        } else {
            self.msix();
        }
        self.power();
    }

    fn express(&mut self) {
        let e = at::EXPRESS;
        self.set(e, &[0x10, at::MSIX as u8]);
        self.set(e + 2, &EXPRESS_ENDPOINT.to_le_bytes());
        self.set(e + 4, &DEVICE_CAPABILITIES.to_le_bytes());
        self.allow(at::DEVICE_CONTROL, &DEVICE_CONTROL_BITS.to_le_bytes());
        self.set(e + 0xc, &LINK_CAPABILITIES.to_le_bytes());
        self.set(e + 0x12, &LINK_STATUS.to_le_bytes());
    }

    fn msi(&mut self) {
        let m = at::MSIX;
        self.set(m, &[0x05, at::POWER as u8]);
        self.set(m + 2, &(MSI_64 | (self.vectors.ilog2() as u16) << 1).to_le_bytes());
        self.allow(m + 2, &MSI_BITS.to_le_bytes());
        // Address, whose lowest bits are zero, and data.
        self.allow(m + 4, &(!3u64).to_le_bytes());
        self.allow(m + 12, &[0xff, 0xff]);
    }

    fn msix(&mut self) {
        let m = at::MSIX;
        self.set(m, &[0x11, at::POWER as u8]);
        self.set(m + 2, &(self.vectors - 1).to_le_bytes());
        self.allow(m + 2, &MSIX_BITS.to_le_bytes());
        // Both are in BAR 0, whose number is in the low bits.
        self.set(m + 4, &(self.layout.table as u32).to_le_bytes());
        self.set(m + 8, &(self.layout.pending as u32).to_le_bytes());
    }

    fn power(&mut self) {
        let p = at::POWER;
        self.set(p, &[0x01, 0]);
        self.set(p + 2, &POWER_CAPABILITIES.to_le_bytes());
        self.set(p + 4, &NO_SOFT_RESET.to_le_bytes());
        self.allow(p + 4, &POWER_STATE.to_le_bytes());
    }

    /// Reads; what is behind the end reads as zeros.
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        for (to, at) in to.iter_mut().zip(offset..) {
            *to = self.bytes.get(at).copied().unwrap_or(0);
        }
    }

    /// Whether the function may access the host's memory.
    pub(super) fn is_bus_master(&self) -> bool {
        self.bytes.get(at::COMMAND).is_some_and(|command| command & BUS_MASTER != 0)
    }

    /// Writes what is writable. `true` when the function is to be reset.
    #[must_use]
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) -> bool {
        let mut reset = false;
        for (new, at) in from.iter().zip(offset..) {
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *byte = *byte & !mask | new & mask;
            }
            reset |= at == at::DEVICE_CONTROL + 1 && new & FUNCTION_RESET != 0;
        }
        reset
    }

    fn set(&mut self, offset: usize, value: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(offset).zip(value) {
            *to = *from;
        }
    }

    fn allow(&mut self, offset: usize, bits: &[u8]) {
        for (to, from) in self.writable.iter_mut().skip(offset).zip(bits) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn space() -> ConfigSpace {
        let config = Config::default();
        ConfigSpace::new(Layout::new(&config), 4 << 20, config.vectors(), config.msi)
    }

    fn read<const N: usize>(space: &ConfigSpace, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        space.read(offset, &mut bytes);
        bytes
    }

    #[test]
    fn writing_ones_to_the_bar_tells_its_size() {
        let mut s = space();
        assert!(!s.write(at::BAR0, &[0xff; 8]));
        assert_eq!(u64::from_le_bytes(read(&s, at::BAR0)), !0x3fff | 4);
        assert!(!s.write(at::BAR2, &[0xff; 8]));
        assert_eq!(u64::from_le_bytes(read(&s, at::BAR2)), !0x3f_ffff | 12);
        assert!(!s.write(0, &[0xff; 4]));
        assert_eq!(read(&s, 0), [0x34, 0x12, 0xe7, 0x11]);
    }

    #[test]
    fn capabilities_form_a_chain() {
        let s = space();
        let (mut at, mut ids) = (usize::from(read::<1>(&s, at::CAPABILITIES)[0]), vec![]);
        while at != 0 {
            let [id, next] = read(&s, at);
            ids.push(id);
            at = usize::from(next);
        }
        assert_eq!(ids, [0x10, 0x11, 0x01]);
        assert_eq!(u32::from_le_bytes(read(&s, at::MSIX + 4)), 0x2000);
        assert_eq!(u16::from_le_bytes(read(&s, at::MSIX + 2)), 31);
    }

    #[test]
    fn messages_without_a_table() {
        let config = Config { msi: true, max_queues: 20, ..Config::default() };
        let mut s = ConfigSpace::new(Layout::new(&config), 0, config.vectors(), config.msi);
        assert_eq!((read(&s, at::MSIX), config.vectors()), ([0x05, at::POWER as u8, 0x88, 0], 16));
        assert!(!s.write(at::MSIX + 2, &[0xff; 12]));
        assert_eq!(
            read(&s, at::MSIX + 2),
            [0xf9, 0, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
        );
    }

    #[test]
    fn function_reset_and_power_states() {
        let mut s = space();
        assert!(!s.is_bus_master() && !s.write(at::COMMAND, &[6, 0]) && s.is_bus_master());
        assert!(s.write(at::DEVICE_CONTROL, &0x8010u16.to_le_bytes()));
        assert_eq!(read(&s, at::DEVICE_CONTROL), [0x10, 0]);
        assert!(!s.write(at::POWER + 4, &[0xff, 0xff]));
        assert_eq!(read(&s, at::POWER + 4), [0b1011, 0]);
        assert!(!s.write(SIZE - 1, &[1, 2, 3]));
        assert_eq!(read(&s, SIZE), [0]);
    }
}
