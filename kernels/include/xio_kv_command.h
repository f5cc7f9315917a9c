// SPDX-License-Identifier: MIT OR Apache-2.0
// Commands: keys, ranges of buffers, entries of the submission queue. Included by xio_kv.h.
#ifndef XIO_KV_COMMAND_H
#define XIO_KV_COMMAND_H

/// A key of 1 to 16 bytes.
struct xio_key {
    /// The bytes, padded with zeros, as four little-endian words.
    uint32_t words[4];
    /// Bytes; 0 stands for no key, which only List takes.
    uint32_t len;
};

/// A key of `len` bytes at `bytes`. More than 16 bytes make a key that no command takes.
XIO_FN xio_key xio_key_of(const uint8_t *bytes, uint32_t len) {
    xio_key key = {{0, 0, 0, 0}, len};
    uint32_t taken = len <= XIO_KEY_MAX ? len : 0;
    for (uint32_t i = 0; i < taken; i++) {
        key.words[i / 4] |= (uint32_t)bytes[i] << (i % 4 * 8);
    }
    return key;
}

/// Where the data of a command are: its two PRP entries.
struct xio_range {
    uint64_t prp1;
    uint64_t prp2;
    /// Whether the range is within its buffer and begins at a multiple of 4. If not, no command takes it.
    bool valid;
};

/// `len` bytes at `offset` of a buffer. Reads up to three entries of the buffer's table; builds no list, whatever the
/// size.
XIO_FN xio_range xio_range_of(const xio_buffer &buffer, uint64_t offset, uint32_t len) {
    xio_range range = {0, 0, false};
    if (offset % 4 != 0 || offset > buffer.len || len > buffer.len - offset) {
        return range;
    }
    range.valid = true;
    if (len == 0) {
        return range;
    }
    const xio_page *pages = (const xio_page *)buffer.pages;
    uint64_t first = offset / XIO_PAGE_SIZE, last = (offset + len - 1) / XIO_PAGE_SIZE;
    range.prp1 = pages[first].addr + offset % XIO_PAGE_SIZE;
    if (last == first + 1) {
        range.prp2 = pages[last].addr;
    } else if (last > first) {
        // In list 0 the last page of this range would come first on a new list page: see struct xio_page.
        uint32_t list = (last - 1) % XIO_LIST_ENTRIES == 0;
        range.prp2 = pages[first + 1].list[list];
    }
    return range;
}

/// A command, ready to be submitted. `valid` is false when key, range or opcode can not be one: then submitting
/// gives XIO_STATUS_INVALID and sends nothing.
struct xio_command {
    /// Dwords of the entry; the command identifier is filled in by xio_submit.
    uint32_t words[16];
    bool valid;
};

/// Any command from its parts; the five below are what to use.
XIO_FN xio_command xio_command_of(uint32_t opcode, uint32_t nsid, const xio_key &key, uint32_t len, uint32_t options,
                                  const xio_range &range) {
    xio_command c = {{opcode, nsid, key.words[0], key.words[1], 0, 0, (uint32_t)range.prp1,
                      (uint32_t)(range.prp1 >> 32), (uint32_t)range.prp2, (uint32_t)(range.prp2 >> 32), len,
                      options << 8 | key.len, 0, 0, key.words[2], key.words[3]},
                     false};
    c.valid = key.len <= XIO_KEY_MAX && (key.len > 0 || opcode == XIO_OP_LIST) && range.valid && options <= 0xff;
    return c;
}

/// Store `len` bytes of `range` as the value of `key`. `options`: XIO_STORE_*, of which IF_EXISTS and IF_ABSENT exclude
/// each other.
XIO_FN xio_command xio_cmd_store(uint32_t nsid, const xio_key &key, const xio_range &range, uint32_t len,
                                 uint32_t options) {
    return xio_command_of(XIO_OP_STORE, nsid, key, len, options, range);
}

/// Retrieve the value of `key` into `range`, at most `len` bytes. The result has the true length. `options`:
/// XIO_RETRIEVE_RAW.
XIO_FN xio_command xio_cmd_retrieve(uint32_t nsid, const xio_key &key, const xio_range &range, uint32_t len,
                                    uint32_t options) {
    return xio_command_of(XIO_OP_RETRIEVE, nsid, key, len, options, range);
}

/// List keys into `range`, XIO_LIST_MIN to `len` bytes, from `start` on or from the beginning when that has no bytes.
XIO_FN xio_command xio_cmd_list(uint32_t nsid, const xio_key &start, const xio_range &range, uint32_t len) {
    return xio_command_of(XIO_OP_LIST, nsid, start, len, 0, range);
}

/// Delete `key` and its value.
XIO_FN xio_command xio_cmd_delete(uint32_t nsid, const xio_key &key) {
    xio_range none = {0, 0, true};
    return xio_command_of(XIO_OP_DELETE, nsid, key, 0, 0, none);
}

/// Ask whether `key` exists: XIO_OK or XIO_NOT_FOUND.
XIO_FN xio_command xio_cmd_exist(uint32_t nsid, const xio_key &key) {
    xio_range none = {0, 0, true};
    return xio_command_of(XIO_OP_EXIST, nsid, key, 0, 0, none);
}

/// The command of an item of a table. An opcode that is none of the five makes one that is not valid.
XIO_FN xio_command xio_cmd_item(uint32_t nsid, const xio_item &item, const xio_buffer &buffer) {
    xio_key key = {{0, 0, 0, 0}, item.key_len};
    const uint32_t *words = (const uint32_t *)item.key;
    for (uint32_t i = 0; i < 4; i++) {
        key.words[i] = words[i];
    }
    uint32_t op = item.opcode, options = item.options;
    bool data = op == XIO_OP_STORE || op == XIO_OP_RETRIEVE || op == XIO_OP_LIST;
    xio_range range = {0, 0, true};
    if (data) {
        range = xio_range_of(buffer, item.offset, item.len);
    }
    uint32_t len = data ? item.len : 0;
    xio_command c = xio_command_of(op, nsid, key, len, op == XIO_OP_STORE || op == XIO_OP_RETRIEVE ? options : 0, range);
    c.valid = c.valid && (data || op == XIO_OP_DELETE || op == XIO_OP_EXIST);
    return c;
}

#endif // XIO_KV_COMMAND_H
