"""ExecutorCache: the executors of the signatures that a session has run, each built once, whoever asks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakValueDictionary

from asyncexec.framework.errors import OpError
from asyncexec.framework.under_way import tells
from asyncexec.session.executors_and_keys import ExecutorsAndKeys
from asyncexec.session.session_loop import SessionLoop

_MAX_CACHED: Final = 1000  # signatures; the oldest goes when there are more


class ExecutorCache(dict[Any, ExecutorsAndKeys]):
    """Executors by signature.

    Args:
        loop: that of the session, whose build lock is held while one is built.
        check_open: raises if nobody is let in any more.
    """

    def __init__(self, loop: SessionLoop, check_open: Callable[[], None]) -> None:
        super().__init__()
        # By what they feed, fetch and run, in whatever order and by whatever names.
        self.by_content: WeakValueDictionary[Any, ExecutorsAndKeys] = WeakValueDictionary()
        self._loop = loop
        self._check_open = check_open

    @tells(lambda _: "its graph was being compiled")
    async def get_or_build(self, key: object, build: Callable[[], Awaitable[ExecutorsAndKeys]]) -> ExecutorsAndKeys:
        """The executor of *key*; made by *build* if there is none, and nobody else is making it."""
        while (found := self.get(key)) is None:
            self._check_open()
            building = self._loop.building
            other = building.get(key)
            if other is not None:
                await other.wait()  # all who do so go on in one turn of the loop; by a lock, it would be one a turn
                continue
            over = building[key] = asyncio.Event()
            try:
                found = await self._build(build)
                self[key] = found
                return found
            finally:
                del building[key]
                if building is self._loop.building and not self._loop.is_closed:  # else nobody can be woken
                    over.set()
        return found

    async def _build(self, build: Callable[[], Awaitable[ExecutorsAndKeys]]) -> ExecutorsAndKeys:
        async with self._loop.build_lock:
            self._check_open()
            try:
                built = await build()
            except OpError:
                self._check_open()  # what nodes are made of goes with a session that is closed
                raise
        self._check_open()  # close() may have come meanwhile
        if len(self) >= _MAX_CACHED:
            del self[next(iter(self))]
        return built
