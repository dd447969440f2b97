"""CRC-32C by its known values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub import pywrap_tensorflow

from asyncexec.checkpoints import crc32c as module
from asyncexec.checkpoints.crc32c import crc32c, masked


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


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_what_is_behind_other_bytes(head: bytes, tail: bytes) -> None:
    assert crc32c(tail, crc32c(head)) == pywrap_tensorflow.crc32c(head + tail)
    assert masked(crc32c(head)) == pywrap_tensorflow.masked_crc32c(head)


def test_large_data_is_taken_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 5
    whole = crc32c(data)
    monkeypatch.setattr(module, "_CHUNK", 7)
    assert crc32c(memoryview(bytearray(data))) == whole
