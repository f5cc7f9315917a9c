// SPDX-License-Identifier: MIT OR Apache-2.0
//! What shape of controller to be.

use nvme_kv::{csi, regs, Key};
use std::sync::atomic::{AtomicU32, Ordering};

/// I/O command sets that the controller claims to have. All but [`KeyValue`](Self::KeyValue) are there so that a
/// driver can be seen to refuse them; they have no namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommandSets {
    /// Key Value alone.
    #[default]
    KeyValue,
    /// A controller without a choice of command sets: CAP.CSS bit 6 is clear, only the NVM command set.
    Nvm,
    /// A controller with a choice of command sets of which none is Key Value, as ordinary disks are.
    NvmAndZoned,
}

/// A namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceConfig {
    /// Bytes that keys and values may take together.
    pub capacity: u64,
    /// Longest value in bytes.
    pub max_value: u32,
    /// Longest key in bytes, 1 to 16.
    pub max_key: u16,
    /// Most keys, 0 for no limit.
    pub max_keys: u32,
    /// Refuses to be written.
    pub read_only: bool,
}

impl Default for NamespaceConfig {
    fn default() -> Self {
        Self { capacity: 1 << 30, max_value: 64 << 20, max_key: 16, max_keys: 0, read_only: false }
    }
}

/// A controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Serial number, at most 20 ASCII characters. The names of the subsystem and of its namespaces derive from it,
    /// so two controllers of one host must not share it.
    pub serial: String,
    /// Model, at most 40 ASCII characters.
    pub model: String,
    /// Deepest queue in entries, 2 to 65536.
    pub max_queue_entries: u32,
    /// I/O queue pairs, 1 to 65535.
    pub max_queues: u16,
    /// Doorbell stride (CAP.DSTRD), 0 to 15.
    pub dstrd: u8,
    /// Largest transfer is 2 ^ mdts pages; 0 for no limit.
    pub mdts: u8,
    /// Queues must be contiguous (CAP.CQR).
    pub contiguous_queues: bool,
    /// Namespaces 1, 2, ….
    pub namespaces: Vec<NamespaceConfig>,
    /// Command sets.
    pub css: CommandSets,
    /// Bytes of the Controller Memory Buffer, a multiple of 2 MiB; 0 for none. A controller has it only where it is
    /// plugged in such a way that a host can reach it.
    pub cmb: u64,
    /// Interrupts by MSI, of which there are 32 at most, instead of MSI-X.
    pub msi: bool,
    /// Percent of a processor core that looking for commands may cost while there are none, 1 to 100. Where the controller
    /// has a thread of its own, that naps accordingly.
    pub idle_cpu: u8,
}

impl Default for Config {
    /// A Key Value controller with one namespace and a serial number that no other one of this process has.
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            serial: format!("XIO{:08X}{n:04X}", std::process::id()),
            model: "rocm-xio software KV controller".into(),
            max_queue_entries: 1024,
            max_queues: 31,
            dstrd: 0,
            mdts: 0,
            contiguous_queues: false,
            namespaces: vec![NamespaceConfig::default()],
            css: CommandSets::default(),
            cmb: 0,
            msi: false,
            idle_cpu: 2,
        }
    }
}

/// Why a controller can not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A text does not fit its field.
    #[error("{name} must be 1 to {max} printable ASCII characters")]
    Text {
        /// Which.
        name: &'static str,
        /// Longest.
        max: usize,
    },
    /// A number is out of its range.
    #[error("{name} is {value}, it must be {min} to {max}")]
    Range {
        /// Which.
        name: &'static str,
        /// Value given.
        value: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A number is no multiple of what it must be.
    #[error("{name} is {value}, it must be a multiple of {unit}")]
    Multiple {
        /// Which.
        name: &'static str,
        /// Value given.
        value: u64,
        /// Unit.
        unit: u64,
    },
    /// The doorbells do not fit a BAR of sane size.
    #[error("{queues} queues with a doorbell stride of 2 ^ {shift} bytes need {need} bytes of doorbells, more than {max}")]
    Doorbells {
        /// Queue pairs with the admin queue.
        queues: u32,
        /// Stride.
        shift: u32,
        /// Bytes.
        need: usize,
        /// Bytes allowed.
        max: usize,
    },
}

/// Most bytes of doorbells.
const MAX_DOORBELLS: usize = 256 << 20;
/// Most namespaces: what one namespace list holds.
pub(crate) const MAX_NAMESPACES: u64 = 1024;
/// Most interrupt vectors.
const MAX_VECTORS: u16 = 64;

/// Linux shares a buffer with other devices only in pieces of this size.
const CMB_UNIT: u64 = 2 << 20;
const MAX_CMB: u64 = 2 << 30;

impl NamespaceConfig {
    /// Refuses what no namespace can be.
    pub fn check(&self) -> Result<(), ConfigError> {
        range("max_key", self.max_key, 1, Key::MAX as u64)?;
        range("max_value", self.max_value, 1, u64::from(u32::MAX))
    }
}

