"""Sparse tensors under numbers, which go through queues and batches for them (``sparse_tensors_map_ops.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from threading import Lock
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.array.array_common import boxed
from asyncexec.ops.sparse.sparse_serialization import rows_of, stack_sparse
from asyncexec.ops.sparse.sparse_tensor import MOVABLE, UNKNOWN_MATRIX, UNKNOWN_VECTOR, check_sparse

# Indices, values and shape, and the dtype of the values.
Kept = tuple[Any, Any, Any, DType]


class SparseTensorsMap(ProcessBound):
    """Sparse tensors by number; each is taken once."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self._numbers = count()
        self._tensors: dict[int, Kept] = {}
        self._lock = Lock()

    def add(self, tensors: Sequence[Kept]) -> list[int]:
        """Keep *tensors*; their numbers."""
        with self._lock:
            numbers = [next(self._numbers) for _ in tensors]
            self._tensors.update(zip(numbers, tensors, strict=True))
        return numbers

    def take(self, numbers: Sequence[int]) -> list[Kept]:
        """The tensors of *numbers*, which are forgotten; all of them stay where one is not there."""
        with self._lock:
            seen: set[int] = set()
            for number in numbers:
                if number not in self._tensors or number in seen:
                    raise InvalidArgumentError(f"Unable to find SparseTensor: {number} in map: {self.name}")
                seen.add(number)
            return [self._tensors.pop(number) for number in numbers]

    def __len__(self) -> int:
        return len(self._tensors)


_NAMES: Final = "container: string = ''; shared_name: string = ''"
_PARTS: Final = "sparse_indices: int64, sparse_values: T, sparse_shape: int64"


def _check_parts(c: InferenceContext) -> None:
    c.with_rank(0, 2)
    c.vector(1)
    c.vector(2)


def _handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _check_parts(c)
    return [SCALAR]


def _handles_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _check_parts(c)
    return [UNKNOWN_VECTOR]


def _taken_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    return [UNKNOWN_MATRIX, UNKNOWN_VECTOR, UNKNOWN_VECTOR]


register_op(
    "AddSparseToTensorsMap",
    f"{_PARTS} -> sparse_handle: int64",
    f"T: type; {_NAMES}",
    shape=_handle_shape,
    is_stateful=True,
)
register_op(
    "AddManySparseToTensorsMap",
    f"{_PARTS} -> sparse_handles: int64",
    f"T: type; {_NAMES}",
    shape=_handles_shape,
    is_stateful=True,
)
register_op(
    "TakeManySparseFromTensorsMap",
    "sparse_handles: int64 -> sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
    f"dtype: type; {_NAMES}",
    shape=_taken_shape,
    is_stateful=True,
)


def _map_of(c: OpKernelConstruction) -> SparseTensorsMap:
    shared: str = c.attr("shared_name").decode("utf-8", "replace")
    container: str = c.attr("container").decode("utf-8", "replace")
    name = shared or c.name
    return c.resource_mgr.lookup_or_create(
        SparseTensorsMap, f"{container}/sparse tensors", name, lambda: SparseTensorsMap(name), is_shared=bool(shared)
    )


@register_kernel("AddSparseToTensorsMap")
def add_sparse_to_tensors_map(c: OpKernelConstruction) -> Kernel:
    """The number of the tensor that is kept."""
    tensors, dtype = _map_of(c), c.attr("T")

    def kernel(indices: object, values: object, shape: object) -> np.generic:
        check_sparse(indices, boxed(values), shape)
        return np.int64(tensors.add([(indices, values, shape, dtype)])[0])

    return kernel


@register_kernel("AddManySparseToTensorsMap", dtypes={"T": MOVABLE})
def add_many_sparse_to_tensors_map(c: OpKernelConstruction) -> Kernel:
    """The numbers of the rows."""
    tensors, dtype = _map_of(c), c.attr("T")

    def kernel(indices: object, values: object, shape: object) -> Any:
        row_shape, rows = rows_of(indices, values, shape)
        kept = [(row_indices, row_values, row_shape, dtype) for row_indices, row_values in rows]
        return np.array(tensors.add(kept), np.int64)

    return kernel


@register_kernel("TakeManySparseFromTensorsMap", dtypes={"dtype": MOVABLE})
def take_many_sparse_from_tensors_map(c: OpKernelConstruction) -> Kernel:
    """The tensors of some numbers as the rows of one."""
    tensors, wanted = _map_of(c), c.attr("dtype")

    def kernel(handles: Any) -> tuple[object, object, Any]:
        if np.ndim(handles) != 1 or not len(handles):
            raise InvalidArgumentError(
                f"sparse_handles should be a vector of one element or more, not of shape {list(np.shape(handles))}"
            )
        taken = tensors.take(handles.tolist())
        for index, (*_, dtype) in enumerate(taken):
            if dtype is not wanted:
                raise InvalidArgumentError(
                    f"Requested SparseTensor of type {wanted.name} but SparseTensor[{index}].values.dtype() == "
                    f"{dtype.name}"
                )
        return stack_sparse([kept[:3] for kept in taken], [len(taken)])

    return kernel
