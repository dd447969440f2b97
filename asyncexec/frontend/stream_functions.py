"""States that a stream carries from item to item, and sources inside the graph that a stream draws its items from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, InvalidTypeError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import ShapeLike, as_shape
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.calls import DTypeLike, TensorLike, tensor_op
from asyncexec.frontend.create_op import TensorSource, add_op, as_tensor, graph_of
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.func_graph import FuncGraph
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.flow.stream import ask_for_stream

T = TypeVar("T")
Values: TypeAlias = "AsyncIterable[T] | Iterable[T] | asyncio.Queue[T]"


class StreamState(TensorSource):
    """A tensor that each item of a stream reads as the item before has left it.

    In a run that is no stream it has its initial value.  What does not depend on it overlaps from item to item.

    Attributes:
        value: what the item before has left; the initial value in the first.
    """

    __slots__ = ("_written", "value")

    def __init__(self, initial: TensorLike, shape: ShapeLike, name: str | None) -> None:
        with graph_of((initial,)):
            _check_outside()
            first = as_tensor(initial)
            given = first.shape if shape is None else as_shape(shape)
            self.value = tensor_op("StreamStateRead", [first], name or "stream_state", shape=given)
        self._written: Tensor | None = None

    @property
    def graph(self) -> Graph:
        return self.value.graph

    @property
    def name(self) -> str:
        return self.value.op.name

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    def as_tensor(self) -> Tensor:
        return self.value

    def fetched_tensor(self) -> Tensor:
        return self.value

    def update(self, value: TensorLike, name: str | None = None) -> Tensor:
        """Let the next item read *value*; the same as a tensor.

        Nothing has to be fetched or waited for: an item that reads the state writes it, too.

        Raises:
            FailedPreconditionError: it has been called before.
            InvalidArgumentError: *value* is of another dtype or shape than the state.
        """
        if self._written is not None:
            raise FailedPreconditionError(f"state {self.name!r} has its update already", node=self._written.op)
        with self.graph:
            _check_outside()
            self._written = tensor_op("StreamStateWrite", [self.value, value], name or f"{self.name}/update")
        return self._written

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<ax.StreamState {self.name!r} {self.value.dtype.name} shape={self.value.shape}>"


def stream_state(initial: TensorLike, shape: ShapeLike = None, name: str | None = None) -> StreamState:
    """A state that a stream carries from item to item::

        total = ax.stream_state(0.0)
        new = total.update(total.value + x)

    Item n reads what item n-1 has written, in the order of the items, whichever is done first.  *initial* is computed
    once a stream, without feeds.  Sizes that change from item to item are None in *shape*, by default that of
    *initial*.  The next item gets the state as soon as it is written.

    An item that does not come to its update, because the branch that it is in is not taken, or something fails that the
    update needs, leaves the state as it was.  What else fails in the item makes no difference to the state.
    """
    return StreamState(initial, shape, name)


@dataclass(frozen=True, slots=True, eq=False)
class SourceKernel:
    """The kernel factory of one source, which knows where its items are from."""

    values: Any

    def __call__(self, construction: OpKernelConstruction) -> Kernel:
        return ask_for_stream(construction)


def source(
    values: Values[Any] | Callable[[], Values[Any]], dtype: DTypeLike, shape: ShapeLike = None, name: str | None = None
) -> Tensor:
    """A tensor that ``session.stream(fetches)`` draws from *values*, one for each item.

    Args:
        values: an async or a plain iterable, an ``asyncio.Queue``, or a function that gives one of them to each stream
            anew.  The stream ends with the first of its sources that does; a queue does when it is shut down.
            ``ax.windows`` makes items of several values, and ``ax.ticks`` is a timer.
        dtype: of each value.
        shape: of each value; sizes that are None may differ.
    """
    check_values(values, "a source")
    _check_outside()
    registration = replace(op_registry.lookup("StreamSource"), kernel=KernelRegistration(SourceKernel(values)))
    made = add_op(registration, (), {"dtype": as_dtype(dtype), "shape": as_shape(shape)}, name or "source")
    return cast(Tensor, made)


def check_values(values: Any, who: str) -> None:
    """InvalidTypeError unless *values* can be drawn from; *who* wants to."""
    if not (callable(values) or isinstance(values, (AsyncIterable, Iterable, asyncio.Queue))):
        raise InvalidTypeError(
            f"{who} takes an iterable, an asyncio.Queue or a function that gives one, not {values!r}"
        )


def values_of(node: Node) -> Any:
    """What a source was made of; None for any other node, and for a source that was loaded from a file."""
    kernel = node.properties.registration.kernel
    return kernel.factory.values if kernel is not None and isinstance(kernel.factory, SourceKernel) else None


def iterate(values: Any) -> AsyncIterator[Any]:
    """The values of a source, one by one."""
    if callable(values) and not isinstance(values, (AsyncIterable, Iterable, asyncio.Queue)):
        values = values()
    if isinstance(values, AsyncIterable):
        return aiter(values)
    return _from_queue(values) if isinstance(values, asyncio.Queue) else _from_iterable(values)


@asynccontextmanager
async def drawing(values: Any) -> AsyncIterator[AsyncIterator[Any]]:
    """``iterate`` in an ``async with``, which closes the iterator, unless it is what the user gave."""
    iterator = iterate(values)
    try:
        yield iterator
    finally:
        if iterator is not values:
            await close_iterators([iterator])


async def close_iterators(iterators: Iterable[AsyncIterator[Any]]) -> None:
    """Let generators that are not at their end clean up now; dropped, they would do so in tasks nobody waits for.

    Raises what the first of them raises when all have been closed.
    """
    failure: BaseException | None = None
    for iterator in iterators:
        try:
            if isinstance(iterator, AsyncGenerator):
                await iterator.aclose()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame


async def _from_queue(queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    shut_down: Any = getattr(asyncio, "QueueShutDown", ())  # since Python 3.13
    while True:
        try:
            value = await queue.get()
        except shut_down:
            return
        yield value


async def _from_iterable(values: Iterable[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


def _check_outside() -> None:
    graph = current_graph()
    if isinstance(graph, FuncGraph) or graph.current_control_flow_context is not None:
        raise InvalidArgumentError(
            "states and sources of streams belong to a graph at large, not to a function, branch or loop in it",
            hint="make them outside, and use their values inside",
        )
