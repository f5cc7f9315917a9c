// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log pages (Base, section 5.1.12).

use crate::controller::{Controller, FIRMWARE};
use crate::features::ALL_FEATURES;
use crate::identify::ascii;
use crate::kv::ALL;
use nvme_kv::admin::{opcode as admin, GetLogPage};
use nvme_kv::kv::opcode as kv;
use nvme_kv::log::features;
use nvme_kv::{csi, identify, log, Status};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

/// Log pages that are there.
const PAGES: [u8; 7] = [
    log::id::SUPPORTED,
    log::id::ERROR,
    log::id::SMART,
    log::id::FIRMWARE,
    log::id::CHANGED_NAMESPACES,
    log::id::EFFECTS,
    log::id::FEATURES,
];
/// Entry of the Supported Log Pages log: supported.
const LSUPP: u32 = 1 << 0;
/// Temperature in kelvin.
const TEMPERATURE: u16 = 300;

impl Controller {
    /// What a Get Log Page command transfers: a part of the page, less than asked for at its end.
    pub(crate) fn log_page(&mut self, command: &GetLogPage) -> Result<Vec<u8>, Status> {
        let page = self.whole_log_page(command)?;
        if command.offset % 4 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let start = usize::try_from(command.offset).ok().filter(|start| *start <= page.len());
        let rest = page.get(start.ok_or(Status::INVALID_FIELD)?..).unwrap_or(&[]);
        let len = usize::try_from(command.len()).unwrap_or(usize::MAX).min(rest.len());
        if !command.retain {
            self.events.acknowledge(command.lid);
        }
        Ok(rest.get(..len).unwrap_or(&[]).to_vec())
    }

    fn whole_log_page(&self, command: &GetLogPage) -> Result<Vec<u8>, Status> {
        Ok(match command.lid {
            log::id::SUPPORTED => {
                let mut supported = [U32::ZERO; 256];
                PAGES.iter().for_each(|lid| supported[usize::from(*lid)] = LSUPP.into());
                supported.as_bytes().to_vec()
            }
            log::id::ERROR => self.errors.entries().as_bytes().to_vec(),
            // Base, section 5.1.12.1.3: of the controller alone (LPA bit 0).
            log::id::SMART if !matches!(command.nsid, 0 | ALL) => return Err(Status::INVALID_FIELD),
            log::id::SMART => self.smart().as_bytes().to_vec(),
            log::id::FIRMWARE => {
                let mut firmware = log::Firmware::new_zeroed();
                firmware.afi = 1;
                ascii(&mut firmware.slots[0], FIRMWARE);
                firmware.as_bytes().to_vec()
            }
            log::id::CHANGED_NAMESPACES => self.changed_namespaces(),
            log::id::EFFECTS => effects(command.csi == csi::KV).as_bytes().to_vec(),
            log::id::FEATURES => self.features_supported(),
            _ => return Err(Status::INVALID_LOG_PAGE),
        })
    }

    /// Changed Namespace List (Base, section 5.1.12.1.5).
    fn changed_namespaces(&self) -> Vec<u8> {
        let mut list = identify::NamespaceList::new_zeroed();
        let changed = self.events.changed();
        if changed.len() > list.nsid.len() {
            list.nsid[0] = ALL.into();
        } else {
            list.nsid.iter_mut().zip(changed).for_each(|(to, nsid)| *to = nsid.into());
        }
        list.as_bytes().to_vec()
    }

    fn features_supported(&self) -> Vec<u8> {
        let mut all = [U32::ZERO; 256];
        for (fid, of_namespace) in ALL_FEATURES {
            let scope = if of_namespace { features::SCOPE_NAMESPACE } else { features::SCOPE_CONTROLLER };
            all[usize::from(fid)] = (features::SUPPORTED | scope).into();
        }
        all.as_bytes().to_vec()
    }

    fn smart(&self) -> log::Smart {
        let mut smart = log::Smart::new_zeroed();
        smart.temperature = TEMPERATURE.to_le_bytes();
        (smart.spare, smart.spare_threshold) = (100, 10);
        let c = &self.counters;
        // Data is counted in thousands of 512 bytes, rounded up.
        let units = |bytes: u64| bytes.div_ceil(512_000);
        let power_cycles = 1;
        let done = [units(c.bytes_read), units(c.bytes_written), c.reads, c.writes];
        let counts = done.into_iter().chain([0, power_cycles, 0, 0, c.media_errors, self.errors.count()]);
        for (to, from) in smart.counters.iter_mut().zip(counts) {
            *to = u128::from(from).to_le_bytes();
        }
        smart
    }
}

/// Commands Supported and Effects. Linux lets users without privileges pass a command through when it has no other
/// effect than a changed content.
fn effects(is_kv: bool) -> log::Effects {
    let mut effects = log::Effects::new_zeroed();
    for opcode in [
        admin::DELETE_SQ,
        admin::CREATE_SQ,
        admin::GET_LOG_PAGE,
        admin::DELETE_CQ,
        admin::CREATE_CQ,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT,
        admin::DOORBELL_BUFFERS,
    ] {
        effects.admin[usize::from(opcode)] = log::CSUPP.into();
    }
    if is_kv {
        for opcode in [kv::FLUSH, kv::RETRIEVE, kv::LIST, kv::EXIST] {
            effects.io[usize::from(opcode)] = log::CSUPP.into();
        }
        for opcode in [kv::STORE, kv::DELETE] {
            effects.io[usize::from(opcode)] = (log::CSUPP | log::LBCC).into();
        }
    }
    effects
}
