// SPDX-License-Identifier: GPL-2.0
//! Who the controller is and what it can do; whether it is one for Key Value at all.

use crate::{controller::Hw, error::AdminError, interrupt::MAX_QUEUES};
use kernel::prelude::*;
use nvme_kv::{
    admin::{feature, Command, Feature, Identify, NumberOfQueues},
    csi,
    identify::{cns, nidt, CommandSets, Controller, NamespaceList},
};
use zerocopy::FromBytes;

/// Identity and limits of a controller, all from the device itself.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) vendor_id: u16,
    pub(crate) subsystem_vendor_id: u16,
    pub(crate) controller_id: u16,
    pub(crate) serial: [u8; 20],
    pub(crate) model: [u8; 40],
    pub(crate) firmware: [u8; 8],
    pub(crate) subnqn: [u8; 256],
    /// Bytes, 0 for no limit.
    pub(crate) max_transfer: u64,
    pub(crate) max_queues: u16,
    pub(crate) namespaces: u32,
    /// Combination of command sets to choose.
    pub(crate) command_sets: u16,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            vendor_id: 0,
            subsystem_vendor_id: 0,
            controller_id: 0,
            serial: [0; 20],
            model: [0; 40],
            firmware: [0; 8],
            subnqn: [0; 256],
            max_transfer: 0,
            max_queues: 0,
            namespaces: 0,
            command_sets: 0,
        }
    }
}

impl Identity {
    /// Asks the controller. `ENODEV` if it is none for Key Value alone.
    pub(crate) fn read(hw: &mut Hw) -> Result<Self> {
        let mut this = Self::default();
        this.read_controller(hw)?;
        this.command_sets = find_kv(hw)?;
        hw.identity.command_sets = this.command_sets;
        hw.choose_command_set()?;
        this.namespaces = check_namespaces(hw)?;
        let offered = hw.number_of_queues()?;
        this.max_queues = limit_queues(hw, offered);
        if this.max_queues == 0 {
            pr_err!(
                "no queue has a doorbell that can be mapped (BAR 0 is too small, or MSI-X shares the page)\n"
            );
            return Err(ENODEV);
        }
        Ok(this)
    }

    fn read_controller(&mut self, hw: &mut Hw) -> Result {
        let data = hw.identify(Identify { cns: cns::CONTROLLER, ..Identify::default() })?;
        let id = Controller::ref_from_bytes(&data).map_err(|_| EIO)?;
        (self.vendor_id, self.subsystem_vendor_id) = (id.vid.get(), id.ssvid.get());
        self.controller_id = id.cntlid.get();
        (self.serial, self.model, self.firmware, self.subnqn) = (id.sn, id.mn, id.fr, id.subnqn);
        self.max_transfer = id.max_transfer().unwrap_or(0);
        Ok(())
    }
}

/// The first combination of I/O command sets with Key Value. (CAP.CSS bit 6 alone does not mean Key Value:
/// block controllers set it too.)
fn find_kv(hw: &mut Hw) -> Result<u16> {
    let what = Identify { cns: cns::COMMAND_SETS, cntid: u16::MAX, ..Identify::default() };
    let found = match hw.identify(what) {
        Ok(data) => CommandSets::ref_from_bytes(&data).map_err(|_| EIO)?.find_kv(),
        Err(AdminError::Status(_)) => None,
        Err(e) => return Err(e.into()),
    };
    let at = hw.place.address;
    found.ok_or_else(|| {
        pr_info!("{at}: an NVMe controller without the Key Value command set, left to other drivers\n");
        ENODEV
    })
}

