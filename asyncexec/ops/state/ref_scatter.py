"""Scatter ops on reference variables: ScatterAdd, ScatterNdUpdate and the like.

Rules from ``tensorflow/core/ops/state_ops.cc`` and ``core/kernels/scatter_op.cc``, ``scatter_nd_op.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.state.scatter_updates import APPLY, nd_shape, scatter, scatter_nd
from asyncexec.ops.state.variable_state import Variable
from asyncexec.ops.state.variables import COMPUTED


def _scatter_shape(c: InferenceContext) -> Sequence[TensorShape]:
    target, indices, updates = c.input_shapes
    if updates.rank != 0:
        updates.merge_with(indices.concatenate(target.with_rank_at_least(1)[1:]))
    return [target]


def _scatter_nd_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [nd_shape(c)]


_SIGNATURE = "ref: Ref(T), indices: Tindices, updates: T -> output_ref: Ref(T)"
_ORDERED = "{float16, bfloat16, float32, float64, int32, int64}"


def _attrs(kind: str, *, is_nd: bool) -> str:
    numbers = "type" if kind == "Update" else _ORDERED if kind in ("Min", "Max") and not is_nd else "numbertype"
    policy = "; bad_indices_policy: string = ''" if is_nd else ""
    return f"T: {numbers}; Tindices: {{int32, int64}}; use_locking: bool = {kind == 'Update'}{policy}"


def _register(kind: str) -> None:
    apply, dtypes = APPLY[kind], None if kind == "Update" else {"T": COMPUTED}
    register_op(f"Scatter{kind}", _SIGNATURE, _attrs(kind, is_nd=False), shape=_scatter_shape)

    @register_kernel(f"Scatter{kind}", dtypes=dtypes, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        def update(variable: Variable, indices: object, updates: object) -> Variable:
            variable.update(lambda value: scatter(apply, value, indices, updates))
            return variable

        return update


def _register_nd(kind: str) -> None:
    apply, dtypes = APPLY[kind], None if kind == "Update" else {"T": COMPUTED}
    register_op(f"ScatterNd{kind}", _SIGNATURE, _attrs(kind, is_nd=True), shape=_scatter_nd_shape)

    @register_kernel(f"ScatterNd{kind}", dtypes=dtypes, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        skips_bad = construction.attr("bad_indices_policy") == b"IGNORE"

        def update(variable: Variable, indices: object, updates: object) -> Variable:
            variable.update(lambda value: scatter_nd(apply, value, indices, updates, skips_bad=skips_bad))
            return variable

        return update


for _kind in APPLY:
    _register(_kind)
for _kind in ("Update", "Add", "Sub", "Min", "Max"):
    _register_nd(_kind)
