"""CRC-32C, the checksum of TensorFlow's record files (Castagnoli's polynomial; RFC 3720, appendix B.4).

A checksum is a linear function of the bytes: that of a row of bytes behind others is that of the row alone, xor what a
row of zeros makes of the checksum before.  So numpy reads all rows of a file at once, byte by byte of each.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL: Final = 0x82F63B78  # its bits in reverse
_ROW: Final = 512
_MASK_DELTA: Final = 0xA282EAD8


def crc32c(data: bytes) -> int:
    """The checksum of *data*."""
    table = _table()
    crc, head = 0xFFFFFFFF, len(data) % _ROW
    entries = table.tolist()
    for byte in data[:head]:
        crc = entries[(crc ^ byte) & 0xFF] ^ crc >> 8
    rows = np.frombuffer(data, np.uint8, offset=head).reshape(-1, _ROW) if len(data) > head else ()
    if len(rows):
        crc = _with_rows(crc, np.asarray(rows), table)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum of *data* as records hold it: rotated, and moved on, for data may hold checksums itself."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


@cache
def _table() -> NDArray[np.uint32]:
    """What eight zero bits make of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


def _with_rows(crc: int, rows: NDArray[np.uint8], table: NDArray[np.uint32]) -> int:
    """The checksum of *rows* behind bytes whose checksum is *crc*; neither is inverted."""
    bits = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))  # what becomes of them tells what zeros do
    states = np.concatenate([np.zeros(len(rows), np.uint32), bits])
    for column in np.ascontiguousarray(rows.T):
        states[: len(rows)] ^= column
        states = table[states & 0xFF] ^ states >> 8
    after_zeros: list[int] = states[len(rows) :].tolist()
    advanced = [_sums(after_zeros[start : start + 8]) for start in (0, 8, 16, 24)]
    for row in states[: len(rows)].tolist():
        crc = (
            advanced[0][crc & 0xFF]
            ^ advanced[1][crc >> 8 & 0xFF]
            ^ advanced[2][crc >> 16 & 0xFF]
            ^ advanced[3][crc >> 24]
            ^ row
        )
    return crc


def _sums(numbers: list[int]) -> list[int]:
    """The xor of those of *numbers* whose bits are set in the index."""
    sums = [0]
    for number in numbers:
        sums += [each ^ number for each in sums]
    return sums
