"""``emit``: values for the caller of a run, before its result."""

from __future__ import annotations

from typing import Any, overload

from asyncexec.framework.events import Emission, emit_value
from asyncexec.frontend.calls import tensor_op
from asyncexec.frontend.create_op import TensorSource
from asyncexec.graph.node import Tensor


@overload
def emit(value: Tensor | TensorSource) -> Tensor: ...
@overload
def emit(value: Any) -> Emission: ...
def emit(value: object) -> Any:
    """Give *value* to the caller of ``session.run_events`` at once: a token, a partial result.

    In the function of an op, or in what it calls.  There ``await ax.emit(value)`` waits until the caller has room; on a
    worker thread the call itself waits.  Functions in processes, and runs by other methods than ``run_events``, have
    nobody to tell, and nothing happens.

    With a tensor it adds a node that emits the value of the tensor and gives the same tensor: use what it returns.

    >>> @ax.op
    ... async def spell(word: str) -> str:
    ...     for letter in word:
    ...         await ax.emit(letter)
    ...     return word
    >>> show(spell(ax.constant("tea")))
    tea

    Raises:
        ResourceExhaustedError: the caller takes no events, and too many were emitted without waiting for room.
    """
    if isinstance(value, (Tensor, TensorSource)):
        return tensor_op("Emit", [value])
    return emit_value(value)
