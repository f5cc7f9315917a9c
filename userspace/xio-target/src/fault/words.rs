// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of a script: numbers, times, names. What is wrong with one is said together with what would be right.

use super::limit::{Limit, LIMITS};
use super::rule::{Fill, Operation, Value, CERTAIN};
use nvme_kv::identify::SIZE;
use nvme_kv::{admin, kv, Key, Status};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Longest time.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// What a word stands for, or a sentence.
pub(super) type Word<T> = Result<T, String>;

fn wrong<T>(text: &str, right: &str) -> Word<T> {
    Err(format!("{text:?} is not {right}"))
}

/// Digits, or `0x` and hexadecimal digits.
fn digits(text: &str) -> Option<u64> {
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric());
    match text.strip_prefix("0x") {
        Some(hex) if plain(hex) => u64::from_str_radix(hex, 16).ok(),
        None if plain(text) => text.parse().ok(),
        _ => None,
    }
}

/// A number from `min` to `max`.
pub(super) fn number(text: &str, min: u64, max: u64) -> Word<u64> {
    match digits(text) {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => wrong(text, &format!("a number from {min} to {max:#x}, such as 7 or 0x1f")),
    }
}

/// A number that fits, from 0 on.
pub(super) fn fitting<T: TryFrom<u64>>(text: &str, max: T) -> Word<T>
where
    u64: TryFrom<T>,
{
    let limit = u64::try_from(max).unwrap_or(u64::MAX);
    let number = number(text, 0, limit)?;
    T::try_from(number).map_err(|_| format!("{text:?} is too large"))
}

/// A number for a field: `N`, `+N`, `-N` or `random`.
pub(super) fn value(text: &str, max: u32) -> Word<Value> {
    if text == "random" {
        return Ok(Value::Random);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let value = match text.strip_prefix(['+', '-']) {
        Some(more) => digits(more)
            .filter(|more| *more <= u64::from(max).min(0x7fff_ffff))
            .map(|more| Value::Plus(sign * more as i32)),
        None => digits(text).filter(|value| *value <= u64::from(max)).map(|value| Value::Is(value as u32)),
    };
    value.map_or_else(
        || wrong(text, &format!("a number up to {max:#x}, +N or -N for so much more or less, or random")),
        Ok,
    )
}

/// A time with its unit.
pub(super) fn time(text: &str) -> Word<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let time = number.parse().ok().and_then(|n: u64| match unit {
        "us" => Some(Duration::from_micros(n)),
        "ms" => Some(Duration::from_millis(n)),
        "s" => Some(Duration::from_secs(n)),
        _ => None,
    });
    match time {
        Some(time) if time <= MAX_TIME => Ok(time),
        _ => wrong(text, "a time of up to an hour, such as 50us, 20ms or 3s"),
    }
}

/// Bytes a second.
pub(super) fn rate(text: &str) -> Word<u64> {
    let bytes = text.strip_suffix("/s").and_then(|bytes| {
        let shift = match bytes.chars().last()? {
            'K' => 10,
            'M' => 20,
            'G' => 30,
            _ => 0,
        };
        let number = if shift > 0 { bytes.get(..bytes.len() - 1)? } else { bytes };
        digits(number)?.checked_mul(1 << shift)
    });
    match bytes {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => wrong(text, "a number of bytes a second, such as 4096/s, 64K/s, 1M/s or 2G/s"),
    }
}

/// A part of 1 or of 100, in parts of [`CERTAIN`].
pub(super) fn chance(text: &str) -> Word<u64> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match number.parse::<f64>() {
        Ok(part) if plain && part <= whole => Ok((part / whole * CERTAIN as f64) as u64),
        _ => wrong(text, "a probability, such as 0.25 or 25%"),
    }
}

/// One queue, or several.
pub(super) fn queues(text: &str) -> Word<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let queue = |text: &str| digits(text).and_then(|n| u16::try_from(n).ok());
    match (queue(first), queue(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => wrong(text, "a submission queue or some of them, such as 0, 3 or 1-4"),
    }
}

/// A key as the `xio` command writes it.
pub(super) fn key(text: &str) -> Word<Key> {
    text.parse().map_err(|error| format!("{text:?} is not a key: {error}"))
}

