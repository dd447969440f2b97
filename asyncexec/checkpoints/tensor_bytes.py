"""Tensors <-> their bytes in the shards of a checkpoint, with the checksums of these.

A tensor of numbers is its elements; one of strings is the lengths of all, each a varint, a checksum of these lengths,
and then the strings (``WriteStringTensor`` in ``tensor_bundle.cc``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from asyncexec.checkpoints.bundle_entry import BundleEntry
from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.checkpoints.table import decode_varint, encode_varint
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, UnimplementedError
from asyncexec.framework.ownership import freeze
from asyncexec.framework.types import DType, string
from asyncexec.framework.types import bool as bool_dtype

_MAX_UINT32: Final = 2**32 - 1
_CRC_BYTES: Final = 4
_CHUNK: Final = 2**24


def read_tensor(file: BinaryIO, file_bytes: int, entry: BundleEntry) -> Any:
    """The tensor of *entry* in a shard of *file_bytes*; nobody else has it.

    Memory is taken only for what is in the file.

    Raises:
        DataLossError: it does not lie in the file, or its size or its checksum is wrong.
        UnimplementedError: it has no form in numpy.
    """
    if entry.dtype.is_opaque:
        raise UnimplementedError(f"tensors of dtype {entry.dtype.name} cannot be restored")
    if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > file_bytes:
        raise DataLossError(
            f"its {entry.size} bytes at {entry.offset} lie outside of the {file_bytes} bytes of the file, which may be "
            "cut short"
        )
    file.seek(entry.offset)
    if entry.dtype is string:
        return _read_strings(_read(file, np.empty(entry.size, np.uint8)).tobytes(), entry)
    if entry.size != entry.num_elements * entry.dtype.itemsize:
        raise DataLossError(
            f"it has {entry.size} bytes, not the {entry.num_elements * entry.dtype.itemsize} of a tensor of shape "
            f"{list(entry.shape)} and dtype {entry.dtype.name}"
        )
    array = np.empty(entry.shape, entry.dtype.as_numpy_dtype)
    data = _read(file, array.reshape(-1).view(np.uint8))
    _check(crc32c(data), entry.crc32c)
    if entry.dtype is bool_dtype:
        np.not_equal(data, 0, out=array.reshape(-1))
    return freeze(array)


def _read(file: BinaryIO, buffer: Any) -> Any:
    view = memoryview(buffer)
    done = 0
    while done < len(view):
        count = file.readinto(view[done : done + _CHUNK])  # type: ignore[attr-defined]
        if not count:
            raise DataLossError("the file has been cut while it was read")
        done += count
    return buffer


def _check(crc: int, expected: int) -> None:
    if masked(crc) != expected:
        raise DataLossError(f"its checksum is {masked(crc):#010x}, and should be {expected:#010x}")


def _read_strings(data: bytes, entry: BundleEntry) -> object:
    count = entry.num_elements
    if count + _CRC_BYTES > len(data):
        raise DataLossError(f"{len(data)} bytes cannot hold {count} strings")
    lengths, position = [], 0
    for _ in range(count):
        length, position = decode_varint(data, position)
        lengths.append(length)
    start = position + _CRC_BYTES
    if start + sum(lengths) != len(data):
        raise DataLossError(f"the lengths of its strings do not add up to its {len(data)} bytes")
    crc = crc32c(_packed(lengths))
    _check(crc, struct.unpack_from("<I", data, position)[0])
    _check(crc32c(data[position:], crc), entry.crc32c)
    strings = np.empty(count, object)
    for index, length in enumerate(lengths):
        strings[index] = data[start : start + length]
        start += length
    return freeze(strings.reshape(entry.shape))


def _packed(lengths: Sequence[int]) -> bytes:
    """What the checksum of *lengths* is of."""
    return b"".join(struct.pack("<I" if length <= _MAX_UINT32 else "<Q", length) for length in lengths)


def write_tensor(file: BinaryIO, value: Any, dtype: DType) -> tuple[int, int]:
    """Append *value*; the number of its bytes, and their checksum.

    Raises:
        InvalidArgumentError: it cannot be saved.
    """
    if dtype.is_opaque:
        raise InvalidArgumentError(f"tensors of dtype {dtype.name} cannot be saved")
    if dtype is string:
        return _write_strings(file, [value] if isinstance(value, bytes) else value.ravel().tolist())
    data: Any = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    file.writelines(data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
    return len(data), masked(crc32c(data))


def _write_strings(file: BinaryIO, strings: Sequence[bytes]) -> tuple[int, int]:
    lengths = [len(each) for each in strings]
    crc = crc32c(_packed(lengths))
    head, text = b"".join(map(encode_varint, lengths)), struct.pack("<I", masked(crc)) + b"".join(strings)
    file.write(head)
    file.write(text)
    return len(head) + len(text), masked(crc32c(text, crc))
