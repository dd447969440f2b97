"""Running sessions from code that is not async: ``ax.run`` and ``ax.BlockingSession``."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.extras import is_installed
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.direct_session import Feeds, Fetches, Session
from asyncexec.session.session_config import RunOptions, SessionConfig
from asyncexec.session.stream_session import OnError, StreamMap

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of *main*, a coroutine or an async function without arguments, in an event loop of its own.

    The loop is uvloop's where that is installed, else asyncio's.

    Raises:
        FailedPreconditionError: a loop is running in this thread already.
    """
    if _is_loop_running():
        if asyncio.iscoroutine(main):
            main.close()
        raise FailedPreconditionError("ax.run starts an event loop, but one is running here", hint="await it instead")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main() if callable(main) else main)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not is_installed("uvloop"):
        return None
    import uvloop

    return uvloop.new_event_loop


class BlockingSession:
    """A Session for code that is not async: its event loop runs on a thread of its own, so it works in notebooks too.

    ``with ax.BlockingSession(graph) as session: session.run(...)``.  Arguments and errors are those of Session.
    """

    def __init__(self, graph: Graph, config: SessionConfig | None = None) -> None:
        self._session = Session(graph, config)
        self._portal: BlockingPortal | None = None
        self._exits = contextlib.ExitStack()

    @property
    def graph(self) -> Graph:
        return self._session.graph

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise FailedPreconditionError("this session is open already")
        options = {"use_uvloop": is_installed("uvloop")}
        self._portal = self._exits.enter_context(start_blocking_portal("asyncio", options))
        self._exits.callback(self._portal.call, self._session.close)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(
        self,
        fetches: Fetches,
        feeds: Feeds | None = None,
        *,
        targets: Iterable[Node | Tensor | str] = (),
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """``Session.run``, waited for."""

        async def call() -> Any:
            return await self._session.run(fetches, feeds, targets=targets, options=options, metadata=metadata)

        return self._open_portal().call(call)

    def map(
        self,
        fetches: Fetches,
        items: Iterable[Feeds],
        *,
        window: int = 32,
        ordered: bool = True,
        on_error: OnError = "raise",
    ) -> Iterator[Any]:
        """``Session.map``, as a generator; *items* are drawn in the loop's thread."""
        portal = self._open_portal()
        end = object()
        in_loop = portal.call(threading.get_ident)

        async def begin() -> StreamMap:
            return self._session.map(fetches, items, window=window, ordered=ordered, on_error=on_error)

        async def take() -> Any:
            return await anext(outputs, end)

        outputs = portal.call(begin)
        try:
            while (out := self._open_portal().call(take)) is not end:
                yield out
        finally:
            # The close of the session has ended it; and in the loop's thread, where a generator may be collected, its
            # handle does.
            if self._portal is portal and threading.get_ident() != in_loop:
                portal.call(outputs.aclose)

    def make_callable(
        self, fetches: Fetches, feed_list: Sequence[Tensor | str] = (), targets: Iterable[Node | Tensor | str] = ()
    ) -> Callable[..., Any]:
        """``Session.make_callable``; the function it gives is a plain one."""
        self._open_portal()
        call = self._session.make_callable(fetches, feed_list, targets)
        return lambda *values: self._open_portal().call(call, *values)

    def extend(self, graph_def: GraphDef) -> None:
        """``Session.extend``, waited for."""
        self._open_portal().call(self._session.extend, graph_def)

    def close(self) -> None:
        """``Session.close``, waited for; the loop's thread ends."""
        self._exits.close()
        self._portal = None

    def _open_portal(self) -> BlockingPortal:
        if self._portal is None:
            raise FailedPreconditionError("this session is not open", hint="use it in a 'with' block")
        return self._portal
