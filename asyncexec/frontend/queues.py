"""Queues: elements, each of one or several tensors, that runs of a graph hand to one another.

After ``tensorflow/python/ops/data_flow_ops.py``.  An enqueue waits while the queue is full, and a dequeue waits while
the queue holds too few elements.

Raises:
    InvalidArgumentError: when the graph runs, an element does not fit the dtypes or shapes of the queue.
    CancelledError: when the graph runs, an enqueue finds the queue closed.
    OutOfRangeError: when the graph runs, a dequeue finds the queue closed and too few elements in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, ShapeLike, TensorShape, as_shape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.calls import DTypeLike, TensorLike, effect_op, tensor_op, tensors_op
from asyncexec.frontend.random_functions import op_seeds
from asyncexec.graph.node import Node, Tensor


class QueueBase:
    """What all queues have in common.

    Attributes:
        handle: the resource.
        dtypes: the dtype of each component of an element.
        shapes: the shape of each component, unknown ones where none were given.
    """

    def __init__(self, handle: Tensor, dtypes: Sequence[DType], shapes: Sequence[TensorShape] | None) -> None:
        self.handle = handle
        self.dtypes: tuple[DType, ...] = tuple(dtypes)
        self.shapes: tuple[TensorShape, ...] = tuple(shapes) if shapes else (UNKNOWN_SHAPE,) * len(self.dtypes)

    @property
    def name(self) -> str:
        return self.handle.op.name

    def enqueue(self, vals: TensorLike | Sequence[TensorLike], name: str | None = None) -> Node:
        """An operation that adds one element: a tensor, or a list of one for each component."""
        return effect_op(
            "QueueEnqueueV2",
            [self.handle, self._components(vals)],
            self._named(name, "enqueue"),
            Tcomponents=self.dtypes,
        )

    def enqueue_many(self, vals: TensorLike | Sequence[TensorLike], name: str | None = None) -> Node:
        """An operation that adds an element for each row of the components."""
        return effect_op(
            "QueueEnqueueManyV2",
            [self.handle, self._components(vals)],
            self._named(name, "EnqueueMany"),
            Tcomponents=self.dtypes,
        )

    def dequeue(self, name: str | None = None) -> Any:
        """The next element: a tensor, or a list of them where it has several components."""
        taken = tensors_op("QueueDequeueV2", [self.handle], self._named(name, "Dequeue"), component_types=self.dtypes)
        return self._element(taken, [])

    def dequeue_many(self, n: TensorLike, name: str | None = None) -> Any:
        """The next *n* elements, stacked; OutOfRangeError in a run in which so many will never come."""
        inputs = [self.handle, n]
        taken = tensors_op("QueueDequeueManyV2", inputs, self._named(name, "DequeueMany"), component_types=self.dtypes)
        return self._element(taken, [n if isinstance(n, int) else None])

    def dequeue_up_to(self, n: TensorLike, name: str | None = None) -> Any:
        """The next *n* elements, stacked; fewer only once the queue is closed."""
        inputs = [self.handle, n]
        taken = tensors_op("QueueDequeueUpToV2", inputs, self._named(name, "DequeueUpTo"), component_types=self.dtypes)
        return self._element(taken, [None])

    def size(self, name: str | None = None) -> Tensor:
        """How many elements it holds, an int32 scalar."""
        return tensor_op("QueueSizeV2", [self.handle], self._named(name, "Size"))

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Node:
        """An operation after which nothing can be added; those that wait to add are cancelled if asked for."""
        return effect_op(
            "QueueCloseV2",
            [self.handle],
            self._named(name, "Close"),
            cancel_pending_enqueues=cancel_pending_enqueues,
        )

    def is_closed(self, name: str | None = None) -> Tensor:
        """Whether it has been closed, a bool scalar."""
        return tensor_op("QueueIsClosedV2", [self.handle], self._named(name, "Closed"))

    def _components(self, vals: TensorLike | Sequence[TensorLike]) -> list[TensorLike]:
        components = list(vals) if isinstance(vals, (list, tuple)) and len(self.dtypes) > 1 else [vals]
        if len(self.dtypes) == 1 and isinstance(vals, (list, tuple)) and len(vals) == 1:
            components = list(vals)
        if len(components) != len(self.dtypes):
            raise InvalidArgumentError(
                f"an element of queue {self.name!r} has {len(self.dtypes)} components, not {len(components)}",
                node=self.handle.op,
            )
        return components

    def _element(self, taken: list[Tensor], leading: list[int | None]) -> object:
        for tensor, shape in zip(taken, self.shapes, strict=True):
            if shape.dims is not None:
                tensor.set_shape(TensorShape([*leading, *shape.dims]))
        return taken[0] if len(taken) == 1 else taken

    def _named(self, name: str | None, what: str) -> str:
        return name or f"{self.name.removeprefix(self.handle.graph.current_name_scope)}_{what}"

    def __repr__(self) -> str:
        components = ", ".join(f"{d.name} {s}" for d, s in zip(self.dtypes, self.shapes, strict=True))
        return f"<ax.{type(self).__name__} {self.name!r} of {components}>"


class FIFOQueue(QueueBase):
    """A queue that gives elements in the order in which they were added.

    >>> queue = ax.FIFOQueue(10, ax.int32, [[]])
    >>> with ax.control_dependencies([queue.enqueue_many([3, 1, 2])]):
    ...     show(queue.dequeue_many(3))
    [3 1 2]

    Args:
        capacity: the largest number of elements; -1 for no limit.
        dtypes: the dtype of each component of an element, or one for all.
        shapes: the shape of each component; needed by dequeue_many.
        shared_name: queues of one session with the same name are one queue.
        name: the name of its node.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: DTypeLike | Sequence[DTypeLike],
        shapes: Sequence[ShapeLike] | None = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:
        kinds, forms = _components_of(dtypes, shapes)
        super().__init__(_make("FIFOQueueV2", name, kinds, forms, capacity, shared_name), kinds, forms)


