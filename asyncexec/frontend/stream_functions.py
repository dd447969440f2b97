"""States that a stream carries from item to item, and sources inside the graph that a stream draws its items from."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
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
from asyncexec.frontend.convert import constant
from asyncexec.frontend.create_op import TensorSource, add_op, as_tensor, graph_of
from asyncexec.graph.current_graph import control_dependencies, current_graph
from asyncexec.graph.func_graph import FuncGraph
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.flow.stream import ask_for_stream

T = TypeVar("T")
Values: TypeAlias = "AsyncIterable[T] | Iterable[T] | asyncio.Queue[T]"


class StreamState(TensorSource):
    """A value that each item of a stream reads as the item before has left it; made by ``ax.stream_state``.

    In a run that is no stream it has its initial value.  Nodes that do not depend on it overlap from item to item.

    Attributes:
        value: the value that the item before has left; the initial value in the first item.
    """

    __slots__ = ("_written", "value")

    def __init__(self, value: Tensor[Any]) -> None:
        self.value: Tensor[Any] = value
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
        """Let the next item read *value*; return *value* as a tensor.

        You do not have to fetch the tensor: an item that reads the state also writes it.

        Raises:
            FailedPreconditionError: it has been called before.
            InvalidArgumentError: *value* is of another dtype or shape than the state.
        """
        if self._written is not None:
            raise FailedPreconditionError(f"state {self.name!r} has its update already", node=self._written.op)
        with self.graph:
            check_outside()
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

    Item n reads the value that item n-1 has written, in the order of the items, whichever is done first.  *initial* is
    computed once for each stream, without feeds.  Sizes that change from item to item are None in *shape*, by default
    the shape of *initial*.  The next item gets the state as soon as it is written.

    An item leaves the state as it was if its update does not run: the update is in a branch that is not taken, or
    something that it needs fails.  Other failures of the item do not change the state.

    Raises:
        InvalidArgumentError: a branch, loop or function makes the state.
        InvalidTypeError: *initial* cannot be made a tensor.

    >>> x = ax.placeholder(ax.float32, [])
    >>> total = ax.stream_state(0.0)
    >>> new = total.update(total.value + x)
    """
    with graph_of((initial,)):
        check_outside()
        first = as_tensor(initial)
        given = first.shape if shape is None else as_shape(shape)
        return StreamState(tensor_op("StreamStateRead", [first], name or "stream_state", shape=given))


def in_turn(make: Callable[[], Any], name: str) -> Any:
    """What *make*, which adds a node, gives; in a stream that runs for one item after the other, in their order.

    Raises:
        InvalidArgumentError: it is made in a function, branch or loop.
    """
    check_outside(f"{name!r}, whose op is ordered=True, belongs", "call it outside")
    turn = stream_state(constant(0), name=f"{name}/turn")
    begins = tensor_op("Identity", [turn.value], f"{name}/begins")  # a state itself is fed, and nothing waits for that
    with control_dependencies([begins]):
        made = make()
    node = made if isinstance(made, Node) else (made[0] if isinstance(made, list) else made).op
    with control_dependencies([node]):
        turn.update(tensor_op("Identity", [begins], f"{name}/ends"))
    return made


@dataclass(frozen=True, slots=True, eq=False)
class SourceKernel:
    """The kernel factory of one source, which knows where its items are from."""

    values: Any

    def __call__(self, construction: OpKernelConstruction) -> Kernel:
        return ask_for_stream(construction)


def source(
    values: Values[object] | Callable[..., Values[object]],
    dtype: DTypeLike,
    shape: ShapeLike = None,
    name: str | None = None,
) -> Tensor:
    """A tensor that ``session.stream(fetches)`` draws from *values*, one value for each item.

    >>> reading = ax.source([20.0, 21.5], ax.float32, [], name="reading")
    >>> reading
    <ax.Tensor 'reading:0' float32 shape=[] from StreamSource>

    Args:
        values: an async or a plain iterable, an ``asyncio.Queue``, or a function that returns a new one for each
            stream.  The stream ends when the first of its sources ends.  A queue ends when it is shut down.
            ``ax.windows`` makes items of several values, and ``ax.ticks`` is a timer.  Where ``ax.service`` serves the
            graph, the parameters of the function are inputs of a request.
        dtype: of each value.
        shape: of each value; sizes that are None may differ.

    Raises:
        InvalidTypeError: *values* is nothing to draw from.
        InvalidArgumentError: a branch, loop or function makes the source; or a run that is no stream needs it.
    """
    check_values(values, "a source")
    check_outside()
    registration = replace(op_registry.lookup("StreamSource"), kernel=KernelRegistration(SourceKernel(values)))
    made = add_op(registration, (), {"dtype": as_dtype(dtype), "shape": as_shape(shape)}, name or "source")
    return cast(Tensor, made)


def check_values(values: object, who: str) -> None:
    """InvalidTypeError unless *values* can be drawn from; *who* wants to."""
    if not (callable(values) or isinstance(values, (AsyncIterable, Iterable, asyncio.Queue))):
        raise InvalidTypeError(
            f"{who} takes an iterable, an asyncio.Queue or a function that gives one, not {values!r}"
        )


def values_of(node: Node) -> Any:
    """What a source was made of; None for any other node, and for a source that was loaded from a file."""
    kernel = node.properties.registration.kernel
    return kernel.factory.values if kernel is not None and isinstance(kernel.factory, SourceKernel) else None


class HoldingIterator(AsyncIterator[Any]):
    """The values of a source that draws more than it has given."""

    @abstractmethod
    def left_over(self) -> list[Any]:
        """The values that it would still give if there were nothing more to draw: it draws and gives no more."""

    @abstractmethod
    async def aclose(self) -> None:
        """Clean up."""


def iterate(values: Any) -> AsyncIterator[Any]:
    """The values of a source, one by one."""
    if callable(values) and not isinstance(values, (AsyncIterable, Iterable, asyncio.Queue)):
        values = values()
    if isinstance(values, AsyncIterable):
        return aiter(values)
    return _from_queue(values) if isinstance(values, asyncio.Queue) else _from_iterable(values)


@asynccontextmanager
async def drawing(values: object) -> AsyncIterator[AsyncIterator[Any]]:
    """``iterate`` in an ``async with``, which closes the iterator, unless it is what the user gave."""
    iterator = iterate(values)
    try:
        yield iterator
    finally:
        if iterator is not values:
            await close_iterators([iterator])


async def close_iterators(iterators: Iterable[AsyncIterator[object]]) -> None:
    """Let generators that are not at their end clean up now; dropped, they would do so in tasks nobody waits for.

    Raises what the first of them raises when all have been closed.
    """
    failure: BaseException | None = None
    for iterator in iterators:
        try:
            if isinstance(iterator, (AsyncGenerator, HoldingIterator)):
                await iterator.aclose()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame


async def _from_queue(queue: asyncio.Queue[object]) -> AsyncIterator[object]:
    shut_down: Any = getattr(asyncio, "QueueShutDown", ())  # since Python 3.13
    while True:
        try:
            value = await queue.get()
        except shut_down:
            return
        yield value


async def _from_iterable(values: Iterable[object]) -> AsyncIterator[object]:
    for value in values:
        yield value


def check_outside(
    what: str = "states and sources of streams belong", hint: str = "make them outside, and use their values inside"
) -> None:
    """InvalidArgumentError where a function, branch or loop is being built."""
    graph = current_graph()
    if isinstance(graph, FuncGraph) or graph.current_control_flow_context is not None:
        raise InvalidArgumentError(f"{what} to a graph at large, not to a function, branch or loop in it", hint=hint)
