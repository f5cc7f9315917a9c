// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints a C program that compares SPDK's Key Value definitions with ours; `scripts/check-against-spdk` compiles it
//! with SPDK's own headers.
#![forbid(unsafe_code)]

use nvme_kv::identify::{KvController, KvFormat, KvNamespace};
use nvme_kv::kv::{opcode, Command, Condition, RetrieveOptions, StoreOptions};
use nvme_kv::{csi, Cqe, DataPointer, Key, Sqe, Status};
use std::mem::{offset_of, size_of};

const HEAD: &str = r#"/* Made by spdk-facts. */
#include "spdk/stdinc.h"
#include "spdk/nvme_spec.h"
#include "spdk/nvme_kv.h"

static const struct { const char *name; unsigned long theirs, ours; } facts[] = {
"#;

const TAIL: &str = r#"};

/* A command as SPDK's structures have it, byte for byte. */
static int command(void)
{
	static const unsigned char ours[64] = { OUR_COMMAND };
	struct spdk_nvme_cmd cmd;

	memset(&cmd, 0, sizeof(cmd));
	cmd.opc = SPDK_NVME_OPC_KV_STORE;
	cmd.cid = 0x1234;
	cmd.nsid = 7;
	cmd.dptr.prp.prp1 = 0x1122334455667788;
	cmd.dptr.prp.prp2 = 0x99aabbccddeeff00;
	cmd.cdw10_bits.kv.vsize = 123456;
	cmd.cdw11_bits.kv.kl = 16;
	cmd.cdw11_bits.kv.ro =
		SPDK_NVME_KV_STORE_OPT_DONT_STORE_IF_KEY_EXISTS | SPDK_NVME_KV_STORE_OPT_DONT_COMPRESS;
	memcpy(&cmd.cdw2, "01234567", 8);
	memcpy(&cmd.cdw14, "89abcdef", 8);
	return memcmp(&cmd, ours, 64) != 0;
}

int main(void)
{
	int failed = 0;
	size_t i;

	for (i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		if (facts[i].theirs != facts[i].ours) {
			printf("%s is %#lx, ours is %#lx\n", facts[i].name, facts[i].theirs, facts[i].ours);
			failed = 1;
		}
	}
	if (command()) {
		printf("a Store of SPDK's is not ours\n");
		failed = 1;
	}
	printf("%zu facts and a command compared\n", i);
	return failed;
}
"#;

macro_rules! fields {
    ($facts:ident, $theirs:literal, $ours:ty: $($field:ident)*) => {
        $facts.push((format!("sizeof({})", $theirs), size_of::<$ours>() as u64));
        $( $facts.push((
            format!("offsetof({}, {})", $theirs, stringify!($field)), offset_of!($ours, $field) as u64
        )); )*
    };
}

fn facts() -> Vec<(String, u64)> {
    let mut facts: Vec<(String, u64)> = [
        ("SPDK_NVME_OPC_KV_STORE", opcode::STORE),
        ("SPDK_NVME_OPC_KV_RETRIEVE", opcode::RETRIEVE),
        ("SPDK_NVME_OPC_KV_LIST", opcode::LIST),
        ("SPDK_NVME_OPC_KV_DELETE", opcode::DELETE),
        ("SPDK_NVME_OPC_KV_EXIST", opcode::EXIST),
        ("SPDK_NVME_SC_CAPACITY_EXCEEDED", Status::CAPACITY_EXCEEDED.sc()),
        ("SPDK_NVME_SC_NAMESPACE_NOT_READY", Status::NAMESPACE_NOT_READY.sc()),
        ("SPDK_NVME_SC_RESERVATION_CONFLICT", Status::RESERVATION_CONFLICT.sc()),
        ("SPDK_NVME_SC_FORMAT_IN_PROGRESS", Status::FORMAT_IN_PROGRESS.sc()),
        ("SPDK_NVME_SC_INVALID_VALUE_SIZE", Status::INVALID_VALUE_SIZE.sc()),
        ("SPDK_NVME_SC_INVALID_KEY_SIZE", Status::INVALID_KEY_SIZE.sc()),
        ("SPDK_NVME_SC_KV_KEY_DOES_NOT_EXIST", Status::KEY_NOT_FOUND.sc()),
        ("SPDK_NVME_SC_UNRECOVERED_ERROR", Status::UNRECOVERED_ERROR.sc()),
        ("SPDK_NVME_SC_KEY_EXISTS", Status::KEY_EXISTS.sc()),
        ("SPDK_NVME_CSI_KV", csi::KV),
        ("SPDK_NVME_KV_KEY_MAX_LEN", Key::MAX as u8),
        ("SPDK_NVME_KV_RETRIEVE_OPT_RETRIEVE_RAW", raw_option()),
    ]
    .map(|(name, value)| (name.to_owned(), u64::from(value)))
    .into();
    fields!(facts, "struct spdk_nvme_cmd", Sqe: cid nsid cdw2 mptr cdw10);
    fields!(facts, "struct spdk_nvme_cpl", Cqe: sqhd sqid cid status);
    fields!(facts, "struct spdk_nvme_kv_ctrlr_data", KvController: ver);
    fields!(facts, "struct spdk_nvme_kv_format", KvFormat: kvkml afo kvvml mnks);
    fields!(facts, "struct spdk_nvme_kv_ns_data", KvNamespace:
        nsze nuse nsfeat nkvf nmic rescap fpi kvfc novg anagrpid nsattr nvmsetid endgid nguid eui64 kvf);
    facts
}

/// The bit of a raw Retrieve, out of a command.
fn raw_option() -> u8 {
    let key = Key::new(b"k").map(|key| {
        let options = RetrieveOptions { raw: true };
        Command::Retrieve { key, len: 0, options, data: DataPointer::default() }.encode(0, 0)
    });
    key.map_or(0, |sqe| (sqe.dword(11) >> 8) as u8)
}

fn main() {
    let Ok(key) = Key::new(b"0123456789abcdef") else { return };
    let data = DataPointer { prp1: 0x1122_3344_5566_7788, prp2: 0x99aa_bbcc_ddee_ff00 };
    let options = StoreOptions { condition: Condition::IfAbsent, no_compress: true };
    let command = Command::Store { key, len: 123_456, options, data }.encode(0x1234, 7);
    let bytes: Vec<String> = zerocopy::IntoBytes::as_bytes(&command).iter().map(u8::to_string).collect();
    print!("{HEAD}");
    for (name, value) in facts() {
        println!("\t{{ \"{name}\", {name}, {value} }},");
    }
    print!("{}", TAIL.replace("OUR_COMMAND", &bytes.join(", ")));
}
