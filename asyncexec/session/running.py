"""Running sessions from code that is not async: ``ax.run`` and ``ax.BlockingSession``."""

from __future__ import annotations

import asyncio
import atexit
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from typing import Any, Final, Self, TypeVar

from asyncexec.durable.record import Codec
from asyncexec.durable.store import Store
from asyncexec.executor.diagnostics.cost_model import CostModel
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.extras import is_installed
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.pausing import Pause
from asyncexec.framework.spans import Hook
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.framework.weak_group import WeakGroup
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.direct_session import Session
from asyncexec.session.fetch_types import Feeds, Fetches, typed_blocking_run
from asyncexec.session.loop_thread import LoopThread
from asyncexec.session.session_config import RunOptions, SessionConfig
from asyncexec.session.sigterm import drain_at_sigterm
from asyncexec.session.stream_session import OnError

T = TypeVar("T")

_EXIT_S: Final = 5.0  # how long the process waits at its exit for a session that nobody has closed


def run(main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run *main*, a coroutine or an async function without arguments, in a new event loop, and return its result.

    The loop is uvloop's if uvloop is installed, else asyncio's.

    SIGTERM drains streams that draw their items: they take no more, the items under way end, and *main* goes on.  The
    next SIGTERM ends the process, and so does the first where no such stream is open.  A program that has a handler of
    its own for SIGTERM keeps it.

    Raises:
        FailedPreconditionError: a loop is running in this thread already.
    """
    if _is_loop_running():
        if asyncio.iscoroutine(main):
            main.close()
        raise FailedPreconditionError("ax.run starts an event loop, but one is running here", hint="await it instead")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        drain_at_sigterm(runner.get_loop())
        return runner.run(main() if callable(main) else main)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if not is_installed("uvloop"):
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


class BlockingSession:
    """A Session for code that is not async: its event loop runs on a thread of its own, so it works in notebooks too.

    ``with ax.BlockingSession(graph) as session: session.run(...)``.  Arguments and errors are those of Session.

    Ctrl-C, and any other exception that reaches a waiting thread from outside, cancels the call that the thread waits
    for, and is raised when that call has ended.  A second one is raised at once; the call then ends in the background.

    Raises:
        FailedPreconditionError: the session is closed, or is opened a second time.
        OpError: as of ``Session.run``.
    """

    _thread: LoopThread | None = None

    def __init__(
        self,
        graph: Graph,
        config: SessionConfig | None = None,
        *,
        clock: Clock = CLOCK,
        cost_model: CostModel | None = None,
        hooks: Sequence[Hook] = (),
        journal: Store | None = None,
        journal_codec: Codec | None = None,
    ) -> None:
        self._session = Session(
            graph,
            config,
            clock=clock,
            cost_model=cost_model,
            hooks=hooks,
            journal=journal,
            journal_codec=journal_codec,
        )

    @property
    def graph(self) -> Graph:
        return self._session.graph

    def __repr__(self) -> str:
        return repr(self._session).replace("Session", "BlockingSession", 1)

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise FailedPreconditionError("this session is open already")
        thread = self._thread = LoopThread(_loop_factory())
        _open_sessions.add(self)
        try:
            thread.start()
        except BaseException:
            thread.stop()
            self._thread = None
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._thread is not None and self._thread.is_open:
            self._end_forgotten(self._thread, 0.0)

    @typed_blocking_run
    def run(
        self,
        fetches: Fetches,
        feeds: Feeds | None = None,
        *,
        targets: Iterable[Node | Tensor | str] = (),
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """``Session.run``; waits for the result."""

        async def call() -> Any:
            return await self._session.run(fetches, feeds, targets=targets, options=options, metadata=metadata)

        return self._open_thread().call(call)

    def map(
        self,
        fetches: Fetches,
        items: Iterable[Feeds],
        *,
        window: int = 32,
        ordered: bool = True,
        on_error: OnError = "raise",
        metadata: RunMetadata | None = None,
        checkpoint: Store | None = None,
        every: float = 1000,
        resume: bool = True,
        restore: bytes | None = None,
        exactly_once: bool = True,
        codec: Codec | None = None,
    ) -> Iterator[Any]:
        """``Session.map`` as a generator; the thread of the event loop draws the *items*."""
        thread = self._open_thread()
        end = object()

        async def take() -> Any:
            try:
                return await anext(outputs, end)
            except asyncio.CancelledError:
                await outputs.aclose()
                raise

        outputs = self._session.map(
            fetches,
            items,
            window=window,
            ordered=ordered,
            on_error=on_error,
            metadata=metadata,
            checkpoint=checkpoint,
            every=every,
            resume=resume,
            restore=restore,
            exactly_once=exactly_once,
            codec=codec,
        )
        while (out := self._open_thread().call(take)) is not end:
            try:
                yield out
            except BaseException:
                # The close of the session has ended the map; and in the loop's thread, where a generator may be
                # collected, its handle does.
                if thread.is_open and not thread.is_current:
                    thread.call(outputs.aclose)
                raise

    def make_callable(
        self, fetches: Fetches, feed_list: Sequence[Tensor | str] = (), targets: Iterable[Node | Tensor | str] = ()
    ) -> Callable[..., Any]:
        """``Session.make_callable``; the result is a plain function."""
        self._open_thread()
        call = self._session.make_callable(fetches, feed_list, targets)
        return lambda *values: self._open_thread().call(call, *values)

    def extend(self, graph_def: GraphDef, *, allowed_ops: Collection[str] = ()) -> None:
        """``Session.extend``; waits until it is done."""
        self._open_thread().call(partial(self._session.extend, allowed_ops=allowed_ops), graph_def)

    def save(self, path: str | PathLike[str], *, variables: Iterable[str] | None = None) -> None:
        """``Session.save``; waits until it is done."""
        self._open_thread().call(partial(self._session.save, variables=variables), path)

    def restore(self, path: str | PathLike[str], *, variables: Iterable[str] | None = None) -> None:
        """``Session.restore``; waits until it is done."""
        self._open_thread().call(partial(self._session.restore, variables=variables), path)

    def resume(
        self, token: str, value: object, *, options: RunOptions | None = None, metadata: RunMetadata | None = None
    ) -> Any:
        """``Session.resume``; waits for the result."""
        resume = partial(self._session.resume, options=options, metadata=metadata)
        return self._open_thread().call(resume, token, value)

    def resume_run(self, run_id: str, *, options: RunOptions | None = None, metadata: RunMetadata | None = None) -> Any:
        """``Session.resume_run``; waits for the result."""
        resume = partial(self._session.resume_run, options=options, metadata=metadata)
        return self._open_thread().call(resume, run_id)

    def pauses(self) -> list[Pause]:
        """``Session.pauses``."""
        found: list[Pause] = self._open_thread().call(self._session.pauses)
        return found

    def unfinished_runs(self) -> list[str]:
        """``Session.unfinished_runs``."""
        found: list[str] = self._open_thread().call(self._session.unfinished_runs)
        return found

    def forget_run(self, run_id: str) -> None:
        """``Session.forget_run``; waits until it is done."""
        self._open_thread().call(self._session.forget_run, run_id)

    def close(self) -> None:
        """``Session.close``; waits until it is done.  The thread of the event loop ends.

        An interrupt ends the drain (``SessionConfig.drain_timeout_s``): the steps under way are cancelled.
        """
        thread = self._thread
        if thread is not None:
            thread.close(self._session.close)
            self._thread = None

    def _end_forgotten(self, thread: LoopThread, wait_s: float) -> None:
        """Close a session that nobody has closed, and warn of it."""
        thread.close_soon(self._session.close, wait_s)
        warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def _open_thread(self) -> LoopThread:
        if self._thread is None:
            raise FailedPreconditionError("this session is not open", hint="use it in a 'with' block")
        return self._thread


_open_sessions: Final[WeakGroup[BlockingSession]] = WeakGroup()


@atexit.register
def _end_at_exit() -> None:
    """Close what was forgotten; but daemon threads that wait for a session end with the process, and it with them."""
    for session in _open_sessions.list():
        thread = session._thread
        if thread is not None and thread.is_open and not thread.is_busy:
            session._end_forgotten(thread, _EXIT_S)
