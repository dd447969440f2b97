"""Where a worker may listen: not where strangers could use it."""

from __future__ import annotations

import ipaddress
import ssl

from asyncexec.distributed.transport.address import UnixAddress, parse_address
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.errors import InvalidArgumentError


def check_exposure(address: str, security: Security, *, objects: bool) -> None:
    """Refuse an address at which nobody has to prove who they are, if others than the user may reach it.

    Raises:
        InvalidArgumentError: other machines reach *address*, or other users of this one where *objects* let clients run
            code; or it is no address.
    """
    target, tls = parse_address(address), security.tls
    has_authority = tls is not None and tls.server is not None and tls.server.verify_mode is ssl.CERT_REQUIRED
    if isinstance(target, UnixAddress) or security.token is not None or has_authority:
        return
    hint = "let clients know a token, or have certificates (Tls.from_files(..., ca=...))"
    if objects:
        raise InvalidArgumentError(f"whoever reaches {target} could run code, as objects are allowed", hint=hint)
    if not _is_loopback(target.host):
        raise InvalidArgumentError(f"whoever reaches {target} could run graphs", hint=hint)


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches *host*."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