const OPERATIONS: &[(&str, bool, u8)] = &[
    ("store", false, kv::opcode::STORE),
    ("retrieve", false, kv::opcode::RETRIEVE),
    ("list", false, kv::opcode::LIST),
    ("delete", false, kv::opcode::DELETE),
    ("exist", false, kv::opcode::EXIST),
    ("flush", false, kv::opcode::FLUSH),
    ("identify", true, admin::opcode::IDENTIFY),
    ("create-sq", true, admin::opcode::CREATE_SQ),
    ("create-cq", true, admin::opcode::CREATE_CQ),
    ("delete-sq", true, admin::opcode::DELETE_SQ),
    ("delete-cq", true, admin::opcode::DELETE_CQ),
    ("get-log-page", true, admin::opcode::GET_LOG_PAGE),
    ("set-features", true, admin::opcode::SET_FEATURES),
    ("get-features", true, admin::opcode::GET_FEATURES),
    ("abort", true, admin::opcode::ABORT),
    ("async-event", true, admin::opcode::ASYNC_EVENT),
    ("keep-alive", true, admin::opcode::KEEP_ALIVE),
    ("doorbell-buffers", true, admin::opcode::DOORBELL_BUFFERS),
];

/// An operation by name, or by opcode: `io:0x01`, `admin:0x06`.
pub(super) fn operation(text: &str) -> Word<Operation> {
    if let Some((_, admin, opcode)) = OPERATIONS.iter().find(|(name, ..)| *name == text) {
        return Ok(Operation { admin: *admin, opcode: *opcode });
    }
    if let Some((set @ ("io" | "admin"), opcode)) = text.split_once(':') {
        return Ok(Operation { admin: set == "admin", opcode: fitting(opcode, u8::MAX)? });
    }
    let names: Vec<_> = OPERATIONS.iter().map(|(name, ..)| *name).collect();
    wrong(text, &format!("an operation; there are {}, io:OPCODE and admin:OPCODE", names.join(", ")))
}

macro_rules! statuses {
    ($($name:ident)*) => { &[$((stringify!($name), Status::$name)),*] };
}

/// Those that a host is likely to treat in its own way.
const STATUSES: &[(&str, Status)] = statuses![
    INVALID_OPCODE INVALID_FIELD COMMAND_ID_CONFLICT DATA_TRANSFER_ERROR ABORTED_POWER_LOSS INTERNAL_ERROR
    ABORT_REQUESTED ABORTED_SQ_DELETION INVALID_NAMESPACE COMMAND_SEQUENCE_ERROR WRITE_PROTECTED
    COMMAND_INTERRUPTED TRANSIENT_TRANSPORT_ERROR CAPACITY_EXCEEDED NAMESPACE_NOT_READY RESERVATION_CONFLICT
    FORMAT_IN_PROGRESS INVALID_VALUE_SIZE INVALID_KEY_SIZE KEY_NOT_FOUND UNRECOVERED_ERROR KEY_EXISTS
    INVALID_QUEUE_ID INVALID_QUEUE_SIZE INVALID_INTERRUPT_VECTOR INVALID_LOG_PAGE
];

/// A status by name, or as Status Code Type and Status Code in bits 10:0.
pub(super) fn status(text: &str) -> Word<Status> {
    let word = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    if let Some((_, status)) = STATUSES.iter().find(|(name, _)| word(name) == text) {
        return Ok(*status);
    }
    match digits(text) {
        Some(bits @ 1..=0x7ff) => Ok(Status::from_bits(bits as u16)),
        _ => {
            let names: Vec<_> = STATUSES.iter().map(|(name, _)| word(name)).collect();
            wrong(text, &format!("a status; there are {}, and numbers from 0x001 to 0x7ff", names.join(", ")))
        }
    }
}

/// A limit by name.
pub(super) fn limit(text: &str) -> Word<&'static Limit> {
    let names = || LIMITS.iter().map(|limit| limit.name).collect::<Vec<_>>().join(", ");
    let found = LIMITS.iter().find(|limit| limit.name == text);
    found.map_or_else(|| wrong(text, &format!("a limit; there are {}", names())), Ok)
}

/// `0` or `max`: whether it is the latter.
pub(super) fn extreme(text: &str) -> Word<bool> {
    match text {
        "0" => Ok(false),
        "max" => Ok(true),
        _ => wrong(text, "0 or max"),
    }
}

