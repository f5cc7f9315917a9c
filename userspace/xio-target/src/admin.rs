// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admin commands (Base, section 5).

use crate::controller::{Controller, Outcome};
use crate::data::{self, Buffer};
use crate::kv::{Step, ALL};
use nvme_kv::admin::{feature, Command, CreateCq, CreateSq, Feature, NOT_ABORTED};
use nvme_kv::{Sqe, Status};

impl Controller {
    /// Executes an admin command, or keeps it for later.
    pub(crate) fn admin(&mut self, sqe: &Sqe) -> Step {
        let command = match Command::decode(sqe) {
            Ok(command) => command,
            Err(status) => return Step::Done(Err(status)),
        };
        log::debug!("{command:?}");
        if command == Command::AsyncEvent {
            return match self.events.request(sqe.cid.get()) {
                Ok(()) => Step::Started,
                Err(status) => Step::Done(Err(status)),
            };
        }
        Step::Done(self.admin_now(command))
    }

    fn admin_now(&mut self, command: Command) -> Outcome {
        match command {
            Command::CreateCq(create) => self.create_cq(&create),
            Command::CreateSq(create) => self.create_sq(&create),
            Command::DeleteSq { qid } => {
                self.queues.delete_sq(qid)?;
                self.orphan(Some(qid));
                Ok(0)
            }
            Command::DeleteCq { qid } => self.queues.delete_cq(qid).map(|()| 0),
            Command::Identify(command) => {
                let mut bytes = self.identify(&command)?;
                if let Some(faults) = &mut self.faults {
                    faults.identify(&command, &mut bytes);
                }
                data::to_host(&*self.host.memory, Buffer::Prp(command.data), bytes.len(), &bytes).map(|()| 0)
            }
            Command::GetLogPage(command) => {
                let bytes = self.log_page(&command)?;
                // A page can be shorter than the host's buffer.
                let room = usize::try_from(command.len()).map_err(|_| Status::INVALID_FIELD)?;
                data::to_host(&*self.host.memory, Buffer::Prp(command.data), room, &bytes).map(|()| 0)
            }
            Command::SetFeatures(set) => self.set_features(&set),
            Command::GetFeatures(get) => {
                self.check_feature_namespace(&get)?;
                self.features.get(&get, &self.config)
            }
            Command::DoorbellBuffers(buffers) => {
                self.queues.shadow(buffers, &self.host)?;
                Ok(0)
            }
            // Base, section 5.1.1: only Asynchronous Event Requests ever wait.
            Command::Abort { sqid, cid } => {
                let aborted = sqid == 0 && self.events.abort(cid);
                Ok(if aborted { 0 } else { NOT_ABORTED })
            }
            // Completed later, see `admin`; and the keep alive timer is not offered.
            Command::AsyncEvent | Command::KeepAlive => Err(Status::INVALID_OPCODE),
        }
    }

    fn set_features(&mut self, set: &Feature) -> Outcome {
        if set.fid != feature::KEY_VALUE || set.nsid != ALL {
            self.check_feature_namespace(set)?;
            return self.features.set(set, &self.config, self.queues.has_io());
        }
        let attached = (1..).zip(&self.namespaces).filter(|(_, place)| place.is_some());
        for (nsid, _) in attached {
            self.features.set(&Feature { nsid, ..*set }, &self.config, false)?;
        }
        Ok(0)
    }

    /// A feature of a namespace wants one that is attached.
    fn check_feature_namespace(&self, command: &Feature) -> Result<(), Status> {
        let index = (command.nsid as usize).checked_sub(1);
        let attached = index.and_then(|index| self.namespaces.get(index)).is_some_and(Option::is_some);
        if command.fid == feature::KEY_VALUE && !attached {
            return Err(Status::INVALID_NAMESPACE);
        }
        Ok(())
    }

    fn create_cq(&mut self, create: &CreateCq) -> Outcome {
        self.check_entry_sizes()?;
        self.queues.create_cq(create, &self.config, &self.host).map(|()| 0)
    }

    fn create_sq(&mut self, create: &CreateSq) -> Outcome {
        self.check_entry_sizes()?;
        self.queues.create_sq(create, &self.config, &self.host).map(|()| 0)
    }

    /// Base, section 3.1.4.5: the host states the sizes of I/O queue entries before it makes queues.
    fn check_entry_sizes(&self) -> Result<(), Status> {
        let cc = self.registers.cc;
        if cc.iosqes() != 6 || cc.iocqes() != 4 {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        Ok(())
    }
}
