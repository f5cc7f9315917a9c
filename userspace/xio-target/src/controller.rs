// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller: registers, what enabling, disabling and shutting down do, and the pass over all queues.

use crate::cmb::Cmb;
use crate::event::{ErrorLog, Events};
use crate::fault::Faults;
use crate::features::Features;
use crate::flight::Flights;
use crate::host::{DmaFault, HostMemory};
use crate::kv::{Namespace, Step};
use crate::queues::{Fetch, Queues};
use crate::store::{MemStore, Store};
use crate::{CommandSets, Config, ConfigError, Host, NamespaceConfig};
use nvme_kv::regs::{offset, Aqa, Cap, Cc, Csts, Vs};
use nvme_kv::{Cqe, Sqe, Status};
use std::sync::Arc;

/// Base 2.1.
pub(crate) const VERSION: Vs = Vs(0).with_major(2).with_minor(1);
/// Firmware revision.
pub(crate) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// Controller identifier in its subsystem, which has no other.
pub(crate) const CONTROLLER_ID: u16 = 1;
/// CAP.TO and CRTO: five seconds, in units of 500 ms. (Being ready takes no time at all.)
const READY_TIMEOUT: u32 = 10;
/// CAP.CRMS: Controller Ready With Media Support.
const READY_WITH_MEDIA: u64 = 1;
/// Commands of one queue, and about as many bytes, that a pass takes before it looks at the next queue.
const TURN_COMMANDS: usize = 64;
const TURN_BYTES: u64 = 1 << 20;

/// What a command comes to: dword 0 of its completion, or its status.
pub(crate) type Outcome = Result<u32, Status>;

/// Registers that the host writes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Registers {
    pub(crate) cc: Cc,
    pub(crate) csts: Csts,
    aqa: Aqa,
    asq: u64,
    acq: u64,
}

/// What was done since power on.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) failed: u64,
    pub(crate) media_errors: u64,
}

impl Counters {
    pub(crate) fn read(&mut self, bytes: usize) {
        self.bytes_read += bytes as u64;
        self.reads += 1;
    }

    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.bytes_written += bytes as u64;
        self.writes += 1;
    }
}

/// An NVMe Key Value controller plugged into a [`Host`].
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) host: Host,
    pub(crate) registers: Registers,
    pub(crate) queues: Queues,
    pub(crate) features: Features,
    pub(crate) events: Events,
    pub(crate) errors: ErrorLog,
    pub(crate) counters: Counters,
    /// Namespace 1 first; `None` for one that is not attached.
    pub(crate) namespaces: Vec<Option<Namespace>>,
    pub(crate) flights: Flights,
    cmb: Option<Cmb>,
    /// How to misbehave.
    pub(crate) faults: Option<Box<Faults>>,
    /// Bytes of values moved, for taking turns.
    pub(crate) moved: u64,
}

impl Controller {
    /// A controller that was just powered on, with empty namespaces in memory.
    pub fn new(config: Config, host: Host) -> Result<Self, ConfigError> {
        Self::with_stores(config, host, |_, namespace| Arc::new(MemStore::new(namespace)))
    }

    /// A controller that was just powered on; `open` gives the store of each namespace.
    pub fn with_stores(
        config: Config,
        host: Host,
        mut open: impl FnMut(u32, &NamespaceConfig) -> Arc<dyn Store>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let namespaces = (1..)
            .zip(config.active_namespaces())
            .map(|(nsid, namespace)| Some(Namespace::new(namespace.clone(), open(nsid, namespace))));
        Ok(Self {
            namespaces: namespaces.collect(),
            queues: Queues::new(config.doorbells()),
            registers: Registers::default(),
            features: Features::default(),
            events: Events::default(),
            errors: ErrorLog::default(),
            counters: Counters::default(),
            flights: Flights::default(),
            cmb: None,
            faults: None,
            moved: 0,
            config,
            host,
        })
    }

