"""LocalCollectiveExecutor: collectives among the devices of one step in one event loop.

After ``tensorflow/core/common_runtime/base_collective_executor.cc``: whatever one member does wrong ends all
collectives of the step.  Two things are otherwise: members that name different merge ops are refused, and values
are merged in the order of the ranks, where TensorFlow's ring goes around in another order for each part of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.collective import CollectiveMember, CollectiveStatistics, FinalOp, MergeOp
from asyncexec.framework.derived import make_derived, without_frames
from asyncexec.framework.errors import CancelledError, DeadlineExceededError, InternalError, OpError
from asyncexec.framework.types import DType
from asyncexec.framework.under_way import tells
from asyncexec.rendezvous.collective_instances import (
    CollectiveInstances,
    Instance,
    Operation,
    Part,
    exchanged,
    gathered,
    reduce_scattered,
    results,
)

# Calls a function that may take long with arguments, for the node of that name, off the event loop.
Offload: TypeAlias = Callable[[Callable[..., Any], Sequence[Any], str], Awaitable[Any]]
# Bytes of all members together from which merging is worth a worker thread.
OFFLOADED_SIZE: Final = 2**20


class LocalCollectiveExecutor:
    """The collectives of one step; *offload* keeps the merging of large values out of the event loop."""

    __slots__ = ("_error", "_instances", "_offload", "_on_wait", "_waiting")

    def __init__(self, offload: Offload | None = None) -> None:
        self._instances = CollectiveInstances()
        self._waiting: set[asyncio.Future[object]] = set()
        self._offload = offload
        self._on_wait: Callable[[], None] | None = None
        self._error: OpError | None = None

    async def all_reduce(self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp) -> object:
        """The values of all members merged, in the order of the ranks."""
        operation = Operation("all-reduce", value.dtype, np.shape(value), merge_op, final_op)
        return await self._take_part(member, operation, value)

    async def reduce(
        self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp, *, is_root: bool
    ) -> object:
        """The values of all members merged, for the root; None for the others."""
        operation = Operation("reduce", value.dtype, np.shape(value), merge_op, final_op)
        return await self._take_part(member, operation, value, is_source=is_root)

    async def gather(self, member: CollectiveMember, value: object) -> Any:
        """The values of all members along the first dimension."""
        return await self._take_part(member, self._checked(gathered, member, value), value)

    async def reduce_scatter(
        self, member: CollectiveMember, value: object, merge_op: MergeOp, final_op: FinalOp
    ) -> object:
        """The piece of this member's rank of the merged values."""
        operation = self._checked(reduce_scattered, member, value, merge_op, final_op)
        return await self._take_part(member, operation, value)

    async def all_to_all(self, member: CollectiveMember, value: object) -> object:
        """The rows of this member's rank of the values of all."""
        return await self._take_part(member, self._checked(exchanged, member, value), value)

    async def broadcast_send(self, member: CollectiveMember, value: Any) -> object:
        """*value*, once every member has come."""
        return await self._take_part(
            member, Operation("broadcast", value.dtype, np.shape(value)), value, is_source=True
        )

    async def broadcast_recv(self, member: CollectiveMember, dtype: DType, shape: Sequence[int]) -> object:
        """The value of the member that sends."""
        return await self._take_part(member, Operation("broadcast", dtype.as_numpy_dtype, tuple(map(int, shape))), None)

    def start_abort(self, error: OpError) -> None:
        """Wake every member with *error*, and refuse what comes later."""
        if self._error is not None:
            return
        self._error = without_frames(error)
        self._instances.clear()
        for result in self._waiting:
            if not result.done():
                result.set_exception(make_derived(error))
                result.exception()  # whose error it is raises it, and does not ask for this one

    def stuck(self) -> list[CollectiveMember]:
        """The members that wait, without a timeout, until others come."""
        return self._instances.stuck()

    def on_wait(self, call: Callable[[], None] | None) -> None:
        """Have *call*, and no other any more, called whenever a member begins to wait."""
        self._on_wait = call

    def statistics(self) -> CollectiveStatistics:
        """How many groups there are, and how many members wait in how many instances."""
        return self._instances.statistics()

    def _checked(self, make: Callable[..., Operation], *args: object) -> Operation:
        """The operation that *make* gives; where it fails, so do the collectives of the step."""
        try:
            return make(*args)
        except OpError as error:
            if self._error is not None:
                raise make_derived(self._error) from None
            self.start_abort(error)
            raise

    @tells(lambda _: "waited for the other members of its group")
    async def _take_part(
        self, member: CollectiveMember, operation: Operation, value: object, *, is_source: bool = False
    ) -> object:
        if self._error is not None:
            raise make_derived(self._error)
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.add(result)
        part = Part(member, value, is_source, partial(_give, result))
        try:
            await self._join(operation, part)
            return await _wait_for_result(result, member.timeout_s)
        except asyncio.CancelledError:
            self.start_abort(CancelledError(f"a collective was cancelled on {member.device}"))
            raise
        except Exception as error:
            self.start_abort(error if isinstance(error, OpError) else InternalError(f"on {member.device}: {error!r}"))
            raise
        finally:
            self._waiting.discard(result)
            del part, result  # they hold the error, whose traceback holds this frame

    async def _join(self, operation: Operation, part: Part) -> None:
        """Let *part* be one of its instance; the last that comes completes that."""
        instance = self._instances.join(operation, part)
        if instance is not None:
            await self._complete(instance, part.member.node)
        elif self._on_wait is not None:
            self._on_wait()

    async def _complete(self, instance: Instance, node: str) -> None:
        """Give each part of *instance*, in which all have joined, its result."""
        parts = instance.by_rank()
        args = instance.operation, parts
        if self._offload is not None and sum(getattr(part.value, "nbytes", 0) for part in parts) >= OFFLOADED_SIZE:
            found = await self._offload(results, args, node)
        else:
            found = results(*args)
        if self._error is None:
            self._instances.remove(instance)
            for part, result in zip(parts, found, strict=True):
                part.give(result)


def _give(future: asyncio.Future[object], result: object) -> None:
    if not future.done():  # whoever waits for it may just have been cancelled
        future.set_result(result)


async def _wait_for_result(result: asyncio.Future[object], timeout_s: float) -> object:
    try:
        async with asyncio.timeout(timeout_s if timeout_s > 0 else None):
            return await result
    except TimeoutError as error:
        if isinstance(error, OpError):  # of another member
            raise
        raise DeadlineExceededError("Collective has timed out waiting for other workers.") from None
    finally:
        del result  # it holds the error, whose traceback holds this frame
