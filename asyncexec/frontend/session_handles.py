"""Tensors kept in the session between runs: ``get_session_handle``, ``get_session_tensor``, ``delete_session_tensor``.

Names and arguments are those of ``tensorflow/python/ops/session_ops.py``.
"""

from __future__ import annotations

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidTypeError
from asyncexec.frontend.basic_functions import placeholder
from asyncexec.frontend.calls import DTypeLike, effect_op, tensor_op
from asyncexec.frontend.create_op import graph_to_use
from asyncexec.graph.current_graph import colocate_with, device
from asyncexec.graph.node import Node, Tensor


def get_session_handle(data: Tensor, name: str | None = None) -> Tensor:
    """A string scalar.  Fetching it gives a handle of *data*, and the session keeps the tensor::

        handle = await session.run(ax.get_session_handle(y))
        holder, kept = ax.get_session_tensor(handle, ax.float32)
        await session.run(kept * 2, {holder: handle})

    The tensor stays until ``delete_session_tensor`` or the end of the session.  A handle that is not fetched, or whose
    run fails, keeps nothing.  A handle may also be fed for any tensor of its dtype.  InvalidTypeError if *data* is no
    tensor.
    """
    if not isinstance(data, Tensor):
        raise InvalidTypeError(f"get_session_handle takes a tensor, not {type(data).__name__} {data!r}")
    with graph_to_use(data), colocate_with(data):
        return tensor_op("GetSessionHandle", [data], name)


def get_session_tensor(handle: str | bytes, dtype: DTypeLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """A placeholder for a handle, and the tensor of *dtype* that the session keeps under that handle.

    Both are on the device of *handle*, a fetched handle or its text.  A run fails with InvalidArgumentError if the
    session keeps no such tensor, and with InternalError if the tensor has another dtype.
    """
    with device(_device_of(handle)):
        holder = placeholder(types.string)
        return holder, tensor_op("GetSessionTensor", [holder], name, dtype=types.as_dtype(dtype))


def delete_session_tensor(handle: str | bytes, name: str | None = None) -> tuple[Tensor, Node]:
    """A placeholder for a handle, and an operation that removes the tensor of that handle from the session.

    Both are on the device of *handle*.  A run fails with InvalidArgumentError if the session keeps no such tensor.
    """
    with device(_device_of(handle)):
        holder = placeholder(types.string)
        return holder, effect_op("DeleteSessionTensor", [holder], name)


def _device_of(handle: object) -> str:
    """The device that a handle ends in."""
    if not isinstance(handle, (str, bytes)):
        raise InvalidTypeError(f"a handle is one that was fetched, or its text, not {type(handle).__name__} {handle!r}")
    text = handle.decode("utf-8", "replace") if isinstance(handle, bytes) else handle
    return text.rpartition(";")[2]