impl Config {
    /// Interrupt vectors: one for each queue pair and the admin queue, 64 at most.
    pub fn vectors(&self) -> u16 {
        let wanted = self.max_queues.saturating_add(1).min(MAX_VECTORS);
        // MSI tells their number as a power of two.
        let most = 1u16.checked_shl(wanted.ilog2()).map_or(wanted, |power| power.min(32));
        if self.msi {
            most
        } else {
            wanted
        }
    }

    /// Where the doorbells are.
    pub const fn doorbells(&self) -> regs::Doorbells {
        regs::Doorbells::new(self.dstrd)
    }

    /// Bytes of BAR 0 that hold registers and doorbells.
    pub const fn bar_len(&self) -> usize {
        self.doorbells().bar_len(self.max_queues)
    }

    /// Largest transfer in bytes, if there is a limit.
    pub fn max_transfer(&self) -> Option<u64> {
        (self.mdts > 0).then(|| (nvme_kv::PAGE_SIZE as u64) << self.mdts)
    }

    /// Combinations of I/O command sets (Base, Figure "Identify I/O Command Set").
    pub(crate) const fn combinations(&self) -> &'static [u64] {
        const NVM: u64 = 1 << csi::NVM;
        match self.css {
            CommandSets::KeyValue => &[1 << csi::KV],
            CommandSets::Nvm => &[],
            CommandSets::NvmAndZoned => &[NVM, NVM | 1 << csi::ZNS],
        }
    }

    /// Namespaces, 1 first; none but in a Key Value controller.
    pub(crate) fn active_namespaces(&self) -> &[NamespaceConfig] {
        match self.css {
            CommandSets::KeyValue => &self.namespaces,
            _ => &[],
        }
    }

    /// Refuses what no controller can be.
    pub fn check(&self) -> Result<(), ConfigError> {
        text("serial", &self.serial, 20)?;
        text("model", &self.model, 40)?;
        range("max_queue_entries", self.max_queue_entries, 2, 65536)?;
        range("max_queues", self.max_queues, 1, 65535)?;
        range("dstrd", self.dstrd, 0, 15)?;
        range("mdts", self.mdts, 0, 51)?;
        range("number of namespaces", self.namespaces.len() as u64, 0, MAX_NAMESPACES)?;
        self.namespaces.iter().try_for_each(NamespaceConfig::check)?;
        range("idle_cpu", self.idle_cpu, 1, 100)?;
        range("cmb", self.cmb, 0, MAX_CMB)?;
        if self.cmb % CMB_UNIT != 0 {
            return Err(ConfigError::Multiple { name: "cmb", value: self.cmb, unit: CMB_UNIT });
        }
        let need = self.bar_len();
        if need > MAX_DOORBELLS {
            let (queues, shift) = (u32::from(self.max_queues) + 1, 2 + u32::from(self.dstrd));
            return Err(ConfigError::Doorbells { queues, shift, need, max: MAX_DOORBELLS });
        }
        Ok(())
    }
}

fn text(name: &'static str, text: &str, max: usize) -> Result<(), ConfigError> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if text.is_empty() || text.len() > max || !printable {
        return Err(ConfigError::Text { name, max });
    }
    Ok(())
}

fn range(name: &'static str, value: impl Into<u64>, min: u64, max: u64) -> Result<(), ConfigError> {
    let value = value.into();
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Range { name, value, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_good_and_unique() {
        let (a, b) = (Config::default(), Config::default());
        assert_eq!(a.check(), Ok(()));
        assert_ne!(a.serial, b.serial);
        assert_eq!((a.vectors(), a.max_transfer()), (32, None));
    }

    #[test]
    fn every_stride_fits_with_the_default_queues() {
        for dstrd in 0..16 {
            assert_eq!(Config { dstrd, ..Config::default() }.check(), Ok(()));
        }
        let wide = Config { dstrd: 15, max_queues: 65535, ..Config::default() };
        assert!(matches!(wide.check(), Err(ConfigError::Doorbells { queues: 65536, shift: 17, .. })));
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        let deep = Config { max_queue_entries: 65537, ..Config::default() };
        assert_eq!(
            deep.check().unwrap_err().to_string(),
            "max_queue_entries is 65537, it must be 2 to 65536"
        );
        let odd = Config { cmb: 1 << 20, ..Config::default() };
        assert_eq!(odd.check().unwrap_err().to_string(), "cmb is 1048576, it must be a multiple of 2097152");
        assert!(Config { cmb: 4 << 30, ..Config::default() }.check().is_err());
        assert!(Config { serial: "x".repeat(21), ..Config::default() }.check().is_err());
        assert!(Config { model: "\n".into(), ..Config::default() }.check().is_err());
        assert!(Config { max_queues: 0, ..Config::default() }.check().is_err());
    }
}
