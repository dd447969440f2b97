"""Connection: a channel to a server, and what its calls raise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

import grpc

from asyncexec.client.connecting import Address
from asyncexec.framework.errors import (
    CancelledError,
    Code,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    error_class,
)
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.session.session_loop import running_loop

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # whoever connects anew does not wait for the next attempt of others
)
_NODE: Final = re.compile(r"\n  \[\[\{\{node (.*?)\}\}(?: = (.*?))?\]\]$", re.DOTALL)
_LONGEST_S: Final = 1e8
_LATE: Final = "Deadline Exceeded"  # what gRPC itself says


class Connection:
    """A channel to a server, for one event loop.

    Args:
        address: of the server.
        roots: the certificates to trust, in PEM; None for those of gRPC.

    Attributes:
        url: of the server.
    """

    def __init__(self, address: Address, roots: bytes | None) -> None:
        self.url: str = address.url
        self._loop = running_loop()
        if address.is_encrypted:
            credentials = grpc.ssl_channel_credentials(roots)
            self._channel: Any = grpc.aio.secure_channel(address.target, credentials, _OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(address.target, _OPTIONS)
        self._metadata = None if address.token is None else (("authorization", f"Bearer {address.token}"),)

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """The connection; InvalidArgumentError or NotFoundError where its certificates cannot be read."""
        if address.root_certificates is None:
            return cls(address, None)
        try:
            roots = await asyncio.to_thread(address.root_certificates.read_bytes)
        except OSError as error:
            kind = NotFoundError if isinstance(error, FileNotFoundError) else InvalidArgumentError
            raise kind(f"cannot read {address.root_certificates}: {error.strerror}") from None
        return cls(address, roots)

    def calls(self, model: str = "", version: str = "") -> Calls:
        """Calls of one user of the connection, about a version of *model* if there is one."""
        whose = self.url
        if model:
            whose = f"model {model!r}{f' version {version}' if version else ''} at {whose}"
        return Calls(whose, self._loop, self._channel, self._metadata)

    async def close(self) -> None:
        """End all calls."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


class Calls:
    """Calls over a connection that are ended together.

    Attributes:
        whose: what errors are from: a server, or a model of one.
        is_closed: whether there are no more.
    """

    def __init__(self, whose: str, loop: asyncio.AbstractEventLoop, channel: Any, metadata: object) -> None:
        self.whose: str = whose
        self.is_closed: bool = False
        self._loop = loop
        self._channel = channel
        self._metadata = metadata
        self._under_way: set[Any] = set()

    def check_open(self) -> None:
        """CancelledError where they are closed; FailedPreconditionError where another event loop runs."""
        if self.is_closed:
            raise _closed()
        self.check_loop()

    def check_loop(self) -> None:
        """FailedPreconditionError where another event loop runs."""
        if asyncio.get_running_loop() is not self._loop:
            raise FailedPreconditionError(
                "this session was connected in another event loop", hint="connect in the loop that uses it"
            )

    def unary(self, name: str) -> Callable[[bytes, float | None], Any]:
        """The call *name*, which takes a message and a timeout in seconds, and gives a message.

        Errors are those of ``told``; CancelledError where the calls are closed meanwhile.
        """
        method, metadata, under_way = self._channel.unary_unary(f"/{SERVICE}/{name}"), self._metadata, self._under_way

        async def call(data: bytes, timeout_s: float | None) -> bytes:
            # gRPC takes one that is centuries for one that has passed.
            limit_s = timeout_s if timeout_s is None or timeout_s < _LONGEST_S else None
            begun = method(data, timeout=limit_s, metadata=metadata)
            under_way.add(begun)
            try:
                answer: bytes = await begun
                return answer
            except grpc.aio.AioRpcError as error:
                raise self.told(error, "run" if name == "ModelInfer" else "call", timeout_s) from None
            except asyncio.CancelledError:
                if self.is_closed and not _is_cancelled():
                    raise _closed() from None
                raise
            finally:
                under_way.discard(begun)

        return call

    async def ask(self, name: str, timeout_s: float | None, /, **fields: object) -> Any:
        """The answer, a message, to the call *name* with a message of *fields*; errors as of ``unary``."""
        self.check_open()
        data = message(f"{name}Request")(**fields).SerializeToString()
        return message(f"{name}Response").FromString(await self.unary(name)(data, timeout_s))

    def stream(self, name: str) -> Any:
        """A call of grpc.aio for a stream both ways."""
        begun = self._channel.stream_stream(f"/{SERVICE}/{name}")(metadata=self._metadata)
        self._under_way.add(begun)
        begun.add_done_callback(self._under_way.discard)
        return begun

    def told(self, error: grpc.aio.AioRpcError, what: str = "stream", timeout_s: float | None = None) -> OpError:
        """The typed error that *error* is: the server's own, or of the connection; *what* has failed."""
        details = error.details() or ""
        if timeout_s is not None and details == _LATE:
            details = f"the {what} took more than its timeout of {timeout_s:g} s"
        return typed_error(Code(error.code().value[0]), details, self.whose)

    async def close(self) -> None:
        """Cancel those under way, and wait until they have ended."""
        self.is_closed = True
        begun = list(self._under_way)
        for call in begun:
            call.cancel()
        for call in begun:
            await call.code()


def typed_error(code: Code, text: str, whose: str) -> OpError:
    """The error of *code* with the *text* that *whose* server has sent; a node that it names is the error's."""
    found = _NODE.search(text)
    if found is None:
        error = error_class(code)(text)
    else:
        error = error_class(code)(text[: found.start()], node=found[1], op=found[2])
    error.add_note(f"from {whose}")
    return error


def _closed() -> CancelledError:
    return CancelledError("Session has been closed.", hint="call it inside of the session's 'async with' block")


def _is_cancelled() -> bool:
    # A function of its own: a frame that an exception of the task knows must not know the task.
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())
