"""Tables of keys and values: written and read again, and files that are none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.checkpoints.table import decode_varint, encode_varint, read_table, write_table
from asyncexec.framework.errors import DataLossError, OpError

ENTRIES = {b"": b"header", b"layer/bias": b"\0\1", b"layer/kernel": b"", b"other": b"x" * 300}


@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=50), max_size=60))
def test_what_is_written_is_read_again_in_order(entries: dict[bytes, bytes]) -> None:
    found = read_table(write_table(entries), "t")
    assert found == entries
    assert list(found) == sorted(entries)


def test_a_table_of_several_blocks() -> None:
    entries = {b"k%05d" % number: bytes(1000) for number in range(600)}
    assert read_table(write_table(entries), "t") == entries


@given(st.integers(0, 2**64 - 1))
def test_numbers(number: int) -> None:
    data = b"\xff" + encode_varint(number)
    assert decode_varint(data, 1) == (number, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_what_is_no_number(data: bytes) -> None:
    with pytest.raises(DataLossError):
        decode_varint(data, 0)


def test_every_cut_is_found() -> None:
    data = write_table(ENTRIES)
    for length in range(len(data)):
        with pytest.raises(DataLossError, match=r"^t: "):
            read_table(data[:length], "t")


def test_every_changed_bit_is_found_or_means_nothing() -> None:
    data = write_table(ENTRIES)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        try:
            found = read_table(bytes(changed), "t")
        except OpError:
            continue
        assert found == ENTRIES


def test_keys_that_share_too_much_take_no_memory() -> None:
    """Each entry makes the key a byte longer: a million of them would be 500 GB of keys."""
    number = 100_000
    block = b"".join(encode_varint(shared) + b"\1\0" + b"k" for shared in range(number))
    with pytest.raises(DataLossError, match="too long"):
        read_table(one_block(block), "t")


def test_a_compressed_block_is_refused() -> None:
    with pytest.raises(OpError, match="compressed"):
        read_table(one_block(b"", kind=1), "t")


def one_block(entries: bytes, kind: int = 0) -> bytes:
    """The file of a table with a block of *entries*."""

    def block(content: bytes, kind: int) -> bytes:
        content += struct.pack("<II", 0, 1) + bytes([kind])
        return content + struct.pack("<I", masked(crc32c(content)))

    data = block(entries, kind)
    handle = encode_varint(0) + encode_varint(len(data) - 5)
    index = block(encode_varint(0) + encode_varint(1) + encode_varint(len(handle)) + b"z" + handle, 0)
    footer = encode_varint(0) * 2 + encode_varint(len(data)) + encode_varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
