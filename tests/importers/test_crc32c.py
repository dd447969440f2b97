"""CRC-32C by its definition: bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub import pywrap_tensorflow

from asyncexec.importers.crc32c import crc32c, masked_crc32c


# RFC 3720, appendix B.4; and the check value of the catalogues of CRCs.
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_known_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.integers(0, 2_000), st.binary(min_size=1, max_size=40))
def test_rows_are_put_together(length: int, pattern: bytes) -> None:
    data = (pattern * (length // len(pattern) + 1))[:length]
    assert crc32c(data) == pywrap_tensorflow.crc32c(data)
    assert masked_crc32c(data) == pywrap_tensorflow.masked_crc32c(data)
