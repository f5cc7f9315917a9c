// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admin commands (Base, section 5).

use crate::{DataPointer, Sqe, Status};

/// Opcodes (Base, Figure "Opcodes for Admin Commands").
pub mod opcode {
    /// Delete I/O Submission Queue.
    pub const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue.
    pub const CREATE_SQ: u8 = 0x01;
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue.
    pub const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue.
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFERS: u8 = 0x7c;
}

/// Feature identifiers (Base, Figure "Feature Identifiers").
pub mod feature {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing.
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Interrupt Vector Configuration.
    pub const INTERRUPT_VECTOR: u8 = 0x09;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0b;
    /// I/O Command Set Profile.
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    /// Key Value Configuration (KV, section 4.1.4).
    pub const KEY_VALUE: u8 = 0x20;

    /// Key Value Configuration: a Delete of a key that does not exist fails (EDNEK).
    pub const KEY_VALUE_EDNEK: u32 = 1 << 0;
}

/// Asynchronous events (Base, section 5.1.2): dword 0 of their completions.
pub mod event {
    /// Type: error status.
    pub const ERROR: u8 = 0;
    /// Information of an error: a value that is no index of the queue was written to a doorbell.
    pub const INVALID_DOORBELL_VALUE: u8 = 1;

    /// Type: notice.
    pub const NOTICE: u8 = 2;
    /// Information of a notice: a namespace was attached, detached or changed.
    pub const NAMESPACE_CHANGED: u8 = 0;
    /// Asynchronous Event Configuration: tell of changed namespaces.
    pub const CONFIG_NAMESPACE: u32 = 1 << 8;

    /// Dword 0: type, information, and the log page to read.
    pub const fn dword(kind: u8, information: u8, log: u8) -> u32 {
        (kind & 7) as u32 | (information as u32) << 8 | (log as u32) << 16
    }
}

/// Identify (Base, section 5.1.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identify {
    /// Which data structure (CNS).
    pub cns: u8,
    /// Controller Identifier (CNTID).
    pub cntid: u16,
    /// Command Set Identifier (CSI).
    pub csi: u8,
    /// Namespace.
    pub nsid: u32,
    /// Where the 4096 bytes go.
    pub data: DataPointer,
}

/// Create I/O Completion Queue (Base, section 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreateCq {
    /// Queue identifier.
    pub qid: u16,
    /// Entries, 1 to 65536. (Controllers refuse 1.)
    pub entries: u32,
    /// Physically contiguous (PC); else `base` points at a PRP list.
    pub contiguous: bool,
    /// Address.
    pub base: u64,
    /// Interrupt vector, or none (IEN, IV).
    pub vector: Option<u16>,
}

/// Create I/O Submission Queue (Base, section 5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreateSq {
    /// Queue identifier.
    pub qid: u16,
    /// Entries, 1 to 65536. (Controllers refuse 1.)
    pub entries: u32,
    /// Physically contiguous (PC); else `base` points at a PRP list.
    pub contiguous: bool,
    /// Address.
    pub base: u64,
    /// Priority class (QPRIO).
    pub priority: u8,
    /// Completion queue.
    pub cqid: u16,
}

/// Set Features or Get Features (Base, sections 5.1.25 and 5.1.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Feature {
    /// Feature Identifier (FID).
    pub fid: u8,
    /// Namespace.
    pub nsid: u32,
    /// Set: command dword 11. Get: 0.
    pub value: u32,
    /// Set: keep across power cycles (SV).
    pub save: bool,
    /// Get: which value (SEL), 0 is the current one.
    pub select: u8,
    /// Data, for features that have some.
    pub data: DataPointer,
}

/// Get Log Page (Base, section 5.1.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GetLogPage {
    /// Log Page Identifier (LID).
    pub lid: u8,
    /// Log Specific Parameter (LSP).
    pub lsp: u8,
    /// Retain Asynchronous Event (RAE).
    pub retain: bool,
    /// Number of dwords, 0's based (NUMDU, NUMDL).
    pub numd: u32,
    /// Offset in bytes (LPOU, LPOL).
    pub offset: u64,
    /// Command Set Identifier (CSI).
    pub csi: u8,
    /// Namespace.
    pub nsid: u32,
    /// Where the log goes.
    pub data: DataPointer,
}

