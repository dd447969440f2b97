"""What a coordinator and its workers say to each other, besides tensors.

After ``tensorflow/core/protobuf/worker.proto``: GetStatus is STATUS, RegisterGraph REGISTER, RunGraph RUN
and its answer DONE, CleanupGraph FORGET, DeregisterGraph DEREGISTER.  What is said in every step is packed; all else is
JSON.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Final, NamedTuple

from asyncexec.framework.errors import InvalidArgumentError

SESSION_BITS: Final = 32  # of the number of a step: the upper ones are those of its session
CONSTANTS_STEP: Final = 0  # what large constants of graphs travel as; steps have the numbers after it


class Kind(IntEnum):
    """The kinds of messages."""

    STATUS = 1  # what devices a worker has: the first that a client is told
    OPEN = 2  # a session begins, with its number; and where the workers are now
    CLOSE = 3  # a session ends
    CLOSED = 4
    REGISTER = 5  # the partitions of a signature
    DEREGISTER = 6
    RUN = 7  # a step begins
    DONE = 8  # the worker's part of it has ended
    ABORT = 9  # the step has failed elsewhere
    FORGET = 10  # the step has ended everywhere
    OPENED = 11  # the answer to OPEN: values of the session's steps may come
    REFUSED = 12  # a worker does not take a session, or, without one, what the connection has brought


class RunFlags(IntFlag):
    """How a step is run."""

    NONE = 0
    TRACE = 1


class Run(NamedTuple):
    """RUN: the step *step_id* of the graph *graph_id* begins."""

    step_id: int
    graph_id: int
    flags: RunFlags


class Abort(NamedTuple):
    """ABORT: the step has failed; *is_cancelled* where nobody waits for its results."""

    step_id: int
    is_cancelled: bool


class Forget(NamedTuple):
    """FORGET: the step has ended, and so have all before *oldest*."""

    step_id: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Done:
    """DONE: a worker's part of a step has ended.

    Attributes:
        error: what it has failed with, as ``encode_error`` gives it.
        stats: its StepStats, where they were asked for, as ``pack_stats`` gives them.
        tensors_from_workers, bytes_from_workers: the values of the session that have come from other workers since the
            last DONE.
    """

    step_id: int
    error: dict[str, Any] | None = None
    stats: dict[str, Any] | None = None
    tensors_from_workers: int = 0
    bytes_from_workers: int = 0


_RUN: Final = struct.Struct("<QIB")
_ABORT: Final = struct.Struct("<Q?")
_FORGET: Final = struct.Struct("<QQ")
_DONE: Final = struct.Struct("<QQQ")


def session_of(step_id: int) -> int:
    """The number of the session that a step is of."""
    return step_id >> SESSION_BITS


def step_in_session(step_id: int) -> int:
    """The number that a step has among those of its session."""
    return step_id & ((1 << SESSION_BITS) - 1)


def pack_run(run: Run) -> bytes:
    return _RUN.pack(*run)


def unpack_run(body: bytes) -> Run:
    step_id, graph_id, flags = _unpack(_RUN, body)
    return Run(step_id, graph_id, RunFlags(flags))


def pack_abort(abort: Abort) -> bytes:
    return _ABORT.pack(*abort)


def unpack_abort(body: bytes) -> Abort:
    return Abort(*_unpack(_ABORT, body))


def pack_forget(forget: Forget) -> bytes:
    return _FORGET.pack(*forget)


def unpack_forget(body: bytes) -> Forget:
    return Forget(*_unpack(_FORGET, body))


def pack_done(done: Done) -> bytes:
    head = _DONE.pack(done.step_id, done.tensors_from_workers, done.bytes_from_workers)
    told = {key: value for key, value in (("error", done.error), ("stats", done.stats)) if value is not None}
    return head + pack_json(told) if told else head


def unpack_done(body: bytes) -> Done:
    step_id, *from_workers = _unpack(_DONE, body[: _DONE.size])
    told = unpack_json(body[_DONE.size :]) if len(body) > _DONE.size else {}
    return Done(step_id, told_object(told, "error"), told_object(told, "stats"), *from_workers)


def pack_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def unpack_json(body: bytes) -> dict[str, Any]:
    """The object in *body*; InvalidArgumentError when it is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"a message is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"a message is a JSON object, not {type(value).__name__}")
    return value


def told_number(told: dict[str, object], name: str) -> int:
    """The number that a message tells; InvalidArgumentError when it tells none."""
    number = told.get(name)
    if type(number) is not int or not 0 <= number < 1 << 64:
        raise InvalidArgumentError(f"{name!r} of a message is a number of 64 bits, not {str(number)[:50]!r}")
    return number


def told_object(told: dict[str, object], name: str) -> dict[str, object] | None:
    """The object that a message tells, or None; InvalidArgumentError when it is something else."""
    found = told.get(name)
    if found is not None and not isinstance(found, dict):
        raise InvalidArgumentError(f"{name!r} of a message is an object, not {str(found)[:50]!r}")
    return found


def _unpack(form: struct.Struct, body: bytes) -> tuple[Any, ...]:
    if len(body) != form.size:
        raise InvalidArgumentError(f"a message has {len(body)} bytes where {form.size} were expected")
    return form.unpack(body)
