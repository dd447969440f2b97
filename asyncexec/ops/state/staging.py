"""Ops of staging areas: Stage, Unstage, MapStage, OrderedMapStage and those beside them.

Rules from ``tensorflow/core/ops/data_flow_ops.cc``.  All nodes of one container and name share an area, made with the
attrs of the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import keeper
from asyncexec.framework.shape_inference import no_outputs, scalars, unknown
from asyncexec.framework.types import DType
from asyncexec.ops.state.staging_state import Bounded, OrderedStagingMap, StagingArea, StagingMap
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER

A = TypeVar("A", bound=Bounded)
_BOUNDS: Final = "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0"
_NAMES: Final = "container: string = ''; shared_name: string = ''"
_SOME: Final = f"{_BOUNDS}; dtypes: list(type) >= 1; {_NAMES}"
_ANY: Final = f"{_BOUNDS}; dtypes: list(type); {_NAMES}"

register_op("Stage", "values: dtypes ->", _SOME, is_stateful=True, shape=no_outputs)
register_op("Unstage", "-> values: dtypes", _SOME, is_stateful=True, shape=unknown)
register_op("StagePeek", "index: int32 -> values: dtypes", _SOME, is_stateful=True, shape=unknown)
register_op("StageSize", "-> size: int32", _ANY, is_stateful=True, shape=scalars)
register_op("StageClear", "->", _ANY, is_stateful=True, shape=no_outputs)
for _prefix in ("Map", "OrderedMap"):
    register_op(
        f"{_prefix}Stage",
        "key: int64, indices: int32, values: fake_dtypes ->",
        f"{_BOUNDS}; dtypes: list(type); fake_dtypes: list(type) >= 1; {_NAMES}",
        is_stateful=True,
        shape=no_outputs,
    )
    for _op in ("Unstage", "Peek"):
        register_op(
            _prefix + _op, "key: int64, indices: int32 -> values: dtypes", _SOME, is_stateful=True, shape=unknown
        )
    register_op(
        f"{_prefix}UnstageNoKey",
        "indices: int32 -> key: int64, values: dtypes",
        _SOME,
        is_stateful=True,
        shape=unknown,
    )
    register_op(f"{_prefix}Size", "-> size: int32", _ANY, is_stateful=True, shape=scalars)
    register_op(f"{_prefix}IncompleteSize", "-> size: int32", _ANY, is_stateful=True, shape=scalars)
    register_op(f"{_prefix}Clear", "->", _ANY, is_stateful=True, shape=no_outputs)


def _area(construction: OpKernelConstruction, kind: type[A]) -> A:
    """The area of the node, which it has in common with all of that name."""
    attr = construction.attr
    shared = attr("shared_name").decode("utf-8", "replace")
    return construction.resource_mgr.lookup_or_create(
        kind,
        attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER,
        shared or construction.name,
        lambda: kind(attr("dtypes"), attr("capacity"), attr("memory_limit")),
        is_shared=bool(shared),
    )


def _map_of(construction: OpKernelConstruction) -> StagingMap:
    return _area(construction, OrderedStagingMap if construction.op.startswith("Ordered") else StagingMap)


def _require_dtypes(found: Sequence[DType], wanted: Sequence[DType]) -> None:
    if len(found) != len(wanted):
        raise InvalidArgumentError(f"Mismatch stage/unstage: {len(found)} vs. {len(wanted)}")
    for one, other in zip(found, wanted, strict=True):
        if one is not other:
            raise InvalidArgumentError(f"Type mismatch: actual {one.name} vs. expect {other.name}")


def _kept(dtypes: Sequence[DType], values: Sequence[object]) -> tuple[Any, ...]:
    return tuple(keeper(dtype)(value) for dtype, value in zip(dtypes, values, strict=True))


@register_kernel("Stage", kind=KernelKind.ASYNC)
def _stage(construction: OpKernelConstruction) -> Kernel:
    area, dtypes = _area(construction, StagingArea), construction.attr("dtypes")

    async def stage(*values: object) -> tuple[()]:
        _require_dtypes(dtypes, area.dtypes)
        await area.put(_kept(dtypes, values))
        return ()

    return stage


@register_kernel("Unstage", kind=KernelKind.ASYNC)
def _unstage(construction: OpKernelConstruction) -> Kernel:
    area, dtypes = _area(construction, StagingArea), construction.attr("dtypes")

    async def unstage() -> tuple[object, ...]:
        _require_dtypes(area.dtypes, dtypes)
        return tuple(await area.take())

    return unstage


@register_kernel("StagePeek", kind=KernelKind.ASYNC)
def _stage_peek(construction: OpKernelConstruction) -> Kernel:
    area, dtypes = _area(construction, StagingArea), construction.attr("dtypes")

    async def peek(index: Any) -> tuple[object, ...]:
        _require_dtypes(area.dtypes, dtypes)
        if np.ndim(index) or index < 0:
            raise InvalidArgumentError(f"index must be scalar and not negative, not {index}")
        return tuple(await area.peek(int(index)))

    return peek


@register_kernel("StageSize")
def _stage_size(construction: OpKernelConstruction) -> Kernel:
    area = _area(construction, StagingArea)
    return lambda: np.int32(len(area))


@register_kernel("MapSize", "OrderedMapSize")
def _map_size(construction: OpKernelConstruction) -> Kernel:
    area = _map_of(construction)
    return lambda: np.int32(len(area))


@register_kernel("MapIncompleteSize", "OrderedMapIncompleteSize")
def _map_incomplete_size(construction: OpKernelConstruction) -> Kernel:
    area = _map_of(construction)
    return lambda: np.int32(area.num_incomplete)


def _clearing(area: StagingArea | StagingMap) -> Callable[[], Coroutine[Any, Any, tuple[()]]]:
    async def clear() -> tuple[()]:  # in the loop, where those are that wait
        area.clear()
        return ()

    return clear


@register_kernel("StageClear", kind=KernelKind.ASYNC)
def _stage_clear(construction: OpKernelConstruction) -> Kernel:
    return _clearing(_area(construction, StagingArea))


@register_kernel("MapClear", "OrderedMapClear", kind=KernelKind.ASYNC)
def _map_clear(construction: OpKernelConstruction) -> Kernel:
    return _clearing(_map_of(construction))


def _key(key: Any) -> int:
    if np.size(key) != 1 or np.ndim(key) > 1:
        raise InvalidArgumentError(f"key must be an int64 scalar, got tensor with shape: {list(np.shape(key))}")
    return int(np.reshape(key, ()))


def _indices(indices: Any, count: int) -> list[int]:
    found = [int(index) for index in np.ravel(indices)]
    if len(found) != count:
        raise InvalidArgumentError(f"there are {len(found)} indices, and {count} tensors")
    return found


def _dtypes_at(area: StagingMap, indices: Sequence[int]) -> list[DType]:
    """The dtypes of the area at *indices*, as far as these are any of it."""
    return [area.dtypes[index] for index in indices if 0 <= index < len(area.dtypes)]


@register_kernel("MapStage", "OrderedMapStage", kind=KernelKind.ASYNC)
def _map_stage(construction: OpKernelConstruction) -> Kernel:
    area, dtypes = _map_of(construction), construction.attr("fake_dtypes")

    async def stage(key: object, indices: object, *values: object) -> tuple[()]:
        places = _indices(indices, len(values))
        area.check(_key(key), places)
        _require_dtypes(dtypes, _dtypes_at(area, places))
        await area.put(_key(key), places, _kept(dtypes, values))
        return ()

    return stage


@register_kernel("MapUnstage", "OrderedMapUnstage", "MapPeek", "OrderedMapPeek", kind=KernelKind.ASYNC)
def _map_unstage(construction: OpKernelConstruction) -> Kernel:
    area, dtypes = _map_of(construction), construction.attr("dtypes")
    get = area.peek if construction.op.endswith("Peek") else area.take

    async def unstage(key: object, indices: object) -> tuple[object, ...]:
        places = _indices(indices, len(dtypes))
        area.check(_key(key), places)
        _require_dtypes(_dtypes_at(area, places), dtypes)
        return tuple(await get(_key(key), places))

    return unstage


@register_kernel("MapUnstageNoKey", "OrderedMapUnstageNoKey", kind=KernelKind.ASYNC)
def _map_unstage_no_key(construction: OpKernelConstruction) -> Kernel:
    area, dtypes = _map_of(construction), construction.attr("dtypes")

    async def unstage(indices: object) -> tuple[object, ...]:
        places = _indices(indices, len(dtypes))
        area.check("any", places)
        _require_dtypes(_dtypes_at(area, places), dtypes)
        key, values = await area.take_any(places)
        return np.int64(key), *values

    return unstage
