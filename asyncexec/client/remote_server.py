"""RemoteServer: what a server serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from asyncexec.client.connecting import Address, Connecting, WantedModel
from asyncexec.client.connection import Calls, Connection
from asyncexec.client.remote_session import RemoteSession, open_session

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class ModelState:
    """A version of a model in the repository of a server.

    Attributes:
        name, version: what it is called; a model that no version is known of has "".
        state: "READY", "UNAVAILABLE", "LOADING" or "UNLOADING"; "" where the server does not tell.
        reason: why it is not ready.
    """

    name: str
    version: str
    state: str
    reason: str


class RemoteServer:
    """A server of models, for one event loop; ``ax.connect(url)`` makes it.

    Attributes:
        url: where it is.
        name, version: what it calls itself.
    """

    def __init__(self, connection: Connection, calls: Calls, name: str, version: str, timeout_s: float | None) -> None:
        self.url: str = connection.url
        self.name: str = name
        self.version: str = version
        self._connection = connection
        self._calls = calls
        self._timeout_s = timeout_s
        self._sessions: WeakSet[RemoteSession] = WeakSet()

    async def __aenter__(self) -> Self:
        self._calls.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<RemoteServer {self.name} {self.version} at {self.url}{', closed' if self._calls.is_closed else ''}>"

    async def models(self) -> list[ModelState]:
        """The models of its repository; UnimplementedError where it does not list them."""
        answer = await self._calls.ask("RepositoryIndex", self._timeout_s)
        return [ModelState(each.name, each.version, each.state, each.reason) for each in answer.models]

    async def is_ready(self, model: str = "", version: str = "") -> bool:
        """Whether *model* can be run; without one, whether all models of the server can."""
        if model:
            answer = await self._calls.ask("ModelReady", self._timeout_s, name=model, version=version)
        else:
            answer = await self._calls.ask("ServerReady", self._timeout_s)
        return bool(answer.ready)

    def session(
        self, model: str, version: str = "", *, timeout: float | None = None, python_scalars: bool = False
    ) -> Connecting[RemoteSession]:
        """A session of *model* over this connection: ``async with server.session("digits") as session``.

        The arguments and errors are those of ``ax.connect``.  Sessions end with the server that made them.
        """
        self._calls.check_open()
        limit_s = self._timeout_s if timeout is None else timeout
        wanted = WantedModel.checked(model, version, limit_s, python_scalars=python_scalars)

        async def connect() -> RemoteSession:
            self._calls.check_open()
            session = await open_session(self._connection, wanted)
            self._sessions.add(session)
            return session

        return Connecting(connect)

    async def close(self) -> None:
        """End all calls, those of its sessions too; their callers get CancelledError."""
        for session in list(self._sessions):
            await session.close()
        await self._calls.close()
        await self._connection.close()


async def connect_to_server(address: Address, timeout_s: float | None) -> RemoteServer:
    """The server at *address*."""
    connection = await Connection.open(address)
    try:
        calls = connection.calls()
        told = await calls.ask("ServerMetadata", timeout_s)
        return RemoteServer(connection, calls, told.name, told.version, timeout_s)
    except BaseException:
        await connection.close()
        raise


async def connect_to_model(address: Address, wanted: WantedModel) -> RemoteSession:
    """A session of a model, which closes its connection."""
    connection = await Connection.open(address)
    try:
        return await open_session(connection, wanted, owns_connection=True)
    except BaseException:
        await connection.close()
        raise
