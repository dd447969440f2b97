"""LocalCollectiveExecutor: collectives among the devices of one step in one event loop.

Rules and status codes are those of ``tensorflow/core/common_runtime/collective_param_resolver_local.cc`` and
``base_collective_executor.cc``: a group is made up by the first devices that come; whatever one member does wrong ends
all collectives of the step.  Two things are otherwise: members that name different merge ops are refused, and values
are merged in the order of the ranks, where TensorFlow's ring goes around in another order for each part of them.

The n-th call of a device on an instance meets the n-th of each other device, so that an instance in a loop is one
collective an iteration.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.collective import CollectiveMember, CollectiveStatistics, FinalOp, MergeOp
from asyncexec.framework.derived import make_derived, without_frames
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    OpError,
)
from asyncexec.framework.types import DType
from asyncexec.framework.under_way import tells

# Calls a function that may take long with arguments, for the node of that name, off the event loop.
Offload: TypeAlias = Callable[[Callable[..., Any], Sequence[Any], str], Awaitable[Any]]
# Bytes of all members together from which merging is worth a worker thread.
OFFLOADED_SIZE: Final = 2**20

_MERGE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Min": np.minimum,
    "Max": np.maximum,
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """What the members of an instance do together: all must have named the same."""

    kind: str
    dtype: Any
    shape: tuple[int, ...]
    merge_op: MergeOp = "Add"
    final_op: FinalOp = "Id"


@dataclass(slots=True)
class _Part:
    """What one member brings to an instance."""

    member: CollectiveMember
    value: Any
    is_source: bool  # of a broadcast, or the root of a reduction
    result: asyncio.Future[Any]


class _Instance:
    """One collective that has begun."""

    __slots__ = ("operation", "parts")

    def __init__(self, operation: _Operation) -> None:
        self.operation = operation
        self.parts: dict[str, _Part] = {}  # by device

    def by_rank(self) -> list[_Part]:
        return [self.parts[device] for device in sorted(self.parts, key=lambda name: parse_device_name(name).sort_key)]


@dataclass(slots=True)
class _Group:
    size: int
    devices: set[str]


class LocalCollectiveExecutor:
    """The collectives of one step; *offload* keeps the merging of large values out of the event loop."""

    __slots__ = ("_error", "_groups", "_instances", "_offload", "_on_wait")

    def __init__(self, offload: Offload | None = None) -> None:
        self._groups: dict[int, _Group] = {}
        self._instances: dict[tuple[int, int], list[_Instance]] = {}
        self._offload = offload
        self._on_wait: Callable[[], None] | None = None
        self._error: OpError | None = None

    async def all_reduce(self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp) -> Any:
        """The values of all members merged, in the order of the ranks."""
        operation = _Operation("all-reduce", value.dtype, np.shape(value), merge_op, final_op)
        return await self._take_part(member, operation, value)

    async def reduce(
        self, member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp, *, is_root: bool
    ) -> Any:
        """The values of all members merged, for the root; None for the others."""
        operation = _Operation("reduce", value.dtype, np.shape(value), merge_op, final_op)
        return await self._take_part(member, operation, value, is_source=is_root)

    async def gather(self, member: CollectiveMember, value: Any) -> Any:
        """The values of all members along the first dimension."""
        if np.ndim(value) == 0 and self._error is None:
            self.start_abort(error := InvalidArgumentError("input should have rank > 0, received 0"))
            raise error
        first, *others = np.shape(value) or (0,)
        operation = _Operation("gather", value.dtype, (first * member.group_size, *others))
        return await self._take_part(member, operation, value)

    async def broadcast_send(self, member: CollectiveMember, value: Any) -> Any:
        """*value*, once every member has come."""
        return await self._take_part(
            member, _Operation("broadcast", value.dtype, np.shape(value)), value, is_source=True
        )

    async def broadcast_recv(self, member: CollectiveMember, dtype: DType, shape: Sequence[int]) -> Any:
        """The value of the member that sends."""
        return await self._take_part(
            member, _Operation("broadcast", dtype.as_numpy_dtype, tuple(map(int, shape))), None
        )

    def start_abort(self, error: OpError) -> None:
        """Wake every member with *error*, and refuse what comes later."""
        if self._error is not None:
            return
        self._error = without_frames(error)
        instances, self._instances = self._instances, {}
        for part in (part for begun in instances.values() for instance in begun for part in instance.parts.values()):
            if not part.result.done():
                part.result.set_exception(make_derived(error))
                part.result.exception()  # whose error it is raises it, and does not ask for this one

    def stuck(self) -> list[CollectiveMember]:
        """The members that wait, without a timeout, until others come."""
        return [
            part.member
            for (group, _), begun in self._instances.items()
            for instance in begun
            if len(instance.parts) < self._groups[group].size
            for part in instance.parts.values()
            if part.member.timeout_s <= 0
        ]

    def on_wait(self, call: Callable[[], None] | None) -> None:
        """Have *call*, and no other any more, called whenever a member begins to wait."""
        self._on_wait = call

    def statistics(self) -> CollectiveStatistics:
        """How many groups there are, and how many members wait in how many instances."""
        begun = [instance for instances in self._instances.values() for instance in instances]
        return CollectiveStatistics(len(self._groups), len(begun), sum(len(instance.parts) for instance in begun))

    @tells(lambda _: "waited for the other members of its group")
    async def _take_part(
        self, member: CollectiveMember, operation: _Operation, value: Any, *, is_source: bool = False
    ) -> Any:
        if self._error is not None:
            raise make_derived(self._error)
        part = _Part(member, value, is_source, asyncio.get_running_loop().create_future())
        try:
            await self._join(member, operation, part)
            return await _wait_for_result(part.result, member.timeout_s)
        except asyncio.CancelledError:
            self.start_abort(CancelledError(f"a collective was cancelled on {member.device}"))
            raise
        except Exception as error:
            self.start_abort(error if isinstance(error, OpError) else InternalError(f"on {member.device}: {error!r}"))
            raise
        finally:
            del part  # it holds the error, whose traceback holds this frame

    async def _join(self, member: CollectiveMember, operation: _Operation, part: _Part) -> None:
        """Let *part* be one of its instance; the last that comes completes that."""
        self._join_group(member)
        instance = self._join_instance(member, operation, part)
        if len(instance.parts) == member.group_size:
            await self._complete(member, instance)
        elif self._on_wait is not None:
            self._on_wait()

    def _join_group(self, member: CollectiveMember) -> None:
        if member.group_size <= 0:
            raise InvalidArgumentError(f"group_size must be positive integer but got {member.group_size}")
        group = self._groups.setdefault(member.group_key, _Group(member.group_size, set()))
        if group.size != member.group_size:
            raise InternalError(
                f"Device {member.device} is joining a group with size {member.group_size}, but that group has size "
                f"{group.size} (group_key={member.group_key})"
            )
        if len(group.devices) == group.size and member.device not in group.devices:
            raise InternalError(
                f"Device {member.device} is joining a group that is already full (group_key={member.group_key})",
                hint=f"its members are {', '.join(sorted(group.devices))}",
            )
        group.devices.add(member.device)

    def _join_instance(self, member: CollectiveMember, operation: _Operation, part: _Part) -> _Instance:
        """The first instance of the key that the device has not joined, with *part* in it."""
        begun = self._instances.setdefault((member.group_key, member.instance_key), [])
        instance = next((instance for instance in begun if member.device not in instance.parts), None)
        if instance is None:
            instance = _Instance(operation)
            begun.append(instance)
        else:
            _require_same_operation(member, operation, instance)
        instance.parts[member.device] = part
        return instance

    async def _complete(self, member: CollectiveMember, instance: _Instance) -> None:
        """Give each part of *instance*, in which all have joined, its result."""
        parts = instance.by_rank()
        args = instance.operation, parts, member.instance_key
        if self._offload is not None and sum(getattr(part.value, "nbytes", 0) for part in parts) >= OFFLOADED_SIZE:
            results = await self._offload(_results, args, member.node)
        else:
            results = _results(*args)
        if self._error is None:
            self._remove(member, instance)
            for part, result in zip(parts, results, strict=True):
                if not part.result.done():  # whoever waits for it may just have been cancelled
                    part.result.set_result(result)

    def _remove(self, member: CollectiveMember, instance: _Instance) -> None:
        key = (member.group_key, member.instance_key)
        self._instances[key].remove(instance)
        if not self._instances[key]:
            del self._instances[key]


async def _wait_for_result(result: asyncio.Future[Any], timeout_s: float) -> Any:
    try:
        async with asyncio.timeout(timeout_s if timeout_s > 0 else None):
            return await result
    except TimeoutError as error:
        if isinstance(error, OpError):  # of another member
            raise
        raise DeadlineExceededError("Collective has timed out waiting for other workers.") from None
    finally:
        del result  # it holds the error, whose traceback holds this frame


def _require_same_operation(member: CollectiveMember, operation: _Operation, instance: _Instance) -> None:
    known = instance.operation
    if (operation.kind, operation.dtype) != (known.kind, known.dtype):
        raise InternalError(
            f"Collective instance {member.instance_key} expected {known.kind} of {known.dtype} but got "
            f"{operation.kind} of {operation.dtype} on {member.device}"
        )
    if operation.shape != known.shape:
        raise InvalidArgumentError(
            f"Shape mismatch in the collective instance {member.instance_key}. Op at device {member.device} expected "
            f"shape {list(operation.shape)} but another member in the group expected shape {list(known.shape)}."
        )
    if operation != known:
        raise InternalError(
            f"Collective instance {member.instance_key} expected {known.merge_op} and {known.final_op} but got "
            f"{operation.merge_op} and {operation.final_op} on {member.device}"
        )


def _results(operation: _Operation, parts: Sequence[_Part], instance_key: int) -> list[Any]:
    """What each part gets, in the same order; no two share memory, and none shares another part's value."""
    values = [part.value for part in parts]
    if operation.kind == "broadcast":
        source = _source(parts, instance_key, "broadcast")
        return [part.value if part is source else _copy(source.value) for part in parts]
    if operation.kind == "reduce":
        root = _source(parts, instance_key, "reduction")
        return [_reduced(operation, values) if part is root else None for part in parts]
    result = np.concatenate(values) if operation.kind == "gather" else _reduced(operation, values)
    return [result, *(_copy(result) for _ in parts[1:])]


def _source(parts: Sequence[_Part], instance_key: int, kind: str) -> _Part:
    sources = [rank for rank, part in enumerate(parts) if part.is_source]
    if not sources:
        raise InternalError(f"Instance {instance_key} found no source for {kind} among {len(parts)} members.")
    if len(sources) > 1:
        raise InternalError(
            f"Instance {instance_key} already has source {sources[0]}, received second claim from {sources[1]}"
        )
    return parts[sources[0]]


def _reduced(operation: _Operation, values: Sequence[Any]) -> Any:
    with np.errstate(all="ignore"):
        result = reduce(_MERGE[operation.merge_op], values) if len(values) > 1 else _copy(values[0])
        return _divided(result, len(values)) if operation.final_op == "Div" else result


def _divided(value: Any, count: int) -> Any:
    divisor = value.dtype.type(count)
    if value.dtype.kind in "iu":
        return (value - np.fmod(value, divisor)) // divisor  # rounded towards zero
    return value / divisor


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
