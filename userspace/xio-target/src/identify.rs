// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identify (Base, section 5.1.13; KV, section 4.1.5).

use crate::controller::{Controller, CONTROLLER_ID, FIRMWARE, VERSION};
use crate::event::{LOG_ENTRIES, REQUEST_LIMIT};
use crate::kv::{Namespace, ALL};
use crate::CommandSets;
use nvme_kv::admin::Identify;
use nvme_kv::identify::{self, cns, nidt};
use nvme_kv::{csi, regs, Status};
use zerocopy::{FromZeros, IntoBytes};

/// Version of the Key Value command set.
const KV_VERSION: regs::Vs = regs::Vs(0).with_major(1).with_minor(1);
/// A vendor identifier that no vendor has, the one that the PCI function has as well.
const VENDOR: u16 = 0x1234;
/// Attribute of a namespace: write protected.
const WRITE_PROTECTED: u8 = 1 << 0;
/// Status of a namespace: ready.
const READY: u8 = 1 << 0;

type Data = [u8; identify::SIZE];

impl Controller {
    /// The data that an Identify command asks for.
    pub(crate) fn identify(&self, command: &Identify) -> Result<Data, Status> {
        let kv = command.csi == csi::KV && self.config.css == CommandSets::KeyValue;
        let bytes = match command.cns {
            cns::CONTROLLER => bytes(&self.identify_controller()),
            cns::ACTIVE_NAMESPACES => bytes(&self.active(command.nsid, true)?),
            // A command set that is not there has no namespaces.
            cns::CSI_ACTIVE_NAMESPACES => bytes(&self.active(command.nsid, kv)?),
            cns::DESCRIPTORS => self.descriptors(command.nsid)?,
            // Base, section 3.2.1.5: zeros for a namespace that is not attached.
            cns::CSI_NAMESPACE if command.csi == csi::KV => {
                self.slot(command.nsid)?.map_or([0; identify::SIZE], |ns| bytes(&kv_namespace(ns)))
            }
            cns::CSI_CONTROLLER if kv => {
                let mut c = identify::KvController::new_zeroed();
                c.ver = KV_VERSION.0.into();
                bytes(&c)
            }
            cns::INDEPENDENT_NAMESPACE => {
                self.slot(command.nsid)?.map_or([0; identify::SIZE], |ns| bytes(&independent(ns)))
            }
            cns::COMMAND_SETS => self.command_sets(command.cntid)?,
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(bytes)
    }

    /// A namespace; `None` for one that is not attached.
    fn slot(&self, nsid: u32) -> Result<Option<&Namespace>, Status> {
        let index = (nsid as usize).checked_sub(1).ok_or(Status::INVALID_NAMESPACE)?;
        self.namespaces.get(index).map(Option::as_ref).ok_or(Status::INVALID_NAMESPACE)
    }

    fn namespace(&self, nsid: u32) -> Result<&Namespace, Status> {
        self.slot(nsid)?.ok_or(Status::INVALID_NAMESPACE)
    }

    fn identify_controller(&self) -> identify::Controller {
        let mut c = identify::Controller::new_zeroed();
        (c.vid, c.ssvid) = (VENDOR.into(), VENDOR.into());
        ascii(&mut c.sn, &self.config.serial);
        ascii(&mut c.mn, &self.config.model);
        ascii(&mut c.fr, FIRMWARE);
        c.mdts = self.config.mdts;
        c.cntlid = CONTROLLER_ID.into();
        c.ver = VERSION.0.into();
        c.cntrltype = identify::Controller::TYPE_IO;
        // 0's based; commands are done as they are fetched, so there is nothing to abort but event requests.
        c.acl = 3;
        c.aerl = (REQUEST_LIMIT - 1) as u8;
        // One firmware slot, read only.
        c.frmw = 0b11;
        c.lpa = identify::Controller::LPA_EFFECTS | identify::Controller::LPA_EXTENDED;
        c.elpe = (LOG_ENTRIES - 1) as u8;
        // Sizes of entries, smallest and largest, as powers of 2.
        (c.sqes, c.cqes) = (0x66, 0x44);
        c.oacs = identify::Controller::OACS_DOORBELL_BUFFERS.into();
        c.oaes = identify::Controller::OAES_NAMESPACE.into();
        c.nn = (self.namespaces.len() as u32).into();
        c.sgls = (identify::Controller::SGLS_ANY | identify::Controller::SGLS_LONGER).into();
        c.vwc = identify::Controller::VWC_FLUSH_ALL;
        let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{}", text(&self.uuid(0)));
        for (to, from) in c.subnqn.iter_mut().zip(nqn.bytes()) {
            *to = from;
        }
        c
    }

    /// Namespaces above `after`, or none at all.
    fn active(&self, after: u32, any: bool) -> Result<identify::NamespaceList, Status> {
        if after >= ALL - 1 {
            return Err(Status::INVALID_NAMESPACE);
        }
        let mut list = identify::NamespaceList::new_zeroed();
        let attached = (1..).zip(&self.namespaces).filter(|(nsid, n)| any && *nsid > after && n.is_some());
        for (to, (nsid, _)) in list.nsid.iter_mut().zip(attached) {
            *to = nsid.into();
        }
        Ok(list)
    }

    fn descriptors(&self, nsid: u32) -> Result<Data, Status> {
        self.namespace(nsid)?;
        let mut list = [0; identify::SIZE];
        let all = [(nidt::UUID, &self.uuid(nsid)[..]), (nidt::CSI, &[csi::KV])];
        if identify::write_descriptors(&mut list, &all) {
            Ok(list)
        } else {
            Err(Status::INTERNAL_ERROR)
        }
    }

    fn command_sets(&self, cntid: u16) -> Result<Data, Status> {
        let combinations = self.config.combinations();
        if combinations.is_empty() || !matches!(cntid, CONTROLLER_ID | 0xffff) {
            return Err(Status::INVALID_FIELD);
        }
        let mut sets = identify::CommandSets::new_zeroed();
        for (to, from) in sets.vector.iter_mut().zip(combinations) {
            *to = (*from).into();
        }
        Ok(bytes(&sets))
    }

    /// Identifier of a namespace, or of the subsystem for 0: the same for the same serial number.
    fn uuid(&self, nsid: u32) -> [u8; 16] {
        let mut uuid = [0; 16];
        for (half, seed) in uuid.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325u64, 0x9ae1_6a3b_2f90_404f]) {
            let bytes = self.config.serial.bytes().chain(nsid.to_le_bytes());
            // FNV-1a.
            let hash = bytes.fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
            half.copy_from_slice(&hash.to_be_bytes());
        }
        // RFC 9562: version 8, whose bits are its maker's, and variant 10b.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}

fn kv_namespace(namespace: &Namespace) -> identify::KvNamespace {
    let config = &namespace.config;
    let mut ns = identify::KvNamespace::new_zeroed();
    ns.nsze = config.capacity.into();
    ns.nuse = namespace.store.usage().into();
    ns.nsattr = if config.read_only { WRITE_PROTECTED } else { 0 };
    ns.kvf[0].kvkml = config.max_key.into();
    ns.kvf[0].kvvml = config.max_value.into();
    ns.kvf[0].mnks = config.max_keys.into();
    ns
}

fn independent(namespace: &Namespace) -> identify::IndependentNamespace {
    let mut ns = identify::IndependentNamespace::new_zeroed();
    ns.nsattr = if namespace.config.read_only { WRITE_PROTECTED } else { 0 };
    ns.nstat = if namespace.store.is_ready() { READY } else { 0 };
    ns
}

fn bytes(data: &(impl IntoBytes + zerocopy::Immutable)) -> Data {
    let mut bytes = [0; identify::SIZE];
    for (to, from) in bytes.iter_mut().zip(data.as_bytes()) {
        *to = *from;
    }
    bytes
}

/// An ASCII field, padded with spaces.
pub(crate) fn ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

fn text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