impl GetLogPage {
    /// Bytes asked for.
    pub const fn len(&self) -> u64 {
        (self.numd as u64 + 1) * 4
    }

    /// Never.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// An admin command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Delete I/O Submission Queue (Base, section 5.2.4).
    DeleteSq {
        /// Queue identifier.
        qid: u16,
    },
    /// Create I/O Submission Queue.
    CreateSq(CreateSq),
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Delete I/O Completion Queue (Base, section 5.2.3).
    DeleteCq {
        /// Queue identifier.
        qid: u16,
    },
    /// Create I/O Completion Queue.
    CreateCq(CreateCq),
    /// Identify.
    Identify(Identify),
    /// Abort (Base, section 5.1.1).
    Abort {
        /// Submission queue of the command.
        sqid: u16,
        /// Command identifier.
        cid: u16,
    },
    /// Set Features.
    SetFeatures(Feature),
    /// Get Features.
    GetFeatures(Feature),
    /// Asynchronous Event Request (Base, section 5.1.2).
    AsyncEvent,
    /// Keep Alive (Base, section 5.1.14).
    KeepAlive,
    /// Doorbell Buffer Config (Base, section 5.2.5): PRP1 is the page with the doorbells' values, PRP2 the one that says
    /// from which value on the controller wants to be told by the register.
    DoorbellBuffers(DataPointer),
}

/// DW0 of an Abort completion: the command was not aborted.
pub const NOT_ABORTED: u32 = 1;