    /// Gives the controller its Controller Memory Buffer: memory of the size that the configuration says, by offset,
    /// which is BAR 2. Without a size there is none.
    #[must_use]
    pub fn with_cmb(mut self, buffer: Arc<dyn HostMemory>) -> Self {
        if self.config.cmb > 0 {
            let cmb = Cmb::new(self.host.memory.clone(), buffer, self.config.cmb);
            self.host.memory = cmb.memory();
            self.cmb = Some(cmb);
        }
        self
    }

    /// Its configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether commands are processed: enabled, not shut down, not failed.
    pub const fn is_running(&self) -> bool {
        let csts = self.registers.csts;
        csts.is_operational() && csts.shst() == Csts::SHST_NORMAL
    }

    /// Reads registers, BAR 0 below the doorbells. What is not there reads as zeros.
    pub fn read_register(&self, offset: usize, to: &mut [u8]) {
        if self.registers.csts.is_absent() {
            return to.fill(0xff);
        }
        for (at, byte) in (offset..).zip(to) {
            let dword = self.register(at & !3).to_le_bytes();
            *byte = dword[at & 3];
        }
    }

    /// Writes registers, BAR 0 below the doorbells: whole dwords; anything else is ignored.
    pub fn write_register(&mut self, offset: usize, from: &[u8]) {
        if self.registers.csts.is_absent() || offset % 4 != 0 || from.len() % 4 != 0 {
            log::debug!("write of {} bytes to register {offset:#x} ignored", from.len());
            return;
        }
        for (at, dword) in (offset..).step_by(4).zip(from.chunks_exact(4)) {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(dword);
            self.set_register(at, u32::from_le_bytes(bytes));
        }
    }

    /// One pass over all queues; the number of commands that were completed. Never waits.
    pub fn poll(&mut self) -> usize {
        (0..=u16::MAX).map_while(|sqid| self.poll_queue(sqid)).sum()
    }

    /// The part of a pass that is one submission queue's; the number of commands that were completed. `None` at the
    /// end of the pass: the controller does not run, or this queue and all after it do not exist. Commands
    /// create and delete queues, so that each turn may change where that is. With the first queue come the commands
    /// that stores have answered.
    pub fn poll_queue(&mut self, sqid: u16) -> Option<usize> {
        let mut done = 0;
        if sqid == 0 {
            done += self.land_all();
            if self.faults.is_some() {
                done += self.fault_pass();
            }
            self.queues.signal_overdue(&self.features, &self.host);
        }
        let more = self.is_running() && usize::from(sqid) < self.queues.len();
        more.then(|| done + self.turn(sqid))
    }

    /// Function level reset: all registers and queues as after power on. What is stored stays.
    pub fn reset(&mut self) {
        self.disable();
        self.registers = Registers::default();
        if let Some(cmb) = &mut self.cmb {
            cmb.set_control(0);
        }
        if self.faults.as_ref().is_some_and(|faults| faults.is_absent()) {
            self.registers.csts = Csts::ABSENT;
        }
    }

    fn cap(&self) -> Cap {
        let css = match self.config.css {
            CommandSets::KeyValue => Cap::CSS_IO_COMMAND_SETS,
            CommandSets::Nvm => Cap::CSS_NVM,
            CommandSets::NvmAndZoned => Cap::CSS_NVM | Cap::CSS_IO_COMMAND_SETS,
        };
        let cap = Cap(0)
            .with_mqes(u64::from(self.config.max_queue_entries) - 1)
            .with_cqr(self.config.contiguous_queues.into())
            .with_to(READY_TIMEOUT.into())
            .with_dstrd(self.config.dstrd.into())
            .with_css(css)
            .with_cmbs(self.cmb.is_some().into())
            .with_crms(READY_WITH_MEDIA);
        self.faults.as_ref().map_or(cap, |faults| faults.cap(cap))
    }

