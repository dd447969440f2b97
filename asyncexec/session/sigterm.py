"""What SIGTERM does to the streams of ``ax.run``: they drain.

The first one closes the streams that draw their items: they take no more, and those under way end.  The program goes
on: it takes the results, and ends.  The next SIGTERM ends the process, as the first does where no stream is open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakSet

from asyncexec.framework.errors import UnavailableError
from asyncexec.session.session_loop import running_loop

if TYPE_CHECKING:
    from asyncexec.executor.streams.stream_scope import StreamScope


class Drain:
    """The streams of *loop* that SIGTERM closes.

    Attributes:
        has_begun: whether it has.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._streams: WeakSet[StreamScope] = WeakSet()
        self._is_listening = False
        self.has_begun: bool = False

    def add(self, stream: StreamScope) -> None:
        """Let SIGTERM close *stream*, which is about to draw its items."""
        self._streams.add(stream)
        if not self._is_listening:
            self._is_listening = True
            self._listen()

    def _listen(self) -> None:
        is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # else somebody has a handler of their own
        if is_free and threading.current_thread() is threading.main_thread():
            try:
                self._loop.add_signal_handler(signal.SIGTERM, self._begin)
            except NotImplementedError:  # on Windows
                return

    def _begin(self) -> None:
        self._loop.remove_signal_handler(signal.SIGTERM)
        streams = [stream for stream in self._streams if stream.window.results or not stream.has_ended]
        if not streams:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.has_begun = True
        for stream in streams:
            stream.close()


_drains: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Drain]] = WeakKeyDictionary()


def drain_at_sigterm(loop: asyncio.AbstractEventLoop) -> None:
    """Let SIGTERM drain the streams of *loop*."""
    _drains[loop] = Drain(loop)


def check_no_sigterm() -> None:
    """UnavailableError if the streams of the running loop drain."""
    drain = _drains.get(running_loop())
    if drain is not None and drain.has_begun:
        raise UnavailableError("the process has got SIGTERM: no more streams begin in it")


def note_stream(stream: StreamScope) -> None:
    """Take note of a *stream* of the running loop, which is about to draw its items."""
    drain = _drains.get(running_loop())
    if drain is not None:
        drain.add(stream)
