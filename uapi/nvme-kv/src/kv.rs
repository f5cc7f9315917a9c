// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O commands of the Key Value command set (KV, section 3).

use crate::{DataPointer, Key, Sqe, Status};

/// Opcodes (KV, Figure "Opcodes for Key Value Commands"; Base for Flush).
pub mod opcode {
    /// Flush (Base, section 7.2).
    pub const FLUSH: u8 = 0x00;
    /// Store (KV, section 3.2.6).
    pub const STORE: u8 = 0x01;
    /// Retrieve (KV, section 3.2.5).
    pub const RETRIEVE: u8 = 0x02;
    /// List (KV, section 3.2.4).
    pub const LIST: u8 = 0x06;
    /// Delete (KV, section 3.2.1).
    pub const DELETE: u8 = 0x10;
    /// Exist (KV, section 3.2.3).
    pub const EXIST: u8 = 0x14;
}

/// When a Store may happen (KV, section 3.2.6, Store Options bits 0 and 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Condition {
    /// Always: the value replaces what was there.
    #[default]
    Always,
    /// Only if the key exists already.
    IfExists,
    /// Only if the key does not exist.
    IfAbsent,
}

/// Options of Store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreOptions {
    /// When to store.
    pub condition: Condition,
    /// Ask the controller not to compress the value.
    pub no_compress: bool,
}

/// Options of Retrieve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetrieveOptions {
    /// Ask for the value as it is stored, without decompression.
    pub raw: bool,
}

const STORE_IF_EXISTS: u32 = 1 << 0;
const STORE_IF_ABSENT: u32 = 1 << 1;
const STORE_NO_COMPRESS: u32 = 1 << 2;
const RETRIEVE_RAW: u32 = 1 << 0;

/// A command of the Key Value command set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Stores a value.
    Store {
        /// Key.
        key: Key,
        /// Value size in bytes.
        len: u32,
        /// Options.
        options: StoreOptions,
        /// Where the value is.
        data: DataPointer,
    },
    /// Retrieves a value. The completion's DW0 is the true size of the value, also when it is larger than `len`
    /// and the transfer is cut.
    Retrieve {
        /// Key.
        key: Key,
        /// Host buffer size in bytes.
        len: u32,
        /// Options.
        options: RetrieveOptions,
        /// Where the value goes.
        data: DataPointer,
    },
    /// Lists keys, see [`crate::list`].
    List {
        /// Key to start at (it or the next one), or from the beginning.
        start: Option<Key>,
        /// Host buffer size in bytes.
        len: u32,
        /// Where the list goes.
        data: DataPointer,
    },
    /// Deletes a key and its value.
    Delete {
        /// Key.
        key: Key,
    },
    /// Asks whether a key exists.
    Exist {
        /// Key.
        key: Key,
    },
    /// Makes everything that was completed before durable.
    Flush,
}

