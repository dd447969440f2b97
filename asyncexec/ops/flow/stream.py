"""What streams are made of inside a graph: states that are carried from item to item, and sources of items.

In a stream the session feeds the output of a StreamStateRead with what the item before has written, or that of a
KeyedStateRead with what the last item of the same key has written, and fetches that of the StreamStateWrite.  Anywhere
else the one gives its initial value, and the other what it takes.  A StreamSource is a placeholder that a stream feeds
by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, pass_on
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import keeper
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape


def _declared(c: InferenceContext) -> Sequence[TensorShape]:
    shape: TensorShape = c.attr("shape")
    return [shape]


def _read(c: InferenceContext) -> Sequence[TensorShape]:
    shape: TensorShape = c.attr("shape")
    c.input(0).merge_with(shape)
    return [shape]


def _keyed_read(c: InferenceContext) -> Sequence[TensorShape]:
    for shape in c.input_shapes[1:]:
        shape.with_rank(0)
    return _read(c)


def _write(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.input(0).merge_with(c.input(1))]


register_op(
    "StreamStateRead", "initial: T -> value: T", "T: type; shape: shape = shape(?)", shape=_read, is_stateful=True
)
register_op(
    "KeyedStateRead",
    "initial: T, key: K, time: N * float64 -> value: T",
    "T: type; K: type; N: int >= 0; shape: shape = shape(?); expiry: float = 0.0; max_keys: int >= 1 = 1000000",
    shape=_keyed_read,
    is_stateful=True,
)
register_op("StreamStateWrite", "state: T, value: T -> output: T", "T: type", shape=_write, is_stateful=True)
register_op(
    "StreamSource", "-> output: dtype", "dtype: type; shape: shape = shape(?)", shape=_declared, is_stateful=True
)
register_function("StreamStateRead", function=pass_on)
register_function("KeyedStateRead", function=lambda initial, *_: initial)


@register_kernel("StreamStateWrite")
def _state_write(construction: OpKernelConstruction) -> Kernel:
    keep = keeper(construction.attr("T"))  # here, where what it costs is measured: the next item reads it
    return lambda _, value: keep(value)


def ask_for_stream(construction: OpKernelConstruction) -> Kernel:
    """The kernel of a source: it says that there is no stream."""
    message = f"source '{construction.name}' gives its items to a stream"

    def ask(*_: object) -> NoReturn:
        raise InvalidArgumentError(message, hint="run it by session.stream(fetches), or feed it")

    return ask


register_kernel("StreamSource")(ask_for_stream)