/// Counts the namespaces; refuses a controller with one that is not for Key Value.
fn check_namespaces(hw: &mut Hw) -> Result<u32> {
    let (mut count, mut last) = (0u32, 0);
    for _ in 0..MAX_PAGES {
        let page = hw.namespaces(cns::ACTIVE_NAMESPACES, last)?;
        let (before, mut on_page) = (last, 0);
        for nsid in list(&page)?.iter() {
            if !hw.is_kv(nsid)? {
                let at = hw.place.address;
                pr_info!("{at}: namespace {nsid} is not Key Value; the controller is left to other drivers\n");
                return Err(ENODEV);
            }
            (last, on_page) = (nsid, on_page + 1);
        }
        count = count.saturating_add(on_page);
        if on_page < 1024 || last <= before {
            return Ok(count);
        }
    }
    too_many()
}

/// Pages of namespace identifiers that are looked at: a controller could go on for ever.
const MAX_PAGES: usize = 64;

fn too_many<T>() -> Result<T> {
    pr_err!("the controller lists more than {} namespaces\n", MAX_PAGES * 1024);
    Err(EIO)
}

fn list(page: &[u8]) -> Result<&NamespaceList> {
    NamespaceList::ref_from_bytes(page).map_err(|_| EIO)
}

/// Queue pairs that can be given out.
fn limit_queues(hw: &Hw, offered: NumberOfQueues) -> u16 {
    let doorbells = hw.regs.cap().doorbells();
    let offered = offered.sq.min(offered.cq).min(u32::from(MAX_QUEUES)) as u16;
    let fits = |qid: &u16| {
        let (tail, head) = (doorbells.sq_tail(*qid), doorbells.cq_head(*qid));
        [tail, head].iter().all(|at| hw.place.doorbells.page(*at).is_some())
    };
    (1..=offered).take_while(fits).count() as u16
}

impl Hw {
    /// Chooses the combination of command sets, when it is not the one in use after a reset.
    pub(crate) fn choose_command_set(&mut self) -> Result {
        let value = u32::from(self.identity.command_sets);
        if value == 0 {
            return Ok(());
        }
        let fid = feature::COMMAND_SET_PROFILE;
        self.run(Command::SetFeatures(Feature { fid, value, ..Feature::default() }))?;
        Ok(())
    }

    /// Asks for as many queues as are given out; must come before the first of them is made.
    pub(crate) fn number_of_queues(&mut self) -> Result<NumberOfQueues> {
        let wanted = NumberOfQueues { sq: MAX_QUEUES.into(), cq: MAX_QUEUES.into() };
        let (fid, value) = (feature::NUMBER_OF_QUEUES, wanted.to_dword());
        let got = self.run(Command::SetFeatures(Feature { fid, value, ..Feature::default() }))?;
        Ok(NumberOfQueues::from_dword(got))
    }

    /// A page of namespace identifiers above `after`.
    pub(crate) fn namespaces(&mut self, cns: u8, after: u32) -> Result<KVec<u8>, AdminError> {
        let csi = if cns == nvme_kv::identify::cns::CSI_ACTIVE_NAMESPACES { csi::KV } else { 0 };
        self.identify(Identify { cns, csi, nsid: after, ..Identify::default() })
    }

    /// Whether a namespace says of itself that it is for Key Value.
    fn is_kv(&mut self, nsid: u32) -> Result<bool> {
        let list = self.identify(Identify { cns: cns::DESCRIPTORS, nsid, ..Identify::default() })?;
        let mut csis = nvme_kv::identify::descriptors(&list).filter(|(kind, _)| *kind == nidt::CSI);
        Ok(csis.next().is_some_and(|(_, value)| *value == [csi::KV]))
    }

    /// The `index`th namespace for Key Value, in ascending order.
    pub(crate) fn nth_namespace(&mut self, index: u32) -> Result<u32> {
        let (mut skip, mut last) = (index as usize, 0);
        for _ in 0..MAX_PAGES {
            let page = self.namespaces(cns::CSI_ACTIVE_NAMESPACES, last)?;
            let list = list(&page)?;
            if let Some(nsid) = list.iter().nth(skip) {
                return Ok(nsid);
            }
            let count = list.iter().count();
            let next = list.iter().last().filter(|n| count == 1024 && *n > last).ok_or(ENOENT)?;
            (skip, last) = (skip - count, next);
        }
        too_many()
    }
}