    fn register(&self, at: usize) -> u32 {
        const CAP_HIGH: usize = offset::CAP + 4;
        const ASQ_HIGH: usize = offset::ASQ + 4;
        const ACQ_HIGH: usize = offset::ACQ + 4;
        const CMBMSC_HIGH: usize = offset::CMBMSC + 4;
        let r = &self.registers;
        match at {
            offset::CAP => self.cap().0 as u32,
            CAP_HIGH => (self.cap().0 >> 32) as u32,
            offset::VS => VERSION.0,
            offset::CC => r.cc.0,
            offset::CSTS => r.csts.0,
            offset::AQA => r.aqa.0,
            offset::ASQ => r.asq as u32,
            ASQ_HIGH => (r.asq >> 32) as u32,
            offset::ACQ => r.acq as u32,
            ACQ_HIGH => (r.acq >> 32) as u32,
            offset::CRTO => READY_TIMEOUT,
            offset::CMBLOC => self.cmb.as_ref().map_or(0, Cmb::location),
            offset::CMBSZ => self.cmb.as_ref().map_or(0, Cmb::size),
            offset::CMBMSC => self.cmb.as_ref().map_or(0, Cmb::control) as u32,
            CMBMSC_HIGH => (self.cmb.as_ref().map_or(0, Cmb::control) >> 32) as u32,
            offset::CMBSTS => self.cmb.as_ref().map_or(0, Cmb::status),
            _ => 0,
        }
    }

    fn set_register(&mut self, at: usize, value: u32) {
        const ASQ_HIGH: usize = offset::ASQ + 4;
        const ACQ_HIGH: usize = offset::ACQ + 4;
        const CMBMSC_HIGH: usize = offset::CMBMSC + 4;
        // Base, sections 3.1.4.8 to 3.1.4.10: only while disabled.
        let r = &mut self.registers;
        let disabled = r.cc.en() == 0;
        match at {
            offset::CC => self.set_cc(Cc(value)),
            offset::AQA if disabled => r.aqa = Aqa(value & 0x0fff_0fff),
            offset::ASQ if disabled => r.asq = r.asq & !0xffff_ffff | u64::from(value & !0xfff),
            ASQ_HIGH if disabled => r.asq = r.asq & 0xffff_ffff | u64::from(value) << 32,
            offset::ACQ if disabled => r.acq = r.acq & !0xffff_ffff | u64::from(value & !0xfff),
            ACQ_HIGH if disabled => r.acq = r.acq & 0xffff_ffff | u64::from(value) << 32,
            offset::CMBMSC | CMBMSC_HIGH => self.set_cmbmsc(at == CMBMSC_HIGH, value),
            // Interrupts are masked in the MSI-X table.
            offset::INTMS | offset::INTMC => {}
            _ => log::debug!("write of {value:#x} to register {at:#x} ignored"),
        }
    }

    fn set_cmbmsc(&mut self, high: bool, value: u32) {
        let Some(cmb) = &mut self.cmb else { return };
        let (old, value) = (cmb.control(), u64::from(value));
        cmb.set_control(if high { old & 0xffff_ffff | value << 32 } else { old & !0xffff_ffff | value });
    }

    /// Base, section 3.1.4.5.
    fn set_cc(&mut self, new: Cc) {
        let old = std::mem::replace(&mut self.registers.cc, new);
        match (old.en(), new.en()) {
            _ if old.en() != new.en() && self.keeps_ready(new.en() == 1) => {}
            (1, 0) => self.disable(),
            (0, 1) => self.enable(),
            _ => {}
        }
        if new.shn() != 0 && old.shn() == 0 {
            self.shut_down();
        }
    }