impl Command {
    /// Opcode.
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::Store { .. } => opcode::STORE,
            Self::Retrieve { .. } => opcode::RETRIEVE,
            Self::List { .. } => opcode::LIST,
            Self::Delete { .. } => opcode::DELETE,
            Self::Exist { .. } => opcode::EXIST,
            Self::Flush => opcode::FLUSH,
        }
    }

    /// Name in the specification.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Store { .. } => "Store",
            Self::Retrieve { .. } => "Retrieve",
            Self::List { .. } => "List",
            Self::Delete { .. } => "Delete",
            Self::Exist { .. } => "Exist",
            Self::Flush => "Flush",
        }
    }

    /// The submission queue entry.
    pub fn encode(&self, cid: u16, nsid: u32) -> Sqe {
        let sqe = Sqe::new(self.opcode(), cid, nsid);
        match *self {
            Self::Store { key, len, options, data } => {
                let condition = match options.condition {
                    Condition::Always => 0,
                    Condition::IfExists => STORE_IF_EXISTS,
                    Condition::IfAbsent => STORE_IF_ABSENT,
                };
                let compress = if options.no_compress { STORE_NO_COMPRESS } else { 0 };
                fields(sqe, Some(key), len, condition | compress).with_data(data)
            }
            Self::Retrieve { key, len, options, data } => {
                let raw = if options.raw { RETRIEVE_RAW } else { 0 };
                fields(sqe, Some(key), len, raw).with_data(data)
            }
            Self::List { start, len, data } => fields(sqe, start, len, 0).with_data(data),
            Self::Delete { key } | Self::Exist { key } => fields(sqe, Some(key), 0, 0),
            Self::Flush => sqe,
        }
    }

    /// Parses an entry of an I/O submission queue; the status is what a controller answers otherwise.
    ///
    /// Fields that the specification reserves are ignored (clients fill some of them).
    pub fn decode(sqe: &Sqe) -> Result<Self, Status> {
        if !matches!(
            sqe.opcode,
            opcode::STORE | opcode::RETRIEVE | opcode::LIST | opcode::DELETE | opcode::EXIST | opcode::FLUSH
        ) {
            return Err(Status::INVALID_OPCODE);
        }
        // Fused operations are not offered. Whether the data pointer is PRP entries or an SGL is for who follows it.
        if sqe.fuse() != 0 || sqe.psdt() == 3 {
            return Err(Status::INVALID_FIELD);
        }
        if sqe.opcode == opcode::FLUSH {
            return Ok(Self::Flush);
        }
        let (len, cdw11, data) = (sqe.dword(10), sqe.dword(11), sqe.data());
        let options = cdw11 >> 8 & 0xff;
        let key = start_key(sqe, cdw11 as u8)?;
        if sqe.opcode == opcode::LIST {
            return Ok(Self::List { start: key, len, data });
        }
        let key = key.ok_or(Status::INVALID_KEY_SIZE)?;
        Ok(match sqe.opcode {
            opcode::STORE => Self::Store { key, len, options: store_options(options)?, data },
            opcode::RETRIEVE => {
                let options = RetrieveOptions { raw: options & RETRIEVE_RAW != 0 };
                Self::Retrieve { key, len, options, data }
            }
            opcode::DELETE => Self::Delete { key },
            _ => Self::Exist { key },
        })
    }
}

