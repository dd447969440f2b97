"""CollectiveInstances: which members have come to which collective, what does not fit, and what each member gets.

Rules and status codes are those of ``tensorflow/core/common_runtime/collective_param_resolver_local.cc``: a group is
made up by the first devices that come.  The n-th call of a device on an instance meets the n-th of each other device,
so that an instance in a loop is one collective an iteration.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import numpy as np

from asyncexec.framework.collective import CollectiveMember, CollectiveStatistics, FinalOp, MergeOp
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import InternalError, InvalidArgumentError

_MERGE: Final[Mapping[str, Callable[[Any, Any], object]]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Min": np.minimum,
    "Max": np.maximum,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What the members of an instance do together: all must have named the same.

    Attributes:
        kind: "all-reduce", "reduce", "reduce-scatter", "all-to-all", "gather" or "broadcast".
        shape: of the value; that of the result for "gather".
    """

    kind: str
    dtype: Any
    shape: tuple[int, ...]
    merge_op: MergeOp = "Add"
    final_op: FinalOp = "Id"

    @property
    def num_bytes(self) -> int:
        """The size of a result."""
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)


@dataclass(slots=True)
class Part:
    """What one member brings to an instance, and what is to be called with its result."""

    member: CollectiveMember
    value: Any
    is_source: bool  # of a broadcast, or the root of a reduction
    give: Callable[[Any], None]


@dataclass(slots=True)
class Instance:
    """One collective that has begun."""

    operation: Operation
    parts: dict[str, Part] = field(default_factory=dict)  # by device

    def by_rank(self) -> list[Part]:
        """The parts, in the order of the ranks."""
        return [self.parts[device] for device in sorted(self.parts, key=lambda name: parse_device_name(name).sort_key)]


@dataclass(slots=True)
class _Group:
    size: int
    devices: set[str]


class CollectiveInstances:
    """The groups and instances of one step."""

    __slots__ = ("_groups", "_instances")

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._instances: dict[tuple[int, int], list[Instance]] = {}

    def join(self, operation: Operation, part: Part) -> Instance | None:
        """Let *part* be one of its instance; that instance, where the part was the last one missing.

        Raises:
            InvalidArgumentError: the group has no size, or the shapes of its members differ.
            InternalError: the group is full, or of another size, or its members do something else.
        """
        self._join_group(part.member)
        instance = self._join_instance(operation, part)
        return instance if len(instance.parts) == part.member.group_size else None

    def remove(self, instance: Instance) -> None:
        """Forget an instance in which all have joined."""
        member = next(iter(instance.parts.values())).member
        key = (member.group_key, member.instance_key)
        self._instances[key].remove(instance)
        if not self._instances[key]:
            del self._instances[key]

    def clear(self) -> None:
        """Forget all instances."""
        self._instances.clear()

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

    def statistics(self) -> CollectiveStatistics:
        """How many groups there are, and how many members wait in how many instances."""
        begun = [instance for instances in self._instances.values() for instance in instances]
        return CollectiveStatistics(len(self._groups), len(begun), sum(len(instance.parts) for instance in begun))

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

    def _join_instance(self, operation: Operation, part: Part) -> Instance:
        """The first instance of the key that the device has not joined, with *part* in it."""
        member = part.member
        begun = self._instances.setdefault((member.group_key, member.instance_key), [])
        instance = next((instance for instance in begun if member.device not in instance.parts), None)
        if instance is None:
            instance = Instance(operation)
            begun.append(instance)
        else:
            _require_same_operation(member, operation, instance)
        instance.parts[member.device] = part
        return instance


def _require_same_operation(member: CollectiveMember, operation: Operation, instance: Instance) -> None:
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


def gathered(member: CollectiveMember, value: Any) -> Operation:
    """The gathering of values like *value*; InvalidArgumentError when it has no first dimension."""
    if np.ndim(value) == 0:
        raise InvalidArgumentError("input should have rank > 0, received 0")
    first, *others = np.shape(value)
    return Operation("gather", value.dtype, (first * member.group_size, *others))


