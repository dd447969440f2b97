"""A worker does not listen where strangers could use it."""

from __future__ import annotations

import ssl

import pytest

from asyncexec.distributed.exposure import check_exposure
from asyncexec.distributed.transport.security import Security, Tls
from asyncexec.framework.errors import InvalidArgumentError

OPEN = Security()
TOKEN = Security("a secret")


def tls(*, needs_certificates: bool) -> Security:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED if needs_certificates else ssl.CERT_NONE
    return Security(tls=Tls(server, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)))


@pytest.mark.parametrize(
    ("address", "security", "objects"),
    [
        ("unix:/run/worker.sock", OPEN, True),
        ("127.0.0.1:0", OPEN, False),
        ("[::1]:0", OPEN, False),
        ("localhost:0", OPEN, False),
        ("0.0.0.0:0", TOKEN, True),
        ("10.0.0.1:0", tls(needs_certificates=True), True),
    ],
)
def test_where_it_may_listen(address: str, security: Security, objects: bool) -> None:
    check_exposure(address, security, objects=objects)


@pytest.mark.parametrize(
    ("address", "security", "objects", "message"),
    [
        ("0.0.0.0:0", OPEN, False, "could run graphs"),
        ("[::]:0", OPEN, False, "could run graphs"),
        ("a-name.example:0", OPEN, False, "could run graphs"),
        ("10.0.0.1:0", tls(needs_certificates=False), False, "could run graphs"),
        ("127.0.0.1:0", OPEN, True, "could run code"),
        ("127.0.0.1:0", tls(needs_certificates=False), True, "could run code"),
    ],
)
def test_where_it_may_not(address: str, security: Security, objects: bool, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        check_exposure(address, security, objects=objects)
    assert "token" in (refused.value.hint or "")
