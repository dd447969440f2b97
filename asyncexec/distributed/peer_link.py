"""PeerLink: the way to another process, which is dialed when it is first used and again after it was lost.

What is to be sent before there is a connection waits, in order.  Where none can be made, who waits is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from asyncexec.distributed.transport.connection import Connection
from asyncexec.framework.errors import OpError, UnavailableError

# Is told of a way that is lost: the name of the process, and why.
OnLost: TypeAlias = Callable[[str, OpError], None]
Action: TypeAlias = Callable[[Connection], None]


class PeerLink:
    """See the head of this module.

    Args:
        name: of the process at the other end.
        connect: makes a connection; OpError when that cannot be.
        on_lost: is told when no connection can be made.

    Attributes:
        connection: the one there is now.
    """

    def __init__(self, name: str, connect: Callable[[], Awaitable[Connection]], on_lost: OnLost) -> None:
        self.name = name
        self.connection: Connection | None = None
        self._connect = connect
        self._on_lost = on_lost
        self._pending: list[Action] = []
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def send(self, kind: int, body: bytes = b"") -> None:
        """Send a message, now or when there is a connection."""
        self.do(lambda connection: connection.send(kind, body))

    def send_tensor(self, step_id: int, key: str, value: Any, is_dead: bool = False) -> None:
        """Push *value*, now or when there is a connection; InvalidArgumentError as of Connection."""
        if self.connection is not None:
            self.connection.send_tensor(step_id, key, value, is_dead)
        else:
            self.do(lambda connection: connection.send_tensor(step_id, key, value, is_dead))

    @property
    def is_in_use(self) -> bool:
        """Whether something was sent that has arrived, or will when there is a connection."""
        return self.connection is not None or bool(self._pending)

    def do(self, action: Action) -> None:
        """Have *action* called with the connection, now or when there is one."""
        if self.connection is not None:
            action(self.connection)
        elif not self._is_closed:
            self._pending.append(action)
            self.dial()

    def dial(self) -> None:
        """Begin to connect, unless that is under way or done."""
        if self.connection is None and self._connecting is None and not self._is_closed:
            self._connecting = asyncio.get_running_loop().create_task(self._dial())

    async def connected(self) -> Connection:
        """The connection, made now if need be.

        Raises:
            OpError: it cannot be made.
        """
        while self.connection is None:
            if self._is_closed:
                raise UnavailableError(f"the way to {self.name} is closed")
            self.dial()
            assert self._connecting is not None
            await asyncio.shield(self._connecting)
            failure = self.failure
            if failure is not None:
                raise failure
        return self.connection

    failure: OpError | None = None  # why the last attempt to connect was in vain

    def lose(self) -> None:
        """The connection is lost: what is sent from now on goes by another one."""
        self.connection = None

    async def close(self) -> None:
        """Close the connection, and make no other."""
        self._is_closed = True
        self._pending.clear()
        connecting, connection = self._connecting, self.connection
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting])
        if connection is not None:
            self.connection = None
            await connection.close()

    async def _dial(self) -> None:
        self.failure = None
        try:
            connection = await self._connect()
        except OpError as error:
            self.failure = error
            self._pending.clear()
            self._on_lost(self.name, error)
            return
        finally:
            self._connecting = None
        if self._is_closed:
            await connection.close()
            return
        self.connection = connection
        pending, self._pending = self._pending, []
        for action in pending:
            try:
                action(connection)
            except OpError as error:  # a value that has no form to be sent in
                self._on_lost(self.name, error)