def reduce_scattered(member: CollectiveMember, value: Any, merge_op: MergeOp, final_op: FinalOp) -> Operation:
    """The merging of values like *value*, of which each member gets a piece; InvalidArgumentError when it has none."""
    operation = Operation("reduce-scatter", value.dtype, np.shape(value), merge_op, final_op)
    check_pieces(operation, member.group_size)
    return operation


def exchanged(member: CollectiveMember, value: Any) -> Operation:
    """The exchange of the rows of values like *value*; InvalidArgumentError unless there is one for each member."""
    operation = Operation("all-to-all", value.dtype, np.shape(value))
    check_pieces(operation, member.group_size)
    return operation


def check_pieces(operation: Operation, group_size: int) -> None:
    """InvalidArgumentError where *operation* gives each member a piece of a value that has not so many.

    Where the size of a group is no size, it is refused when the member joins.
    """
    if operation.kind not in ("reduce-scatter", "all-to-all") or group_size <= 0:
        return
    if not operation.shape:
        raise InvalidArgumentError("input should have rank > 0, received 0")
    first = operation.shape[0]
    if operation.kind == "all-to-all" and first != group_size:
        raise InvalidArgumentError(
            f"input to all-to-all first dimension size ({first}) must be the same as the group size ({group_size})"
        )
    if first % group_size:
        raise InvalidArgumentError(
            f"input to reduce-scatter first dimension size ({first}) must be a multiple of the group size "
            f"({group_size})"
        )


def results(operation: Operation, parts: Sequence[Part]) -> list[object]:
    """What each part gets, in the same order; no two share memory, and none shares another part's value."""
    values = [part.value for part in parts]
    if operation.kind in ("broadcast", "reduce"):
        source = parts[source_rank(operation, parts)]
        if operation.kind == "broadcast":
            return [part.value if part is source else _copy(source.value) for part in parts]
        return [_reduced(operation, values) if part is source else None for part in parts]
    if operation.kind == "all-to-all":
        return [np.stack([value[rank] for value in values]) for rank in range(len(parts))]
    if operation.kind == "reduce-scatter":
        return [piece.copy() for piece in np.split(_reduced(operation, values), len(parts))]
    result = np.concatenate(values) if operation.kind == "gather" else _reduced(operation, values)
    return [result, *(_copy(result) for _ in parts[1:])]


def source_rank(operation: Operation, parts: Sequence[Part]) -> int:
    """The rank of the member that broadcasts, or is the root of a reduction; InternalError unless there is one."""
    instance_key = parts[0].member.instance_key
    sources = [rank for rank, part in enumerate(parts) if part.is_source]
    if not sources:
        kind = "broadcast" if operation.kind == "broadcast" else "reduction"
        raise InternalError(f"Instance {instance_key} found no source for {kind} among {len(parts)} members.")
    if len(sources) > 1:
        raise InternalError(
            f"Instance {instance_key} already has source {sources[0]}, received second claim from {sources[1]}"
        )
    return sources[0]


def merged(operation: Operation, first: object, second: object) -> Any:
    """Two values as one."""
    with np.errstate(all="ignore"):
        return _MERGE[operation.merge_op](first, second)


def finished(operation: Operation, value: Any, count: int) -> object:
    """The merged values of *count* members, after the final op."""
    if operation.final_op == "Id":
        return value
    with np.errstate(all="ignore"):
        divisor = value.dtype.type(count)
        if value.dtype.kind in "iu":
            return (value - np.fmod(value, divisor)) // divisor  # rounded towards zero
        return value / divisor


def _reduced(operation: Operation, values: Sequence[object]) -> Any:
    result = reduce(lambda first, second: merged(operation, first, second), values)
    return finished(operation, result if len(values) > 1 else _copy(result), len(values))


def _copy(value: object) -> object:
    return value.copy() if isinstance(value, np.ndarray) else value
