"""PeerLink: the way to another process, which is dialed when it is first used and again after it was lost.

What is to be sent before there is a connection waits, in order.  Where none can be made, who waits is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from asyncexec.distributed.transport.connection import Connection
from asyncexec.framework.derived import copy_of
from asyncexec.framework.errors import InternalError, OpError, UnavailableError

# Is told of a way that is lost: the name of the process, and why.
OnLost: TypeAlias = Callable[[str, OpError], None]
# Is told of a step for which something could not be sent that had waited for a connection, and why.
OnFailed: TypeAlias = Callable[[int, OpError], None]
Action: TypeAlias = Callable[[Connection], None]

NO_STEP: Final = -1


class PeerLink:
    """See the head of this module.

    Args:
        name: of the process at the other end.
        connect: makes a connection; OpError when that cannot be.
        on_lost: is told when no connection can be made.
        on_failed: is told when an action fails that has waited.

    Attributes:
        connection: the one there is now.
        failure: why the last attempt to connect was in vain.
    """

    def __init__(
        self, name: str, connect: Callable[[], Awaitable[Connection]], on_lost: OnLost, on_failed: OnFailed
    ) -> None:
        self.name: str = name
        self.connection: Connection | None = None
        self.failure: OpError | None = None
        self._connect = connect
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._pending: list[tuple[int, Action]] = []
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def send_tensor(self, step_id: int, key: str, value: object, is_dead: bool = False) -> None:
        """Push *value*, now or when there is a connection; InvalidArgumentError as of Connection."""
        if self.connection is not None:
            self.connection.send_tensor(step_id, key, value, is_dead)
        else:
            self.do(lambda connection: connection.send_tensor(step_id, key, value, is_dead), step_id)

    def do(self, action: Action, step_id: int = NO_STEP) -> None:
        """Have *action* called with the connection, for a step: now, or when there is one.

        What it raises comes from here if it is called now, and else is for ``on_failed``.

        Raises:
            UnavailableError: the way is closed.
        """
        if self.connection is not None:
            action(self.connection)
        elif self._is_closed:
            raise UnavailableError(f"the way to {self.name} is closed")
        else:
            self._pending.append((step_id, action))
            self.dial()

    def drop_step(self, step_id: int) -> None:
        """Send nothing more of a step, as far as it waits."""
        if self.connection is not None:
            self.connection.drop_step(step_id)
        elif self._pending:
            self._pending = [each for each in self._pending if each[0] != step_id]

    def dial(self) -> None:
        """Begin to connect, unless that is under way or done."""
        if self.connection is None and self._connecting is None and not self._is_closed:
            self._connecting = asyncio.get_running_loop().create_task(self._dial())

    def redial(self) -> None:
        """Connect anew, if that is under way: the address has changed."""
        if self._connecting is not None:
            self._connecting.cancel()
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
            await asyncio.wait([self._connecting])
            if self.failure is not None:
                raise copy_of(self.failure)
        return self.connection

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
        failure: OpError | None = None
        try:
            connection = await self._connect()
            if not connection.is_open:  # its end came before we did
                failure = UnavailableError(f"the connection with {self.name} is lost: it has ended")
        except Exception as error:
            failure = _named(self.name, error) if isinstance(error, OpError) else _unexpected(self.name, error)
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None
        if failure is None:
            self._begin(connection)
        else:
            self._fail(failure)

    def _fail(self, error: OpError) -> None:
        self.failure = copy_of(error)
        self._pending.clear()
        self._on_lost(self.name, error)

    def _begin(self, connection: Connection) -> None:
        self.connection = connection
        pending, self._pending = self._pending, []
        for step_id, action in pending:
            try:
                action(connection)
            except OpError as error:  # a value that has no form to be sent in, say
                self._on_failed(step_id, error)


def _named(name: str, error: OpError) -> OpError:
    """*error*, which may tell of an address alone, with the name of the process."""
    if name in error.message:
        return error
    named = type(error)(f"{name} cannot be reached: {error.message}", hint=error.hint)
    named.__cause__ = error.__cause__
    return named


def _unexpected(name: str, error: Exception) -> OpError:
    found = InternalError(f"connecting with {name} has raised {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
