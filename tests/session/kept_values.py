"""Places that keep values for longer than a step, as graphs; and arrays whose owners change them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import asyncexec as ax

SHAPE = (2, 3)
ALL_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 "
    "string"
).split()

ONE_BYTE = ("bool", "int8", "uint8")
OBJECTS = ("string", "bfloat16")  # and what numpy knows no byte order or buffer of


@dataclass(frozen=True)
class Place:
    """What keeps a value: *write* what is fed as *x*, *read* it; *init* is run before."""

    graph: ax.Graph
    x: Any
    init: Any
    write: Any
    read: Any


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "debug": {"debug": True},
    "tagged": {"executor_type": "TAGGED_TOKEN"},
    "rendezvous": {"feed_fetch_medium": "rendezvous"},
    "two_devices": {"device_count": {"CPU": 2}},
    "any_order": {"schedule_seed": 1},
}


# From a placeholder to (init, write, read), in a graph.
Build = Callable[[Any], tuple[Any, Any, Any]]


def reference_variable(x: Any) -> tuple[Any, Any, Any]:
    ref = ax.create_op("VariableV2", [], {"dtype": x.dtype, "shape": SHAPE})
    return (), ax.create_op("Assign", [ref, x]).op, ref


def resource_variable(x: Any) -> tuple[Any, Any, Any]:
    handle = ax.create_op("VarHandleOp", [], {"dtype": x.dtype, "shape": SHAPE})
    return (
        (),
        ax.create_op("AssignVariableOp", [handle, x]),
        ax.create_op("ReadVariableOp", [handle], {"dtype": x.dtype}),
    )


def destroyed_temporary(x: Any) -> tuple[Any, Any, Any]:
    """What a temporary variable gives when it is destroyed goes on to a variable."""
    ref = ax.create_op("TemporaryVariable", [], {"dtype": x.dtype, "shape": SHAPE, "var_name": "t"})
    value = ax.create_op("DestroyTemporaryVariable", [ax.create_op("Assign", [ref, x])], {"var_name": "t"})
    return resource_variable(value)


def scattered(x: Any) -> tuple[Any, Any, Any]:
    init, write, ref = reference_variable(x)
    with ax.control_dependencies([write]):
        updated = ax.create_op("ScatterUpdate", [ref, [1, 0], ax.gather(x, [1, 0])])
    return init, updated.op, ref


def scattered_resource(x: Any) -> tuple[Any, Any, Any]:
    init, write, read = resource_variable(x)
    with ax.control_dependencies([write]):
        updated = ax.create_op("ResourceScatterUpdate", [read.op.inputs[0], [0], ax.gather(x, [0])])
    return init, updated, read


def added_to(x: Any) -> tuple[Any, Any, Any]:
    """Twice what is fed, so that what is read is checked against the first value read."""
    init, write, ref = reference_variable(x)
    with ax.control_dependencies([write]):
        return init, ax.create_op("AssignAdd", [ref, x]).op, ref


def _queue(make: Callable[..., Any]) -> Build:
    def build(x: Any) -> tuple[Any, Any, Any]:
        queue = make(x)
        return (), queue.enqueue([x]), queue.dequeue()

    return build


def _many(x: Any) -> tuple[Any, Any, Any]:
    queue = ax.FIFOQueue(10, [x.dtype], [SHAPE[1:]])
    return (), queue.enqueue_many([x]), queue.dequeue_many(SHAPE[0])


def _rows(x: Any) -> tuple[Any, Any, Any]:
    """What is dequeued is a row of what was enqueued."""
    queue = ax.FIFOQueue(10, [x.dtype], [SHAPE[1:]])
    write, first = queue.enqueue_many([x]), queue.dequeue()
    with ax.control_dependencies([first]):
        return (), write, ax.stack([first, queue.dequeue()])


def _by_priority(x: Any) -> tuple[Any, Any, Any]:
    queue = ax.PriorityQueue(10, [x.dtype], [SHAPE])
    return (), queue.enqueue([np.int64(1), x]), queue.dequeue()[1]


def _blank(x: Any, shape: tuple[int, ...]) -> Any:
    dtype = x.dtype.as_numpy_dtype
    return np.full(shape, b"", object) if x.dtype is ax.string else np.zeros(shape, dtype)


def dense_table(x: Any) -> tuple[Any, Any, Any]:
    empty, deleted = np.int64(-1), np.int64(-2)
    attrs = {"value_dtype": x.dtype, "value_shape": SHAPE}
    table = ax.create_op("MutableDenseHashTableV2", [empty, deleted], attrs)
    keys = ax.constant([7], ax.int64)
    found = ax.create_op("LookupTableFindV2", [table, keys, _blank(x, SHAPE)])
    return (), ax.create_op("LookupTableInsertV2", [table, keys, ax.expand_dims(x, 0)]), found[0]


def table(x: Any) -> tuple[Any, Any, Any]:
    made = ax.create_op("MutableHashTableV2", [], {"key_dtype": ax.int64, "value_dtype": x.dtype})
    keys = ax.constant(np.arange(6).reshape(SHAPE), ax.int64)
    found = ax.create_op("LookupTableFindV2", [made, keys, _blank(x, ())])
    return (), ax.create_op("LookupTableInsertV2", [made, keys, x]), found


PLACES: Mapping[str, Build] = {
    "reference_variable": reference_variable,
    "resource_variable": resource_variable,
    "destroyed_temporary": destroyed_temporary,
    "scattered": scattered,
    "scattered_resource": scattered_resource,
    "added_to": added_to,
    "fifo_queue": _queue(lambda x: ax.FIFOQueue(10, [x.dtype], [SHAPE])),
    "padding_queue": _queue(lambda x: ax.PaddingFIFOQueue(10, [x.dtype], [(None, 3)])),
    "shuffle_queue": _queue(lambda x: ax.RandomShuffleQueue(10, 0, [x.dtype], [SHAPE])),
    "priority_queue": _by_priority,
    "many": _many,
    "rows": _rows,
    "dense_table": dense_table,
    "table": table,
}


def place(build: Build, dtype: str, device: str = "") -> Place:
    """What *build* makes on *device*, of a placeholder on the first one."""
    with ax.Graph() as graph:
        x = ax.placeholder(getattr(ax, dtype), SHAPE, name="x")
        with ax.device(device) if device else contextlib.nullcontext():
            return Place(graph, x, *build(x))


def content(dtype: str) -> Any:
    """An array of that dtype, no two rows alike."""
    numbers = np.arange(1, 7).reshape(SHAPE)
    if dtype == "string":
        return np.vectorize(lambda number: b"%d" % number, otypes=[object])(numbers)
    return (numbers % 2 if dtype == "bool" else numbers).astype(getattr(ax, dtype).as_numpy_dtype)


@dataclass(frozen=True)
class Owned:
    """A value to feed, and the array that its owner changes."""

    value: Any
    array: Any

    def change(self) -> None:
        self.array[...] = self.array[0, 0] if self.array.dtype.kind == "O" else 0


def _plain(array: Any) -> Owned:
    return Owned(array, array)


def _transposed(array: Any) -> Owned:
    theirs = array.T.copy()
    return Owned(theirs.T, theirs)


def _strided(array: Any) -> Owned:
    theirs = np.repeat(array, 2, axis=1)
    return Owned(theirs[:, ::2], theirs)


def _read_only_view(array: Any) -> Owned:
    view = array[:]
    view.flags.writeable = False
    return Owned(view, array)


def _view_of_read_only_view(array: Any) -> Owned:
    view = array[:]
    view.flags.writeable = False
    return Owned(view[::-1][::-1], array)


def _foreign_order(array: Any) -> Owned:
    theirs = array.astype(array.dtype.newbyteorder(">"))
    return Owned(theirs, theirs)


def _buffer(array: Any) -> Owned:
    buffer = bytearray(array.tobytes())
    view = np.frombuffer(buffer, array.dtype).reshape(array.shape)
    return Owned(view, np.frombuffer(buffer, array.dtype).reshape(array.shape))


def _rows_in_a_list(array: Any) -> Owned:
    return Owned([array[0], array[1]], array)


LAYOUTS: Mapping[str, Callable[[Any], Owned]] = {
    "plain": _plain,
    "transposed": _transposed,
    "strided": _strided,
    "read_only_view": _read_only_view,
    "view_of_read_only_view": _view_of_read_only_view,
    "foreign_order": _foreign_order,
    "buffer": _buffer,
    "rows_in_a_list": _rows_in_a_list,
}


def set_shape(array: Any, shape: tuple[int, ...]) -> None:
    """Change the shape of *array* in place, which numpy 2.5 deprecates, and still does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        array.shape = shape


def write_into(array: Any) -> bool:
    """Do to *array* whatever can be done to it; whether its elements could be written to."""
    with contextlib.suppress(ValueError):
        array.flags.writeable = True
    try:
        array[...] = array[0, 0] if array.dtype.kind == "O" else 0
    except ValueError:
        return False
    finally:
        set_shape(array, (array.size,))
    return True


async def check(
    built: Place, dtype: str, layout: Callable[[Any], Owned], config: ax.SessionConfig | None = None
) -> None:
    """Neither who gave a value nor who got it can change what *built* keeps."""
    async with ax.Session(built.graph, config) as session:
        await session.run((), targets=[built.init] if built.init != () else [])
        owned = layout(content(dtype))
        for _ in range(2):  # a queue is to have two
            await session.run((), {built.x: owned.value}, targets=[built.write])
        wanted = content(dtype)
        owned.change()
        for _ in range(2):
            found = await session.run(built.read)
            assert found.shape == SHAPE
            assert found.tolist() in (wanted.tolist(), (wanted + wanted).tolist())
            write_into(found)
