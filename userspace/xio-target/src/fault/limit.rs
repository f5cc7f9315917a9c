// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that a controller can be made to misstate. What it does stays as it is.

use nvme_kv::identify::{self, cns, KvFormat, KvNamespace};
use nvme_kv::regs::Cap;
use std::mem::offset_of;

/// Where a limit is stated.
#[derive(PartialEq, Eq, Debug)]
enum Place {
    /// A field of CAP.
    Cap { lsb: u32, bits: u32 },
    /// A field of the data that Identify gives for a CNS.
    Identify { cns: u8, offset: usize, len: usize },
}

/// A limit.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    place: Place,
}

impl Limit {
    const fn cap(name: &'static str, lsb: u32, bits: u32) -> Self {
        Self { name, place: Place::Cap { lsb, bits } }
    }

    const fn controller(name: &'static str, offset: usize, len: usize) -> Self {
        Self { name, place: Place::Identify { cns: cns::CONTROLLER, offset, len } }
    }

    const fn namespace(name: &'static str, offset: usize, len: usize) -> Self {
        Self { name, place: Place::Identify { cns: cns::CSI_NAMESPACE, offset, len } }
    }

    /// CAP with 0 or the maximum in the field.
    pub(super) fn in_cap(&self, cap: Cap, max: bool) -> Cap {
        let Place::Cap { lsb, bits } = self.place else { return cap };
        let mask = ((1 << bits) - 1) << lsb;
        Cap(if max { cap.0 | mask } else { cap.0 & !mask })
    }

    /// 0 or the maximum in the data of an Identify.
    pub(super) fn in_identify(&self, of: u8, data: &mut [u8], max: bool) {
        match self.place {
            Place::Identify { cns, offset, len } if cns == of => {
                data.iter_mut().skip(offset).take(len).for_each(|byte| *byte = if max { 0xff } else { 0 });
            }
            _ => {}
        }
    }
}

const FORMAT: usize = offset_of!(KvNamespace, kvf);

/// All of them.
pub(super) static LIMITS: &[Limit] = &[
    Limit::cap("mqes", 0, 16),
    Limit::cap("to", 24, 8),
    Limit::cap("dstrd", 32, 4),
    Limit::cap("css", 37, 8),
    Limit::cap("mpsmin", 48, 4),
    Limit::cap("mpsmax", 52, 4),
    Limit::controller("mdts", offset_of!(identify::Controller, mdts), 1),
    Limit::controller("acl", offset_of!(identify::Controller, acl), 1),
    Limit::controller("aerl", offset_of!(identify::Controller, aerl), 1),
    Limit::controller("elpe", offset_of!(identify::Controller, elpe), 1),
    Limit::controller("sqes", offset_of!(identify::Controller, sqes), 1),
    Limit::controller("cqes", offset_of!(identify::Controller, cqes), 1),
    Limit::controller("maxcmd", offset_of!(identify::Controller, maxcmd), 2),
    Limit::controller("nn", offset_of!(identify::Controller, nn), 4),
    Limit::controller("sgls", offset_of!(identify::Controller, sgls), 4),
    Limit::namespace("nsze", offset_of!(KvNamespace, nsze), 8),
    Limit::namespace("nuse", offset_of!(KvNamespace, nuse), 8),
    Limit::namespace("nkvf", offset_of!(KvNamespace, nkvf), 1),
    Limit::namespace("kvfc", offset_of!(KvNamespace, kvfc), 1),
    Limit::namespace("kvkml", FORMAT + offset_of!(KvFormat, kvkml), 2),
    Limit::namespace("kvvml", FORMAT + offset_of!(KvFormat, kvvml), 4),
    Limit::namespace("mnks", FORMAT + offset_of!(KvFormat, mnks), 4),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str) -> &'static Limit {
        LIMITS.iter().find(|limit| limit.name == name).unwrap()
    }

    #[test]
    fn fields_of_cap_are_those_of_the_register() {
        let all = Cap(u64::MAX);
        for (name, zeroed) in [
            ("mqes", all.with_mqes(0)),
            ("to", all.with_to(0)),
            ("dstrd", all.with_dstrd(0)),
            ("css", all.with_css(0)),
            ("mpsmin", all.with_mpsmin(0)),
            ("mpsmax", all.with_mpsmax(0)),
        ] {
            assert_eq!(limit(name).in_cap(all, false), zeroed, "{name}");
            assert_eq!(limit(name).in_cap(zeroed, true), all, "{name}");
        }
    }

    #[test]
    fn fields_of_identify_are_found_by_cns() {
        let mut data = [0x55; identify::SIZE];
        limit("kvvml").in_identify(cns::CONTROLLER, &mut data, true);
        limit("mqes").in_identify(cns::CONTROLLER, &mut data, true);
        assert_eq!(data, [0x55; identify::SIZE]);
        limit("kvvml").in_identify(cns::CSI_NAMESPACE, &mut data, true);
        assert_eq!(data.iter().filter(|byte| **byte == 0xff).count(), 4);
        limit("mdts").in_identify(cns::CONTROLLER, &mut data, false);
        assert_eq!(data[77], 0);
    }
}
