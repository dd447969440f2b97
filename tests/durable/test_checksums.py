"""Checksums of large values: parts that have changed places are found out, and former versions are read."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.durable.record import JsonCodec, Record, from_bytes, to_bytes

JSON = JsonCodec()
NUM_WORDS = 2**18
ONES = np.where(np.random.default_rng(3).random(NUM_WORDS) < 0.5, 1.0, -1.0)  # they differ in one bit
ROWS = np.eye(64)[np.arange(2**12) % 64].reshape(-1)  # they have equal sums


def bytes_of(array: np.ndarray[Any, Any]) -> tuple[bytes, int]:
    """The bytes of a checkpoint of *array*, and where those of the array begin."""
    content = to_bytes(Record({}, {"a": array}), JSON)
    return content, len(content) - array.nbytes


def check_is_told(content: bytes) -> None:
    with pytest.raises(ax.errors.DataLossError, match="the checksum of 'a' is wrong"):
        from_bytes(content, JSON)


@pytest.mark.parametrize("size", [4, 8, 64, 512, 1024, 4096])
@pytest.mark.parametrize("array", [np.arange(NUM_WORDS, dtype=np.float64), ONES, ROWS])
def test_parts_that_have_changed_places_are_found_out(array: np.ndarray[Any, Any], size: int) -> None:
    content, start = bytes_of(array)
    num_moved = 0
    for place in range(start + 4096 * 50, start + 4096 * 60, max(size, 256)):
        changed = bytearray(content)
        changed[place : place + size] = content[place + size : place + 2 * size]
        changed[place + size : place + 2 * size] = content[place : place + size]
        if changed != content:
            num_moved += 1
            check_is_told(bytes(changed))
    assert num_moved or (array is ROWS and size == 4096)  # its pages are alike


@pytest.mark.parametrize("bit", [0, 7, 31, 32, 62, 63])
def test_a_bit_that_has_moved_to_another_word_is_found_out(bit: int) -> None:
    """The sum of both words stays."""
    array = np.zeros(NUM_WORDS, np.uint64)
    array[51200] = 2**bit
    content, start = bytes_of(array)
    array[51200], array[51300] = 0, 2**bit
    changed, _ = bytes_of(array)
    check_is_told(content[:start] + changed[start:])


# Made by the code of that version.
VERSION_1 = (
    b"AXCKPT\r\n\x01\x00\x00\x00h\x15\xec\xb2\x7f\x00\x00\x00\x00\x00\x00\x00R\x00\x00\x00\x00\x00\x00\x00"
    b'{"number": 3, "values": [["total", 1, 26, 35193093], ["names", 2, 11, 304612197]]}'
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\xc0?"
    b'["a", null]'
)


def test_a_checkpoint_of_version_1_is_read() -> None:
    record = from_bytes(VERSION_1, JSON)
    assert record == Record({"number": 3}, {"total": np.float32(1.5), "names": ["a", None]})


def as_version_1(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of a checkpoint of *array* with the checksum that version 1 had: of the sum of each page."""
    content, start = bytes_of(array)
    (length,) = struct.unpack_from("<Q", content, 24)
    values = content[32 + length :]
    sums = b"".join(struct.pack("<Q", sum(page) % 2**64) for page in struct.iter_unpack("<512Q", content[start:]))
    about = json.loads(content[32 : 32 + length])
    about["values"][0][3] = zlib.adler32(sums, zlib.adler32(content[32 + length : start]))
    told = json.dumps(about).encode()
    head = struct.pack("<8sIIQ", b"AXCKPT\r\n", 1, zlib.adler32(told), 8 + len(told) + len(values))
    return head + struct.pack("<Q", len(told)) + told + values


def test_a_large_value_of_version_1_is_read() -> None:
    array = np.random.default_rng(4).random(NUM_WORDS)
    content = as_version_1(array)
    np.testing.assert_array_equal(from_bytes(content, JSON).values["a"], array)
    check_is_told(content[:-1] + bytes([content[-1] ^ 1]))
