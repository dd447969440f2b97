"""Sorted tables of keys and values in one file, as LevelDB has them; indexes of checkpoints are such tables.

A file is blocks, then a footer of 48 bytes: where the index block is, and a magic number.  The index block has a key of
every data block and tells where that block is.  Behind each block stand a byte, how it is compressed, and the checksum
of both.  In a block, keys share what they begin with; every 16th stands whole, and the block ends with where these are.
Source: ``tensorflow/core/lib/io/format.cc``, ``table_builder.cc``, ``block.cc``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.framework.errors import DataLossError, UnimplementedError

_MAGIC: Final = 0xDB4775248B80FB57
_FOOTER_BYTES: Final = 48
_TRAILER_BYTES: Final = 5
_BLOCK_BYTES: Final = 256 * 1024
_RESTART_INTERVAL: Final = 16
_MOST_VARINT_BYTES: Final = 10
# Keys share what they begin with, so a small file could stand for very long ones.
_LEAST_KEY_BYTES: Final = 2**20
_KEY_BYTES_PER_BYTE: Final = 64


def encode_varint(number: int) -> bytes:
    """*number*, seven bits a byte, the lowest first."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at *position*, and where it ends; DataLossError where there is none."""
    number = 0
    for count in range(_MOST_VARINT_BYTES):
        if position >= len(data):
            break
        byte = data[position]
        number |= (byte & 0x7F) << 7 * count
        position += 1
        if byte < 0x80:
            return number, position
    raise DataLossError("a number is cut short")


def read_table(data: bytes, source: str) -> dict[bytes, bytes]:
    """The values of a table by key, in the order of the keys.

    Raises:
        DataLossError: it is cut short, a checksum is wrong, or it is no table; *source* is named.
        UnimplementedError: it is compressed.
    """
    try:
        return _read(data)
    except (DataLossError, UnimplementedError) as error:
        raise type(error)(f"{source}: {error.message}") from None


def _read(data: bytes) -> dict[bytes, bytes]:
    if len(data) < _FOOTER_BYTES:
        raise DataLossError(f"{len(data)} bytes are too few for a table: it is cut short, or none")
    footer = data[-_FOOTER_BYTES:]
    if struct.unpack_from("<Q", footer, _FOOTER_BYTES - 8)[0] != _MAGIC:
        raise DataLossError("it does not end as a table does: it is cut short, or none")
    position = 0
    handle = []
    for _ in range(4):  # of the metaindex, which is of no use here, and of the index
        number, position = decode_varint(footer, position)
        handle.append(number)
    budget = max(_LEAST_KEY_BYTES, _KEY_BYTES_PER_BYTE * len(data))
    found: dict[bytes, bytes] = {}
    last = None
    for _, place in _entries(_block(data, handle[2], handle[3])):
        offset, position = decode_varint(place, 0)
        size, position = decode_varint(place, position)
        for key, value in _entries(_block(data, offset, size)):
            if last is not None and key <= last:
                raise DataLossError("the keys are not in order")
            budget -= len(key)
            if budget < 0:
                raise DataLossError("the keys are too long for the size of the file")
            found[key] = value
            last = key
    return found


def _block(data: bytes, offset: int, size: int) -> bytes:
    """The block at *offset*, checked."""
    end = offset + size
    if end + _TRAILER_BYTES > len(data) - _FOOTER_BYTES:
        raise DataLossError(f"a block of {size} bytes at {offset} lies outside of the {len(data)} bytes of the file")
    kind, checksum = struct.unpack_from("<BI", data, end)
    if masked(crc32c(memoryview(data)[offset : end + 1])) != checksum:
        raise DataLossError(f"the checksum of the block at {offset} is wrong")
    if kind != 0:
        raise UnimplementedError(f"the block at {offset} is compressed (type {kind}); TensorFlow writes none that is")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise DataLossError("a block is too short")
    num_restarts = struct.unpack_from("<I", block, len(block) - 4)[0]
    end = len(block) - 4 * (num_restarts + 1)
    if end < 0:
        raise DataLossError(f"a block of {len(block)} bytes cannot have {num_restarts} restarts")
    position, key = 0, b""
    while position < end:
        shared, position = decode_varint(block, position)
        unshared, position = decode_varint(block, position)
        length, position = decode_varint(block, position)
        if shared > len(key) or position + unshared + length > end:
            raise DataLossError("an entry reaches over the end of its block")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length


def write_table(entries: Mapping[bytes, bytes]) -> bytes:
    """The file of a table of *entries*."""
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    block: list[tuple[bytes, bytes]] = []
    size = 0
    for key in sorted(entries):
        block.append((key, entries[key]))
        size += len(key) + len(entries[key])
        if size >= _BLOCK_BYTES:
            index.append((key, _append_block(out, block)))
            block, size = [], 0
    if block:
        index.append((block[-1][0], _append_block(out, block)))
    handles = _append_block(out, ()) + _append_block(out, index)
    out += handles.ljust(_FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", _MAGIC)
    return bytes(out)


def _append_block(out: bytearray, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Add a block to *out*; where it is."""
    block = bytearray()
    restarts = [0]
    before = b""
    for count, (key, value) in enumerate(entries):
        shared = 0
        if count % _RESTART_INTERVAL:
            shared = next((i for i, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), len(before))
            shared = min(shared, len(key))
        elif count:
            restarts.append(len(block))
        block += encode_varint(shared) + encode_varint(len(key) - shared) + encode_varint(len(value))
        block += key[shared:] + value
        before = key
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    offset = len(out)
    block.append(0)  # not compressed
    out += block + struct.pack("<I", masked(crc32c(bytes(block))))
    return encode_varint(offset) + encode_varint(len(block) - 1)
