"""Tensors that a session keeps between steps: GetSessionHandle, GetSessionTensor, DeleteSessionTensor.

Rules from ``tensorflow/core/ops/data_flow_ops.cc``, ``core/kernels/session_ops.cc`` and
``core/common_runtime/session_state.cc``.  A step only makes handles; a tensor is kept once the step has succeeded and
its handle was fetched, and then until it is deleted or the session is closed.  So a step that fails keeps nothing, and
a handle that nobody fetched goes with its step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, Self

import numpy as np

from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.executor import current_step
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import keeper
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import InferenceContext, scalars, unknown
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

SESSION_HANDLES: Final = frozenset({"GetSessionHandle", "GetSessionHandleV2"})


class SessionState(ProcessBound):
    """The tensors that a session keeps, by handle."""

    def __init__(self) -> None:
        self._tensors: dict[bytes, tuple[DType, object]] = {}
        self._ids = count()

    def new_handle(self, node: str, device: str, dtype: DType, value: object) -> TensorHandle:
        """A handle of *value*, which *node* got on *device*; it is not kept yet."""
        return TensorHandle(self, f"{node};{next(self._ids)};{device}", dtype, value)

    def keep(self, handle: TensorHandle, value: object) -> None:
        """Keep *value* under *handle*."""
        self._tensors[bytes(handle)] = (handle.tensor_dtype, keeper(handle.tensor_dtype)(value))

    def tensor(self, handle: bytes) -> tuple[DType, Any]:
        """Dtype and value of what is kept under *handle*; InvalidArgumentError when there is nothing."""
        found = self._tensors.get(handle)
        if found is None:
            raise InvalidArgumentError(f"The tensor with handle '{_shown(handle)}' is not in the session store.")
        return found

    def delete(self, handle: bytes) -> None:
        """Keep the tensor no longer; InvalidArgumentError when there is none."""
        if self._tensors.pop(handle, None) is None:
            raise InvalidArgumentError(
                f"Failed to delete a tensor with handle '{_shown(handle)}' in the session store."
            )

    def close(self) -> None:
        """Keep nothing any more."""
        self._tensors = {}

    def __len__(self) -> int:
        return len(self._tensors)


class TensorHandle(ProcessBound, np.bytes_):  # type: ignore[misc]  # numpy refuses other subclasses of bytes; its stubs, this
    """The handle of a tensor that a session keeps: a string tensor's value, ``node;id;device``.

    Attributes:
        handle: the same as str.
        tensor_dtype: that of the tensor.
    """

    handle: str
    tensor_dtype: DType
    _state: SessionState
    _unkept: list[object]  # the value, as long as it is only this step's

    def __new__(cls, state: SessionState, handle: str, dtype: DType, value: object) -> Self:
        made = super().__new__(cls, handle.encode())
        made.handle, made.tensor_dtype = handle, dtype
        made._state, made._unkept = state, [value]
        return made

    def keep(self) -> TensorHandle:
        """Let the session keep the tensor, from now on; this, for whoever fetched it."""
        if self._unkept:
            self._state.keep(self, self._unkept.pop())
        return self

    def read(self) -> Any:
        """The tensor; InvalidArgumentError when the session does not keep it."""
        return self._state.tensor(bytes(self))[1]

    def __str__(self) -> str:
        return self.handle

    def __repr__(self) -> str:
        return f"<ax.TensorHandle {self.handle!r} {self.tensor_dtype.name}>"


def kept(fetched: object) -> Any:
    """What was *fetched* of a node that makes handles, or fed for it; a handle is kept by its session from now on."""
    return fetched.keep() if isinstance(fetched, TensorHandle) else fetched


def _shown(handle: bytes) -> str:
    return handle[:200].decode("utf-8", "replace")


def _tensor_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return unknown(c)


def _no_outputs(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return []


register_op("GetSessionHandle", "value: T -> handle: string", "T: type", shape=scalars, is_stateful=True)
register_op("GetSessionHandleV2", "value: T -> handle: resource", "T: type", shape=scalars, is_stateful=True)
register_op("GetSessionTensor", "handle: string -> value: dtype", "dtype: type", shape=_tensor_shape, is_stateful=True)
register_op("DeleteSessionTensor", "handle: string ->", shape=_no_outputs, is_stateful=True)


def _session_state(construction: OpKernelConstruction) -> SessionState:
    return construction.resource_mgr.lookup_or_create(SessionState, "", "_session_state", SessionState)


def _of_step(own: SessionState) -> SessionState:
    """Where the running step keeps its tensors: in *own*, that of the session, unless it was given another."""
    step = current_step.get()
    return own if step is None or step.session_state is None else step.session_state


def _require_scalar(handle: Any) -> None:
    if np.ndim(handle):
        raise InvalidArgumentError(f"a handle is a scalar, not of shape {TensorShape(np.shape(handle))}")


@register_kernel(*sorted(SESSION_HANDLES))
def _get_handle(construction: OpKernelConstruction) -> Kernel:
    own, name, device = _session_state(construction), construction.name, construction.device
    dtype = construction.attr("T")

    def get_handle(value: object) -> TensorHandle:
        return _of_step(own).new_handle(name, device, dtype, value)

    return get_handle


@register_kernel("GetSessionTensor")
def _get_tensor(construction: OpKernelConstruction) -> Kernel:
    own, declared = _session_state(construction), construction.attr("dtype")

    def get_tensor(handle: Any) -> object:
        _require_scalar(handle)
        dtype, value = _of_step(own).tensor(bytes(handle))
        if dtype is not declared:
            raise InternalError(
                f"Output 0 of type {dtype.name} does not match declared output type {declared.name}",
                hint=f"the tensor under this handle is of {dtype.name}",
            )
        return value

    return get_tensor


@register_kernel("DeleteSessionTensor")
def _delete_tensor(construction: OpKernelConstruction) -> Kernel:
    own = _session_state(construction)

    def delete_tensor(handle: Any) -> tuple[()]:
        _require_scalar(handle)
        _of_step(own).delete(bytes(handle))
        return ()

    return delete_tensor
