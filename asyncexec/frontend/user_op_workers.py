"""Plain functions of user ops that have a timeout, retries or a limit: called on worker threads, awaited in their task.

Nothing can end a call that has begun.  When its timeout is over the attempt has failed all the same, and the thread is
left to itself: its result is dropped, and its slot of the limiter is given back when it does return, so that the limit
holds for what really runs.  A call that has not begun is not made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.kernel import OpKernelConstruction

WorkerCall: TypeAlias = Callable[..., Awaitable[Any]]  # WorkerCalls.call, for one node


class WorkerCalls(Protocol):
    """What calls plain functions on the worker threads of a device."""

    async def call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        *,
        name: str,
        timeout_s: float | None,
        on_return: Callable[[], object],
    ) -> Any:
        """The result of ``function(*args)``; *on_return* is called, once, when its thread is free again.

        Raises:
            DeadlineExceededError: the call has not ended within *timeout_s*.
        """
        ...


def op_workers(construction: OpKernelConstruction) -> WorkerCall:
    """What calls functions on the threads of the device that the node runs on."""
    devices: Mapping[str, WorkerCalls] = construction.resource_mgr.lookup_or_create(
        dict, "_session", "worker_calls", dict
    )
    calls = devices.get(construction.device)
    if calls is None:
        raise FailedPreconditionError(
            f"op {construction.op!r} runs on a worker thread, but there is no session that has any"
        )
    return partial(calls.call, name=construction.name)