    pub(crate) fn enable(&mut self) {
        let Registers { cc, aqa, asq, acq, .. } = self.registers;
        let css = match self.config.css {
            CommandSets::KeyValue => cc.css() == Cc::CSS_ALL,
            CommandSets::Nvm => cc.css() == Cc::CSS_NVM,
            CommandSets::NvmAndZoned => matches!(cc.css(), Cc::CSS_NVM | Cc::CSS_ALL),
        };
        let possible = css && cc.mps() == 0 && cc.ams() == 0;
        if !possible || self.queues.enable(aqa, asq, acq, &self.host).is_none() {
            log::warn!("can not be enabled with CC {:#x}, AQA {:#x}", cc.0, aqa.0);
            self.registers.csts = self.registers.csts.with_cfs(1);
            return;
        }
        log::debug!("enabled with CC {:#x}, AQA {:#x}, ASQ {asq:#x}, ACQ {acq:#x}", cc.0, aqa.0);
        self.registers.csts = Csts::default().with_rdy(1);
    }

    /// Controller reset (Base, section 3.7.2): AQA, ASQ and ACQ stay.
    pub(crate) fn disable(&mut self) {
        log::debug!("disabled");
        self.queues.clear();
        self.orphan(None);
        self.features = Features::default();
        self.events = Events::default();
        self.registers.csts = Csts::default();
    }

    /// Shutdown (Base, section 3.6): complete when all stores have flushed.
    fn shut_down(&mut self) {
        self.orphan(None);
        match self.flush_all(0, 0, true) {
            Step::Done(outcome) => self.shut_down_complete(outcome),
            Step::Started | Step::Held | Step::Away => {
                self.registers.csts = self.registers.csts.with_shst(Csts::SHST_OCCURRING);
            }
        }
    }

    fn shut_down_complete(&mut self, outcome: Outcome) {
        if let Err(status) = outcome {
            log::error!("a store can not be flushed: {status}");
        }
        self.registers.csts = self.registers.csts.with_shst(Csts::SHST_COMPLETE);
    }

    /// What can not be told in a completion (Base, section 9.5).
    pub(crate) fn fail(&mut self, fault: DmaFault) {
        log::warn!("fatal: {fault}");
        self.break_down();
    }

    /// Controller Fatal Status.
    pub(crate) fn break_down(&mut self) {
        self.registers.csts = self.registers.csts.with_cfs(1);
        self.orphan(None);
    }

    /// The host does not wait any more for the commands of a queue, or for any.
    pub(crate) fn orphan(&mut self, sqid: Option<u16>) {
        self.flights.orphan(sqid);
        if let Some(faults) = &mut self.faults {
            faults.forget(sqid);
        }
    }

    /// Completes the commands that stores have answered.
    fn land_all(&mut self) -> usize {
        let mut landed = self.flights.take();
        let mut done = 0;
        for (id, answer) in landed.drain(..) {
            match self.land(id, answer) {
                None => {}
                Some((_, outcome, true)) => self.shut_down_complete(outcome),
                Some((flight, outcome, false)) => {
                    self.queues.landed(flight.sqid);
                    match self.complete(flight.sqid, flight.cid, outcome) {
                        Ok(()) => self.queues.signal(flight.sqid, &self.features, &self.host),
                        Err(fault) => self.fail(fault),
                    }
                    done += 1;
                }
            }
        }
        self.flights.recycle(landed);
        done
    }

    /// Serves one submission queue for a while.
    fn turn(&mut self, sqid: u16) -> usize {
        let blocked = self.faults.as_ref().is_some_and(|faults| faults.blocks(sqid));
        let served = if blocked { Ok(0) } else { self.serve(sqid) };
        self.queues.signal(sqid, &self.features, &self.host);
        served.unwrap_or_else(|fault| {
            self.fail(fault);
            0
        })
    }

