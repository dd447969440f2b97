"""Hosts: the names by which browsers may ask a service that asks for no tokens.

A page of any site can have its own name lead to this machine, so that a browser takes the service for a part of that
site (DNS rebinding).  The name still stands in the Host header, which such a page cannot choose.  An address cannot be
made to lead elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

_OF_BROWSERS: Final = frozenset((b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"))


class Hosts:
    """What the Host header of a browser's request may be: one of *names*, localhost, or any address."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(("localhost", *(_plain(name) for name in names)))

    def allow(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request with *headers* is answered; one that is not of a browser always is."""
        for name, _ in headers:
            if name in _OF_BROWSERS:
                return self._is_known(next((value for name, value in headers if name == b"host"), b""))
        return True

    def _is_known(self, host: bytes) -> bool:
        name = host.decode("latin-1")
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        return _plain(name) in self._names or _is_address(name)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