impl Command {
    /// Opcode.
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::DeleteSq { .. } => opcode::DELETE_SQ,
            Self::CreateSq(_) => opcode::CREATE_SQ,
            Self::GetLogPage(_) => opcode::GET_LOG_PAGE,
            Self::DeleteCq { .. } => opcode::DELETE_CQ,
            Self::CreateCq(_) => opcode::CREATE_CQ,
            Self::Identify(_) => opcode::IDENTIFY,
            Self::Abort { .. } => opcode::ABORT,
            Self::SetFeatures(_) => opcode::SET_FEATURES,
            Self::GetFeatures(_) => opcode::GET_FEATURES,
            Self::AsyncEvent => opcode::ASYNC_EVENT,
            Self::KeepAlive => opcode::KEEP_ALIVE,
            Self::DoorbellBuffers(_) => opcode::DOORBELL_BUFFERS,
        }
    }

    /// The submission queue entry.
    pub fn encode(&self, cid: u16) -> Sqe {
        let (nsid, data, dwords) = self.fields();
        let mut sqe = Sqe::new(self.opcode(), cid, nsid).with_data(data);
        for (to, from) in sqe.cdw10.iter_mut().zip(dwords) {
            *to = from.into();
        }
        sqe
    }

    /// NSID, data pointer, and command dwords from 10 on.
    fn fields(&self) -> (u32, DataPointer, [u32; 5]) {
        let base = |prp1| DataPointer { prp1, prp2: 0 };
        match *self {
            Self::DeleteSq { qid } | Self::DeleteCq { qid } => {
                (0, DataPointer::default(), [u32::from(qid), 0, 0, 0, 0])
            }
            Self::CreateSq(c) => {
                let dw11 = u32::from(c.contiguous) | u32::from(c.priority & 3) << 1 | u32::from(c.cqid) << 16;
                (0, base(c.base), [queue_dword(c.qid, c.entries), dw11, 0, 0, 0])
            }
            Self::CreateCq(c) => {
                let vector = c.vector.map_or(0, |v| 2 | u32::from(v) << 16);
                (0, base(c.base), [queue_dword(c.qid, c.entries), u32::from(c.contiguous) | vector, 0, 0, 0])
            }
            Self::Identify(i) => {
                let dw10 = u32::from(i.cns) | u32::from(i.cntid) << 16;
                (i.nsid, i.data, [dw10, u32::from(i.csi) << 24, 0, 0, 0])
            }
            Self::Abort { sqid, cid } => {
                (0, DataPointer::default(), [u32::from(sqid) | u32::from(cid) << 16, 0, 0, 0, 0])
            }
            Self::SetFeatures(f) => {
                (f.nsid, f.data, [u32::from(f.fid) | u32::from(f.save) << 31, f.value, 0, 0, 0])
            }
            Self::GetFeatures(f) => {
                let dw10 = u32::from(f.fid) | u32::from(f.select & 7) << 8;
                (f.nsid, f.data, [dw10, f.value, 0, 0, 0])
            }
            Self::GetLogPage(g) => {
                let dw10 = u32::from(g.lid)
                    | u32::from(g.lsp & 0x7f) << 8
                    | u32::from(g.retain) << 15
                    | (g.numd & 0xffff) << 16;
                let offset = [g.offset as u32, (g.offset >> 32) as u32];
                (g.nsid, g.data, [dw10, g.numd >> 16, offset[0], offset[1], u32::from(g.csi) << 24])
            }
            Self::DoorbellBuffers(data) => (0, data, [0; 5]),
            Self::AsyncEvent | Self::KeepAlive => (0, DataPointer::default(), [0; 5]),
        }
    }

    /// Parses an entry of the admin submission queue; the status is what a controller answers otherwise.
    pub fn decode(sqe: &Sqe) -> Result<Self, Status> {
        if sqe.fuse() != 0 || sqe.psdt() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let (nsid, data) = (sqe.nsid.get(), sqe.data());
        let (dw10, dw11) = (sqe.dword(10), sqe.dword(11));
        let (low, high) = (dw10 as u16, (dw10 >> 16) as u16);
        Ok(match sqe.opcode {
            opcode::DELETE_SQ => Self::DeleteSq { qid: low },
            opcode::DELETE_CQ => Self::DeleteCq { qid: low },
            opcode::CREATE_SQ => Self::CreateSq(CreateSq {
                qid: low,
                entries: u32::from(high) + 1,
                contiguous: dw11 & 1 == 1,
                base: data.prp1,
                priority: (dw11 >> 1 & 3) as u8,
                cqid: (dw11 >> 16) as u16,
            }),
            opcode::CREATE_CQ => Self::CreateCq(CreateCq {
                qid: low,
                entries: u32::from(high) + 1,
                contiguous: dw11 & 1 == 1,
                base: data.prp1,
                vector: (dw11 & 2 != 0).then_some((dw11 >> 16) as u16),
            }),
            opcode::IDENTIFY => {
                Self::Identify(Identify { cns: dw10 as u8, cntid: high, csi: (dw11 >> 24) as u8, nsid, data })
            }
            opcode::ABORT => Self::Abort { sqid: low, cid: high },
            opcode::SET_FEATURES => Self::SetFeatures(Feature {
                fid: dw10 as u8,
                nsid,
                value: dw11,
                save: dw10 >> 31 == 1,
                select: 0,
                data,
            }),
            opcode::GET_FEATURES => Self::GetFeatures(Feature {
                fid: dw10 as u8,
                nsid,
                value: dw11,
                save: false,
                select: (dw10 >> 8 & 7) as u8,
                data,
            }),
            opcode::GET_LOG_PAGE => Self::GetLogPage(GetLogPage {
                lid: dw10 as u8,
                lsp: (dw10 >> 8 & 0x7f) as u8,
                retain: dw10 >> 15 & 1 == 1,
                numd: (dw11 & 0xffff) << 16 | dw10 >> 16,
                offset: u64::from(sqe.dword(13)) << 32 | u64::from(sqe.dword(12)),
                csi: (sqe.dword(14) >> 24) as u8,
                nsid,
                data,
            }),
            opcode::ASYNC_EVENT => Self::AsyncEvent,
            opcode::KEEP_ALIVE => Self::KeepAlive,
            opcode::DOORBELL_BUFFERS => Self::DoorbellBuffers(data),
            _ => return Err(Status::INVALID_OPCODE),
        })
    }
}

/// Queue identifier, and entries as a 0's based number.
const fn queue_dword(qid: u16, entries: u32) -> u32 {
    qid as u32 | (entries.wrapping_sub(1) & 0xffff) << 16
}

/// Number of Queues (Base, section 5.1.25.1.7): submission and completion queues, as counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberOfQueues {
    /// I/O submission queues, 1 to 65536.
    pub sq: u32,
    /// I/O completion queues, 1 to 65536.
    pub cq: u32,
}

