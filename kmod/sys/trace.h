/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rocm_xio

#if !defined(ROCM_XIO_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define ROCM_XIO_TRACE_H

#include <linux/tracepoint.h>
#include <linux/unaligned.h>

/* `device`: domain in bits 31:16, bus in 15:8, device and function below. */
#define ROCM_XIO_ADDRESS "%04x:%02x:%02x.%x"
#define rocm_xio_address(device) \
	(device) >> 16, (device) >> 8 & 0xff, (device) >> 3 & 0x1f, (device) & 7

#define rocm_xio_op_name(opcode)			\
	__print_symbolic(opcode,			\
		{ 0x00, "flush" },			\
		{ 0x01, "store" },			\
		{ 0x02, "retrieve" },			\
		{ 0x06, "list" },			\
		{ 0x10, "delete" },			\
		{ 0x14, "exist" })

/* The kernel submitted a command for a client. */
TRACE_EVENT(rocm_xio_submit,
	TP_PROTO(u32 device, u16 qid, u64 client, const u8 *sqe),
	TP_ARGS(device, qid, client, sqe),
	TP_STRUCT__entry(
		__field(u32, device)
		__field(u64, client)
		__field(u32, nsid)
		__field(u32, len)
		__field(u16, qid)
		__field(u16, cid)
		__field(u8, opcode)
	),
	TP_fast_assign(
		__entry->device = device;
		__entry->client = client;
		__entry->qid = qid;
		__entry->opcode = sqe[0];
		__entry->cid = get_unaligned_le16(sqe + 2);
		__entry->nsid = get_unaligned_le32(sqe + 4);
		__entry->len = get_unaligned_le32(sqe + 40);
	),
	TP_printk(ROCM_XIO_ADDRESS " client=%llu qid=%u cid=%u op=%s nsid=%u len=%u",
		  rocm_xio_address(__entry->device), __entry->client, __entry->qid, __entry->cid,
		  rocm_xio_op_name(__entry->opcode), __entry->nsid, __entry->len)
);

/* It was answered. */
TRACE_EVENT(rocm_xio_complete,
	TP_PROTO(u32 device, u64 client, const u8 *cqe, u64 us),
	TP_ARGS(device, client, cqe, us),
	TP_STRUCT__entry(
		__field(u32, device)
		__field(u64, client)
		__field(u64, us)
		__field(u32, value_len)
		__field(u16, qid)
		__field(u16, cid)
		__field(u16, status)
	),
	TP_fast_assign(
		__entry->device = device;
		__entry->client = client;
		__entry->us = us;
		__entry->value_len = get_unaligned_le32(cqe);
		__entry->qid = get_unaligned_le16(cqe + 10);
		__entry->cid = get_unaligned_le16(cqe + 12);
		__entry->status = get_unaligned_le16(cqe + 14) >> 1;
	),
	TP_printk(ROCM_XIO_ADDRESS " client=%llu qid=%u cid=%u status=0x%03x dw0=%u us=%llu",
		  rocm_xio_address(__entry->device), __entry->client, __entry->qid, __entry->cid,
		  __entry->status & 0x7ff, __entry->value_len, __entry->us)
);

/* The state of a controller changed. */
TRACE_EVENT(rocm_xio_state,
	TP_PROTO(u32 device, u32 state, u32 reset, u32 resets),
	TP_ARGS(device, state, reset, resets),
	TP_STRUCT__entry(
		__field(u32, device)
		__field(u32, state)
		__field(u32, reset)
		__field(u32, resets)
	),
	TP_fast_assign(
		__entry->device = device;
		__entry->state = state;
		__entry->reset = reset;
		__entry->resets = resets;
	),
	TP_printk(ROCM_XIO_ADDRESS " state=%s reset=%s resets=%u",
		  rocm_xio_address(__entry->device),
		  __print_symbolic(__entry->state, { 0, "live" }, { 1, "stopped" }, { 2, "failed" }),
		  __print_symbolic(__entry->reset, { 0, "none" }, { 1, "timeout" },
				   { 2, "out-of-step" }, { 3, "fatal" }, { 4, "absent" },
				   { 5, "system" }, { 6, "user" }, { 7, "refused" }),
		  __entry->resets)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