/// Bytes: `0x…`, `zeros:N`, `ones:N` or `random:N`.
pub(super) fn fill(text: &str) -> Word<Fill> {
    if let Some((kind @ ("zeros" | "ones" | "random"), len)) = text.split_once(':') {
        let len = number(len, 1, SIZE as u64)? as usize;
        return Ok(match kind {
            "zeros" => Fill::Bytes(vec![0; len]),
            "ones" => Fill::Bytes(vec![0xff; len]),
            _ => Fill::Random(len),
        });
    }
    match text.strip_prefix("0x").and_then(hex) {
        Some(bytes) if (1..=SIZE).contains(&bytes.len()) => Ok(Fill::Bytes(bytes)),
        _ => wrong(
            text,
            "bytes, such as 0x00ff (pairs of digits, first byte first), zeros:4, ones:4 or random:4",
        ),
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        &[high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_words() {
        assert_eq!((number("7", 1, 9), number("0x1F", 0, 99)), (Ok(7), Ok(31)));
        assert_eq!(value("+3", 0xffff), Ok(Value::Plus(3)));
        assert_eq!((value("-0x10", 99), value("random", 1)), (Ok(Value::Plus(-16)), Ok(Value::Random)));
        assert_eq!(value("0xffffffff", u32::MAX), Ok(Value::Is(u32::MAX)));
        assert_eq!((time("50us"), time("3s")), (Ok(Duration::from_micros(50)), Ok(Duration::from_secs(3))));
        assert_eq!((rate("64K/s"), rate("0x10/s"), rate("2G/s")), (Ok(65536), Ok(16), Ok(2 << 30)));
        assert_eq!((chance("0.25"), chance("25%"), chance("0")), (Ok(CERTAIN / 4), Ok(CERTAIN / 4), Ok(0)));
        assert_eq!((chance("1"), chance("100%")), (Ok(CERTAIN), Ok(CERTAIN)));
        assert_eq!((queues("3"), queues("1-4")), (Ok(3..=3), Ok(1..=4)));
        assert_eq!(operation("identify"), Ok(Operation { admin: true, opcode: 6 }));
        assert_eq!(operation("io:0x55"), Ok(Operation { admin: false, opcode: 0x55 }));
        assert_eq!(
            (status("capacity-exceeded"), status("0x101")),
            (Ok(Status::CAPACITY_EXCEEDED), Ok(Status::INVALID_QUEUE_ID))
        );
        assert_eq!(fill("0x00fF"), Ok(Fill::Bytes(vec![0, 0xff])));
        assert_eq!(
            (fill("ones:2"), fill("random:4096")),
            (Ok(Fill::Bytes(vec![0xff; 2])), Ok(Fill::Random(4096)))
        );
        assert_eq!(
            (limit("mdts").map(|l| l.name), extreme("max"), extreme("0")),
            (Ok("mdts"), Ok(true), Ok(false))
        );
    }

    #[test]
    fn bad_words_are_answered_with_good_ones() {
        let sentences = [
            number("x", 1, 9).unwrap_err(),
            number("10", 1, 9).unwrap_err(),
            number("+1", 0, 9).unwrap_err(),
            value("0x10000", 0xffff).map(drop).unwrap_err(),
            value("--1", 0xffff).map(drop).unwrap_err(),
            value("-0x80000000", u32::MAX).map(drop).unwrap_err(),
            time("50").map(drop).unwrap_err(),
            time("2h").map(drop).unwrap_err(),
            time("3601s").map(drop).unwrap_err(),
            time("18446744073709551616us").map(drop).unwrap_err(),
            rate("0/s").map(drop).unwrap_err(),
            rate("5").map(drop).unwrap_err(),
            rate("é/s").map(drop).unwrap_err(),
            rate("17179869184G/s").map(drop).unwrap_err(),
            chance("101%").map(drop).unwrap_err(),
            chance("-1").map(drop).unwrap_err(),
            chance("inf").map(drop).unwrap_err(),
            chance("").map(drop).unwrap_err(),
            queues("4-1").map(drop).unwrap_err(),
            queues("65536").map(drop).unwrap_err(),
            operation("stroe").map(drop).unwrap_err(),
            operation("io:256").map(drop).unwrap_err(),
            status("0").map(drop).unwrap_err(),
            status("0x800").map(drop).unwrap_err(),
            fill("0x0").map(drop).unwrap_err(),
            fill("0x").map(drop).unwrap_err(),
            fill("ones:4097").map(drop).unwrap_err(),
            limit("mtds").map(drop).unwrap_err(),
            extreme("1").map(drop).unwrap_err(),
            key("seventeen-letters").map(drop).unwrap_err(),
        ];
        for sentence in sentences {
            assert!(sentence.starts_with('"') && sentence.contains(" is not "), "{sentence}");
        }
    }
}