    fn serve(&mut self, sqid: u16) -> Result<usize, DmaFault> {
        let mut done = if sqid == 0 { self.complete_events()? } else { 0 };
        let end = self.moved + TURN_BYTES;
        for _ in 0..TURN_COMMANDS {
            let sqe = match self.queues.fetch(sqid, &self.host)? {
                Fetch::Command(sqe) => sqe,
                Fetch::Idle => break,
                Fetch::BadDoorbell => {
                    self.bad_doorbell(sqid);
                    break;
                }
            };
            match self.begin(sqid, &sqe) {
                Step::Done(outcome) => {
                    if let Err(status) = outcome {
                        log::debug!("queue {sqid} command {:#04x}: {status}", sqe.opcode);
                    }
                    self.complete(sqid, sqe.cid.get(), outcome)?;
                    done += 1;
                }
                Step::Started if sqid != 0 => self.queues.started(sqid),
                // Asynchronous Event Requests.
                Step::Started => {}
                Step::Away if self.is_running() => {}
                Step::Away => break,
                Step::Held => {
                    self.queues.hold(sqid, sqe);
                    break;
                }
            }
            if self.moved >= end {
                break;
            }
        }
        Ok(done)
    }

    /// Executes a command that was fetched, well or badly.
    fn begin(&mut self, sqid: u16, sqe: &Sqe) -> Step {
        match self.faults {
            None => self.execute(sqid, sqe),
            Some(_) => self.execute_badly(sqid, sqe),
        }
    }

    /// Executes a command.
    pub(crate) fn execute(&mut self, sqid: u16, sqe: &Sqe) -> Step {
        if sqid == 0 {
            self.admin(sqe)
        } else {
            self.io(sqid, sqe)
        }
    }

    pub(crate) fn complete(&mut self, sqid: u16, cid: u16, outcome: Outcome) -> Result<(), DmaFault> {
        if let Err(status) = outcome {
            self.counters.failed += 1;
            self.note_error(sqid, cid, status);
        }
        self.answer(sqid, cid, outcome)
    }

    fn answer(&mut self, sqid: u16, cid: u16, outcome: Outcome) -> Result<(), DmaFault> {
        if self.faults.is_some() {
            return self.answer_badly(sqid, cid, outcome);
        }
        self.queues.complete(sqid, |sqhd| completion(sqid, sqhd, cid, outcome), &self.host)
    }

    /// What is nobody's mistake goes to the error log; what a host asks for in vain does not.
    fn note_error(&mut self, sqid: u16, cid: u16, status: Status) {
        match status {
            Status::UNRECOVERED_ERROR => self.counters.media_errors += 1,
            Status::DATA_TRANSFER_ERROR | Status::INTERNAL_ERROR => {}
            _ => return,
        }
        self.errors.push_command(sqid, cid, status);
    }

    /// Completes Asynchronous Event Requests that are due.
    fn complete_events(&mut self) -> Result<usize, DmaFault> {
        let mut done = 0;
        loop {
            match self.queues.has_room(0, &self.host)? {
                Ok(true) => {}
                Ok(false) => break,
                // The host is told once it has made good for it.
                Err(_) => {
                    self.bad_doorbell(0);
                    break;
                }
            }
            let Some((cid, outcome)) = self.events.next() else { break };
            self.answer(0, cid, outcome)?;
            done += 1;
        }
        Ok(done)
    }

    /// A doorbell of this queue, or of its completion queue, got a value that is no index.
    pub(crate) fn bad_doorbell(&mut self, sqid: u16) {
        log::warn!("invalid doorbell value for queue {sqid}");
        self.errors.push(sqid, Status::INVALID_FIELD);
        self.events.error();
    }
}

pub(crate) fn completion(sqid: u16, sqhd: u16, cid: u16, outcome: Outcome) -> Cqe {
    match outcome {
        Ok(dw0) => Cqe::new(sqid, sqhd, cid, Status::SUCCESS, dw0),
        Err(status) => {
            let cqe = Cqe::new(sqid, sqhd, cid, status, 0);
            if is_final(status) {
                cqe.with_dnr()
            } else {
                cqe
            }
        }
    }
}

/// Whether the same command fails again whatever happens in between.
fn is_final(status: Status) -> bool {
    matches!(
        status,
        Status::INVALID_OPCODE
            | Status::INVALID_FIELD
            | Status::INVALID_NAMESPACE
            | Status::PRP_OFFSET_INVALID
            | Status::WRITE_PROTECTED
    )
}
