"""The sessions of TensorFlow's clients, by handle.

A client that vanishes closes nothing, so a session that nobody has used for long is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from asyncexec.framework.errors import AbortedError, ResourceExhaustedError, UnavailableError
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.ops.io.file_ops import FILE_OPS
from asyncexec.service.master.session import MasterSession

SESSION_IDLE_S: Final = 3600.0
MAX_SESSIONS: Final = 1000


class MasterSessions:
    """All sessions of a service.

    Args:
        allows_files: whether graphs of clients may read and write files.
        session_idle_s: a session without a call for so long is closed.
        max_sessions: how many there may be.
    """

    def __init__(
        self,
        *,
        allows_files: bool = False,
        session_idle_s: float = SESSION_IDLE_S,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self._allowed_ops = FILE_OPS if allows_files else frozenset[str]()
        self._session_idle_s = session_idle_s
        self._max_sessions = max_sessions
        self._resources = ResourceMgr()
        self._sessions: dict[str, MasterSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def create(self, graph_def: bytes, config: object) -> MasterSession:
        """A session of a serialized GraphDef, with *config*, a message ConfigProto.

        Raises:
            ResourceExhaustedError: there are as many as there may be.
            OpError: as of ``Session.extend``.
        """
        if self._is_closed:
            raise UnavailableError("the service is ending")
        if len(self._sessions) >= self._max_sessions:
            raise ResourceExhaustedError(f"there are {self._max_sessions} sessions", hint="close some")
        session = MasterSession(config, self._resources, self._allowed_ops, self._session_idle_s, self._drop)
        self._sessions[session.handle] = session
        try:
            with session.used():
                await session.add(graph_def)
        except BaseException:
            await self.close_session(session.handle)
            raise
        return session

    @contextmanager
    def used(self, handle: str) -> Iterator[MasterSession]:
        """The session of that *handle*, which is not idle meanwhile; AbortedError if there is none."""
        session = self._sessions.get(handle)
        if session is None:
            raise AbortedError(f"Session {handle[:64]} is not found. Possibly, this master has restarted.")
        with session.used():
            yield session

    def _drop(self, session: MasterSession) -> None:
        if self._sessions.pop(session.handle, None) is not None:
            task = asyncio.create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close_session(self, handle: str) -> None:
        """Close the session of that *handle*, if there is one."""
        session = self._sessions.pop(handle, None)
        if session is not None:
            await session.close()

    async def reset(self, containers: Collection[str] = ()) -> None:
        """Close all sessions, and drop what they share: in *containers*, or all of it."""
        await asyncio.gather(*map(self.close_session, list(self._sessions)), *self._closing)
        self._resources.close(containers or None)

    async def close(self) -> None:
        """Close all sessions; there are no more then."""
        self._is_closed = True
        await self.reset()
