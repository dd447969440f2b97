"""Addresses: what names one, and what does not."""

from __future__ import annotations

import pytest

from asyncexec.distributed.transport.address import MAX_PATH_BYTES, TcpAddress, UnixAddress, parse_address
from asyncexec.framework.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unix:/run/a b.sock", UnixAddress("/run/a b.sock")),
        ("unix:relative", UnixAddress("relative")),
        ("tcp:localhost:80", TcpAddress("localhost", 80)),
        ("10.0.0.1:65535", TcpAddress("10.0.0.1", 65535)),
        ("tcp:[::1]:0", TcpAddress("::1", 0)),
        ("[fe80::1%eth0]:1", TcpAddress("fe80::1%eth0", 1)),
        ("unixhost:1", TcpAddress("unixhost", 1)),
    ],
)
def test_addresses(text: str, expected: UnixAddress | TcpAddress) -> None:
    found = parse_address(text)
    assert found == expected
    assert parse_address(str(found)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":80", "host:65536", "host:-1", "host:8O", "host:٣", "::1:80", "tcp:80", "unix:", "unix:a\0b",
     "unix:" + "x" * (MAX_PATH_BYTES + 1), "host:" + "1" * 5000],
)  # fmt: skip
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"use one like unix:/run/worker0\.sock"):
        parse_address(text)