fn store_options(bits: u32) -> Result<StoreOptions, Status> {
    let condition = match bits & (STORE_IF_EXISTS | STORE_IF_ABSENT) {
        0 => Condition::Always,
        STORE_IF_EXISTS => Condition::IfExists,
        STORE_IF_ABSENT => Condition::IfAbsent,
        // Both at once can never be met.
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(StoreOptions { condition, no_compress: bits & STORE_NO_COMPRESS != 0 })
}

/// Key in CDW2, CDW3, CDW14, CDW15; size in CDW10; key length and options in CDW11.
fn fields(mut sqe: Sqe, key: Option<Key>, len: u32, options: u32) -> Sqe {
    let mut cdw14 = [0.into(); 2];
    let key_len = key.map_or(0, |key| {
        let k = key.padded();
        let word = |at: usize| {
            let mut b = [0; 4];
            b.copy_from_slice(k.get(at..at + 4).unwrap_or(&[0; 4]));
            u32::from_le_bytes(b).into()
        };
        sqe.cdw2 = [word(0), word(4)];
        cdw14 = [word(8), word(12)];
        key.len()
    });
    sqe.cdw10 =
        [len.into(), (options << 8 | u32::from(key_len)).into(), 0.into(), 0.into(), cdw14[0], cdw14[1]];
    sqe
}

/// The key of an entry; `None` for a length of 0.
fn start_key(sqe: &Sqe, len: u8) -> Result<Option<Key>, Status> {
    let mut bytes = [0u8; Key::MAX];
    let words = [sqe.cdw2[0].get(), sqe.cdw2[1].get(), sqe.dword(14), sqe.dword(15)];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    if len == 0 {
        return Ok(None);
    }
    let key = bytes.get(..usize::from(len)).ok_or(Status::INVALID_KEY_SIZE)?;
    Key::new(key).map(Some).map_err(|_| Status::INVALID_KEY_SIZE)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    pub(crate) fn any_key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(any::<u8>(), 1..=16).prop_map(|k| Key::new(&k).unwrap())
    }

    fn any_command() -> impl Strategy<Value = Command> {
        let data = any::<(u64, u64)>().prop_map(|(prp1, prp2)| DataPointer { prp1, prp2 });
        let condition =
            prop_oneof![Just(Condition::Always), Just(Condition::IfExists), Just(Condition::IfAbsent)];
        (0..6, any_key(), any::<u32>(), data, condition, any::<bool>()).prop_map(
            |(op, key, len, data, condition, flag)| match op {
                0 => {
                    let options = StoreOptions { condition, no_compress: flag };
                    Command::Store { key, len, options, data }
                }
                1 => Command::Retrieve { key, len, options: RetrieveOptions { raw: flag }, data },
                2 => Command::List { start: flag.then_some(key), len, data },
                3 => Command::Delete { key },
                4 => Command::Exist { key },
                _ => Command::Flush,
            },
        )
    }

    proptest! {
        #[test]
        fn commands_round_trip(command in any_command(), cid: u16, nsid: u32) {
            let sqe = command.encode(cid, nsid);
            prop_assert_eq!((sqe.cid.get(), sqe.nsid.get()), (cid, nsid));
            prop_assert_eq!(Command::decode(&sqe), Ok(command));
        }

        #[test]
        fn any_bytes_decode_to_a_command_or_a_status(bytes: [[u8; 32]; 2]) {
            let sqe: Sqe = zerocopy::transmute!(bytes);
            match Command::decode(&sqe) {
                Ok(command) => prop_assert_eq!(command.opcode(), sqe.opcode),
                Err(status) => prop_assert!(!status.is_success()),
            }
        }
    }

    #[test]
    fn spec_kv_3_2_6_store_on_the_wire() {
        let key = Key::new(b"0123456789abcdef").unwrap();
        let options = StoreOptions { condition: Condition::IfAbsent, no_compress: true };
        let data = DataPointer { prp1: 0x1122_3344_5566_7788, prp2: 0x99 };
        let sqe = Command::Store { key, len: 0x1234, options, data }.encode(0xbeef, 7);
        let b = sqe.as_bytes();
        assert_eq!(b[..4], [0x01, 0, 0xef, 0xbe]);
        assert_eq!(b[4..8], [7, 0, 0, 0]);
        assert_eq!(&b[8..16], b"01234567");
        assert_eq!(b[24..32], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(b[40..48], [0x34, 0x12, 0, 0, 16, 0b110, 0, 0]);
        assert_eq!(&b[56..64], b"89abcdef");
    }

    #[test]
    fn spec_kv_3_2_what_a_controller_refuses() {
        let key = Key::new(b"k").unwrap();
        let good = Command::Exist { key }.encode(0, 1);
        let decode = |f: fn(&mut Sqe)| {
            let mut sqe = good;
            f(&mut sqe);
            Command::decode(&sqe)
        };
        assert_eq!(decode(|s| s.opcode = 0x83), Err(Status::INVALID_OPCODE));
        assert_eq!(decode(|s| s.flags = 0xc0), Err(Status::INVALID_FIELD));
        assert_eq!(decode(|s| s.flags = 0x40), Ok(Command::Exist { key }));
        assert_eq!(decode(|s| s.flags = 1), Err(Status::INVALID_FIELD));
        assert_eq!(decode(|s| s.cdw10[1] = 0.into()), Err(Status::INVALID_KEY_SIZE));
        assert_eq!(decode(|s| s.cdw10[1] = 17.into()), Err(Status::INVALID_KEY_SIZE));
        // Mooncake leaves a block count in CDW12.
        assert!(decode(|s| s.cdw10[2] = 511.into()).is_ok());
        let both = |s: &mut Sqe| {
            s.opcode = opcode::STORE;
            s.cdw10[1] = (0b11 << 8 | 1).into();
        };
        assert_eq!(decode(both), Err(Status::INVALID_FIELD));
    }
}
