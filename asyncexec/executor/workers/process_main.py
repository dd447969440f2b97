"""What runs in a worker process: it begins, and makes calls."""

from __future__ import annotations

import functools
import os
import signal
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from asyncexec.executor.workers.message import Failure, Message, attach, pack, unpack
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.process_calls import FunctionReference

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.shared_memory import SharedMemory

# Segments that are still in use after their call: of inputs that the function has kept, and on Windows, where a segment
# is gone when nobody has it open, of the last result.
_open_segments: list[SharedMemory] = []
_CLOSES_AT_ONCE: Final = os.name != "nt"


def serve(connection: Connection) -> None:
    """Answer calls until the other end is closed.  Ctrl-C is left to the parent; when it ends, so does this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name != "nt":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was blocked until now
    threading.Thread(target=_end_with_parent, name="asyncexec-parent", daemon=True).start()
    while True:
        try:
            function, inputs, result_segment = connection.recv()
        except EOFError:
            return
        connection.send(run_call(function, inputs, result_segment))


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_call(function: FunctionReference, inputs: Message, result_segment: str) -> tuple[bool, Message]:
    """Call *function* with the args and kwargs in *inputs*: whether it succeeded, and its result or Failure."""
    _close_segments()
    segment = attach(inputs)
    if segment is not None:
        _open_segments.append(segment)
    try:
        found = _called(function, inputs, segment, result_segment)
    except BaseException as error:
        shown = "".join(traceback.format_exception(error))
        error.__traceback__ = error.__cause__ = error.__context__ = None
        found = False, _packed(Failure.of(error, shown), result_segment)
    _close_segments(keep=None if _CLOSES_AT_ONCE else result_segment)
    return found


def _called(
    function: FunctionReference, inputs: Message, segment: SharedMemory | None, result_segment: str
) -> tuple[bool, Message]:
    call = _resolved(function)
    args, kwargs = unpack(inputs, segment, copy=False)
    with np.errstate(all="ignore"):
        result = call(*args, **kwargs)
    try:
        return True, _packed(result, result_segment)
    except Exception as error:
        raise InvalidArgumentError(
            f"the result cannot be sent back from the process: {type(error).__name__}: {error}",
            hint="what goes in and comes out must be picklable",
        ) from error


def _packed(values: object, segment_name: str) -> Message:
    message, segment = pack(values, segment_name)
    if segment is not None:
        _open_segments.append(segment)
    return message


@functools.cache
def _resolved(function: FunctionReference) -> Callable[..., object]:
    return function.resolve()


def _close_segments(keep: str | None = None) -> None:
    """Close all segments but *keep*; one whose memory somebody holds stays open until the next time."""
    left: list[SharedMemory] = []
    for segment in _open_segments:
        try:
            if segment.name == keep:
                raise BufferError
            segment.close()
        except BufferError:
            left.append(segment)
    _open_segments[:] = left
