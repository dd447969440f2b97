"""``ax.connect``: where a server is, and what comes of connecting to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, overload
from urllib.parse import urlsplit

from asyncexec.client import EXTRA
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.lazy_module import LazyModule

if TYPE_CHECKING:
    from asyncexec.client.remote_server import RemoteServer
    from asyncexec.client.remote_session import RemoteSession

_remote_server = LazyModule("asyncexec.client.remote_server")

_SCHEMES: Final = ("grpc", "grpcs")


class Closable(Protocol):
    """What is closed at the end."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Connecting(Awaitable[C], AbstractAsyncContextManager[C, None]):
    """What connects when it is awaited; ``async with`` does that too, and closes at the end."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._connect = connect
        self._connected: list[C] = []

    def __await__(self) -> Generator[Any, Any, C]:
        return self._connect().__await__()

    async def __aenter__(self) -> C:
        connected = await self._connect()
        self._connected.append(connected)
        return connected

    async def __aexit__(self, *exc_info: object) -> None:
        await self._connected.pop().close()


class Address(NamedTuple):
    """Where a server is, and how to speak to it."""

    url: str
    target: str  # as grpc takes it
    is_encrypted: bool
    token: str | None
    root_certificates: Path | None


@overload
def connect(
    url: str,
    *,
    model: str,
    version: str = "",
    token: str | None = None,
    root_certificates: str | Path | None = None,
    timeout: float | None = None,
    python_scalars: bool = False,
) -> Connecting[RemoteSession]: ...
@overload
def connect(
    url: str,
    *,
    model: None = None,
    token: str | None = None,
    root_certificates: str | Path | None = None,
    timeout: float | None = None,
) -> Connecting[RemoteServer]: ...
def connect(
    url: str,
    *,
    model: str | None = None,
    version: str = "",
    token: str | None = None,
    root_certificates: str | Path | None = None,
    timeout: float | None = None,
    python_scalars: bool = False,
) -> Connecting[Any]:
    """Connect to a server: ``async with ax.connect("grpc://localhost:8001", model="digits") as session: ...``.

    The server is ``asyncexec serve``, or any other of the Open Inference Protocol over gRPC.  ``session = await
    ax.connect(...)`` connects too; then close it by ``await session.close()``.

    Args:
        url: ``grpc://HOST:PORT``, or ``grpcs://HOST:PORT`` for an encrypted connection.
        model: the model to run.  Without it, this gives a RemoteServer, which lists models and makes their sessions.
        version: of the model; "" is the version that the server prefers, mostly the newest.
        token: a bearer token, sent with each request.
        root_certificates: a file in PEM with the certificates to trust, for ``grpcs``; by default those of gRPC.
        timeout: the longest time in seconds of connecting, and of each run whose RunOptions have none.
        python_scalars: as in SessionConfig.

    Returns:
        A RemoteSession, which is used like ``ax.Session``, or a RemoteServer.

    Raises:
        InvalidArgumentError: the URL is no such one, or the arguments do not fit it.
        MissingExtraError: the extra ``client`` is not installed.
        UnavailableError: when awaited: nobody answers there.
        NotFoundError, UnauthenticatedError: when awaited: the server has no such model, or asks for another token.
    """
    for module in EXTRA:
        require(module, extra="client")
    address = _address_of(url, token, root_certificates)
    if model is None:
        check_timeout(timeout)
        if version or python_scalars:
            raise InvalidArgumentError("version and python_scalars are of a session, which needs a model")
        return Connecting(lambda: _remote_server.connect_to_server(address, timeout))
    wanted = WantedModel.checked(model, version, timeout, python_scalars=python_scalars)
    return Connecting(lambda: _remote_server.connect_to_model(address, wanted))


class WantedModel(NamedTuple):
    """What a session is asked for: a model, and how it is used."""

    model: str
    version: str
    timeout_s: float | None
    python_scalars: bool

    @classmethod
    def checked(cls, model: str, version: str, timeout_s: float | None, *, python_scalars: bool) -> WantedModel:
        """The same; InvalidArgumentError where an argument is not what it has to be."""
        check_timeout(timeout_s)
        if not _is_text(model) or not model:
            raise InvalidArgumentError(f"model is the name of a model, not {model!r}")
        if not _is_text(version):
            raise InvalidArgumentError(f"version is text, such as '2', not {version!r}")
        return cls(model, version, timeout_s, python_scalars)


def check_timeout(timeout_s: Any) -> None:
    """InvalidArgumentError unless *timeout_s* is a number of seconds, or None."""
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s > 0):
        raise InvalidArgumentError(f"a timeout is a number of seconds above 0, not {timeout_s!r}")


def _is_text(value: object) -> bool:
    """Whether *value* is text that can be sent."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _address_of(url: str, token: object, root_certificates: str | Path | None) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError):
        raise InvalidArgumentError(f"{url!r} is no URL", hint="grpc://localhost:8001") from None
    if parts.scheme not in _SCHEMES:
        hint = (
            f"there are {' and '.join(f'{each}://' for each in _SCHEMES)}; the service speaks gRPC on a port of its own"
        )
        raise InvalidArgumentError(f"the scheme of {url!r} is {parts.scheme!r}", hint=hint)
    if not host or port is None or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise InvalidArgumentError(f"{url!r} is not a scheme, a host and a port", hint="grpc://localhost:8001")
    is_encrypted = parts.scheme == "grpcs"
    if root_certificates is not None and not is_encrypted:
        raise InvalidArgumentError("certificates are for encrypted connections", hint=f"grpcs://{host}:{port}")
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and token):
        raise InvalidArgumentError("a token has printable characters of ASCII alone")  # it is not told: it is secret
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    roots = None if root_certificates is None else Path(root_certificates)
    return Address(f"{parts.scheme}://{target}", target, is_encrypted, token, roots)