impl NumberOfQueues {
    /// From dword 11 of Set Features, or dword 0 of its completion.
    pub const fn from_dword(dword: u32) -> Self {
        Self { sq: (dword & 0xffff) + 1, cq: (dword >> 16) + 1 }
    }

    /// As a dword; counts are clamped to 1 to 65536.
    pub const fn to_dword(self) -> u32 {
        const fn zeros_based(count: u32) -> u32 {
            let n = count.saturating_sub(1);
            if n > 0xffff {
                0xffff
            } else {
                n
            }
        }
        zeros_based(self.sq) | zeros_based(self.cq) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn any_command() -> impl Strategy<Value = Command> {
        let data = any::<(u64, u64)>().prop_map(|(prp1, prp2)| DataPointer { prp1, prp2 });
        let numbers = any::<(u8, u8, u16, u16, u32, u64, bool)>();
        (0..12, numbers, 1u32..=65536, data).prop_map(|(op, (a, b, x, y, n, base, f), entries, data)| {
            let feature = Feature { fid: a, nsid: n, value: base as u32, data, ..Feature::default() };
            match op {
                0 => Command::DeleteSq { qid: x },
                1 => {
                    let priority = b & 3;
                    Command::CreateSq(CreateSq { qid: x, entries, contiguous: f, base, priority, cqid: y })
                }
                2 => Command::GetLogPage(GetLogPage {
                    lid: a,
                    lsp: b & 0x7f,
                    retain: f,
                    numd: n,
                    offset: base,
                    csi: b,
                    nsid: n,
                    data,
                }),
                3 => Command::DeleteCq { qid: x },
                4 => {
                    let vector = f.then_some(y);
                    Command::CreateCq(CreateCq { qid: x, entries, contiguous: f, base, vector })
                }
                5 => Command::Identify(Identify { cns: a, cntid: x, csi: b, nsid: n, data }),
                6 => Command::Abort { sqid: x, cid: y },
                7 => Command::SetFeatures(Feature { save: f, ..feature }),
                8 => Command::GetFeatures(Feature { select: b & 7, ..feature }),
                9 => Command::AsyncEvent,
                10 => Command::DoorbellBuffers(data),
                _ => Command::KeepAlive,
            }
        })
    }

    proptest! {
        #[test]
        fn commands_round_trip(command in any_command(), cid: u16) {
            let sqe = command.encode(cid);
            prop_assert_eq!(sqe.cid.get(), cid);
            prop_assert_eq!(Command::decode(&sqe), Ok(command));
        }

        #[test]
        fn number_of_queues_round_trips(sq in 1u32..=65536, cq in 1u32..=65536) {
            let n = NumberOfQueues { sq, cq };
            prop_assert_eq!(NumberOfQueues::from_dword(n.to_dword()), n);
        }
    }

    #[test]
    fn spec_base_5_2_1_create_cq_on_the_wire() {
        let c = CreateCq { qid: 3, entries: 1024, contiguous: true, base: 0x1000, vector: Some(2) };
        let sqe = Command::CreateCq(c).encode(9);
        let b = sqe.as_bytes();
        assert_eq!(b[..4], [5, 0, 9, 0]);
        assert_eq!(b[24..32], [0, 0x10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(b[40..48], [3, 0, 0xff, 3, 3, 0, 2, 0]);
    }

    #[test]
    fn spec_base_5_1_13_identify_on_the_wire() {
        let i = Identify { cns: 0x1c, cntid: 0xffff, csi: 1, nsid: 2, data: DataPointer::default() };
        let b = Command::Identify(i).encode(0);
        assert_eq!(b.as_bytes()[40..48], [0x1c, 0, 0xff, 0xff, 0, 0, 0, 1]);
        assert_eq!(b.nsid.get(), 2);
    }

    #[test]
    fn unknown_opcodes_and_sgls_are_refused() {
        let mut sqe = Sqe::new(0x7f, 0, 0);
        assert_eq!(Command::decode(&sqe), Err(Status::INVALID_OPCODE));
        sqe.flags = 0x40;
        assert_eq!(Command::decode(&sqe), Err(Status::INVALID_FIELD));
    }
}