class PaddingFIFOQueue(QueueBase):
    """A FIFOQueue whose shapes may have sizes of None.  dequeue_many pads with zeros to the largest size.

    >>> queue = ax.PaddingFIFOQueue(10, ax.int32, [[None]])
    >>> with ax.control_dependencies([queue.enqueue([[1]])]):
    ...     second = queue.enqueue([[2, 3]])
    >>> with ax.control_dependencies([second]):
    ...     show(queue.dequeue_many(2))
    [[1 0]
     [2 3]]
    """

    def __init__(
        self,
        capacity: int,
        dtypes: DTypeLike | Sequence[DTypeLike],
        shapes: Sequence[ShapeLike],
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        kinds, forms = _components_of(dtypes, shapes)
        super().__init__(_make("PaddingFIFOQueueV2", name, kinds, forms, capacity, shared_name), kinds, forms)


class RandomShuffleQueue(QueueBase):
    """A queue that gives elements in random order.  Until it is closed, it keeps *min_after_dequeue* to choose from.

    >>> queue = ax.RandomShuffleQueue(10, 0, ax.int32, [[]])
    >>> with ax.control_dependencies([queue.enqueue_many([3, 1, 2])]):
    ...     show(ax.sort(queue.dequeue_many(3)))
    [1 2 3]
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: DTypeLike | Sequence[DTypeLike],
        shapes: Sequence[ShapeLike] | None = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        kinds, forms = _components_of(dtypes, shapes)
        options = {"min_after_dequeue": min_after_dequeue, **op_seeds(seed)}
        handle = _make("RandomShuffleQueueV2", name, kinds, forms, capacity, shared_name, **options)
        super().__init__(handle, kinds, forms)


class PriorityQueue(QueueBase):
    """A queue that gives the element with the smallest number first: an int64 before the components.

    >>> queue = ax.PriorityQueue(10, ax.string, [[]])
    >>> with ax.control_dependencies([queue.enqueue_many([[2, 1], ["later", "first"]])]):
    ...     show(*queue.dequeue())
    1
    b'first'
    """

    def __init__(
        self,
        capacity: int,
        types: DTypeLike | Sequence[DTypeLike],
        shapes: Sequence[ShapeLike],
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        kinds, forms = _components_of(types, shapes)
        handle = _make("PriorityQueueV2", name, kinds, forms or [], capacity, shared_name)
        super().__init__(handle, [_PRIORITY, *kinds], [SCALAR, *(forms or [])])


_PRIORITY = types.int64


def _components_of(
    dtypes: DTypeLike | Sequence[DTypeLike], shapes: Sequence[ShapeLike] | None
) -> tuple[list[DType], list[TensorShape] | None]:
    forms = None if shapes is None else [as_shape(shape) for shape in shapes]
    if isinstance(dtypes, (list, tuple)):
        kinds = [as_dtype(dtype) for dtype in dtypes]
    else:
        kinds = [as_dtype(dtypes)] * (1 if forms is None else len(forms))
    if forms is not None and len(forms) != len(kinds):
        raise InvalidArgumentError(f"a queue of {len(kinds)} components has {len(forms)} shapes")
    return kinds, forms


def _make(
    op: str,
    name: str,
    dtypes: list[DType],
    shapes: list[TensorShape] | None,
    capacity: int,
    shared_name: str | None,
    **options: object,
) -> Tensor:
    return tensor_op(
        op, (), name, component_types=dtypes, shapes=shapes, capacity=capacity, shared_name=shared_name, **options
    )
